"""Theorems about the predictors, tried on many sequences."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import log_marginal_of_segment

import switchpoint as sp

LENGTH = 32  # one length for all examples: one compilation
DEPTH = 5
bits = st.lists(st.integers(0, 1), min_size=LENGTH, max_size=LENGTH).map(np.asarray)


def bits_spent(predictor, symbols):
    """The code length of each symbol."""
    log_probs = np.asarray(predictor.log_probs(symbols), np.float64)
    return -log_probs[np.arange(len(symbols)), symbols] / math.log(2)


def best_bernoulli_bits(symbols):
    ones, n = int(symbols.sum()), len(symbols)
    return -sum(c * math.log2(c / n) for c in (ones, n - ones) if c)


@given(bits, st.integers(1, LENGTH))
def test_kt_costs_half_a_logarithm_more_than_the_best_bernoulli(symbols, length):
    spent = bits_spent(sp.KT(), symbols)[:length].sum()
    redundancy = spent - best_bernoulli_bits(symbols[:length])
    assert -1e-4 <= redundancy <= 0.5 * math.log2(length) + 1 + 1e-4


@st.composite
def tree_partitions(draw, start=0, depth=DEPTH):
    """A partition in C_d, and Gamma_d: how many bits describe it."""
    if depth == 0:
        return [(start, start + 1)], 0
    if draw(st.booleans()):
        half = 2 ** (depth - 1)
        left, left_cost = draw(tree_partitions(start, depth - 1))
        right, right_cost = draw(tree_partitions(start + half, depth - 1))
        return left + right, 1 + left_cost + right_cost
    return [(start, start + 2**depth)], 1


@given(bits, tree_partitions())
def test_ptw_costs_at_most_the_description_of_any_partition_more(symbols, described):
    partition, gamma = described
    within = -sum(
        log_marginal_of_segment(sp.Bernoulli(), symbols[a:b]) for a, b in partition
    ) / math.log(2)
    spent = bits_spent(sp.bayes_optimal(sp.Source(sp.PTW(DEPTH))), symbols).sum()
    assert spent <= gamma + within + 1e-3


SOURCES = {
    "ptw": sp.PTW(6),
    "lin": sp.LIN(),
    "regular": sp.RegularPeriodic(10),
    "uniform": sp.RandomUniform(64),
    "geometric": sp.Geometric(0.1),
    "renewal": sp.Renewal([0, 0, 0, 0, 0.5, 0, 0, 0, 0, 0, 0, 0.5]),
}


@pytest.mark.slow
@pytest.mark.parametrize("own", SOURCES)
def test_the_optimum_of_a_source_has_the_lowest_regret_on_it(own):
    draw = sp.Source(SOURCES[own]).sample(jax.random.key(11), 2000, 64)
    optimum = sp.bayes_optimal(sp.Source(SOURCES[own])).log_probs(draw.symbols)
    rivals = {
        rival: sp.bayes_optimal(sp.Source(prior)).log_probs(draw.symbols)
        for rival, prior in SOURCES.items()
        if rival != own
    }
    rivals["kt"] = sp.KT().log_probs(draw.symbols)
    for rival, log_probs in rivals.items():
        excess = np.asarray(sp.excess_regret(draw, log_probs, optimum)).sum(-1)
        error = excess.std() / np.sqrt(len(excess))
        assert excess.mean() > 5 * error, rival
    oracle = sp.KTOracle(draw.switches).log_probs(draw.symbols)
    told = np.asarray(sp.excess_regret(draw, oracle, optimum)).sum(-1)
    assert told.mean() < 5 * told.std() / np.sqrt(len(told)) + 1e-3  # told more, it does better


REFERENCES = {  # mean bits over 256 symbols, from an independent float64 computation
    ("ptw", "ptw"): (12.16, 0.08),
    ("ptw", "lin"): (16.34, 0.10),
    ("lin", "lin"): (28.30, 0.12),
    ("uniform", "uniform"): (13.12, 0.05),
    ("uniform", "lin"): (15.29, 0.06),
}


@pytest.mark.slow
@pytest.mark.parametrize(("data", "model"), REFERENCES)
def test_regret_is_that_of_an_independent_computation(data, model):
    priors = {"ptw": sp.PTW(8), "lin": sp.LIN(), "uniform": sp.RandomUniform(256)}
    draw = sp.Source(priors[data]).sample(jax.random.key(5), 2000, 256)
    predictor = sp.bayes_optimal(sp.Source(priors[model]))
    total = np.asarray(sp.regret(draw, predictor.log_probs(draw.symbols)), np.float64).sum(-1)
    mean, error = REFERENCES[data, model]
    assert total.mean() == pytest.approx(mean, abs=3 * math.hypot(error, total.std() / 2000**0.5))


def test_oracle_on_regular_has_the_reference_regret():
    draw = sp.Source(sp.RegularPeriodic(20)).sample(jax.random.key(5), 2000, 256)
    total = np.asarray(sp.regret(draw, sp.KTOracle(draw.switches).log_probs(draw.symbols))).sum(-1)
    assert total.mean() == pytest.approx(25.04, abs=3 * math.hypot(0.04, total.std() / 2000**0.5))


@pytest.mark.slow
def test_smoothed_switches_are_calibrated(key):
    """Averaged over the source, the posterior is the prior."""
    for prior in (sp.PTW(5), sp.LIN()):
        source = sp.Source(prior)
        symbols = source.sample(key, 2000, 32).symbols
        posterior = sp.bayes_optimal(source).posterior(symbols)
        smoothed = np.asarray(posterior.switch_smoothed)
        errors = 5 * smoothed.std(0) / np.sqrt(len(smoothed)) + 1e-6
        assert np.all(np.abs(smoothed.mean(0) - prior.switch_probability(32)) < errors)
