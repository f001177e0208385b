"""Damaged files: each is read as what was written, or refused by its name."""

import json
import math
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from switchpoint import evaluation
from switchpoint._files import read_json, write_json
from switchpoint._tensors import write_tensors
from switchpoint.neural import load_members, read_card, save_networks
from switchpoint.neural.registry import network_from_name
from switchpoint.paper.base import Measurement
from switchpoint.paper.scale import RECORDED, TestSet
from switchpoint.paper.store import MeasurementStore
from switchpoint.training import Sweep, TrainConfig, sweep, train
from switchpoint.training.checkpoints import Checkpoints
from switchpoint.training.metrics_log import EvalRecord, read_reports

DATASET = xr.Dataset(
    {
        "regret": (("predictor", "sequence"), np.linspace(8, 9, 22).reshape(2, 11), {"units": "b"}),
        "count": ("sequence", np.arange(11, dtype=np.int32)),
    },
    {"predictor": ["lstm", "optimum"]},
    {"study": "memory", "description": {"scale": {"length": 8}}},
)
CARD = {"model": "memoryless", "alphabet": 2, "length": 8, "options": {}}


def result(directory):
    path = directory / "result.nc"
    evaluation.save(DATASET, path)
    return path, lambda: evaluation.load(path)


def measurements(directory):
    asked = Measurement(None, "lin", TestSet("ptw", 8, 11))
    MeasurementStore(directory).add(asked, 0, {0: np.linspace(8, 9, 11)})
    (path,) = directory.glob("*.nc")

    def read():
        notes = []
        found = MeasurementStore(directory, notes.append).find(asked, 0)
        if notes:
            raise ValueError(notes[0])
        return {seed: row.tolist() for seed, row in found.items()}

    return path, read


def network(directory):
    path = directory / "model.safetensors"
    one = network_from_name("memoryless", 2, 8, jax.random.key(0))
    save_networks(path, [one], {**CARD, "members": [{"prior": "ptw", "excess": 0.5}]})

    def read():
        leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(load_members(path))]
        return read_card(path), leaves

    return path, read


def checkpoint(directory):
    checkpoints = Checkpoints(directory, {"hidden": 4})
    checkpoints.save(7, {"0000": np.arange(6.0), "0001": np.ones((2, 3), np.float32)})
    checkpoints.close()

    def read():
        found, notes = Checkpoints(directory, {"hidden": 4}).restore()
        if found is None:
            raise ValueError(" ".join(notes))
        return {name: array.tolist() for name, array in found.arrays.items()}

    return directory / "step-000000007.safetensors", read


def json_file(directory):
    path = directory / "some.json"
    write_json(
        path,
        {"format": 1, "findings": [{"claim": "Short.", "holds": True, "evidence": "0.5 ± 0.1"}]},
    )
    return path, lambda: read_json(path, findings=list)


def metrics(directory):
    path = directory / "metrics.jsonl"
    numbers = (math.pi, math.e / 7, math.nan)
    records = [EvalRecord(step, numbers, numbers, numbers, (2,)) for step in (100, 200, 300)]
    path.write_text("".join(record.to_json_line() + "\n" for record in records))
    every = list(map(repr, read_reports(path)))

    def read():
        found = list(map(repr, read_reports(path)))
        return every if found == every[: len(found)] else found  # the last may not be there yet

    return path, read


KINDS = [
    metrics,
    result,
    measurements,
    network,
    checkpoint,
    json_file,
]


def damaged(data, chance):
    """The bytes with one fault of a kind that disks and transfers have."""
    changed = bytearray(data)
    size = min(chance.choice([1, 4, 16, 64]), len(data) // 2)
    first, second = sorted(chance.sample(range(len(data) - size + 1), 2))
    match chance.choice(["flip", "flip", "cut", "zeros", "more", "swap"]):
        case "flip":
            changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case "cut":
            del changed[first:]
        case "zeros":
            changed[first : first + size] = bytes(size)
        case "more":
            changed += data[first : first + size]
        case "swap" if second >= first + size:
            blocks = data[first : first + size], data[second : second + size]
            changed[second : second + size], changed[first : first + size] = blocks
    return bytes(changed)


def outcome(read):
    """What was read, and in what words it was refused: one of them is None."""
    try:
        return read(), None
    except ValueError as error:
        return None, str(error)


def same(found, expected):
    return found.identical(expected) if isinstance(found, xr.Dataset) else found == expected


def check(path, read, count):
    """Read damaged versions of a file, each from the seed of its number; how many were refused."""
    whole, expected = path.read_bytes(), read()
    refused = 0
    for number in range(count):
        path.write_bytes(damaged(whole, random.Random(number)))
        found, words = outcome(read)
        if words is None:
            assert same(found, expected), number
        else:
            assert path.name in words, number
            refused += 1
        path.write_bytes(whole)
    return refused


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("count", [40, pytest.param(4000, marks=pytest.mark.fuzz)])
def test_a_damaged_file_is_never_taken_for_another(kind, count, tmp_path):
    path, read = kind(tmp_path)
    assert check(path, read, count) > count / 4


@pytest.mark.parametrize("study", ["memory", "priors"])
@pytest.mark.parametrize("count", [40, pytest.param(4000, marks=pytest.mark.fuzz)])
def test_a_damaged_file_without_a_checksum_has_no_other_error(study, count, tmp_path):
    path = tmp_path / "old.nc"
    whole = (RECORDED / f"{study}.nc").read_bytes()
    for number in range(count):
        path.write_bytes(damaged(whole[:4096], random.Random(number)) + whole[4096:])
        _, words = outcome(lambda: evaluation.load(path))
        assert words is None or path.name in words


@pytest.mark.parametrize(
    "card",
    [
        {"members": 3},
        {"members": []},
        {"members": "ab"},
        {"members": [1]},
        {"members": [{"excess": "low"}]},
        {"members": [{"excess": math.nan}]},
        {"members": [{"diverged": "no"}]},
        {"members": [{"prior": 7}]},
        {"options": "many"},
        {"options": {"hidden": 4}},
        {"model": "transformer", "options": {"layers": 10**9}},
        {"model": "rnn", "options": {"readout": 10**9}},
        {"alphabet": "two"},
        {"alphabet": 10**12},
        {"alphabet": True},
        {"length": -5},
        {"length": math.nan},
        {"length": 10**30},
        {"model": ["memoryless"]},
        {"model": "oracle"},
        {"sources": {"ptw": 3}},
        {"config": [1]},
        {"test": {"excess_of_blocks": "x"}},
    ],
    ids=str,
)
def test_a_whole_file_with_an_impossible_card_is_refused(card, tmp_path):
    path, _ = network(tmp_path)
    one = network_from_name("memoryless", 2, 8, jax.random.key(0))
    save_networks(path, [one], {**CARD, "members": [{}], **card})
    with pytest.raises(
        ValueError, match=r"model\.safetensors is not a switchpoint network: .* card"
    ):
        load_members(path)
    found, _ = outcome(lambda: read_card(path))  # which need not know the architecture
    assert found is None or found["members"] == [{}]


@pytest.mark.parametrize("dtype", ["int32", "complex64", "bool"])
def test_weights_that_are_no_real_numbers_are_refused(dtype, tmp_path):
    path, _ = network(tmp_path)
    one = network_from_name("memoryless", 2, 8, jax.random.key(0))
    other = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, dtype), one)
    save_networks(path, [other], {**CARD, "members": [{}]})
    with pytest.raises(
        ValueError, match=f"model.safetensors is not a switchpoint network: .* {dtype}"
    ):
        load_members(path)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["missing", "extra", "shape", "type", "config"])
def test_a_whole_checkpoint_with_other_arrays_is_refused_by_name(fault, tmp_path):
    config = TrainConfig(model="memoryless", length=4, steps=2, batch=2, validation=2)
    train(config, tmp_path)
    (path,) = (tmp_path / "checkpoints").iterdir()
    arrays = Checkpoints(path.parent, config.to_dict()).restore()[0].arrays
    about = {"kind": "checkpoint", "format": 1, "step": 2, "config": config.to_dict()}
    name = sorted(arrays)[1]
    match fault:
        case "missing":
            del arrays[name]
        case "extra":
            arrays["9999"] = np.zeros(2)
        case "shape":
            arrays[name] = arrays[name].reshape(-1)
        case "type":
            arrays[name] = arrays[name].astype(np.int32)
        case "config":
            about["config"] = "none"
    write_tensors(path, about, arrays, "checkpoint")
    if fault == "config":  # passed over like any that is damaged
        _, (note,) = Checkpoints(path.parent, config.to_dict()).restore()
        assert str(path) in note
    else:
        with pytest.raises(ValueError, match=r"newest checkpoint in .*checkpoints .* array"):
            train(config, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("count", [12, pytest.param(400, marks=pytest.mark.fuzz)])
def test_a_damaged_run_is_repaired_from_its_checkpoint(count, tmp_path):
    """Whichever of its other files are damaged, a sweep ends as if nothing had happened."""
    settings = {"model": "memoryless", "length": 4, "steps": 25, "batch": 2, "validation": 2}
    settings |= {"warmup": 0, "report_every": 10}
    plan = Sweep(settings=settings, axes={"learning_rate": [0.01, 0.03]})
    expected = sweep(plan, tmp_path)
    (run,) = (tmp_path / "programs").iterdir()
    files = [run / name for name in ("config.json", "metrics.jsonl", "model.safetensors")]
    whole, reports = {path: path.read_bytes() for path in files}, read_reports(files[1])
    for number in range(count):
        chance = random.Random(number)
        for path in chance.sample(files, chance.choice([1, 2, 3])):
            path.write_bytes(damaged(whole[path], chance) if chance.random() < 0.8 else b"")
        assert sweep(plan, tmp_path).identical(expected), number
        assert json.loads(files[0].read_bytes()) == json.loads(whole[files[0]]), number
        assert read_reports(files[1]) == reports, number
        files[2].write_bytes(whole[files[2]])  # damaged weights are found when they are loaded
