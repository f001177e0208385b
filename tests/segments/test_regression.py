"""Regression against textbook formulas in float64, and against the families it generalises."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from family_reference import Enumeration
from test_families import Tabulated

import switchpoint as sp
from switchpoint.segments import forecast
from switchpoint.segments.base import lift, log_density, observe
from switchpoint.segments.values import translated

SCALES = {
    "level_scale": 2.0,
    "slope_scale": 0.3,
    "season_scale": 0.7,
    "lag_scale": 0.5,
    "covariate_scale": 1.5,
    "shape": 1.3,
    "rate": 0.8,
    "level": 0.4,
}
KINDS = [
    {"slope": False},
    {},
    {"slope": False, "season": 3.5, "harmonics": 1},
    {"season": (4, 7)},
    {"lags": 1},
    {"season": 5, "harmonics": 1, "lags": 2},
    {"lags": 2, "covariates": 2},
]


def features_and_scales(segment, values):
    """The design matrix of one segment, and the prior standard deviations of its coefficients."""
    rows, values = (values, values[:, 0]) if segment.covariates else (values[:, None], values)
    times = np.arange(len(values))
    columns, scales = [np.ones(len(values))], [segment.level_scale]
    if segment.slope:
        columns.append(times)
        scales.append(segment.slope_scale)
    for period in segment.season:
        for j in range(1, min(segment.harmonics, int(period / 2)) + 1):
            angles = 2 * np.pi * j * times / period
            columns += [np.cos(angles), np.sin(angles)]
            scales += 2 * [segment.season_scale]
    for k in range(1, segment.lags + 1):
        earlier = [values[:i][~np.isnan(values[:i])] for i in times]
        columns.append([seen[-k] - segment.level if len(seen) >= k else 0.0 for seen in earlier])
        scales.append(segment.lag_scale)
    columns += list(rows.T[1:])
    scales += segment.covariates * [segment.covariate_scale]
    return np.stack(columns, -1), np.array(scales, float)


def log_marginal(segment, values):
    """ln p(values) of one segment: Bayesian linear regression, one observation after another."""
    design, scales = features_and_scales(segment, values)
    precision, mean = np.diag(1 / scales**2), np.zeros(len(scales))
    shape, rate, total = float(segment.shape), float(segment.rate), 0.0
    values = values[:, 0] if segment.covariates else values
    for f, y in zip(design, values - segment.level, strict=True):
        if np.isnan(y):
            continue
        spread = 1 + f @ np.linalg.solve(precision, f)
        law = sp.segments.StudentT(2 * shape, f @ mean, rate / shape * spread)
        total += float(law.log_density(y))
        rate += 0.5 * (y - f @ mean) ** 2 / spread
        shape += 0.5
        moment = precision @ mean + f * y
        precision = precision + np.outer(f, f)
        mean = np.linalg.solve(precision, moment)
    return total


def series(length, seed=0, missing=(0, 4, 5), covariates=0):
    rows = np.random.default_rng(seed).normal(size=(length, 1 + covariates))
    rows[:, 0] += 3
    rows[list(missing)] = np.nan
    return rows if covariates else rows[:, 0]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_evidence_of_a_segment_is_that_of_bayesian_linear_regression(kind):
    segment = sp.Regression(**kind, **SCALES)
    values = series(12, covariates=segment.covariates)
    with jax.enable_x64(True):
        truth = log_marginal(segment, values)
        start = jax.tree.map(jnp.asarray, segment.initial())
        runs = [lift(segment, jnp.asarray(x)) for x in values]

        def halves(low, high):  # the runs merged in a tree
            middle = (low + high) // 2
            if high - low == 1:
                return runs[low]
            return segment.merge(halves(low, middle), halves(middle, high))

        for run in (halves(0, len(runs)), functools.reduce(segment.merge, runs)):
            assert sum(segment.run_log_density(start, run)) == pytest.approx(truth, abs=1e-11)
        state, total = start, 0.0
        for x in values:
            total += log_density(segment, state, jnp.asarray(x))
            state = observe(segment, state, jnp.asarray(x))
        assert total == pytest.approx(truth, abs=1e-11)


def test_any_prior_is_the_sum_over_all_partitions(monkeypatch):
    segment = sp.Regression(season=3, harmonics=1, lags=1, covariates=1, **SCALES)
    monkeypatch.setattr("family_reference.log_marginal", log_marginal)
    values = series(9, missing=(3, 4), covariates=1)
    values[5:] += 4
    for prior in (sp.Geometric(0.2), sp.RandomUniform(4)):
        truth = Enumeration(prior, segment, values)
        with jax.enable_x64(True):
            bayes = sp.bayes_optimal(sp.Source(Tabulated.of(prior), segment))
            logs, posterior = bayes.log_density(values), bayes.posterior(values)
        np.testing.assert_allclose(logs, truth.log_density(), atol=1e-10)
        smoothed = truth.switch_smoothed()
        np.testing.assert_allclose(posterior.switch_smoothed[1:], smoothed[1:], atol=1e-10)


@pytest.mark.parametrize(
    ("prior", "slope"), [(sp.Geometric(0.05), True), (sp.PTW(6), False)], ids=["trend", "level"]
)
def test_trends_and_levels_are_special_cases(prior, slope):
    shared = {"shape": 1.3, "rate": 0.8}
    special = (
        sp.Trend(level_scale=2.0, slope_scale=0.3, level=0.4, **shared)
        if slope
        else sp.NormalGamma(mean=0.4, strength=0.25, **shared)
    )
    general = sp.Regression(slope=slope, level_scale=2.0, slope_scale=0.3, level=0.4, **shared)
    values = series(60)
    values[30:] += 5
    with jax.enable_x64(True):
        posteriors = [
            sp.bayes_optimal(sp.Source(prior, segment)).posterior(values)
            for segment in (special, general)
        ]
    for name in ("log_marginal", "switch_filtered", "switch_smoothed", "level_mean", "level_std"):
        np.testing.assert_allclose(*(getattr(each, name) for each in posteriors), atol=1e-10)


def test_single_precision_keeps_the_digits_of_differences():
    segment = sp.Regression(season=7, harmonics=1, lags=1, lag_scale=0.5)
    near = series(200, missing=(50,))
    far = sp.Regression(season=7, harmonics=1, lags=1, lag_scale=0.5, level=1e6)
    with jax.enable_x64(True):
        logs = sp.bayes_optimal(sp.Source(sp.Geometric(0.01), segment)).log_density(near)
    moved = sp.bayes_optimal(sp.Source(sp.Geometric(0.01), far)).log_density(near + 1e6)
    np.testing.assert_allclose(moved, logs, atol=1e-4)


def test_streams_equal_whole_sequences():
    segment, values = sp.Regression(season=5, harmonics=1, lags=1, **SCALES), series(40)
    bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.05), segment))
    stream = sp.Stream(bayes)
    logs = [stream.update(float(x)) for x in values]
    with jax.enable_x64(True):
        whole = bayes.log_density(values)
    np.testing.assert_allclose(logs, whole, atol=1e-9)


def test_autocorrelated_noise_is_no_change_where_a_lag_models_it():
    rng = np.random.default_rng(1)
    values = np.zeros(300)
    for t in range(1, 300):
        values[t] = 0.8 * values[t - 1] + rng.normal()
    lagged = sp.bayes_optimal(sp.Source(sp.Geometric(0.005), sp.Regression(lags=1)))
    plain = sp.bayes_optimal(sp.Source(sp.Geometric(0.005), sp.Regression()))
    posterior = lagged.posterior(values)
    assert not posterior.map_switches.any()
    assert posterior.log_marginal > plain.log_density(values).sum() + 20


def test_samples_follow_the_model():
    segment = sp.Regression(slope=False, lags=1, lag_scale=0.1, level=5.0, shape=50.0, rate=50.0)
    draw = sp.Source(sp.RegularPeriodic(40), segment).sample(jax.random.key(0), 500, 40)
    values = np.asarray(draw.values)
    mean = values[:, 0].mean()
    assert mean == pytest.approx(5.0, abs=5 * np.sqrt(2 / 500))
    assert values[:, 0].var() == pytest.approx(2.0, rel=0.35)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"season": 1.5}, "at least 2 observations, got 1.5"),
        ({"season": (7, 7)}, "twice"),
        ({"lags": -1}, "lags"),
        ({"harmonics": 0}, "harmonics"),
        ({"slope_scale": 0.0}, "slope_scale"),
    ],
    ids=str,
)
def test_impossible_regressions_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        sp.Regression(**arguments)


@pytest.mark.parametrize(
    "segment",
    [
        sp.Trend(level_scale=2.0, slope_scale=0.3, shape=1.3, rate=0.8, level=0.4),
        sp.Regression(season=6.5, harmonics=1, **SCALES),
        sp.Mixture(sp.Regression(slope=False), sp.Trend()),
    ],
    ids=lambda segment: type(segment).__name__,
)
def test_a_forecast_is_the_prediction_after_missing_values(segment):
    values, levels = series(40) + 1e6, [0.1, 0.5, 0.9]
    segment = translated(segment, -1e6)
    with jax.enable_x64(True):
        ahead = forecast(segment, values, 3, levels)
        bayes = sp.KT(segment)
        state, _ = bayes.extend(bayes.init(), values)
        for h in range(3):
            predictive = bayes.predict(state)
            assert ahead.mean[h] == pytest.approx(float(predictive.mean), abs=1e-8)
            expected = [float(predictive.quantile(level)) for level in levels]
            np.testing.assert_allclose(ahead.quantiles[h], expected, rtol=0, atol=1e-8)
            state = bayes.update(state, np.nan)


def test_forecasts_of_trends_and_levels_are_special_cases():
    values, shared = series(30), {"shape": 1.3, "rate": 0.8}
    line = sp.Trend(level_scale=2.0, slope_scale=0.3, level=0.4, **shared)
    with jax.enable_x64(True):
        for slope, special in ((True, line), (False, sp.NormalGamma(0.4, 0.25, **shared))):
            general = sp.Regression(
                slope=slope, level_scale=2.0, slope_scale=0.3, level=0.4, **shared
            )
            one, other = (forecast(each, values, 4) for each in (general, special))
            np.testing.assert_allclose(one.mean, other.mean, rtol=0, atol=1e-10)
            np.testing.assert_allclose(one.quantiles, other.quantiles, rtol=0, atol=1e-10)


def test_a_forecast_with_lags_and_covariates_is_that_of_the_process():
    rng, phi, effect, given = np.random.default_rng(0), 0.8, 2.0, np.array([1.0, -1.0, 0.0])
    covariate, noise = rng.normal(size=(2, 3000))
    values = np.zeros(3000)
    for t in range(1, 3000):
        values[t] = phi * values[t - 1] + effect * covariate[t] + noise[t]
    segment = sp.Regression(slope=False, lags=1, covariates=1, level_scale=0.1)
    rows = np.stack([values, covariate], -1)
    ahead = forecast(segment, rows, 3, [0.5, 0.8413], covariates=given[:, None])
    level, variance = values[-1], 0.0
    for h, c in enumerate(given):
        level, variance = phi * level + effect * c, phi**2 * variance + 1
        assert ahead.mean[h] == pytest.approx(
            level, abs=0.15
        )  # 4 standard errors of 3 coefficients
        spread = ahead.quantiles[h, 1] - ahead.quantiles[h, 0]
        assert spread == pytest.approx(variance**0.5, rel=0.12)
    with pytest.raises(ValueError, match=r"covariates must have shape \(3, 1\), got \(3, 0\)"):
        forecast(segment, rows, 3)
