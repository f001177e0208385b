"""A family and a prior that the package does not know: everything follows from one class each."""

import json

import jax
import numpy as np
import pytest

import switchpoint as sp
from switchpoint import spec
from switchpoint.segments import Lomax, namespace
from switchpoint.streams.host import CompiledFamily


class Lifetime(sp.Segment):
    """Exponential times with a rate ~ Gamma(shape, rate), as additive statistics."""

    shape: float = 2.0
    rate: float = 1.0

    def statistic(self, x):
        return namespace(x).ones_like(x), x

    def predictive(self, statistics):
        count, total = statistics
        return Lomax(self.shape + count, self.rate + total)


class Fatigue(sp.Prior):
    """Segments that end ever more probably."""

    rate: float

    def hazard_after(self, start, run):
        del start
        return 1 - (1 - self.rate) ** (run * 1.0)


SOURCE = sp.Source(Fatigue(0.01), Lifetime())
TWIN = sp.Source(Fatigue(0.01), sp.Exponential(2.0, 1.0))


@pytest.fixture
def values():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.exponential(1.0, 40), rng.exponential(20.0, 40)])
    values[[5, 50]] = np.nan
    return values


@pytest.mark.usefixtures("float64")
def test_batch_chunks_posterior_and_fit_are_those_of_the_package(values):
    own, twin = sp.bayes_optimal(SOURCE), sp.bayes_optimal(TWIN)
    logs = np.asarray(twin.log_density(values))
    np.testing.assert_allclose(own.log_density(values), logs, atol=1e-10)
    state, first = own.extend(own.init(length=80), values[:30])
    state, rest = own.extend(state, values[30:])
    np.testing.assert_allclose(np.concatenate([first, rest]), logs, atol=1e-10)
    np.testing.assert_allclose(
        own.posterior(values).switch_smoothed, twin.posterior(values).switch_smoothed, atol=1e-10
    )
    fits = [sp.fit(each, values, ["rate"], starts=1, steps=4) for each in (SOURCE, TWIN)]
    assert fits[0].log_evidence == pytest.approx(fits[1].log_evidence, abs=1e-6)


def test_a_stream_runs_on_the_host_and_is_saved(values, tmp_path):
    stream = sp.Stream(sp.bayes_optimal(SOURCE))
    assert not isinstance(stream._engine.family, CompiledFamily)
    with jax.enable_x64(True):
        expected = np.asarray(sp.bayes_optimal(TWIN).log_density(values))
    np.testing.assert_allclose(stream.extend(values[:60]), expected[:60], atol=1e-10)
    stream.save(tmp_path / "state")
    loaded = sp.Stream.load(tmp_path / "state")
    assert loaded.predictor == stream.predictor
    np.testing.assert_allclose(loaded.extend(values[60:]), expected[60:], atol=1e-10)


def test_a_class_that_is_not_importable_is_asked_for(values, tmp_path):
    class Local(Lifetime):
        """A class that no module has."""

    predictor = sp.bayes_optimal(sp.Source(sp.LIN(), Local()))
    stream = sp.Stream(predictor)
    stream.extend(values[:10])
    stream.save(tmp_path / "state")
    with pytest.raises(ValueError, match=r"Local.*predictor="):
        sp.Stream.load(tmp_path / "state")
    loaded = sp.Stream.load(tmp_path / "state", predictor=predictor)
    np.testing.assert_array_equal(loaded.extend(values[10:]), stream.extend(values[10:]))
    other = sp.bayes_optimal(sp.Source(sp.LIN(), Local(shape=3.0)))
    with pytest.raises(ValueError, match="another predictor"):
        sp.Stream.load(tmp_path / "state", predictor=other)


PARTS = [
    *(sp.PTW(7, 0.3), sp.LIN(), sp.RegularPeriodic(3), sp.RandomUniform(5), sp.Geometric(0.1)),
    *(sp.Renewal([0.25, 0.75]), Fatigue(0.2), Lifetime(), sp.MarkovChain(3, order=2)),
    sp.Independent(sp.NormalGamma(mean=1.5), sp.Trend(), sp.Bernoulli(0.3, 0.4)),
    sp.HMM([0.7, 0.3], [[0.9, 0.1], [0.0, 1.0]], [[0.6, 0.4], [0.1, 0.9]]),
    sp.Mixture(sp.NormalGamma(rate=0.1), sp.Regression(lags=1), weights=[0.3, 0.7]),
    *(sp.KT(sp.Categorical(3)), sp.KTOracle([False, True, False])),
    sp.bayes_optimal(sp.SourceMixture([sp.Source(sp.LIN()), sp.Source(sp.PTW(3))])),
    sp.bayes_optimal(sp.Source(sp.LIN()), max_hypotheses=9),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_a_description_makes_the_same_again(part):
    about = json.loads(json.dumps(spec.describe(part)))
    again = spec.make(about)
    assert type(again) is type(part)
    assert repr(again) == repr(part)
    assert spec.describe(again) == spec.describe(part)
