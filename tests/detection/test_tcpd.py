"""The benchmark on annotated real series."""

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
    for part in ("steps", "flat", "mean of 2", "1.000", "published", "0.721", "0.877"):
        assert part in printed
