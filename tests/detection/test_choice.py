"""The kind of segments that `detect` chooses, and false changes where the noise has a memory."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest

import switchpoint as sp


def autoregression(phi, seed, length=500):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=length)
    values[0] /= np.sqrt(1 - phi**2)
    for t in range(1, length):
        values[t] += phi * values[t - 1]
    return values


def daily(seed, step=0.0):
    """Two years of days with a yearly and a weekly season."""
    times = np.arange(730)
    seasons = 10 * np.sin(2 * np.pi * times / 365.25) + 3 * (times % 7 >= 5)
    noise = np.random.default_rng(seed).normal(size=730)
    return seasons + noise + step * (times >= 400)


def test_levels_and_lines_are_told_apart_by_their_evidence():
    noise = np.random.default_rng(0).normal(size=150)
    steps = sp.detect(noise + 5 * (np.arange(150) >= 70))
    (choice,) = steps.choices
    assert choice.chosen.segment == "level"
    assert isinstance(steps.source.segment, sp.NormalGamma)
    assert [each.segment for each in choice.candidates] == ["level", "trend"]
    assert choice.candidates[0].log_evidence > choice.candidates[1].log_evidence
    (line,) = sp.detect(noise + 0.1 * np.arange(150)).choices
    assert line.chosen.segment == "trend"
    assert str(line).startswith("trend, by evidence: level e^")
    content = json.loads(steps.to_json())["summary"]
    assert content["choices"] == [json.loads(json.dumps(choice.summary))]
    assert abs(content["checks"][0]["autocorrelation"]) < 0.3
    assert not sp.detect(noise, segment="level").choices


def test_the_evidence_of_the_chosen_kind_is_that_of_the_result():
    values = np.random.default_rng(0).normal(size=100) + np.repeat([0, 3], 50)
    result = sp.detect(values)
    scale = result.choices[0].chosen.log_evidence - result.log_evidence
    given = sp.detect(values, segment="trend")
    (other,) = (each for each in result.choices[0].candidates if each.segment == "trend")
    assert other.log_evidence - given.log_evidence == pytest.approx(scale, abs=1e-3)


@pytest.mark.parametrize(("phi", "most"), [(0.5, 1), (0.7, 1), (0.9, 4)])
def test_autocorrelated_noise_has_hardly_any_change(phi, most):
    results = [sp.detect(autoregression(phi, seed)) for seed in (0, 1)]
    assert sum(len(each.changepoints) for each in results) <= most
    for each in results:
        assert each.choices[0].chosen.segment == "autocorrelated"
        assert each.choices[0].alternative.startswith("with independent noise: ")
        assert "lower" in each.choices[0].alternative
        assert not each.warnings


def test_a_step_in_autocorrelated_noise_is_found():
    for seed in (0, 1):
        values = autoregression(0.5, seed)
        values[250:] += 3 / np.sqrt(1 - 0.25)
        assert np.abs(sp.detect(values).changepoints - 250).min() <= 5


def test_a_lag_is_not_taken_for_a_random_walk():
    walk = np.cumsum(np.random.default_rng(1).normal(size=300))
    (choice,) = sp.detect(walk).choices
    assert choice.chosen.segment != "autocorrelated"
    assert choice.autocorrelation > 0.9
    assert "higher; not taken" in choice.alternative


@pytest.mark.slow
def test_seasons_of_the_calendar_are_no_changes():
    days = pd.date_range("2021-01-01", periods=730)
    result = sp.detect(daily(0), days)
    assert result.choices[0].chosen.season == (7.0, 365.25)
    assert result.changepoints.tolist() == []
    assert sp.detect(daily(0, step=5)).changepoints.tolist() == [400]  # by the week alone


@pytest.mark.parametrize("values", [autoregression(0.5, 3, 200), np.repeat([0.0, 3, 1, 4], 40)])
def test_fewer_changes_for_less_sensitivity(values):
    values = values + np.random.default_rng(0).normal(size=len(values))
    settings = (1e-6, 1e-3, 0.1, 1, 5, 20, 100, 400)
    results = [sp.detect(values, segment="level", sensitivity=each) for each in settings]
    expected = [each.switch_probability.sum() for each in results]
    assert all(a < b for a, b in itertools.pairwise(expected))
    counts = [len(each.changepoints) for each in results]
    assert counts == sorted(counts)


def test_columns_are_chosen_one_by_one():
    rng = np.random.default_rng(0)
    both = np.stack([rng.normal(size=120), 0.2 * np.arange(120) + rng.normal(size=120)], axis=-1)
    result = sp.detect(both)
    assert [each.chosen.segment for each in result.choices] == ["level", "trend"]
    assert [type(each) for each in result.source.segment.columns] == [sp.NormalGamma, sp.Trend]


# --- several columns --------------------------------------------------------------------------


def correlated(seed=0):
    return np.random.default_rng(seed).multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], size=200)


def test_a_column_that_is_repeated_counts_once():
    values = np.random.default_rng(0).normal(size=120) + 1.2 * (np.arange(120) >= 60)
    once, often = sp.detect(values), sp.detect(np.outer(values, np.arange(1, 11)))
    assert often.changepoints.tolist() == once.changepoints.tolist()
    assert often.log_evidence == pytest.approx(once.log_evidence)
    assert "follow from the others and say nothing more: 1, 2, 3" in often.joint
    assert often.segments["level_9"].notna().all()
    assert json.loads(often.to_json())["summary"]["joint"] == often.joint


def test_columns_that_are_almost_alike_hide_no_step():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200, 1)) + 1e-3 * rng.normal(size=(200, 6))
    assert sp.detect(values).changepoints.tolist() == []
    values[120:] += 4
    result = sp.detect(values)
    assert result.changepoints.tolist() == [120]
    assert result.joint.startswith("correlated, by evidence: independent columns e^")


def test_a_change_of_the_correlation_is_a_change():
    values = correlated()
    quiet = sp.detect(values)
    assert quiet.changepoints.tolist() == []
    assert isinstance(quiet.source.segment, sp.MultivariateNormal)
    np.testing.assert_allclose(quiet.expected[0], values.mean(0), atol=0.1)
    scaled = sp.detect(values * [1, 1000])
    assert scaled.log_evidence == pytest.approx(quiet.log_evidence - 200 * np.log(1000), abs=1e-3)
    values[100:, 1] *= -1
    values[5] = 50, 0
    changed = sp.detect(values)
    assert abs(changed.changepoints[0] - 100) <= 2
    assert len(changed.changepoints) == 1
    assert changed.outliers["position"].tolist() == [5, 5]


def test_incomplete_rows_of_correlated_columns_are_told():
    values = correlated()
    values[7, 0] = np.nan
    result = sp.detect(values)
    assert isinstance(result.source.segment, sp.Independent)
    assert "some rows are incomplete" in result.joint
    values[7] = np.nan
    assert isinstance(sp.detect(values).source.segment, sp.MultivariateNormal)


def test_constant_and_collinear_columns_are_answered():
    noise = np.random.default_rng(0).normal(size=100)
    columns = np.stack([np.full(100, 3.0), noise, 2 * noise + 1], axis=-1)
    result = sp.detect(columns)
    assert result.changepoints.tolist() == []
    assert "0, 2" in result.joint
    assert np.isfinite(result.log_evidence)
    assert sp.detect(np.zeros((50, 3))).changepoints.tolist() == []


# --- counts -----------------------------------------------------------------------------------


def test_counts_with_more_variance_than_poissons_are_negative_binomial():
    rng = np.random.default_rng(0)
    means = np.repeat([40, 900, 100], 100)
    calm = sp.detect(rng.poisson(means), segment="counts")
    assert isinstance(calm.source.segment, sp.Poisson)
    assert calm.changepoints.tolist() == [100, 200]
    wild = sp.detect(rng.negative_binomial(5, 5 / (5 + means)), segment="counts")
    assert isinstance(wild.source.segment, sp.NegativeBinomial)
    assert len(wild.changepoints) == 2
    assert np.abs(wild.changepoints - [100, 200]).max() <= 3
    assert wild.choices[0].chosen.segment == "overdispersed counts"
    assert isinstance(sp.detect(np.zeros(40), segment="counts").source.segment, sp.Poisson)
