"""Values of any family: streams, distributions, draws, numerical safety, pruning, bad input."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from reference import name
from test_families import FAMILIES, example

import switchpoint as sp
from switchpoint.segments import (
    BetaNegativeBinomial,
    GammaPoisson,
    Lomax,
    MixtureSameFamily,
    Normal,
    StudentT,
)
from switchpoint.segments._special import gamma_ratio, half_step, log, log1p, stirling_error

LENGTH = 14
families = pytest.mark.parametrize("segment", FAMILIES, ids=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("segment", "options"),
    [
        (FAMILIES[2], {}),
        (sp.Independent(sp.Poisson(2.0, 0.5), sp.Trend(2.0, 0.3)), {"max_hypotheses": 15}),
        (FAMILIES[4], {}),
        (FAMILIES[5], {"max_hypotheses": 15}),
    ],
    ids=name,
)
def test_streams_inside_jit_are_whole_sequences(segment, options):
    """All values minus an offset: the whole sequence has another one than the stream."""
    predictor = sp.bayes_optimal(sp.Source(sp.PTW(4, 0.3), segment), **options)
    values = example(segment, LENGTH)

    @jax.jit
    def stream(row):
        def step(state, x):
            prediction = predictor.predict(state)
            if not segment.finite:
                logs = prediction.log_density(x)
            else:
                logs = prediction[jnp.nan_to_num(x).astype(int)]
            seen = jnp.where(jnp.isnan(x).any(), 0.0, logs)
            return predictor.update(state, x), seen

        return jax.lax.scan(step, predictor.init(length=LENGTH), row)[1]

    whole = np.asarray(jax.jit(lambda x: predictor.log_density(x))(jnp.asarray(values)))
    for row, logs in zip(values, whole, strict=True):
        seen = ~np.isnan(row.reshape(LENGTH, -1)).any(-1)
        np.testing.assert_allclose(
            np.asarray(stream(jnp.asarray(row)))[seen], logs[seen], atol=1e-4
        )
    if options:  # a program less where it would be the larger one
        np.testing.assert_allclose(predictor.log_density(values), whole, atol=1e-4)


LEVEL, NOISE = 100_000.0013, 1e-3  # single precision knows 100,000 and 100,000.0078


def agreeing_in_seven_digits(length, columns=()):
    """Values that single precision cannot tell apart, with a switch in the middle."""
    noise = np.random.default_rng(2).normal(size=(length, *columns))
    noise[length // 2 :] += 5
    noise[3] = np.nan
    return LEVEL + NOISE * noise


def families_at(level):
    """Families that expect values around `level`, and a column each that expects them anywhere."""
    variance, far = NOISE**2, level - LEVEL
    return [
        sp.Gaussian(level, 5 * NOISE, NOISE),
        sp.NormalGamma(level, 0.1, 1.0, variance),
        sp.Trend(5.0, 0.1, 1.0, variance, level),
        sp.segments.Independent(
            sp.Trend(1e8, 0.1, 1.0, variance, far),
            sp.NormalGamma(level, 0.1, 1.0, variance),
            sp.NormalGamma(far, 1e-16, 1.0, variance),
            sp.Gaussian(far, 1e5, NOISE),
        ),
    ]


@pytest.mark.parametrize(
    ("prior", "which"), [(sp.PTW(5), 1), (sp.Geometric(0.1), 1), (sp.Geometric(0.1), 3)]
)
def test_a_stream_of_large_values_keeps_its_digits(prior, which):
    segment = families_at(LEVEL)[which]
    predictor = sp.bayes_optimal(sp.Source(prior, segment))
    values = agreeing_in_seven_digits(12, segment.event_shape)
    truth = sp.Stream(predictor).extend(values)  # in double precision
    state, logs = predictor.init(), []
    for value in values:
        logs.append(predictor.predict(state).log_density(value))
        state = predictor.update(state, value)
    seen = ~np.isnan(values.reshape(12, -1)).any(1)
    np.testing.assert_allclose(np.array(logs)[seen], truth[seen], atol=1e-4)
    np.testing.assert_allclose(predictor.extend(predictor.init(), values)[1], truth, atol=1e-4)
    prediction = predictor.predict(state)
    low, high = prediction.quantile(np.array([0.01, 0.99]))
    assert np.all(low <= LEVEL + 0.008)
    assert np.all(high >= LEVEL)
    if which == 1:  # the others may expect anything from a new segment
        assert float(prediction.mean) == pytest.approx(LEVEL, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prior", "which"),
    [*((sp.Geometric(0.05), which) for which in range(4)), (sp.PTW(6), 1), (sp.PTW(6), 2)],
    ids=name,
)  # a Gaussian, a NormalGamma, a Trend, and several columns
def test_sequences_that_agree_in_seven_digits(prior, which):
    segment, centred = families_at(LEVEL)[which], families_at(0.0)[which]
    values = agreeing_in_seven_digits(64, segment.event_shape)
    predictor = sp.bayes_optimal(sp.Source(prior, segment))
    truth = sp.Stream(predictor).extend(values)  # in double precision
    both = np.stack([values - LEVEL, values])  # the first is far from what is expected
    np.testing.assert_allclose(predictor.log_density(both)[1], truth, atol=1e-4)

    posterior = predictor.posterior(values)
    other = sp.bayes_optimal(sp.Source(prior, centred)).posterior(values - LEVEL)
    assert float(posterior.log_marginal) == pytest.approx(truth.sum(), abs=1e-3)
    assert float(posterior.switch_smoothed[32]) > 0.9 or which == 3
    np.testing.assert_allclose(posterior.switch_smoothed, other.switch_smoothed, atol=1e-5)
    np.testing.assert_allclose(posterior.level_mean, LEVEL + other.level_mean, atol=0.008)


LAWS = [
    (Normal(0.5, 4.0), scipy.stats.norm(0.5, 2)),
    (StudentT(3.0, -1.0, 0.25), scipy.stats.t(3, -1, 0.5)),
    (StudentT(40.0, 2.0, 9.0), scipy.stats.t(40, 2, 3)),
    (GammaPoisson(2.5, 0.5), scipy.stats.nbinom(2.5, 0.5 / 1.5)),
    (BetaNegativeBinomial(4.0, 5.5, 3.0), scipy.stats.betanbinom(4, 5.5, 3)),
    (Lomax(2.5, 3.0), scipy.stats.lomax(2.5, scale=3.0)),
]


@eqx.filter_jit
def everything_of(law, points, shares, count):
    """What a distribution can say, in one program."""
    said = {"mean": law.mean, "variance": law.variance}
    for method, arguments in (("log_density", points), ("cdf", points), ("quantile", shares)):
        said[method] = getattr(law, method)(jnp.asarray(arguments))
    keys = jax.random.split(jax.random.key(0), count)
    return {**said, "share": law.cdf(said["quantile"])}, jax.vmap(law.sample)(keys)


@pytest.mark.parametrize(("ours", "theirs"), LAWS, ids=lambda law: type(law).__name__)
def test_distributions_are_those_of_scipy(ours, theirs):
    whole = ours.support.whole
    points = np.array([0.0, 1, 3, 12]) if whole else np.array([0.01, 0.5, 3, 40])
    shares = np.array([0.001, 0.1, 0.5, 0.9, 0.999])
    logs = theirs.logpmf(points) if whole else theirs.logpdf(points)
    found, draws = everything_of(ours, points, shares, 3000)
    np.testing.assert_allclose(found["log_density"], logs, atol=2e-5, rtol=1e-5)
    np.testing.assert_allclose(found["cdf"], theirs.cdf(points), atol=1e-5)
    np.testing.assert_allclose(found["mean"], theirs.mean(), rtol=1e-5)
    np.testing.assert_allclose(found["variance"], theirs.var(), rtol=1e-5)
    np.testing.assert_allclose(found["quantile"], theirs.ppf(shares), rtol=2e-3, atol=1e-4)
    if whole:
        mean, error = np.mean(draws), theirs.std() / 3000**0.5
        assert abs(mean - theirs.mean()) < 4 * error
    else:
        assert scipy.stats.kstest(np.asarray(draws), theirs.cdf).pvalue > 1e-3


def test_a_mixture_is_the_sum_of_its_components():
    weights = np.array([0.25, 0.75])
    mixture = MixtureSameFamily(
        jnp.log(weights), Normal(jnp.array([-2.0, 3.0]), jnp.array([1.0, 4.0])), jnp.array(10.0)
    )
    points = np.array([5.0, 8.0, 13.0])
    parts = [scipy.stats.norm(8, 1), scipy.stats.norm(13, 2)]
    density = sum(w * law.pdf(points) for w, law in zip(weights, parts, strict=True))
    shares = np.array([0.01, 0.3, 0.99])
    found, draws = everything_of(mixture, points, shares, 4000)
    np.testing.assert_allclose(np.exp(found["log_density"]), density, rtol=1e-4)
    np.testing.assert_allclose(found["share"], shares, atol=1e-5)
    mean = float(weights @ [8, 13])
    assert float(found["mean"]) == pytest.approx(mean)
    squares = weights @ [1 + 8**2, 4 + 13**2]
    assert float(found["variance"]) == pytest.approx(squares - mean**2, rel=1e-4)
    assert np.all(np.isnan(mixture.quantile([-1.0, 0.0, 1.0, 2.0, np.nan])))
    draws = np.asarray(draws)
    assert abs(draws.mean() - mean) < 4 * draws.std() / 4000**0.5


def test_special_functions_keep_their_digits():
    large = np.array([0.1, 0.5, 1.0, 2.5, 30.0, 1e4, 1e6])
    np.testing.assert_allclose(
        jax.jit(log)(jnp.asarray(1e-9 * large, jnp.float32)), np.log(1e-9 * large), rtol=3e-7
    )
    with jax.enable_x64(True):
        exact = [
            np.asarray(f)
            for f in (*half_step(jnp.asarray(large)), stirling_error(jnp.asarray(large)))
        ]
    factor, rest = half_step(jnp.asarray(large, jnp.float32))
    np.testing.assert_allclose(
        0.5 * np.log(factor) + rest, 0.5 * np.log(exact[0]) + exact[1], atol=2e-6
    )
    truth = scipy.special.gammaln(large + 0.5) - scipy.special.gammaln(large)
    np.testing.assert_allclose(0.5 * np.log(exact[0]) + exact[1], truth, atol=1e-8)
    np.testing.assert_allclose(stirling_error(jnp.asarray(large, jnp.float32)), exact[2], atol=2e-6)
    steps = np.array([[0.0], [0.5], [3.0], [16.0]])
    truth = scipy.special.gammaln(large + steps) - scipy.special.gammaln(large)
    truth -= steps * np.log(large)
    for kind, tolerance in ((np.float32, 2e-5), (np.float64, 1e-8)):
        with jax.enable_x64(kind is np.float64):
            factor, rest = gamma_ratio(jnp.asarray(large, kind), jnp.asarray(steps, kind))
            np.testing.assert_allclose(rest - np.log(factor), truth, atol=tolerance)
    small = np.array([0, 1e-12, 1e-7, 3e-4, 0.9, 7.0, 1e12])
    small = np.concatenate([small, np.random.default_rng(0).uniform(0, 0.01, 500)])
    compiled = jax.jit(log1p)(jnp.asarray(small, jnp.float32))  # XLA must not cancel its digits
    np.testing.assert_allclose(compiled, np.log1p(np.float64(np.float32(small))), rtol=3e-7)


@pytest.mark.slow
@families
def test_the_true_parameters_predict_better_than_the_exact_optimum(segment):
    source = sp.Source(sp.RegularPeriodic(4), segment)
    draw = source.sample(jax.random.key(5), 4000, 8)
    exact = sp.bayes_optimal(source).log_density(draw.values)
    excess = np.asarray(draw.log_density - exact).sum(-1)
    assert excess.mean() > -4 * excess.std() / len(excess) ** 0.5


def safe_series(length):
    rng = np.random.default_rng(0)
    usual = rng.normal(size=length)
    usual[length // 2 :] += 3
    outlier, first = usual.copy(), usual.copy()
    outlier[length // 3] = first[0] = 1e8
    return {
        "mean 1e6": usual + 1e6,
        "constant": np.full(length, 0.1),
        "constant 1e6": np.full(length, 1e6 + 0.3),
        "outlier": outlier,
        "outlier first": first,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prior", "segment"),
    [
        (sp.Geometric(0.01), sp.Gaussian()),
        (sp.Geometric(0.01), sp.NormalGamma(mean=1e6)),
        (sp.PTW(7), sp.Trend(level=1e6)),
        (sp.Geometric(0.01), sp.Trend(level=1e6)),
    ],
    ids=name,
)
def test_single_precision_has_the_answers_of_double(prior, segment):
    predictor = sp.bayes_optimal(sp.Source(prior, segment))
    values = np.stack(list(safe_series(128).values()))
    single = np.asarray(predictor.log_density(values))
    with jax.enable_x64(True):
        double = np.asarray(predictor.log_density(values))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, atol=1e-3, rtol=2e-4)
    if not isinstance(segment, sp.Gaussian):  # whose log density of an outlier is -10^16
        np.testing.assert_allclose(single, double, atol=1e-3)


@pytest.mark.slow
def test_many_observations_in_single_precision():
    values = safe_series(2**15)["mean 1e6"]
    values[1000] = 1e6 + 1e8
    for prior, most in ((sp.PTW(15), None), (sp.Geometric(0.001), 100)):
        predictor = sp.bayes_optimal(sp.Source(prior, sp.NormalGamma(mean=1e6)), most)
        single = np.asarray(predictor.log_density(values))
        with jax.enable_x64(True):
            double = np.asarray(predictor.log_density(values))
        assert np.abs(single - double).max() < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    "segment",
    [
        sp.NormalGamma(),
        pytest.param(sp.Bernoulli(), marks=pytest.mark.fuzz),
        pytest.param(sp.Poisson(), marks=pytest.mark.fuzz),
        pytest.param(sp.MarkovChain(2), marks=pytest.mark.fuzz),
    ],
    ids=name,
)
def test_the_pruning_bound_holds_in_the_mean(segment):
    """x_t is drawn from the exact prediction p, so half of |q(x_t) / p(x_t) - 1| has the total
    variation between p and the pruned prediction q as its mean."""
    source = sp.Source(sp.Geometric(0.05), segment)
    values = source.sample(jax.random.key(1), 1000, 50).values
    exact = np.asarray(sp.bayes_optimal(source).log_density(values), np.float64)
    bounds = []
    for most in (2, 4, 51):
        kept = sp.bayes_optimal(source, max_hypotheses=most)
        variation = 0.5 * np.abs(np.expm1(np.asarray(kept.log_density(values)) - exact))
        bound = np.asarray(kept.pruning_bounds(values))
        gap = bound - variation
        assert np.all(gap.mean(0) > -4 * gap.std(0) / len(gap) ** 0.5 - 1e-5)
        bounds.append(bound.mean())
    assert bounds[0] > bounds[1] > 1e-3  # fewer hypotheses have larger errors
    assert bounds[2] == 0


@functools.cache
def fitted():
    source = sp.Source(sp.Geometric(0.05), sp.Gaussian(0.0, 3.0, 0.5))
    values = np.asarray(source.sample(jax.random.key(2), 12, 100).values)
    start = sp.Source(sp.Geometric(0.2), sp.Gaussian(0.0, 3.0, 1.0))
    return source, start, values, sp.fit(start, values, ["hazard", "segment.scale"], starts=2)


@pytest.mark.slow
def test_fit_recovers_hazard_and_noise():
    source, start, values, fit = fitted()
    assert fit.source.prior.hazard == pytest.approx(0.05, rel=0.35)  # about 60 switches
    assert fit.source.segment.scale == pytest.approx(0.5, rel=0.08)
    assert fit.source.segment.mean_scale == 3.0
    chosen = sp.compare({"start": start, "truth": source, "fit": fit.source}, values)
    assert chosen.best == "fit"
    assert chosen.log_evidence["fit"] == pytest.approx(fit.log_evidence, abs=1e-2)
    assert chosen.odds("fit", "truth") >= 1
    assert sum(chosen.probability.values()) == pytest.approx(1)
    assert np.all(np.diff(fit.history, axis=0) >= 0)
    assert "probability" in str(chosen)


@pytest.mark.slow
def test_fit_moves_with_the_origin():
    values = agreeing_in_seven_digits(64)
    far, near = (
        sp.fit(sp.Source(sp.Geometric(0.05), families_at(level)[1]), each, ["mean", "rate"])
        for level, each in ((LEVEL, values), (0.0, values - LEVEL))
    )
    assert far.log_evidence == pytest.approx(near.log_evidence, abs=1e-2)
    assert far.log_evidence > far.history[0][0] + 0.1
    assert far.source.segment.mean - LEVEL == pytest.approx(near.source.segment.mean, abs=NOISE / 5)
    chosen = sp.compare({"far": far.source}, values)
    assert chosen.log_evidence["far"] == pytest.approx(far.log_evidence, abs=1e-2)


@pytest.mark.slow
def test_fit_never_ends_below_its_start():
    _, _, values, fit = fitted()
    again = sp.fit(fit.source, values, ["hazard", "segment.scale"], starts=2, steps=1)
    assert again.log_evidence >= fit.log_evidence


class TwoScales(sp.Segment):
    scales: jax.Array  # of the noise, and of the mean

    def statistic(self, x):
        return jnp.ones_like(x), x

    def predictive(self, statistics):
        count, total = statistics
        noise, mean = jnp.asarray(self.scales, float)
        weight = count + (noise / mean) ** 2
        return Normal(total / weight, noise**2 * (1 + 1 / weight))


def test_fit_takes_an_array_of_hyperparameters_as_it_is():
    values = np.random.default_rng(0).normal(size=20)
    known = sp.bayes_optimal(sp.Source(sp.Geometric(0.1), sp.Gaussian(0.0, 3.0, 2.0)))
    source = sp.Source(sp.Geometric(0.1), TwoScales(jnp.array([2.0, 3.0])))
    fit = sp.fit(source, values, ["scales"], starts=1, steps=5)
    assert fit.history[0, 0] == pytest.approx(float(known.log_density(values).sum()), abs=1e-4)
    assert fit.source.segment.scales[0] == pytest.approx(values.std(), rel=0.2)


def test_the_gradient_of_the_pruned_evidence_decides_once_what_is_pruned():
    """Reverse mode recomputes the states, with other rounding. If it also chose again what to
    prune, a near tie would make the gradient that of no function."""

    def evidence(hazard):
        source = sp.Source(sp.Geometric(hazard), sp.Gaussian())
        return sp.bayes_optimal(source, 5).log_density(np.zeros(130)).sum()

    assert str(jax.make_jaxpr(jax.grad(evidence))(0.1)).count(" argmin[") == 1


def use(segment, values):
    return sp.bayes_optimal(sp.Source(sp.Geometric(0.1), segment)).log_density(values)


def stream(segment, value):
    predictor = sp.bayes_optimal(sp.Source(sp.Geometric(0.1), segment))
    return predictor.update(predictor.init(), value)


BAD = {
    "finite.*got inf at position 2$": lambda: use(sp.Gaussian(), [0, 1, np.inf]),
    "got -inf at position 0 of sequence 1": lambda: use(sp.Gaussian(), [[0, 1], [-np.inf, 0]]),
    "from 0, got -1 at position 1": lambda: use(sp.Poisson(), [0, -1]),
    "whole numbers from 0, got 0.5 at position 1": lambda: use(sp.Poisson(), [0, 0.5]),
    "numbers from 0, got -2": lambda: use(sp.Exponential(), [-2.0]),
    "from 0 to 2, got 3 at position 1": lambda: use(sp.MarkovChain(3), [0, 3]),
    "column 1": lambda: use(sp.Independent(sp.Gaussian(), sp.Poisson()), [[0.5, 1], [0.5, -1]]),
    r"time, 2\).*got \(3,\)": lambda: use(sp.Independent(sp.Gaussian(), sp.Poisson()), [0, 1, 2]),
    r"one observation, got \(0,\)": lambda: use(sp.Gaussian(), []),
    "numbers, got 'a'": lambda: use(sp.Gaussian(), ["a", "b"]),
    "at most 1e[+]15": lambda: use(sp.Gaussian(), [1e20]),
    "value must be one number": lambda: stream(sp.Gaussian(), [1.0, 2.0]),
    "value must be finite.*got inf": lambda: stream(sp.Gaussian(), np.inf),
    "scale must be a finite number above 0, got 0.0": lambda: sp.Gaussian(scale=0),
    "mean must be a finite number, got nan": lambda: sp.Gaussian(mean=np.nan),
    "rate must be .* above 0, got -1.0": lambda: sp.Poisson(rate=-1),
    "order must be .* at least 1, got 0": lambda: sp.MarkovChain(3, 0),
    "at most 65536 contexts, got 10.9": lambda: sp.MarkovChain(10, 9),
    r"transition_probs\[1\] must sum to one, got a sum of 0.7": lambda: sp.HMM(
        [0.5, 0.5], [[0.5, 0.5], [0.5, 0.2]], np.eye(2)
    ),
    r"initial_probs must hold .* at least 0, got -1.0 at index 1": lambda: sp.HMM(
        [2, -1], np.eye(2), np.eye(2)
    ),
    r"transition_probs must have shape \(2, 2\).*got shape \(3, 3\)": lambda: sp.HMM(
        [1, 0], np.eye(3), np.eye(2)
    ),
    r"emission_probs must have a row .* each of 2 states, got shape \(3, 3\)": lambda: sp.HMM(
        [1, 0], np.eye(2), np.eye(3)
    ),
    r"emission_probs must be an array of 2 axes, got shape \(2,\)": lambda: sp.HMM(
        [1, 0], np.eye(2), [1, 0]
    ),
    "kinds must be at least one": lambda: sp.Mixture(),
    "kinds must have the evidence.*Poisson": lambda: sp.Mixture(sp.Poisson(), sp.Poisson(2.0)),
    "kinds must have the same .*, got single numbers from 0 for Exponential": lambda: sp.Mixture(
        sp.Gaussian(), sp.Exponential()
    ),
    "kinds must have the same .*, got vectors of numbers, numbers for Multi": lambda: sp.Mixture(
        sp.Gaussian(), sp.MultivariateNormal(2)
    ),
    "weights must be one for each of 2 kinds, got 3": lambda: sp.Mixture(
        sp.Gaussian(), sp.NormalGamma(), weights=[0.2, 0.3, 0.5]
    ),
    "sources must be at least one": lambda: sp.SourceMixture([]),
    "sources must be sources, .*got Gaussian": lambda: sp.SourceMixture([sp.Gaussian()]),
    "sources must have the same observations, got symbols of 2 of": lambda: sp.SourceMixture(
        [sp.Source(sp.LIN(), sp.Gaussian()), sp.Source(sp.LIN())]
    ),
    "weights must sum to one": lambda: sp.SourceMixture([sp.Source(sp.LIN())], weights=[0.5]),
    "source must be a Source to be fitted.*got a SourceMixture": lambda: sp.fit(
        sp.SourceMixture([sp.Source(sp.LIN())]), [0, 1]
    ),
    "columns must be": lambda: sp.Independent(),
    "single values.*got Independent": lambda: sp.Independent(sp.Independent(sp.Gaussian())),
    "parameters must be among prior.hazard, .*got 'rate'": lambda: sp.fit(
        sp.Source(sp.Geometric(0.1), sp.Gaussian()), [0.0, 1.0], ["rate"]
    ),
    "parameters must be among prior.hazard, .*got none": lambda: sp.fit(
        sp.Source(sp.Geometric(0.1), sp.Gaussian()), [0.0, 1.0], []
    ),
    "values must hold an observation, all 3 are missing": lambda: sp.fit(
        sp.Source(sp.Geometric(0.1), sp.Gaussian()), [np.nan] * 3
    ),
    "nothing to fit": lambda: sp.fit(sp.Source(sp.LIN(), Plain()), [0.0, 1.0]),
}


class Plain(sp.Segment):
    def statistic(self, x):
        return x

    def predictive(self, statistics):
        return Normal(0.0 * statistics, 1.0)


@pytest.mark.parametrize("message", BAD)
def test_bad_values(message):
    with pytest.raises(ValueError, match=message) as caught:
        BAD[message]()
    assert "\n" not in str(caught.value)


def test_real_values_have_no_alphabet():
    predictor = sp.bayes_optimal(sp.Source(sp.PTW(3), sp.Gaussian()))
    with pytest.raises(AttributeError, match="use log_density"):
        predictor.log_probs([0, 1])
