"""The exact predictors and posteriors against the sum over all partitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import Enumeration, name

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


def log_marginal(predictor, symbols):
    log_probs = np.asarray(predictor.log_probs(symbols), np.float64)
    return np.take_along_axis(log_probs, symbols[..., None], axis=-1).sum((-1, -2))


@pytest.mark.parametrize(("prior", "segment", "tolerance"), CASES, ids=name)
def test_posterior_is_that_of_the_enumeration(prior, segment, tolerance):
    with jax.enable_x64(tolerance == DOUBLE):
        symbols = sequences(segment)
        predictor = sp.bayes_optimal(sp.Source(prior, segment))
        posterior = predictor.posterior(symbols)
        marginals = log_marginal(predictor, symbols)
        pmf = np.asarray(posterior.switch_count_pmf())
        within = np.asarray(posterior.switch_within(2, 5))
        runs = np.asarray(posterior.run_length_pmf())
        posterior = jax.tree.map(np.asarray, posterior)
    for i, row in enumerate(symbols):
        reference = Enumeration(prior, segment, row)
        assert np.exp(marginals[i] - reference.log_marginal) == pytest.approx(1, rel=tolerance)
        assert np.exp(posterior.log_marginal[i] - reference.log_marginal) == pytest.approx(
            1, rel=5 * tolerance
        )
        np.testing.assert_allclose(
            posterior.switch_smoothed[i], reference.switch_probability(), atol=5 * tolerance
        )
        np.testing.assert_allclose(
            posterior.probs_smoothed[i], reference.probs(), atol=5 * tolerance
        )
        counts = reference.switch_count_pmf()
        np.testing.assert_allclose(pmf[i], counts, atol=5 * tolerance)
        np.testing.assert_allclose(within[i], reference.switch_within(2, 5), atol=5 * tolerance)
        best = reference.weights.max()
        assert np.exp(posterior.map_log_prob[i]) == pytest.approx(best, rel=10 * tolerance)
        assert reference.weight_of(posterior.map_switches[i]) == pytest.approx(
            best, rel=10 * tolerance
        )
        for time in range(LENGTH):
            past = reference.of_first(time + 1)
            assert posterior.switch_filtered[i, time] == pytest.approx(
                past.switch_probability()[time], abs=5 * tolerance
            )
            assert posterior.run_length_mean[i, time] == pytest.approx(
                past.run_length_mean(), rel=5 * tolerance
            )
            lengths = past.run_length_pmf()
            np.testing.assert_allclose(runs[i, time, : time + 1], lengths, atol=5 * tolerance)
            assert np.all(runs[i, time, time + 1 :] == 0)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("prior", [sp.PTW(4), sp.LIN()], ids=name)
@pytest.mark.slow
def test_marginal_and_partition_at_other_lengths(prior, length):
    segment = sp.Bernoulli()
    symbols = sequences(segment, length)
    predictor = sp.bayes_optimal(sp.Source(prior, segment))
    posterior = predictor.posterior(symbols)
    marginals, pmf = log_marginal(predictor, symbols), np.asarray(posterior.switch_count_pmf(2))
    for i, row in enumerate(symbols):
        reference = Enumeration(prior, segment, row)
        assert marginals[i] == pytest.approx(reference.log_marginal, rel=1e-12)
        counts = reference.switch_count_pmf()[:3]
        np.testing.assert_allclose(pmf[i, : len(counts)], counts, atol=1e-12)
        best = reference.weights.max()
        assert reference.weight_of(posterior.map_switches[i]) == pytest.approx(best)
        np.testing.assert_allclose(
            posterior.switch_smoothed[i], reference.switch_probability(), atol=1e-12
        )


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
        expected = Enumeration(prior, sp.Categorical(3), row).probs()
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
        for p, w in zip(reference.partitions, reference.weights, strict=True)
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
