"""Overdispersed counts: their limit, their dispersion, and what they are for."""

import jax
import numpy as np
import pytest

import switchpoint as sp
from switchpoint.segments import estimate_dispersion


def test_a_large_dispersion_is_poisson():
    counts = np.array([3.0, 0, 7, 4, 30, 25, 41, np.nan, 22])
    dispersion = 1e7
    negative = sp.NegativeBinomial(dispersion, alpha=0.5 * dispersion, beta=2.0)
    with jax.enable_x64(True):
        found, expected = (
            sp.bayes_optimal(sp.Source(sp.Geometric(0.1), each)).log_density(counts)
            for each in (negative, sp.Poisson(shape=2.0, rate=0.5))
        )
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_single_precision_has_the_answers_of_double():
    rng = np.random.default_rng(0)
    levels = np.repeat([2.0, 3e4, 1e6], [40, 40, 20])
    counts = rng.negative_binomial(5, 5 / (5 + levels)).astype(float)
    counts[[0, 50]] = np.nan
    bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.02), sp.NegativeBinomial(5.0)))
    single = np.asarray(bayes.log_density(counts))
    with jax.enable_x64(True):
        double = np.asarray(bayes.log_density(counts))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, atol=1e-4)


@pytest.mark.parametrize("dispersion", [1.0, 5.0, 50.0])
def test_the_dispersion_is_estimated_across_switches(dispersion):
    rng = np.random.default_rng(1)
    levels = np.repeat(rng.uniform(20, 2000, size=20), 50)
    counts = rng.negative_binomial(dispersion, dispersion / (dispersion + levels)).astype(float)
    counts[::17] = np.nan
    assert estimate_dispersion(counts) == pytest.approx(dispersion, rel=0.35)


def test_the_dispersion_of_poisson_counts_is_large():
    rng = np.random.default_rng(2)
    assert estimate_dispersion(rng.poisson(10, 1000)) > 100
    assert estimate_dispersion(rng.poisson(1000, 1000)) > 5000
    for nothing in ([], [7], [0, 0, 0], [np.nan, 3, np.nan], [5, 5, 5, 5]):
        assert 100 < estimate_dispersion(nothing) < np.inf


def test_overdispersed_counts_without_a_switch_have_none():
    rng = np.random.default_rng(3)
    counts = rng.negative_binomial(5, 5 / (5 + 300), size=400)
    prior = sp.Geometric(0.005)
    poisson = sp.bayes_optimal(sp.Source(prior, sp.Poisson(1.0, 1 / 300)))
    assert np.asarray(poisson.posterior(counts).map_switches).sum() > 50
    negative = sp.NegativeBinomial(estimate_dispersion(counts))
    posterior = sp.bayes_optimal(sp.Source(prior, negative)).posterior(counts)
    assert not np.asarray(posterior.map_switches).any()
    counts[200:] = rng.negative_binomial(5, 5 / (5 + 900), size=200)
    posterior = sp.bayes_optimal(sp.Source(prior, negative)).posterior(counts)
    (found,) = np.flatnonzero(posterior.map_switches)
    assert abs(found - 200) <= 3
