"""The study of the worst case: regret in hindsight, its bounds, and the search."""

import itertools

import numpy as np
import pytest
from reference import partitions

import switchpoint as sp
from switchpoint.paper.studies import worst_case

EVERY = np.array(list(itertools.product((0, 1), repeat=8)), np.int32)


def entropy_code(symbols):
    share = symbols.mean()
    return -len(symbols) * sum(p * np.log2(p) for p in (share, 1 - share) if p > 0)


def test_hindsight_is_the_best_of_all_partitions():
    found = worst_case.hindsight(EVERY)
    for symbols, least in zip(EVERY[::17], found[::17], strict=True):
        for m, one in zip(worst_case.SEGMENTS, least, strict=True):
            costs = [
                sum(map(entropy_code, np.split(symbols, np.flatnonzero(switches))))
                for switches in partitions(8)
                if sum(switches) < m
            ]
            assert one == pytest.approx(min(costs), abs=1e-9)


@pytest.mark.parametrize(
    ("name", "prior"), [("ptw", sp.PTW(4)), ("lin", sp.LIN()), ("kt", None)], ids=str
)
def test_regret_obeys_the_bounds_and_the_search_reaches_the_worst(name, prior):
    predictor = sp.KT() if prior is None else sp.bayes_optimal(sp.Source(prior))
    codes = worst_case._codes(predictor)
    worst = (codes(EVERY)[:, None] - worst_case.hindsight(EVERY)).max(0)
    for m, regret, bound in zip(
        worst_case.SEGMENTS, worst, worst_case._bounds(name, prior, 8), strict=True
    ):
        assert np.isnan(bound) or regret <= bound + 1e-4
        found, _ = worst_case._search(codes, 8, m, 0)
        assert 0.95 * regret < found < regret + 1e-4
