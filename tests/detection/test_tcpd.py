"""The metrics of the benchmark on real series, against cases that were computed by hand."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tcpd():
    spec = importlib.util.spec_from_file_location("tcpd", ROOT / "benchmarks" / "tcpd.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("annotations", "found", "expected"),
    [
        ({"a": [5]}, [5], 1),
        ({"a": [5]}, [], 0.5),  # both halves overlap the whole by 5/10
        ({"a": [5], "b": []}, [], 0.75),
        ({"a": [5]}, [4], 0.5 * 4 / 5 + 0.5 * 5 / 6),
        ({"a": []}, [5], 0.5),
        ({"a": [2, 4]}, [4], 0.2 * 2 / 4 + 0.2 * 2 / 4 + 0.6),
    ],
)
def test_covering(tcpd, annotations, found, expected):
    assert tcpd.covering(annotations, found, 10) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("annotations", "found", "margin", "expected"),
    [
        ({"a": [5]}, [5], 5, 1),
        ({"a": [], "b": []}, [], 5, 1),
        ({"a": [5], "b": []}, [], 5, 2 * 1 * 0.75 / 1.75),
        ({"a": [50], "b": []}, [54], 3, 2 * 0.5 * 0.75 / 1.25),
        ({"a": [50], "b": []}, [54], 5, 1),  # recall of b counts index 0 only
        ({"a": [10, 12]}, [11], 5, 2 * 1 * (2 / 3) / (5 / 3)),  # one point is matched once
        ({"a": [20], "b": [40]}, [20, 60], 5, 2 * (2 / 3) * 0.75 / (2 / 3 + 0.75)),
    ],
)
def test_f1(tcpd, annotations, found, margin, expected):
    assert tcpd.f1_score(annotations, found, margin) == pytest.approx(expected)


def test_it_prints_every_series_and_the_means(tcpd, tmp_path, monkeypatch, capsys):
    steps = np.repeat([0.0, 10.0], 20) + np.sin(np.arange(40))
    flat = [*np.cos(np.arange(39)), None]
    for name, values in {"steps": list(steps), "flat": flat}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"series": [{"raw": values}]}))
    annotations = {"steps": {"1": [20], "2": [20]}, "flat": {"1": [], "2": []}}
    (tmp_path / "annotations.json").write_text(json.dumps(annotations))
    monkeypatch.setattr(sys, "argv", ["tcpd.py", str(tmp_path)])
    monkeypatch.setenv("COLUMNS", "140")
    tcpd.main()
    printed = " ".join(capsys.readouterr().out.split())
    for part in ("steps", "flat", "mean of 2", "1.000", "published", "0.591", "0.657"):
        assert part in printed
