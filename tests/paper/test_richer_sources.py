"""The study of richer sources: its sources, and the exact predictors beside their own."""

import itertools

import numpy as np
import pytest

import switchpoint as sp
from switchpoint import evaluation
from switchpoint.paper.scale import RECORDED
from switchpoint.paper.studies import richer_sources

EVERY = np.array(list(itertools.product((0, 1), repeat=6)), np.int32)


def chances(source):
    """P(sequence), and P(symbol | those before), of every sequence of six bits."""
    logs = np.asarray(sp.bayes_optimal(source).log_density(EVERY), float)
    return np.exp(logs.sum(-1)), np.exp(logs)


@pytest.mark.parametrize("order", [1, 3])
def test_last_symbols_have_the_conditional_law_of_the_hidden_markov_model(order):
    ring = richer_sources._ring(0.05, 0.95, 0.0)
    once = sp.RegularPeriodic(6)
    truth, _ = chances(sp.Source(once, ring))
    _, shown = chances(sp.Source(once, richer_sources._last_symbols(ring, order)))
    for t in range(6):
        recent = EVERY[:, max(0, t - order) : t + 1]
        for row, symbols in enumerate(recent):
            context = (recent[:, :-1] == symbols[:-1]).all(1)
            after = context & (recent[:, -1] == symbols[-1])
            expected = truth[after].sum() / truth[context].sum()
            assert shown[row, t] == pytest.approx(expected, rel=1e-4)


def test_single_symbols_say_nothing_about_concepts():
    for kind in richer_sources.tasks(6)["concepts"].source.segment.kinds:
        truth, _ = chances(sp.Source(sp.RegularPeriodic(6), kind))
        np.testing.assert_allclose(truth @ EVERY, 0.5, rtol=1e-5)


def test_the_record_has_no_network_better_than_the_optimum():
    record = evaluation.load(RECORDED / "richer-sources.nc")
    assert (record["excess"] > -3 * record["excess_error"]).all()
    gap = record["rival_excess"] - 3 * record["rival_excess_error"]
    assert ((gap > 0) | record["rival_excess"].isnull()).all()
