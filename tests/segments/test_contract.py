"""Families outside of the package, whose statistics are not sums: one class each."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import switchpoint as sp
from switchpoint.segments import Distribution, MixtureSameFamily, Normal, StudentT, namespace


class Hidden(sp.Segment):
    """Normal values with two hidden states; runs merge by the product of forward operators."""

    stay: float = 0.8
    gap: float = 2.0

    def statistic(self, x):
        return self._transitions() * jnp.exp(-0.5 * (x - self._means()) ** 2)

    def merge(self, before, after):
        product = before @ after
        return product / product.max()

    def empty(self):
        return np.eye(2)

    def initial(self):
        return jnp.full((2, 2), 0.5)

    def missing(self):
        return self._transitions()

    def predictive(self, statistics):
        states = statistics[0] @ self._transitions()
        weights = jnp.log(states / states.sum())
        return MixtureSameFamily(weights, Normal(self._means(), jnp.ones(2)), jnp.zeros(()))

    def _means(self):
        return jnp.asarray(self.gap) * jnp.array([-0.5, 0.5])

    def _transitions(self):
        return jnp.array([[self.stay, 1 - self.stay], [1 - self.stay, self.stay]])

    def log_marginal(self, values):
        means = self.gap * np.array([-0.5, 0.5])
        total = -np.inf
        for states in itertools.product((0, 1), repeat=len(values)):
            log_prob = np.log(0.5)
            for before, after in itertools.pairwise(states):
                log_prob += np.log(self.stay if before == after else 1 - self.stay)
            for state, x in zip(states, values, strict=True):
                if not np.isnan(x):
                    log_prob += scipy.stats.norm(means[state]).logpdf(x)
            total = np.logaddexp(total, log_prob)
        return total


class Line(Distribution):
    """The density of the second column given the first."""

    features: jax.Array
    degrees: jax.Array
    scale: jax.Array
    precision: jax.Array

    def _conditional(self, x):
        features = jnp.stack([jnp.ones_like(x[..., 0]), x[..., 0]])
        spread = 1 + features @ jnp.linalg.solve(self.precision, features)
        return StudentT(self.degrees, features @ self.features, self.scale * spread)

    def log_density(self, x):
        return self._conditional(x).log_density(x[..., 1])

    @property
    def mean(self):
        return jnp.full(2, jnp.nan)  # unknown without the first column

    def sample(self, key):
        keys = jax.random.split(key)
        covariate = jax.random.normal(keys[0])
        x = jnp.stack([covariate, covariate])
        return x.at[1].set(self._conditional(x).sample(keys[1]))


class Regression(sp.Segment):
    """The second column is linear in the first, with Gram matrices as statistics."""

    ridge: float = 0.5

    @property
    def event_shape(self):
        return (2,)

    def statistic(self, x):
        features = jnp.stack([jnp.ones_like(x[0]), x[0], x[1]])
        return jnp.ones_like(x[0]), jnp.outer(features, features)

    def predictive(self, statistics):
        count, gram = statistics
        precision = gram[:2, :2] + self.ridge * jnp.eye(2)
        mean = jnp.linalg.solve(precision, gram[:2, 2])
        degrees = 2.0 + count
        rate = 1 + 0.5 * (gram[2, 2] - mean @ precision @ mean)
        return Line(mean, degrees, 2 * rate / degrees, precision)

    def log_marginal(self, values):
        values = values[~np.isnan(values).any(-1)]
        if not len(values):
            return 0.0
        design = np.stack([np.ones(len(values)), values[:, 0]], axis=-1)
        shape = np.eye(len(values)) + design @ design.T / self.ridge
        return scipy.stats.multivariate_t(np.zeros(len(values)), shape, df=2).logpdf(values[:, 1])


class Counts(sp.Segment):
    """Symbols whose formulas run in NumPy; their prior is not a hyperparameter above 0."""

    tilt: float = sp.segments.real(-0.3)
    size: int = eqx.field(static=True, default=3)

    @property
    def alphabet(self):
        return self.size

    def statistic(self, x):
        xp = namespace(x)
        return (xp.arange(self.size) == xp.asarray(x)[..., None]).astype(float)

    def _pseudo_counts(self, xp):
        return xp.exp(self.tilt * xp.arange(self.size))

    def predictive(self, statistics):
        counts = statistics + self._pseudo_counts(namespace(statistics, self.tilt))
        return sp.segments.Discrete(counts / counts.sum(-1, keepdims=True))

    def log_marginal(self, values):
        pseudo, total = np.array(self._pseudo_counts(np)), 0.0
        for x in values[~np.isnan(values)].astype(int):
            total += np.log(pseudo[x] / pseudo.sum())
            pseudo[x] += 1
        return total


def sequence(segment):
    source = sp.Source(sp.RegularPeriodic(4), segment)
    values = np.array(source.sample(jax.random.key(0), 1, 7).values[0], np.float64)
    values[[2, 5]] = np.nan
    return values


def evidence(prior, segment, values):
    """The sum over all partitions."""
    total = -np.inf
    for switches in itertools.product((False, True), repeat=len(values) - 1):
        bounds = [0, *(1 + i for i, each in enumerate(switches) if each), len(values)]
        log_prob = 0.0
        for start, end in itertools.pairwise(bounds):
            law = prior.log_survival if end == len(values) else prior.log_pmf
            length = end - start - (end == len(values))
            log_prob += float(law(np.asarray(start), np.asarray(length)))
            log_prob += segment.log_marginal(values[start:end])
        total = np.logaddexp(total, log_prob)
    return total


@pytest.mark.parametrize("prior", [sp.Geometric(0.2), sp.PTW(3, 0.4)], ids=["forward", "tree"])
@pytest.mark.parametrize(
    "segment", [Hidden(), Regression(), Counts()], ids=lambda s: type(s).__name__
)
def test_a_family_with_other_statistics_is_the_sum_over_all_partitions(prior, segment):
    values = sequence(segment)
    with jax.enable_x64(True):
        predictor = sp.bayes_optimal(sp.Source(prior, segment))
        logs = np.asarray(predictor.log_density(values))
        truth = evidence(prior, segment, values)
        stream = sp.Stream(predictor)
        one_by_one = stream.extend(values)
        smoothed = np.asarray(predictor.posterior(values).switch_smoothed)
    assert logs.sum() == pytest.approx(truth, abs=1e-9)
    np.testing.assert_allclose(one_by_one, logs, atol=1e-9)
    assert np.all(logs[[2, 5]] == 0)
    assert np.all((smoothed >= 0) & (smoothed <= 1 + 1e-9))
