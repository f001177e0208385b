"""Samplers have the exact laws: chi-square and Kolmogorov-Smirnov tests on fixed seeds."""

import jax
import numpy as np
import pytest
import scipy.stats
from reference import name

import switchpoint as sp

BATCH = 20_000
LENGTH = 48
PRIORS = [
    sp.PTW(6),
    sp.PTW(6, 0.25),
    sp.PTW(9, 0.8),
    sp.LIN(),
    sp.RandomUniform(20),
    sp.Geometric(0.03),
    sp.Renewal([0.1, 0.0, 0.2, 0.0, 0.3, 0.0, 0.0, 0.4]),
]
priors = pytest.mark.parametrize("prior", PRIORS, ids=name)


def chi_square(observed, expected):
    """The p-value, with rare cells taken together; what cannot be must not have been."""
    assert np.all(observed[expected == 0] == 0)
    observed, expected = observed[expected > 0], expected[expected > 0]
    order = np.argsort(expected)
    observed, expected = observed[order], expected[order]
    rare = np.cumsum(expected) < 20
    cut = max(1, int(rare.sum()) + 1)
    observed = np.append(observed[:cut].sum(), observed[cut:])
    expected = np.append(expected[:cut].sum(), expected[cut:])
    return scipy.stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue


@priors
@pytest.mark.slow
def test_number_of_switches_has_its_exact_law(prior, key):
    switches = np.asarray(prior.sample_switches(key, BATCH, LENGTH))
    assert not switches[:, 0].any()
    counts = np.bincount(switches.sum(1), minlength=LENGTH)
    law = prior.switch_count_pmf(LENGTH)
    assert chi_square(counts, law * BATCH) > 1e-3


def test_regular_switches_are_where_they_must_be(key):
    switches = np.asarray(sp.RegularPeriodic(5).sample_switches(key, 3, 17))
    np.testing.assert_array_equal(switches, [np.isin(np.arange(17), [5, 10, 15])] * 3)


@pytest.mark.slow
def test_rare_events_are_as_rare_as_they_should_be(key):
    # 2^-23 steps, as of jax.random.uniform in float32, would make 1e-6 into 1.07e-6.
    from switchpoint._random import uniform

    drawn = np.asarray(uniform(key, (2000, 5000)))
    assert 0 < drawn.min() < 3e-7
    assert drawn.max() < 1
    assert scipy.stats.binomtest(int((drawn < 1e-6).sum()), drawn.size, 1e-6).pvalue > 1e-3


@pytest.mark.parametrize(
    ("segment", "beta"),
    [
        (sp.Bernoulli(), (0.5, 0.5)),
        (sp.Bernoulli(1, 1), (1.0, 1.0)),
        (sp.Bernoulli(2.5, 0.7), (2.5, 0.7)),
        (sp.Categorical(4), (0.5, 1.5)),
        (sp.Categorical(3, 0.2), (0.2, 0.4)),
    ],
    ids=name,
)
@pytest.mark.slow
def test_segment_parameters_have_their_beta_law(segment, beta, key):
    draw = sp.Source(sp.RegularPeriodic(4), segment).sample(key, 4000, 8)
    probs = np.asarray(draw.probs, np.float64)
    np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-6)
    assert probs.min() >= 0
    symbol = 1  # for Bernoulli, alpha belongs to the ones
    for start in (0, 4):
        assert (
            scipy.stats.kstest(probs[:, start, symbol], scipy.stats.beta(*beta).cdf).pvalue > 1e-3
        )
        np.testing.assert_array_equal(probs[:, start], probs[:, start + 3])  # one segment
    independent = scipy.stats.spearmanr(probs[:, 0, symbol], probs[:, 4, symbol]).pvalue
    assert independent > 1e-3


def test_distribution_changes_exactly_at_the_switches(key):
    draw = sp.Source(sp.PTW(6)).sample(key, 500, 64)
    changed = np.any(np.diff(np.asarray(draw.probs), axis=1) != 0, axis=-1)
    np.testing.assert_array_equal(changed, np.asarray(draw.switches)[:, 1:])


def test_same_key_same_draw():
    source = sp.Source(sp.PTW(5))
    one, two = (source.sample(jax.random.key(3), 4, 32) for _ in range(2))
    other = source.sample(jax.random.key(4), 4, 32)
    np.testing.assert_array_equal(one.symbols, two.symbols)
    assert np.any(np.asarray(one.symbols) != np.asarray(other.symbols))


def test_sampling_runs_inside_jit(key):
    source = sp.Source(sp.PTW(5), sp.Categorical(3))
    inside = jax.jit(lambda key: source.sample(key, 4, 20))(key)
    outside = source.sample(key, 4, 20)
    np.testing.assert_array_equal(inside.symbols, outside.symbols)
    np.testing.assert_array_equal(inside.switches, outside.switches)


@pytest.mark.slow
def test_deep_ptw_rarely_splits(key):
    # 50 levels lie above the first 16 symbols; all must split for a switch to be seen.
    assert not np.asarray(sp.PTW(54).sample_switches(key, 1000, 16)).any()
    often = np.asarray(sp.PTW(54, 0.99).sample_switches(key, 4000, 16)).mean(0)
    chances = sp.PTW(54, 0.99).switch_probability(16)
    assert np.abs(often - chances).max() < 5 * 0.5 / np.sqrt(4000)


def test_a_mixture_draws_one_of_its_sources_for_each_sequence(key):
    sources = [sp.Source(sp.RegularPeriodic(period), sp.Gaussian()) for period in (3, 4)]
    mixture = sp.SourceMixture(sources, weights=[0.2, 0.8])
    switches = np.asarray(mixture.sample(key, 4000, 9).switches)
    third = switches[:, 3]
    expected = np.where(third[:, None], *(np.isin(np.arange(9), [n, 2 * n]) for n in (3, 4)))
    np.testing.assert_array_equal(switches, expected)
    assert scipy.stats.binomtest(int(third.sum()), 4000, 0.2).pvalue > 1e-3


def test_only_sources_with_one_family_have_an_oracle():
    one, other = sp.Source(sp.LIN(), sp.Gaussian()), sp.Source(sp.LIN(), sp.NormalGamma())
    assert sp.SourceMixture([one, one]).oracle_segment is one.segment
    assert sp.SourceMixture([one, other]).oracle_segment is None
