"""Series whose noise contradicts the model of `detect`, and models that have it."""

import numpy as np
import pytest

import switchpoint as sp
from switchpoint.detection.checks import noise_dependence


def autoregression(phi, length, rng):
    values = rng.normal(size=length)
    values[0] /= np.sqrt(1 - phi**2)
    for t in range(1, length):
        values[t] += phi * values[t - 1]
    return values


def test_independent_noise_is_hardly_ever_taken_for_autocorrelated():
    flagged = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        noise = rng.normal(size=300) if seed % 2 else rng.standard_t(3, size=300)
        values = noise + np.repeat([0, 4, -3], 100) + 0.01 * np.arange(300)
        values[rng.integers(300, size=20)] = np.nan
        flagged += noise_dependence(values) != (None, None)
    assert flagged <= 4


@pytest.mark.parametrize("phi", [0.5, 0.7, 0.9])
def test_the_autocorrelation_of_noise_is_estimated_beside_changes(phi):
    estimates = []
    for seed in range(30):
        values = autoregression(phi, 500, np.random.default_rng(seed))
        values[200:] += 10
        estimates.append(noise_dependence(values).autocorrelation)
    assert None not in estimates
    # The standard deviation of one estimate is about 0.06.
    assert np.mean(estimates) == pytest.approx(phi, abs=5 * 0.06 / np.sqrt(30))


@pytest.mark.parametrize("period", [7, 12, 24])
def test_a_season_is_seen_with_its_shortest_period(period):
    times = np.arange(20 * period)
    wave = np.sin(2 * np.pi * times / period) + 0.5 * np.cos(4 * np.pi * times / period)
    values = 5 * wave + np.random.default_rng(0).normal(size=len(times))
    values[len(times) // 2 :] += 20
    assert noise_dependence(values) == (None, period)


@pytest.mark.parametrize(
    "values", [np.ones(100), np.arange(5.0), np.full(100, np.nan), np.arange(1871.0, 1971.0)]
)
def test_series_that_say_nothing_are_not_judged(values):
    assert noise_dependence(values) == (None, None)


@pytest.mark.slow
def test_autocorrelated_noise_is_no_change_where_the_model_has_it():
    changes, misses = 0, 0
    for seed in range(6):
        values = autoregression(0.5, 250, np.random.default_rng(seed))
        changes += len(sp.detect(values, segment="autocorrelated").changepoints)
        values[125:] += 4 / np.sqrt(1 - 0.25)
        found = sp.detect(values, segment="autocorrelated")
        misses += not np.any(np.abs(found.changepoints - 125) <= 5)
    assert (changes, misses) == (0, 0)
    values = autoregression(0.8, 250, np.random.default_rng(0))
    plain = sp.detect(values, segment="trend")
    assert len(plain.changepoints) > 3
    (sentence,) = plain.warnings
    assert "autocorrelated" in sentence
    assert plain.summary["warnings"] == plain.warnings
    assert not found.warnings


@pytest.mark.slow
def test_a_season_is_no_change_where_the_model_has_it():
    times = np.arange(240)
    values = 3 * np.sin(2 * np.pi * times / 24) + np.random.default_rng(1).normal(size=240) / 3
    plain, seasonal = sp.detect(values, segment="trend"), sp.detect(values, season=24)
    assert len(plain.changepoints) > 5
    assert "season 24" in plain.warnings[0]
    assert len(seasonal.changepoints) == 0
    assert not seasonal.warnings
    values[120:] += 3
    assert sp.detect(values, season=24).changepoints.tolist() == [120]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"season": 30}, "at most half of the 50 observations, got 30"),
        ({"season": 1}, "at least 2 observations"),
        ({"season": 7, "segment": "counts"}, "a trend or a level, got segment 'counts'"),
        ({"season": 7, "source": sp.Source(sp.Geometric(0.1), sp.Trend())}, "with a source"),
    ],
    ids=str,
)
def test_impossible_seasons_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        sp.detect(np.arange(50.0), **arguments)
