"""The format numbers of files: every kind carries one, and a newer one is refused by name."""

import json
import zlib

import numpy as np
import pytest

import switchpoint as sp
from switchpoint import evaluation
from switchpoint._files import read_json, write_json
from switchpoint._formats import check_format
from switchpoint._tensors import read_tensors, write_tensors
from switchpoint.training import TrainConfig, read_reports
from switchpoint.training.checkpoints import Checkpoints
from switchpoint.zoo import Zoo

NEWER = "format 99; this version of switchpoint reads up to 1: upgrade"


def test_a_format_is_a_whole_number_up_to_the_newest():
    check_format({"format": 1}, "it")
    for content in ({}, {"format": 0}, {"format": -1}, {"format": "1"}, {"format": True}):
        with pytest.raises(ValueError, match=r"^it must have a whole number from 1"):
            check_format(content, "it")
    with pytest.raises(ValueError, match=r"^it has format 99; .*reads up to 1: upgrade"):
        check_format({"format": 99}, "it")


def test_a_newer_checkpoint_is_refused_and_left_as_it_is(tmp_path):
    checkpoints = Checkpoints(tmp_path, {})
    checkpoints.save(1, {"x": np.ones(2)})
    checkpoints.close()
    (path,) = tmp_path.iterdir()
    about, arrays = read_tensors(path, "checkpoint")
    assert about["format"] == 1
    write_tensors(path, {**about, "format": 99}, arrays, "checkpoint")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=NEWER) as caught:
        Checkpoints(tmp_path, {}).restore()
    assert path.name in str(caught.value)
    assert path.read_bytes() == before


def test_newer_formats_are_refused(tmp_path):
    line = json.dumps({"step": 1, "loss": [1.0], "format": 99})
    checksum = f"{zlib.crc32(line.encode()):08x}"
    (tmp_path / "metrics.jsonl").write_text(f'{line[:-1]}, "crc32": "{checksum}"}}\n')
    with pytest.raises(ValueError, match=NEWER):
        read_reports(tmp_path / "metrics.jsonl")
    write_json(tmp_path / "cost.json", {"format": 99, "cost": {}})
    with pytest.raises(ValueError, match=NEWER):
        read_json(tmp_path / "cost.json", cost=dict)


def test_files_carry_their_format(tmp_path):
    assert TrainConfig().to_dict()["format"] == 1
    stream = sp.Stream(sp.KT())
    stream.save(tmp_path / "state")
    assert read_tensors(tmp_path / "state", "stream")[0]["format"] == 1
    found = sp.evaluate({"kt": sp.KT()}, sp.Source(sp.PTW(3)), 8, 5)
    evaluation.save(found, tmp_path / "evaluation.nc")
    assert b"format" in (tmp_path / "evaluation.nc").read_bytes()
    assert Zoo().card("lstm-ptw")["format"] == 1
