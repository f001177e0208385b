"""The study of passed states: its blocks, its steps, and its record."""

import numpy as np
import pytest
from test_studies import TINY

import switchpoint as sp
from switchpoint import evaluation
from switchpoint._random import key_for
from switchpoint.paper import base
from switchpoint.paper.scale import RECORDED
from switchpoint.paper.studies import passing_states
from switchpoint.training.optimizer import make_optimizer

SCALE = TINY.replace(longer_lengths=(8, 16, 32), passing_settings={"batch": 4, "steps": 12})
CONFIG = base.config(
    SCALE, {**SCALE.architectures["lstm"], **SCALE.passing_settings, "model": "lstm"}, prior="ptw"
)


@pytest.mark.parametrize("way", ["control", "long"])
def test_blocks_are_those_of_sequences_one_after_another(way):
    blocks, begins = map(np.stack, zip(*passing_states._blocks(way, SCALE, CONFIG), strict=True))
    assert blocks.shape == (12, 4, 8)
    drawn = []
    for count in (1, 2, 4):
        length = 8 * count if way == "long" else 8
        key = key_for(SCALE.first_seed, f"passing {count}")
        sequences = sp.Source(sp.PTW(length.bit_length() - 1)).sample(
            key, 2 * 4 * 8 * count // length, length
        )
        drawn.append(np.asarray(sequences.symbols).reshape(-1, 8 * count).tolist())
    for row in range(4):
        starts = np.flatnonzero(begins[:, row])
        parts = np.split(blocks[:, row], starts[1:])
        whole = [part.ravel().tolist() for part in parts]
        assert sorted(map(len, whole[:3])) == [8, 16, 32]
        for each in whole[:3]:
            assert each in drawn[len(each).bit_length() - 4]


def test_a_step_begins_with_the_states_that_the_last_one_ended_with():
    network = CONFIG.network(key_for(0, "weights"))
    symbols = np.random.default_rng(0).integers(0, 2, (4, 16)).astype(np.int32)
    tokens = np.concatenate([np.full((4, 1), network.start_token()), symbols[:, :-1]], axis=1)
    carry = network, make_optimizer(CONFIG).init(network), network.memory(4, 0)
    states = network.states(symbols)
    for step, new in enumerate([[True] * 4, [False, False, True, True]]):
        part = slice(8 * step, 8 * step + 8)
        after = passing_states._step(
            CONFIG, carry, tokens[:, part], symbols[:, part], np.array(new), step
        )
        assert (after[0].cell.weight != network.cell.weight).any()
        carry = network, carry[1], after[2]
        same = np.isclose(carry[2].cell, states.cell[:, 8 * step + 6], atol=1e-6).all(1)
        np.testing.assert_array_equal(same, [True, True, step == 0, step == 0])


def test_the_record_shows_no_cure():
    record = evaluation.load(RECORDED / "passing-states.nc")
    longest = record.isel(n=-1)
    gain = longest["excess"].sel(way="control") - longest["excess"]
    error = longest["excess_error"].sel(way="control") + longest["excess_error"]
    assert (gain < 2 * error).all()
    assert (longest["excess"].sel(way="passed") > longest["excess"].sel(way="before") + 5).all()
    assert (longest["excess"] < longest["restarted"]).all()
    assert (record["position"].isel(n=0) > 0.8).all()
    assert (longest["position"] < 0.25).all()
