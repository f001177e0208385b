"""The exact predictors and posteriors against the sum over all partitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from family_reference import Enumeration
from reference import name, partitions
from test_families import compare, partitions_of

import switchpoint as sp

LENGTH = 9  # neither a power of two nor a multiple of a period
SEQUENCES = 3
ENUMERATED = [
    sp.PTW(4),
    sp.PTW(7, split=0.8),
    sp.LIN(),
    sp.RegularPeriodic(3),
    sp.RandomUniform(4),
    sp.Geometric(0.2),
    sp.Renewal([0.1, 0.0, 0.5, 0.4]),
]
DOUBLE, SINGLE = 1e-12, 1e-6  # relative errors
CASES = [
    *((prior, sp.Bernoulli(0.7, 2.0), DOUBLE) for prior in ENUMERATED),
    *(
        pytest.param(prior, sp.Categorical(3), tolerance, marks=pytest.mark.slow)
        for prior, tolerance in (
            (sp.PTW(4), DOUBLE),
            (sp.LIN(), DOUBLE),
            (sp.PTW(4), SINGLE),
            (sp.RandomUniform(4), SINGLE),
        )
    ),
]


def sequences(segment, length=LENGTH, count=SEQUENCES):
    """Random sequences, and one that never changes."""
    random = np.random.default_rng(7).integers(0, segment.alphabet, (count - 1, length))
    return np.concatenate([random, np.zeros((1, length), int)])


def log_density(predictor, symbols):
    log_probs = np.asarray(predictor.log_probs(symbols), np.float64)
    return np.take_along_axis(log_probs, symbols[..., None], axis=-1)[..., 0]


@pytest.mark.parametrize(("prior", "segment", "tolerance"), CASES, ids=name)
def test_posterior_is_that_of_the_enumeration(prior, segment, tolerance):
    with jax.enable_x64(tolerance == DOUBLE):
        symbols = sequences(segment)
        predictor = sp.bayes_optimal(sp.Source(prior, segment))
        posterior = predictor.posterior(symbols)
        laws = partitions_of(posterior)
        posterior = jax.tree.map(np.asarray, posterior)
        logs = log_density(predictor, symbols)
    truths = [Enumeration(prior, segment, row) for row in symbols]
    compare(posterior, logs, truths, 5 * tolerance, laws)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("prior", [sp.PTW(4), sp.LIN()], ids=name)
@pytest.mark.slow
def test_marginal_and_partition_at_other_lengths(prior, length):
    symbols = sequences(sp.Bernoulli(), length)
    predictor = sp.bayes_optimal(sp.Source(prior))
    posterior = predictor.posterior(symbols)
    truths = [Enumeration(prior, sp.Bernoulli(), row) for row in symbols]
    compare(posterior, log_density(predictor, symbols), truths, 5 * DOUBLE)
    for pmf, truth in zip(posterior.switch_count_pmf(2), truths, strict=True):
        np.testing.assert_allclose(pmf, truth.switch_count_pmf(), atol=1e-12)


def test_run_lengths_that_need_too_much_memory_are_refused(monkeypatch):
    posterior = sp.bayes_optimal(sp.Source(sp.LIN())).posterior(np.zeros((2, LENGTH), int))
    monkeypatch.setattr("switchpoint.exact.posterior._MAX_NUMBERS", 2 * LENGTH * 4 + 1)
    assert posterior.run_length_pmf(most=4).shape == (2, LENGTH, 4)
    with pytest.raises(ValueError, match=r"most must be at most 4 .* got 9"):
        posterior.run_length_pmf()


class Symbols(sp.Segment):
    """A family of one's own over an alphabet: Categorical(3), of which it says the least."""

    @property
    def finite(self):
        return True

    @property
    def alphabet(self):
        return 3

    def statistic(self, x):
        return jax.nn.one_hot(x.astype(int), self.alphabet)

    def predictive(self, statistics):
        counts = statistics + 0.5
        return sp.segments.Discrete(counts / counts.sum())


@pytest.mark.parametrize("prior", [sp.PTW(4), sp.Geometric(0.2)], ids=name)
def test_a_finite_family_of_ones_own_has_smoothed_probabilities(prior):
    symbols = sequences(sp.Categorical(3))
    posterior = sp.bayes_optimal(sp.Source(prior, Symbols())).posterior(symbols)
    assert posterior.level_mean is None
    for row, probs in zip(symbols, posterior.probs_smoothed, strict=True):
        expected, _ = Enumeration(prior, sp.Categorical(3), row).levels()
        np.testing.assert_allclose(probs, expected, atol=1e-5)


@pytest.mark.parametrize("prior", [sp.PTW(3), sp.PTW(6, 0.4), sp.RandomUniform(5)], ids=name)
@pytest.mark.slow
def test_posterior_samples_have_the_posterior_law(prior, key):
    draws = 20_000
    symbols = np.array([0, 0, 0, 1, 1, 1])
    posterior = sp.bayes_optimal(sp.Source(prior)).posterior(symbols)
    reference = Enumeration(prior, sp.Bernoulli(), symbols)
    samples = np.asarray(posterior.sample(key, draws))
    assert samples.shape == (draws, 6)
    codes = samples @ (1 << np.arange(6))
    expected = {
        int(np.array(p) @ (1 << np.arange(6))): w * draws
        for p, w in zip(partitions(6), reference.weights, strict=True)
    }
    assert set(codes) <= {code for code, count in expected.items() if count > 0}
    likely = {code: count for code, count in expected.items() if count > 10}
    chi_square = sum((np.sum(codes == c) - n) ** 2 / n for c, n in likely.items())
    freedom = len(likely)
    assert chi_square < freedom + 5 * np.sqrt(2 * freedom)  # five standard deviations


@pytest.mark.slow
def test_samples_of_a_batch_belong_to_their_sequences(key):
    symbols = np.array([[0] * 8 + [1] * 8, [0, 1] * 8])
    for prior in (sp.PTW(4), sp.LIN()):
        posterior = sp.bayes_optimal(sp.Source(prior)).posterior(symbols)
        samples = posterior.sample(key, 4000)
        assert samples.shape == (4000, 2, 16)
        error = 5 * 0.5 / np.sqrt(4000)
        np.testing.assert_allclose(samples.mean(0), posterior.switch_smoothed, atol=error)
        assert not jnp.any(samples[..., 0])
