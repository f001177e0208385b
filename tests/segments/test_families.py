"""Every family under every prior, against closed forms and the sum over all partitions."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from family_reference import Enumeration
from reference import name, pmf, survival

import switchpoint as sp

LENGTH = 9
DOUBLE, SINGLE = 1e-10, 1e-4
COLUMNS = [
    sp.Gaussian(mean=0.3, mean_scale=2.0, scale=0.7),
    sp.Poisson(shape=2.0, rate=0.5),
    sp.NegativeBinomial(dispersion=3.0, alpha=2.5, beta=1.5),
    sp.Exponential(shape=1.5, rate=2.0),
    sp.Trend(level_scale=2.0, slope_scale=0.3, shape=1.2, rate=0.7, level=0.1),
    sp.Mixture(sp.NormalGamma(0.4), sp.Gaussian(scale=3.0), sp.Trend(), weights=[0.5, 0.2, 0.3]),
]
# One program holds six families to their closed forms, each by its own level.
FAMILIES = [
    sp.Bernoulli(0.7, 2.0),
    sp.NormalGamma(mean=0.2, strength=0.5, shape=1.5, rate=0.8),
    sp.MarkovChain(2, order=2, concentration=0.6),
    sp.Independent(*COLUMNS),
    sp.MultivariateNormal(2, mean=0.2, strength=0.5, shape=1.5, rate=0.8),
    sp.Mixture(
        sp.HMM([0.7, 0.3], [[0.9, 0.1], [0.0, 1.0]], [[0.6, 0.4, 0.0], [0.1, 0.2, 0.7]]),
        sp.Categorical(3),
        weights=[0.6, 0.4],
    ),
]
PRIORS = [
    sp.PTW(7, split=0.8),
    sp.LIN(),
    sp.RegularPeriodic(3),
    sp.RandomUniform(4),
    sp.Geometric(0.2),
    sp.Renewal([0.1, 0.0, 0.5, 0.4]),
]


class Tabulated(sp.Prior):
    """Any law as a table, so that one compiled program serves all priors."""

    hazards: jax.Array
    survivals: jax.Array

    @classmethod
    def of(cls, prior, length=LENGTH):
        hazards = np.ones((length + 1, length + 1))
        for start in range(length + 1):
            for run in range(1, length + 1):
                left = survival(prior, start, run - 1)
                hazards[start, run] = min(1.0, pmf(prior, start, run) / left) if left > 1e-12 else 1
        return cls(jnp.asarray(hazards), jnp.asarray(1 - hazards))

    def hazard_after(self, start, run):
        return self.hazards[self._at(start, run)]

    def survival_after(self, start, run):
        return self.survivals[self._at(start, run)]

    def _at(self, start, run):
        start, run = jnp.broadcast_arrays(start, run)
        return jnp.clip(start, 0, LENGTH), jnp.clip(run, 0, LENGTH)


def documented_family():
    """The family of one's own that the docstring of `Segment` defines."""
    lines = inspect.getdoc(sp.Segment).splitlines()
    names = {}
    exec("\n".join(line[4:] for line in lines if line.startswith(" " * 4)), names)
    return names["Volatility"](shape=2.0)


def example(segment, length=LENGTH, seed=3):
    """Two sequences with a switch in the middle; the second has a gap and a missing start."""
    draw = sp.Source(sp.RegularPeriodic(5), segment).sample(jax.random.key(seed), 2, length)
    values = np.array(draw.values, np.float64)
    values[1, [0, 4, 5, 6]] = np.nan
    if isinstance(segment, sp.Independent):
        values[0, 2, 0] = values[1, 2, 1] = np.nan
    return values


def compare(posterior, log_density, truths, tolerance, partitions=None):
    """A posterior, and what `partitions_of` returns, with the sums over all partitions."""
    close = {"atol": tolerance, "rtol": tolerance}
    for i, truth in enumerate(truths):
        np.testing.assert_allclose(log_density[i], truth.log_density(), atol=tolerance)
        np.testing.assert_allclose(posterior.log_marginal[i], truth.log_marginal, **close)
        for field in ("switch_smoothed", "switch_filtered", "run_length_mean"):
            expected = np.array(getattr(truth, field)())
            if field != "run_length_mean":
                expected[0] = 0
            np.testing.assert_allclose(getattr(posterior, field)[i], expected, **close)
        if partitions is not None:
            counts, within, runs = partitions
            np.testing.assert_allclose(counts[i], truth.switch_count_pmf(), **close)
            np.testing.assert_allclose(within[i], truth.switch_within(2, 5), **close)
            lengths = truth.run_length_pmf()[:, : runs.shape[-1]]
            np.testing.assert_allclose(runs[i], lengths, **close)
        best = truth.weights.max()
        assert np.exp(posterior.map_log_prob[i]) == pytest.approx(best, rel=10 * tolerance)
        assert truth.weight_of(posterior.map_switches[i]) == pytest.approx(best, rel=10 * tolerance)
        mean, std = truth.levels()
        if truth.segment.finite:
            np.testing.assert_allclose(posterior.probs_smoothed[i], mean, **close)
            assert posterior.level_mean is None
        else:
            np.testing.assert_allclose(posterior.level_mean[i], mean, **close)
            np.testing.assert_allclose(posterior.level_std[i], std, **close)
            assert posterior.probs_smoothed is None


def partitions_of(posterior, most=None):
    """The laws of the number of switches, of a switch in a window, and of run lengths."""
    within = posterior.switch_within(2, 5)
    return posterior.switch_count_pmf(), within, posterior.run_length_pmf(most)


def check(prior, reference_prior, segment, tolerance):
    examples = example(segment)
    constant, missing = np.ones_like(examples[:1]), np.full_like(examples[:1], np.nan)
    values = np.concatenate([examples, constant, missing])
    partitions = None
    with jax.enable_x64(tolerance == DOUBLE):
        predictor = sp.bayes_optimal(sp.Source(prior(), segment))
        log_density = np.asarray(predictor.log_density(values))
        posterior = predictor.posterior(values)
        if isinstance(segment, sp.NormalGamma):  # the same passes for every family
            partitions = partitions_of(posterior, most=5)
        posterior = jax.tree.map(np.asarray, posterior)
    assert log_density.dtype == (np.float64 if tolerance == DOUBLE else np.float32)
    level = "probs_smoothed" if segment.finite else "level_std"
    for field in ("switch_smoothed", "switch_filtered", "run_length_mean", level):
        assert np.all(np.isfinite(getattr(posterior, field)[2:]))
    assert np.all(getattr(posterior, level)[2:] > 0)
    np.testing.assert_allclose(posterior.log_marginal[3], 0, atol=tolerance)
    missing = np.isnan(examples.reshape(*examples.shape[:2], -1)).all(-1)
    assert np.all(log_density[:2][missing] == 0)
    truths = [Enumeration(reference_prior, segment, row) for row in examples]
    compare(posterior, log_density, truths, tolerance, partitions)


CASES = [
    *((segment, DOUBLE) for segment in FAMILIES),
    *(pytest.param(segment, SINGLE, marks=pytest.mark.fuzz) for segment in FAMILIES),
    *(pytest.param(segment, DOUBLE, marks=pytest.mark.fuzz) for segment in COLUMNS),
]
SLOW = [pytest.param(FAMILIES[1], SINGLE, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("segment", "tolerance"), [*CASES, *SLOW], ids=name)
def test_any_prior_is_the_sum_over_all_partitions(segment, tolerance):
    for prior in PRIORS:
        check(lambda prior=prior: Tabulated.of(prior), prior, segment, tolerance)


@pytest.mark.parametrize(("segment", "tolerance"), CASES, ids=name)
def test_ptw_is_the_sum_over_all_partitions(segment, tolerance):
    for split in (0.5, 0.8):
        prior = sp.PTW(5, split)
        check(lambda prior=prior: prior, prior, segment, tolerance)


@pytest.mark.usefixtures("float64")
def test_a_mixture_of_sources_is_the_sum_over_sources_and_partitions():
    priors, log_weights = [PRIORS[1], PRIORS[5]], np.log([0.3, 0.7])
    segments = [FAMILIES[1], sp.NormalGamma(mean=-1.0, strength=2.0, shape=3.0, rate=4.0)]
    values = example(FAMILIES[1])
    pairs = list(zip(priors, segments, strict=True))
    sources = [sp.Source(Tabulated.of(prior), segment) for prior, segment in pairs]
    bayes = sp.bayes_optimal(sp.SourceMixture(sources, np.exp(log_weights)))
    posterior, close = bayes.posterior(values), {"atol": DOUBLE, "rtol": DOUBLE}
    drawn = np.asarray(posterior.sample(jax.random.key(0), 4000)).mean(0)
    for i, row in enumerate(values):
        truths = [Enumeration(prior, segment, row) for prior, segment in pairs]
        logs = log_weights + np.array([truth.log_marginals for truth in truths]).T
        totals = np.logaddexp.reduce(logs, axis=-1)
        probs = np.exp(logs - totals[:, None])
        np.testing.assert_allclose(bayes.log_density(row), np.diff(totals), **close)
        np.testing.assert_allclose(bayes.component_probs(row), probs[1:], **close)
        np.testing.assert_allclose(posterior.component_probs[i], probs[-1], **close)
        np.testing.assert_allclose(posterior.log_marginal[i], totals[-1], **close)

        def mixed(function, weights=probs[-1], truths=truths):
            parts = [np.asarray(function(truth), float) for truth in truths]
            return sum(weight * part for weight, part in zip(weights.T, parts, strict=True))

        smoothed = mixed(lambda truth: truth.switch_smoothed())
        smoothed[0] = 0
        np.testing.assert_allclose(posterior.switch_smoothed[i], smoothed, **close)
        filtered = mixed(lambda truth: truth.switch_filtered(), probs[1:])
        filtered[0] = 0
        np.testing.assert_allclose(posterior.switch_filtered[i], filtered, **close)
        lengths = mixed(lambda truth: truth.run_length_mean(), probs[1:])
        np.testing.assert_allclose(posterior.run_length_mean[i], lengths, **close)
        counts = mixed(lambda truth: truth.switch_count_pmf())
        np.testing.assert_allclose(posterior.switch_count_pmf()[i], counts, **close)
        within = mixed(lambda truth: truth.switch_within(2, 5))
        np.testing.assert_allclose(posterior.switch_within(2, 5)[i], within, **close)
        means = mixed(lambda truth: truth.levels()[0])
        np.testing.assert_allclose(posterior.level_mean[i], means, **close)
        squares = mixed(lambda truth: truth.levels()[1] ** 2 + truth.levels()[0] ** 2)
        np.testing.assert_allclose(posterior.level_std[i] ** 2, squares - means**2, **close)
        best = max(p * truth.weights.max() for p, truth in zip(probs[-1], truths, strict=True))
        assert np.exp(posterior.map_log_prob[i]) == pytest.approx(best, rel=DOUBLE)
        assert np.all(np.abs(drawn[i] - smoothed) < 5 * np.sqrt(0.25 / 4000))
