"""Files of format 0, written at commit 216c029 and kept in tests/format0, still mean the same."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray as xr

import switchpoint as sp
from switchpoint import evaluation
from switchpoint._formats import rename, upgrade
from switchpoint._tensors import read_tensors, write_tensors
from switchpoint.training import TrainConfig, read_reports, train
from switchpoint.training.checkpoints import Checkpoints
from switchpoint.training.config import read_toml
from switchpoint.zoo import Zoo, verify

OLD = Path(__file__).parent / "format0"


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(OLD, tmp_path / "old")
    return tmp_path / "old"


def test_steps_lead_from_format_to_format():
    def double(values):
        return {**values, "b": 2 * values["b"]}

    steps = ({"a": "b"}, double)
    assert upgrade({"a": 1}, "it", steps) == {"b": 2, "format": 2}
    assert upgrade({"b": 1, "format": 1}, "it", steps) == {"b": 2, "format": 2}
    assert upgrade({"b": 1, "format": 2}, "it", steps) == {"b": 1, "format": 2}
    for number in (3, -1, "1", True, None):
        with pytest.raises(ValueError, match=f"^it .*{number}"):
            upgrade({"b": 1, "format": number}, "it", steps)
    with pytest.raises(ValueError, match="a is the former name of b"):
        rename({"a": 1, "b": 1}, {"a": "b"})


@pytest.mark.slow
def test_a_run_resumes_and_ends_as_it_would_have_ended_then(copy):
    """It was stopped at step 25 of 40; `whole.jsonl` is of the same run without a stop."""
    config = read_toml(copy / "config.toml")
    assert config == TrainConfig.from_dict(json.loads((copy / "run/config.json").read_text()))
    run = train(config, out=copy / "run")
    before = (OLD / "run/metrics.jsonl").read_bytes()
    after = (copy / "run/metrics.jsonl").read_bytes()
    assert after.startswith(before)  # the lines of format 0 stay as they are
    assert [json.loads(line).get("format", 0) for line in after.splitlines()] == [0, 0, 1, 1]
    for found, known in zip(run.reports, read_reports(OLD / "whole.jsonl"), strict=True):
        for name in ("step", "loss", "excess", "excess_error", "diverged"):
            np.testing.assert_allclose(getattr(found, name), getattr(known, name), rtol=1e-3)
    for new, old in zip(run.networks, sp.load_members(OLD / "model.safetensors"), strict=True):
        for a, b in zip(jax.tree.leaves(new), jax.tree.leaves(old), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_a_zoo_is_read_and_verified():
    zoo = Zoo(OLD / "zoo")
    assert zoo.names() == ["rnn-ptw", "rnn-lin"]
    assert all(verify(zoo, name, 50).passed for name in zoo.names())


def test_evaluations_with_both_old_marks_are_read():
    source = sp.Source(sp.PTW(3))
    expected = sp.evaluate({"kt": sp.KT()}, source, 8, 5)
    for name in ("evaluation.nc", "evaluation-1.nc"):
        found = evaluation.load(OLD / name)
        xr.testing.assert_allclose(found, expected)
        assert found.attrs["prior"] == expected.attrs["prior"]


def test_what_is_newer_than_this_version_is_refused(copy, tmp_path, monkeypatch):
    newer = r"format 99; this version of switchpoint reads up to 1: upgrade"
    (checkpoint,) = (copy / "run/checkpoints").iterdir()
    about, arrays = read_tensors(checkpoint, "checkpoint")
    write_tensors(checkpoint, {**about, "format": 99}, arrays, "checkpoint")
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=newer) as caught:
        train(read_toml(copy / "config.toml"), out=copy / "run")
    assert checkpoint.name in str(caught.value)
    assert all(path.read_bytes() == content for path, content in before.items())
    line = (OLD / "run/metrics.jsonl").read_text().splitlines()[0].split(', "crc32"')[0]
    (tmp_path / "metrics.jsonl").write_text(line + ', "format": 99}\n')
    with pytest.raises(ValueError, match=newer):
        read_reports(tmp_path / "metrics.jsonl")
    (copy / "zoo/manifest.json").write_text('{"format": 99, "networks": {}}')
    with pytest.raises(ValueError, match=newer):
        Zoo(copy / "zoo")
    monkeypatch.setattr("switchpoint.evaluation.storage._STEPS", ({},) * 99)
    evaluation.save(evaluation.load(OLD / "evaluation.nc"), tmp_path / "new.nc")
    monkeypatch.undo()
    with pytest.raises(ValueError, match=newer):
        evaluation.load(tmp_path / "new.nc")


def test_what_is_written_carries_its_format(copy):
    Checkpoints(copy / "new", {}).save(1, {"x": np.ones(2)})
    zoo = Zoo(copy / "zoo")
    zoo.add("rnn-lin")
    assert json.loads((copy / "zoo/manifest.json").read_text())["format"] == 1
    assert TrainConfig().to_dict()["format"] == 1
