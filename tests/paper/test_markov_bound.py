"""The exact regret of the best predictor that sees only the last symbols."""

import itertools
import math

import numpy as np
import pytest
import reference

import switchpoint as sp
from switchpoint.paper.markov_bound import markov_bound

SEGMENTS = [sp.Bernoulli(), sp.Bernoulli(1.5, 0.5)]


def law_of_sequences(prior, segment, length):
    """P(x) of every sequence, by going through all partitions."""
    sequences = list(itertools.product(range(segment.alphabet), repeat=length))
    law = {}
    for symbols in sequences:
        law[symbols] = math.fsum(
            reference.prior_of_partition(prior, switches)
            * math.exp(
                sum(
                    reference.log_marginal_of_segment(segment, symbols[a:b])
                    for a, b in reference.bounds(switches)
                )
            )
            for switches in reference.partitions(length)
        )
    return law


def entropy_given_window(law, time, order):
    """H(x_t | the last `order` symbols) in bits, from the law of whole sequences."""
    joint = {}
    for symbols, chance in law.items():
        window = symbols[max(0, time - order) : time + 1]
        joint[window] = joint.get(window, 0.0) + chance
    before = {}
    for window, chance in joint.items():
        before[window[:-1]] = before.get(window[:-1], 0.0) + chance
    return -sum(p * math.log2(p / before[w[:-1]]) for w, p in joint.items())


def entropy_of_segment(segment):
    """The mean entropy of Beta(a, b) in bits, by adding up the density's mass."""
    a, b = segment.pseudo_counts
    angle = (np.arange(200_000) + 0.5) / 200_000 * np.pi / 2  # p = sin^2: no poles are left
    p = np.sin(angle) ** 2
    density = p ** (a - 0.5) * (1 - p) ** (b - 0.5)
    with np.errstate(divide="ignore", invalid="ignore"):
        bits = -np.nan_to_num(p * np.log2(p)) - np.nan_to_num((1 - p) * np.log2(1 - p))
    return float((density * bits).sum() / density.sum())


@pytest.mark.slow
@pytest.mark.parametrize("prior", [sp.PTW(3), sp.LIN(), sp.RegularPeriodic(3), sp.RandomUniform(7)])
@pytest.mark.parametrize("segment", SEGMENTS, ids=repr)
def test_markov_bound_is_that_of_enumeration(prior, segment):
    length = 6
    law = law_of_sequences(prior, segment, length)
    assert math.fsum(law.values()) == pytest.approx(1)
    entropy = entropy_of_segment(segment)
    for order in (0, 1, 3, length - 1):
        expected = [entropy_given_window(law, t, order) - entropy for t in range(length)]
        measured = markov_bound(sp.Source(prior, segment), length, order)
        np.testing.assert_allclose(measured, expected, atol=1e-8)


def test_with_full_memory_the_bound_is_the_regret_of_the_optimum():
    source, length = sp.Source(sp.LIN()), 8
    found = sp.evaluate({"optimum": sp.bayes_optimal(source)}, source, length, 4000)
    regret = found["regret"].values.ravel()
    bound = markov_bound(source, length, 100).sum()
    assert abs(regret.mean() - bound) < 4 * regret.std() / len(regret) ** 0.5


def test_more_memory_never_costs_regret():
    regrets = [markov_bound(sp.Source(sp.PTW(3)), 8, order).sum() for order in range(8)]
    assert all(np.diff(regrets) < 1e-12)
    assert regrets[0] > 1.5 * regrets[-1]


def test_too_long_a_memory_is_refused():
    with pytest.raises(ValueError, match="order"):
        markov_bound(sp.Source(sp.PTW(8)), 256, 40)
    with pytest.raises(ValueError, match="length"):
        markov_bound(sp.Source(sp.PTW(2)), 16, 1)
