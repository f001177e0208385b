"""Families outside of the package, whose statistics are not sums: one class each."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from family_reference import Enumeration

import switchpoint as sp
from switchpoint.segments import MixtureSameFamily, Normal, namespace


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


@pytest.mark.parametrize("prior", [sp.Geometric(0.2), sp.PTW(3, 0.4)], ids=["forward", "tree"])
@pytest.mark.parametrize("segment", [Hidden(), Counts()], ids=lambda s: type(s).__name__)
def test_a_family_with_other_statistics_is_the_sum_over_all_partitions(prior, segment):
    values = sequence(segment)
    with jax.enable_x64(True):
        predictor = sp.bayes_optimal(sp.Source(prior, segment))
        logs = np.asarray(predictor.log_density(values))
        stream = sp.Stream(predictor)
        one_by_one = stream.extend(values)
        smoothed = np.asarray(predictor.posterior(values).switch_smoothed)
    truth = Enumeration(prior, segment, values)
    np.testing.assert_allclose(logs, truth.log_density(), atol=1e-9)
    np.testing.assert_allclose(one_by_one, logs, atol=1e-9)
    assert np.all(logs[[2, 5]] == 0)
    np.testing.assert_allclose(smoothed[1:], truth.switch_smoothed()[1:], atol=1e-9)
