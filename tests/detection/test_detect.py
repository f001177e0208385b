"""`detect`: change points of simulated and of real series, and helpful answers to everything."""

import io
import itertools
import json
import math
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_t
from trend_reference import GeometricSegmentation, trend_log_marginals

import switchpoint as sp
from switchpoint.cli import main
from switchpoint.detection.fits import fit_segment
from switchpoint.detection.times import read_times
from switchpoint.segments.base import log_density, observe, prior_statistics

ROOT = Path(__file__).parents[2]
NILE = pd.read_csv(ROOT / "examples" / "nile.csv")
COAL = pd.read_csv(ROOT / "examples" / "coal.csv")
LENGTH = 120  # of simulated series, always the same: one compilation serves all


def noise(seed=0, length=LENGTH):
    return np.random.default_rng(seed).normal(size=length)


def shift(seed=0, size=4.0, at=70):
    """Noise whose level jumps."""
    return noise(seed) + size * (np.arange(LENGTH) >= at)


# --- the reference ----------------------------------------------------------------------------

SETTING = (2.0, 0.3, 1.5, 0.7)  # level_scale, slope_scale, shape, rate


def test_the_reference_knows_the_density_of_a_segment():
    level_scale, slope_scale, shape, rate = SETTING
    values = 0.3 * np.arange(7) + noise(length=7)
    values[2] = np.nan
    table = trend_log_marginals(values, *SETTING)
    for start, end in itertools.combinations(range(8), 2):
        at = np.flatnonzero(~np.isnan(values[start:end]))
        if len(at) == 0:
            assert table[start, end] == pytest.approx(0, abs=1e-12)
            continue
        covariance = np.eye(len(at)) + level_scale**2 + slope_scale**2 * np.outer(at, at)
        density = multivariate_t(shape=rate / shape * covariance, df=2 * shape)
        assert table[start, end] == pytest.approx(density.logpdf(values[start:end][at]))


def test_the_reference_sums_over_partitions():
    hazard, values = 0.2, np.cumsum(noise(length=7))
    table = trend_log_marginals(values, *SETTING)
    found = GeometricSegmentation(table, hazard)
    scores = {}
    for switches in itertools.product([False, True], repeat=6):
        edges = [0, *(np.flatnonzero(switches) + 1).tolist(), 7]
        count = len(edges) - 2
        scores[tuple(edges[1:-1])] = (
            sum(table[pair] for pair in itertools.pairwise(edges))
            + count * math.log(hazard)
            + (6 - count) * math.log1p(-hazard)
        )
    logs = np.array(list(scores.values()))
    evidence = np.logaddexp.reduce(logs)
    assert found.log_evidence == pytest.approx(evidence)
    best, log_prob = found.most_probable()
    assert tuple(best) == max(scores, key=scores.get)
    assert log_prob == pytest.approx(logs.max() - evidence)
    probability = [
        sum(math.exp(score - evidence) for at, score in scores.items() if t in at) for t in range(7)
    ]
    np.testing.assert_allclose(found.switch_probability(), probability, atol=1e-12)


@pytest.mark.slow
def test_the_exact_core_agrees_with_the_reference_on_a_series_of_real_length():
    values = np.concatenate([0.05 * np.arange(80), 3 - 0.02 * np.arange(50), noise(1, 70)])
    values += 0.3 * noise(2, 200)
    values[[3, 100, 101, 199]] = np.nan
    reference = GeometricSegmentation(trend_log_marginals(values, *SETTING), 0.01)
    source = sp.Source(sp.Geometric(0.01), sp.Trend(*SETTING))
    for x64, tolerance in ((False, 2e-3), (True, 1e-8)):
        with jax.enable_x64(x64):
            posterior = sp.bayes_optimal(source).posterior(values)
            assert float(posterior.log_marginal) == pytest.approx(
                reference.log_evidence, rel=tolerance
            )
            np.testing.assert_allclose(
                posterior.switch_smoothed, reference.switch_probability(), atol=tolerance
            )
            found = np.flatnonzero(posterior.map_switches).tolist()
            assert found == reference.most_probable()[0]


# --- what is found ----------------------------------------------------------------------------


def test_a_jump_is_found_where_it_is():
    found = sp.detect(shift())
    assert found.changepoints.tolist() == [70]
    assert found.probability[0] > 0.9
    assert found.intervals[0, 0] <= 70 <= found.intervals[0, 1]
    assert found.no_switch_probability < 1e-6
    assert found.switch_probability.shape == (LENGTH,)
    assert found.switch_probability[70] == found.probability[0]
    assert "120 observations, 1 change point at 70" in repr(found)


@pytest.mark.slow
def test_jumps_are_found_and_noise_is_left_alone():
    hits, false_alarms = 0, 0
    for seed in range(15):
        found = sp.detect(shift(seed, size=3.0)).changepoints
        hits += bool(len(found)) and abs(found - 70).min() <= 3
        false_alarms += len(sp.detect(noise(seed)).changepoints) > 0
    assert hits >= 13
    assert false_alarms <= 1


def test_a_trend_is_no_change_and_a_bend_is_one():
    times = np.arange(LENGTH)
    assert sp.detect(0.2 * times + noise()).changepoints.tolist() == []
    bend = np.where(times < 60, 0.3 * times, 18 - 0.3 * (times - 60)) + noise()
    found = sp.detect(bend)
    assert len(found.changepoints) == 1
    assert abs(found.changepoints[0] - 60) <= 6
    np.testing.assert_allclose(found.segments["slope"], [0.3, -0.3], atol=0.05)


def test_a_change_of_noise_is_a_change():
    found = sp.detect(noise() * np.where(np.arange(LENGTH) < 60, 0.3, 3.0))
    assert len(found.changepoints) == 1
    assert abs(found.changepoints[0] - 60) <= 5


@pytest.mark.slow
def test_columns_have_common_switches():
    both = np.stack([shift(1, 1.6), shift(2, -1.6)], axis=-1)
    found = sp.detect(both)
    assert len(found.changepoints) == 1
    assert abs(found.changepoints[0] - 70) <= 3
    assert found.no_switch_probability < min(
        sp.detect(column).no_switch_probability for column in both.T
    )
    assert {"level_0", "level_1", "noise_1"} <= set(found.segments.columns)
    alike = sp.detect(pd.DataFrame(both, columns=["x", "x"]))
    assert alike.segments.equals(found.segments)  # where names would not tell them apart


@pytest.mark.slow
def test_columns_of_different_kinds():
    rate = np.where(np.arange(LENGTH) < 70, 2.0, 6.0)
    counts = np.random.default_rng(0).poisson(rate)
    frame = pd.DataFrame({"x": noise(3), "n": counts})
    found = sp.detect(frame, segment=["level", "counts"])
    assert len(found.changepoints) == 1
    assert abs(found.changepoints[0] - 70) <= 3
    segment = found.source.segment
    assert [type(each) for each in segment.columns] == [sp.NormalGamma, sp.Poisson]
    assert list(found.segments["level_n"]) == [counts[slice(*b)].mean() for b in found.bounds]


def test_the_nile_changed_in_1899():
    found = sp.detect(NILE["flow"], NILE["year"])
    assert found.changepoints.tolist() == [1899 - 1871]
    assert found.segments["last_time"].tolist() == ["1898", "1970"]
    begin, end = found.intervals[0] + 1871
    assert 1895 <= begin <= 1899 <= end <= 1902


def test_mines_became_safer_about_1890():
    found = sp.detect(COAL["disasters"], COAL["year"], segment="counts")
    assert len(found.changepoints) == 1
    assert 1886 <= found.changepoints[0] + 1851 <= 1894
    np.testing.assert_allclose(found.segments["level"], [3.1, 0.9], atol=0.1)
    bands = found.plot().axes[0].collections
    lowest = [path.vertices[:, 1].min() for band in bands for path in band.get_paths()]
    assert min(lowest) == 0  # there are no negative counts


@pytest.mark.slow
def test_waiting_times():
    scale = np.where(np.arange(LENGTH) < 70, 10.0, 1.0)
    found = sp.detect(np.random.default_rng(0).exponential(scale), segment="waiting-times")
    assert len(found.changepoints) == 1
    assert abs(found.changepoints[0] - 70) <= 4


@pytest.mark.slow
def test_a_source_of_your_own_sees_the_values_as_they_are():
    source = sp.Source(sp.Geometric(0.01), sp.Gaussian(0.0, 10.0, 1.0))
    found = sp.detect(shift(), source=source)
    posterior = sp.bayes_optimal(source).posterior(shift())
    assert found.changepoints.tolist() == np.flatnonzero(posterior.map_switches).tolist() == [70]
    assert found.log_evidence == pytest.approx(float(posterior.log_marginal))
    # `detect` fills the series up with missing observations, which must not matter.
    np.testing.assert_allclose(found.switch_probability, posterior.switch_smoothed, atol=1e-4)
    (interval,) = posterior.switch_intervals()
    assert found.intervals.tolist() == [[interval.begin, interval.end]]
    assert found.no_switch_probability == pytest.approx(
        float(posterior.no_switch_within(0, LENGTH - 1)), rel=1e-2
    )
    bits = (np.arange(LENGTH) >= 70).astype(int)
    found = sp.detect(bits, source=sp.Source(sp.Geometric(0.01), sp.Bernoulli()))
    assert found.changepoints.tolist() == [70]
    assert found.segments["p1"].tolist() == [0, 1]


# --- what must not matter, and what must ------------------------------------------------------


@pytest.mark.parametrize(("scale", "offset"), [(1e6, -1e7), (1e-6, 0.0), (-3.0, 1e5)])
def test_units_do_not_matter(scale, offset):
    values = shift(4, size=2.0)
    plain, other = sp.detect(values), sp.detect(scale * values + offset)
    assert plain.changepoints.tolist() == other.changepoints.tolist()
    np.testing.assert_allclose(plain.switch_probability, other.switch_probability, atol=1e-3)
    np.testing.assert_allclose(
        scale * plain.segments["level"] + offset, other.segments["level"], rtol=1e-6
    )
    units = math.log(abs(scale)) * LENGTH
    assert other.log_evidence == pytest.approx(plain.log_evidence - units, abs=0.05)


def test_labels_of_time_do_not_matter():
    values = shift()
    plain = sp.detect(values)
    for times in (
        pd.date_range("2020-01-01", periods=LENGTH, freq="D"),
        pd.date_range("2000-01-31", periods=LENGTH, freq="ME"),
        pd.period_range("1990Q1", periods=LENGTH, freq="Q"),
        [f"{1900 + t}" for t in range(LENGTH)],
        np.linspace(0, 1, LENGTH),
    ):
        dated = sp.detect(values, times)
        assert dated.changepoints.tolist() == plain.changepoints.tolist()
        assert dated.segments["first_time"].iloc[0] == dated.series.times.labels[0]
    series = pd.Series(values, pd.date_range("2020-01-01", periods=LENGTH), name="x")
    assert sp.detect(series).segments["first_time"].tolist() == ["2020-01-01", "2020-03-11"]
    frame = series.rename_axis("day").reset_index()
    assert sp.detect(frame, times="day").segments.equals(sp.detect(series).segments)


def test_a_few_outliers_leave_the_rest_alone():
    values = shift()
    values[[20, 100]] = 1e8, -1e8
    found = sp.detect(values)
    assert found.changepoints.tolist() == [70]
    assert found.outliers["position"].tolist() == [20, 100]
    assert found.outliers["value"].tolist() == [1e8, -1e8]
    np.testing.assert_allclose(found.outliers["expected"], found.segments["level"], atol=1)
    assert (found.outliers["probability"] > 0.99).all()
    assert found.segments["noise"].max() < 2  # without the outliers
    content = json.loads(found.to_json())
    assert content["outliers"] == found.outlier_rows()
    assert len(sp.detect(shift()).outliers) == 0


@pytest.mark.parametrize("row", [0, 1, 27, 28, 29, 50, 99])
def test_one_outlier_hides_no_change_of_the_nile(row):
    values = NILE["flow"].to_numpy(float).copy()
    values[row] = 2000
    found = sp.detect(values)
    assert len(found.changepoints) == 1
    assert abs(found.changepoints[0] - 28) <= 1
    assert found.outliers["position"].tolist() == [row]


def test_heavy_tails_are_outliers_and_short_segments_are_none():
    changes = outliers = found_short = 0
    for seed in range(4):
        tails = sp.detect(np.random.default_rng(seed).standard_t(3, size=500))
        changes += len(tails.changepoints)
        outliers += len(tails.outliers)
        short = sp.detect(noise(seed) + 6 * (np.arange(LENGTH) // 5 == 12))
        found_short += short.changepoints.tolist() == [60, 65]
    assert (changes, found_short) == (0, 4)
    assert outliers > 8


def test_an_outlier_of_one_column_is_none_of_the_others():
    both = np.stack([shift(1), shift(2)], axis=-1)
    both[40, 1] = 50
    found = sp.detect(both)
    assert found.changepoints.tolist() == [70]
    assert found.outliers[["position", "column"]].values.tolist() == [[40, "1"]]


def test_a_fit_predicts_each_value_from_the_others():
    values = np.random.default_rng(0).normal(size=(20, 3))
    values[5] = np.nan
    regression = sp.Regression(season=7, lags=1, level_scale=2.0, level=0.3)
    for family, columns in (
        (sp.NormalGamma(0.3, 0.5, 2.0, 0.7), 1),
        (sp.Trend(2.0, 0.1, 3.0, 1.0, 0.4), 1),
        (regression, 1),
        (sp.MultivariateNormal(3, [0.1, 0.2, 0.3], 0.5, 2.0, 0.7), 3),
    ):
        each = values[:, :columns]
        with jax.enable_x64(True):
            statistics = prior_statistics(family)
            for x in each[:-1] if columns > 1 else each[:-1, 0]:
                statistics = observe(family, statistics, x)
            last = each[-1] if columns > 1 else each[-1, 0]
            expected = float(log_density(family, statistics, last))
        fit = fit_segment(family, each, np.arange(20.0), ~np.isnan(each[:, 0]))
        assert fit.log_density[-1] == pytest.approx(expected, abs=1e-9)
        assert np.flatnonzero(np.isnan(fit.log_density)).tolist() == [5]


def test_missing_observations_tell_nothing():
    values = shift()
    gaps = values.copy()
    gaps[::3] = np.nan
    gaps[30:50] = np.nan
    found = sp.detect(gaps)
    assert len(found.changepoints) == 1
    assert abs(found.changepoints[0] - 70) <= 2
    assert found.segments["observations"].sum() == np.isfinite(gaps).sum()
    ends = values.copy()
    ends[:10], ends[-10:] = np.nan, np.nan
    assert sp.detect(ends).changepoints.tolist() == [70]
    hidden = sp.detect(np.where(np.arange(LENGTH) // 10 == 7, np.nan, shift(at=75)))
    assert hidden.intervals[0, 0] <= 71  # the switch is anywhere in the gap
    assert hidden.intervals[0, 1] >= 79


def test_higher_sensitivity_makes_no_change_less_probable():
    values = shift(5, size=1.2)
    chances = [
        sp.detect(values, sensitivity=sensitivity).no_switch_probability
        for sensitivity in (0.1, 1, 5, 20, 100)
    ]
    assert all(a > b for a, b in itertools.pairwise(chances))
    flat = sp.detect(noise(), sensitivity=5)
    assert flat.source.prior.hazard == pytest.approx(0.005)


def test_the_last_segment_goes_on_in_the_units_of_the_data():
    values = 5e4 + 1e3 * (shift() + 0.1 * np.maximum(np.arange(LENGTH) - 70, 0))
    segmentation = sp.detect(values)
    ahead = segmentation.forecast(3, quantiles=[0.1, 0.9])
    assert list(ahead.columns) == ["step", "mean", "quantile_0.1", "quantile_0.9"]
    line = np.polyfit(np.arange(70, LENGTH), values[70:], 1)
    expected = np.polyval(line, LENGTH + np.arange(3))
    np.testing.assert_allclose(ahead["mean"], expected, atol=200)  # a fifth of the noise
    width = ahead["quantile_0.9"] - ahead["quantile_0.1"]
    assert np.all((width > 2000) & (width < 3600))  # 2.56 standard deviations, of about 1000
    with pytest.raises(ValueError, match=r"horizon must be .* at least 1, got 0"):
        segmentation.forecast(0)


def test_wider_intervals_for_higher_coverage():
    widths = [
        int(np.ptp(sp.detect(shift(6, size=2.0), coverage=coverage).intervals[0]))
        for coverage in (0.5, 0.9, 0.99)
    ]
    assert widths[0] < widths[1] < widths[2]


@pytest.mark.slow
def test_intervals_contain_a_switch_as_often_as_they_say(key):
    source = sp.Source(sp.Geometric(0.03), sp.NormalGamma(0.0, 0.02, 3.0, 3.0))
    draw = source.sample(key, 40, 60)
    told, true = [], []
    for values, switches in zip(np.asarray(draw.values), np.asarray(draw.switches), strict=True):
        found = sp.detect(values, source=source)
        told += found.interval_probability.tolist()
        true += [switches[begin : end + 1].any() for begin, end in found.intervals.tolist()]
    told = np.array(told)
    error = math.sqrt((told * (1 - told)).sum()) / len(told)
    assert len(told) > 40
    assert abs(np.mean(true) - told.mean()) < 4 * error
    assert np.mean(told >= 0.9) > 0.8


@pytest.mark.slow
def test_fitting_raises_the_evidence():
    values = shift(7, size=2.0)
    plain, fitted = sp.detect(values), sp.detect(values, fit=True)
    assert fitted.log_evidence >= plain.log_evidence
    assert 70 in fitted.changepoints


# --- the result -------------------------------------------------------------------------------


def test_an_exact_line_has_no_noise():
    assert sp.detect(np.arange(60.0)).segments[["slope", "noise"]].values.tolist() == [[1, 0]]


def test_segments_are_described_by_least_squares():
    values = shift() * 10 + 500
    values[[5, 75]] = np.nan
    frame = sp.detect(values, segment="trend").segments
    assert frame["start"].tolist() == [0, 70]
    assert frame["end"].tolist() == [70, 120]
    for row in frame.itertuples():
        at = np.flatnonzero(~np.isnan(values[row.start : row.end]))
        seen = values[row.start : row.end][at]
        slope, first = np.polyfit(at, seen, 1)
        assert row.slope == pytest.approx(slope)
        assert row.level == pytest.approx(first + slope * (row.end - row.start - 1) / 2)
        deviation = seen - first - slope * at
        assert row.noise == pytest.approx(math.sqrt(deviation @ deviation / (len(at) - 2)))
        assert row.observations == len(at)


def test_the_files_can_be_read_back(tmp_path):
    found = sp.detect(NILE["flow"], NILE["year"])
    text = found.to_csv(tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text() == text
    back = pd.read_csv(tmp_path / "x.csv", float_precision="round_trip")
    for name in found.segments:
        told = found.segments[name].astype(back[name].dtype)
        assert back[name].equals(told), name
    found.to_json(tmp_path / "x.json")
    content = json.loads((tmp_path / "x.json").read_text())
    assert content["switch_probability"] == found.switch_probability.tolist()
    assert content["summary"]["observations"] == 100
    (only,) = content["changepoints"]
    assert (only["position"], only["time"]) == (28, "1899")
    assert only["probability"] == found.probability[0]
    assert [only["interval_begin"], only["interval_end"]] == found.intervals[0].tolist()
    assert content["segments"][0]["probability"] is None
    assert content["segments"][1]["level"] == found.segments["level"][1]


def test_the_picture_shows_all_columns(tmp_path):
    dates = pd.date_range("2020-01-01", periods=LENGTH)
    for values, times in (
        (shift(), None),
        (np.stack([shift(1), shift(2)], axis=-1), dates),
        (np.ones(1), None),
        (np.ones(1), dates[:1]),
        (np.full(5, 3.0), None),
    ):
        figure = sp.detect(values, times).plot()
        assert len(figure.axes) == np.atleast_2d(values.T).shape[0] + 1
        figure.savefig(tmp_path / "x.png")
        assert (tmp_path / "x.png").stat().st_size > 1000


# --- series with nothing to find --------------------------------------------------------------


NOTHING = {
    "one": [5.0],
    "two": [1, 2],
    "three": [3, 3, 3],
    "zeros": [0.0] * LENGTH,
    "constant": [0.1] * LENGTH,
    "huge": [1e290] * LENGTH,
    "of both signs": [1e290, -1e290] * (LENGTH // 2),
    "tiny": [-1e-300] * LENGTH,
    "subnormal": [5e-324, 0.0] * (LENGTH // 2),
    "one of three": [None, 4, None],
    "line": np.arange(LENGTH),
    "last missing": [0.0] * (LENGTH - 1) + [math.nan],
}


@pytest.mark.parametrize("values", NOTHING.values(), ids=NOTHING)
def test_nothing_to_find_is_a_valid_answer(values):
    found = sp.detect(values)
    assert found.changepoints.tolist() == []
    assert found.probability.shape == (0,)
    assert found.intervals.shape == (0, 2)
    assert len(found.segments) == 1
    assert 0.5 < found.no_switch_probability <= 1
    assert math.isfinite(found.log_evidence)
    assert "0 change points" in repr(found)
    json.loads(found.to_json())
    found.plot().savefig(io.BytesIO())


def test_a_series_of_few_different_values():
    sparse = np.zeros(LENGTH)
    sparse[[30, 31, 90]] = 1.0
    assert np.isfinite(sp.detect(sparse).switch_probability).all()


# --- bad input --------------------------------------------------------------------------------

BAD = {
    "at least one observation, got shape (0,)": lambda: sp.detect([]),
    "got shape (2, 2, 2)": lambda: sp.detect(np.zeros((2, 2, 2))),
    "got shape (1, 5): transpose it": lambda: sp.detect(np.zeros((1, 5))),
    "rows of equal length": lambda: sp.detect([[1, 2], [3]]),
    "got 'high' at position 1": lambda: sp.detect([1, "high"]),
    "got 'a' at position 0": lambda: sp.detect(pd.Series(["a", "b"])),
    "got inf at position 2": lambda: sp.detect([1, 2, math.inf]),
    "got -inf at position 1 of column 1": lambda: sp.detect([[1, 2], [3, -math.inf]]),
    "at most 1e+290 in size, got -1e+308 at position 1": lambda: sp.detect([1, -1e308]),
    "numbers, got 1000": lambda: sp.detect([1, 10**400]),
    "list or an array of numbers, got '123'": lambda: sp.detect("123"),
    "the series has no observation: all 4 are missing": lambda: sp.detect([math.nan] * 4),
    "column b has no observation": lambda: sp.detect(
        pd.DataFrame({"a": [1.0, 2], "b": [math.nan, math.nan]})
    ),
    "sensitivity must be a finite number above 0, got 0.0": lambda: sp.detect([1], sensitivity=0),
    "sensitivity must be below 1000": lambda: sp.detect([1], sensitivity=1000),
    "coverage must be strictly between 0 and 1, got 1.0": lambda: sp.detect([1], coverage=1),
    "got 'line'": lambda: sp.detect([1, 2], segment="line"),
    "segment must be one, or one for each of 2 columns": lambda: sp.detect(
        [[1, 2], [3, 4]], segment=["trend"] * 3
    ),
    "whole numbers from 0, got -2 at position 1": lambda: sp.detect([1, -2], segment="counts"),
    "whole numbers from 0, got 0.5 at position 0": lambda: sp.detect([0.5], segment="counts"),
    "got -1 at position 2": lambda: sp.detect([1, 2, -1], segment="waiting-times"),
    "values of column n must be whole numbers from 0, got -2 at position 1": lambda: sp.detect(
        pd.DataFrame({"x": [1.5, -1.5], "n": [1, -2]}), segment=["level", "counts"]
    ),
    "sensitivity cannot be given with a source, got 3": lambda: sp.detect(
        [1, 2], source=sp.Source(sp.LIN(), sp.Gaussian()), sensitivity=3
    ),
    "segment cannot be given with a source": lambda: sp.detect(
        [1, 2], source=sp.Source(sp.LIN(), sp.Gaussian()), segment="trend"
    ),
    "source must be for 2 columns": lambda: sp.detect(
        [[1, 2], [3, 4]], source=sp.Source(sp.LIN(), sp.Gaussian())
    ),
    "times must be as many as the observations (2), got 3": lambda: sp.detect([1, 2], [1, 2, 3]),
    "times must be a list of numbers or dates, got 2020": lambda: sp.detect([1, 2], 2020),
    "got 'later' at position 1": lambda: sp.detect([1, 2], ["2020-01-01", "later"]),
    "got '2020-13-01' at position 1": lambda: sp.detect([1, 2], ["2020-12-01", "2020-13-01"]),
    "times must differ, got 2 different ones for 4 observations": lambda: sp.detect(
        [1, 2, 3, 4], ["2020-01-01", "2020-01-01", "2020-01-02", "2020-01-02"]
    ),
    "dates such as 01/02/2020 may have the day or the month first": lambda: sp.detect(
        [1, 2, 3], ["01/01/2020", "01/02/2020", "01/03/2020"]
    ),
    "times must be in order, got 2 after 3 at position 2": lambda: sp.detect([1, 2, 3], [1, 3, 2]),
    "2019-01-01 after 2020-01-01 at position 1": lambda: sp.detect(
        [1, 2], ["2020-01-01", "2019-01-01"]
    ),
    "spacing must be regular or irregular, got 'even'": lambda: sp.detect([1], spacing="even"),
    "spacing irregular needs times": lambda: sp.detect([1, 2], spacing="irregular"),
    "a given Geometric prior, whose hazard is per unit of time: got LIN()": lambda: sp.detect(
        [1, 2], [1, 2], spacing="irregular", source=sp.Source(sp.LIN(), sp.Gaussian())
    ),
    "per unit of time: it cannot be fitted": lambda: sp.detect(
        [1, 2], [1, 2], spacing="irregular", fit=True
    ),
    "fit takes at most 20000 observations of 1 column,": lambda: sp.detect(
        np.ones(20_001), fit=True
    ),
    "got 'when'; the columns are: x": lambda: sp.detect(pd.DataFrame({"x": [1, 2]}), times="when"),
}


@pytest.mark.parametrize(("message", "call"), BAD.items(), ids=list(BAD))
def test_bad_input_is_refused_in_one_sentence(message, call):
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        call()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "times",
    [
        [1, 2, 4],
        ["2020-01-01", "2020-01-02", "2020-01-04"],
        ["2020-01-01", "2020-01-01", "2020-01-02"],
        ["2020-01-01 00:00", "2020-01-01 01:00", "2020-01-01 01:30"],
        ["2024-01-05", "2024-01-08", "2024-01-10"],  # from Friday, without a Tuesday
        [20240101, 20240102, 20240104],
        [1959.0, 1959.0833, 1959.25],
    ],
)
def test_steps_of_time_that_differ_are_counted_or_warned_of(times):
    found = sp.detect([1.0, 2, 3], times)
    assert found.changepoints.tolist() == []
    assert found.summary["spacing"] == "irregular"
    lin = sp.Source(sp.LIN(), sp.NormalGamma())
    with pytest.warns(UserWarning, match="steps of time differ, for example from"):
        assert sp.detect([1.0, 2, 3], times, source=lin).steps is None


@pytest.mark.parametrize(
    "times",
    [
        [0.1, 0.2, 0.3, 0.4],
        ["2020-01-31", "2020-02-29", "2020-03-31", "2020-04-30"],
        ["2020-01", "2020-02", "2020-03", "2020-04"],
        ["2020-02-28", "2020-02-29", "2020-03-01", "2020-03-02"],
        ["2019-01-01", "2020-01-01", "2021-01-01", "2022-01-01"],
        ["2024-03-30T23:00", "2024-03-31T00:00", "2024-03-31T01:00", "2024-03-31T02:00"],
        ["31.12.2023", "01.01.2024", "02.01.2024", "03.01.2024"],
        ["11.02.2024", "12.02.2024", "13.02.2024", "14.02.2024"],
        ["11/02/2024", "12/02/2024", "13/02/2024", "14/02/2024"],
        ["02/11/2024", "02/12/2024", "02/13/2024", "02/14/2024"],
        list(pd.period_range("2023Q4", periods=4, freq="Q")),
        pd.Series(pd.period_range("2023-11", periods=4, freq="M")),
        pd.date_range("2024-03-30", periods=4, tz="Europe/Berlin"),  # of 24, 23 and 24 hours
        ["2023", "2024", "2025", "2026"],
        ["2024-01-04", "2024-01-05", "2024-01-08", "2024-01-09"],  # from Thursday to Tuesday
        ["1959.9167", "1960.0000", "1960.0833", "1960.1667"],
        ["1959.9151", "1960.0000", "1960.0847", "1960.1639"],  # by days of months
        [20231231, 20240101, 20240102, 20240103],
        [202311, 202312, 202401, 202402],
        ["01/11/2023", "01/12/2023", "01/01/2024", "01/02/2024"],  # only months are regular
        ["11/01/2023", "12/01/2023", "01/01/2024", "02/01/2024"],
        ["Jan 31 2024", "Feb 29 2024", "Mar 31 2024", "Apr 30 2024"],
        ["May-23", "Jun-23", "Jul-23", "Aug-23"],
    ],
)
def test_no_warning_where_they_follow_a_calendar(times):
    found = sp.detect([1.0, 2, 3, 4], times)
    assert found.series.times.labels == tuple(map(str, times))
    assert found.steps is None


def test_business_days_may_lack_holidays():
    days = pd.bdate_range("2023-12-01", periods=61).drop(pd.Timestamp("2023-12-25"))
    assert sp.detect(noise(length=60), days).steps is None
    lin = sp.Source(sp.LIN(), sp.NormalGamma())
    with pytest.warns(UserWarning, match="from 2023-12-15 to 2024-01-02"):  # not over a weekend
        sp.detect(noise(length=50), days[:11].append(days[21:]), source=lin)


@pytest.mark.parametrize(
    ("times", "dates"),
    [
        (["01/02/2024", "01/03/2024", "01/04/2025"], None),
        (["11/02/2024", "12/02/2024", "13/02/2024"], [(2, 11), (2, 12), (2, 13)]),
        (["12/01/2024", "01/02/2024", "02/02/2024"], [(1, 12), (2, 1), (2, 2)]),
        (["02/11/2024", "02/12/2024", "02/13/2024"], [(2, 11), (2, 12), (2, 13)]),
        (["01.02.2024", "01.03.2024", "01.04.2024"], [(2, 1), (3, 1), (4, 1)]),
        ([20240131, 20240229, 20240331], [(1, 31), (2, 29), (3, 31)]),
    ],
)
def test_the_order_of_day_and_month_is_the_regular_one(times, dates):
    if dates is None:
        with pytest.raises(ValueError, match=r"day or the month first.*--dayfirst"):
            read_times(times)
        return
    found = [each.item() for each in read_times(times).coordinates]
    assert [(each.month, each.day) for each in found] == dates


def test_texts_and_numbers_in_a_frame_may_be_dates():
    days = pd.date_range("2024-01-30", periods=LENGTH)
    expected = sp.detect(shift(), days).changepoints.tolist()
    for column in (days.strftime("%d/%m/%Y"), days.strftime("%Y%m%d").astype(int), days):
        found = sp.detect(pd.DataFrame({"x": shift(), "when": column}))
        assert found.series.names == ("x",)
        assert found.changepoints.tolist() == expected
        assert (found.series.times.coordinates == days.to_numpy()).all()


@pytest.mark.parametrize(
    ("labels", "short"),
    [
        (["2024-01-01T00:00Z", "2024-01-01T01:00Z"], ["2024-01-01 00:00", "2024-01-01 01:00"]),
        (["2024-01-01 00:00:00", "2024-01-02 00:00:00"], ["2024-01-01", "2024-01-02"]),
        (["2024-01-01 00:00:00.000", "2024-01-01 00:00:01.500"],) * 2,
        (["2024-03-31T01:00+01:00", "2024-03-31T03:00+02:00"],
         ["2024-03-31 01:00+01:00", "2024-03-31 03:00+02:00"]),
        (["Jan 1 2024", "Jan 2 2024"],) * 2,
    ],
)  # fmt: skip
def test_short_labels_leave_out_what_all_share(labels, short):
    assert list(read_times(labels).short) == short


# --- the command line -------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """The status, stdout and stderr of `switchpoint detect` in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments, stdin=None):
        if stdin is not None:
            stream = io.TextIOWrapper(io.BytesIO(stdin.encode()))
            monkeypatch.setattr(sys, "stdin", stream)
        status = main(["detect", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


NILE_FILE = ROOT / "examples" / "nile.csv"
COAL_FILE = ROOT / "examples" / "coal.csv"


def test_a_file_is_all_that_is_needed(run):
    status, out, err = run(NILE_FILE)
    assert (status, err) == (0, "")
    for part in ("flow: 100 observations", "1 change point", "1899", "1898", "1970", "1098"):
        assert part in out
    assert "expected number 1.1, probability of none <0.01%" in out
    assert "level, by evidence: trend e^3.6 lower" in out


def test_the_documents_show_what_is_printed(run):
    documents = (ROOT / "docs" / "detect.md").read_text() + (ROOT / "README.md").read_text()
    lines = [line.rstrip() for line in documents.splitlines() if line.startswith((" 18", " from"))]
    assert len(lines) == 9
    printed = run(NILE_FILE)[1] + run(COAL_FILE, "--segment", "counts")[1]
    assert set(lines) <= {line.rstrip() for line in printed.splitlines()}


def test_json_from_standard_input(run):
    text = json.dumps([{"flow": flow} for flow in NILE["flow"].tolist()])
    status, out, err = run("-", "--format", "json", stdin=text)
    assert status == 0
    content = json.loads(out)
    assert [each["position"] for each in content["changepoints"]] == [28]
    assert "1 change point" in err


def test_files_and_a_picture(run, tmp_path):
    status, out, err = run(
        COAL_FILE, "--segment", "counts", "--out", "x.csv", "--plot", "x.png", "--time", "year"
    )
    assert (status, err) == (0, "")
    assert "1 change point" in out
    frame = pd.read_csv("x.csv")
    expected = sp.detect(COAL["disasters"], COAL["year"], segment="counts").segments
    assert frame["start"].tolist() == expected["start"].tolist()
    assert frame["level"].tolist() == expected["level"].tolist()
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert run(COAL_FILE, "--segment", "counts", "--out", "x.json")[0] == 0
    assert json.loads(Path("x.json").read_text())["summary"]["columns"] == ["disasters"]


def test_several_columns_and_sensitivity(run):
    frame = pd.DataFrame({"t": range(LENGTH), "a": shift(1), "b": shift(2)})
    text = frame.to_csv(index=False)
    status, out, _ = run("-", "--column", "a", "--column", "b", "--format", "csv", stdin=text)
    assert status == 0
    assert pd.read_csv(io.StringIO(out))["start"].tolist() == [0, 70]
    status, out, _ = run("-", "--column", "a", "--sensitivity", 50, "--format", "json", stdin=text)
    assert "0.05" in json.loads(out)["summary"]["source"]


def test_what_was_guessed_is_printed_and_written(run):
    frame = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=LENGTH), "x": shift()})
    text = frame.to_csv(index=False, sep=";", decimal=",", date_format="%d/%m/%Y")
    status, out, err = run("-", "--format", "json", stdin=text)
    assert status == 0
    guesses = ["separated by semicolons", "names in line 1", "decimal commas"]
    order = "when, day first (02/01/2024 is 2024-01-02)"
    assert json.loads(out)["summary"]["read_as"] == [*guesses, f"time: {order}"]
    assert "; ".join(guesses) in err
    assert order in err


def test_timestamps_are_not_broken_in_80_columns(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    times = pd.date_range("2024-01-01 10:30:17", periods=LENGTH, freq="97s", tz="UTC")
    frame = pd.DataFrame({"time": times, "temperature": 1000 * shift(), "pressure": shift()})
    for columns in (["temperature"], ["temperature", "pressure"]):
        chosen = [word for name in columns for word in ("--column", name)]
        _, out, _ = run("-", *chosen, stdin=frame.to_csv(index=False))
        _, table = out.split("Segments")
        assert max(map(len, table.splitlines())) <= 80
        begin = times[70]
        assert table.count(f"{begin:%Y-%m-%d}") >= 3
        for word in (f"{begin:%H:%M:%S}", "10:30:17", *columns[1:]):
            assert word in table.split()


def test_one_observation_is_singular_and_at_a_whole_position(run):
    assert "x: 1 observation " in run("-", stdin="x\n5\n")[1]
    series, switches = sp.detect([5.0]).plot().axes
    assert [tick for tick in switches.get_xticks() if abs(tick) <= 0.5] == [0]
    shown = [text.get_text() for text in series.get_legend().get_texts()]
    assert shown == ["data", "level"]  # there is no band


def test_irregular_dates_are_counted(run):
    text = "date,x\n2020-01-01,1\n2020-01-02,2\n2020-02-04,1\n"
    for options, shown in ([], "date, of irregular steps"), (["--spacing", "regular"], "date "):
        status, out, _ = run("-", *options, stdin=text)
        assert status == 0
        assert shown in " ".join(out.split())


REFUSED = {
    "there is no column 'depth'; the columns are: year, flow": (NILE_FILE, "--column", "depth"),
    "segment must be one of trend, level": (NILE_FILE, "--segment", "cubic"),
    "sensitivity must be a finite number above 0, got -1": (NILE_FILE, "--sensitivity", -1),
    "format must be one of csv, json, got 'xml'": (NILE_FILE, "--format", "xml"),
    "out must end in .csv or .json": (NILE_FILE, "--out", "x.txt"),
    "plot must end in .png or .pdf or .svg": (NILE_FILE, "--plot", "x.bmp"),
    "none.csv cannot be read": ("none.csv",),
    "column x has no observation: all 2 are missing": "x,y\nNA,\nNA,\n",
    "whole numbers from 0, got -1 at position 1": "n,y\n3,\n-1,\n",
    "got 'Monday' at position 0": "day,x\nMonday,1\nTuesday,2\n",
    "got '2020-02-30' at position 0": "date,x\n2020-02-30,1\n2020-03-01,2\n",
}


@pytest.mark.parametrize(("message", "arguments"), REFUSED.items(), ids=list(REFUSED))
def test_bad_options_and_files_cost_one_line(run, tmp_path, message, arguments):
    if isinstance(arguments, str):
        chosen = ["--column", "0", "--segment", "counts"] if arguments.endswith(",\n") else []
        status, out, err = run("-", *chosen, stdin=arguments)
    else:
        status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_constant_column_has_no_change_points(run):
    status, out, _ = run("-", stdin="x\n" + "3\n" * 30)
    assert status == 0
    assert "0 change points" in out


def test_a_change_of_the_effect_of_a_covariate_is_found():
    rng = np.random.default_rng(0)
    covariate, effect = rng.normal(size=150), np.where(np.arange(150) < 90, 3.0, -3.0)
    rows = np.column_stack([effect * covariate + rng.normal(size=150), covariate])
    rows[7, 1] = np.nan
    source = sp.Source(sp.Geometric(0.01), sp.Regression(slope=False, covariates=1))
    found = sp.detect(rows, source=source)
    assert found.changepoints.tolist() == [90]
    seen = ~np.isnan(rows[:, 1])
    gaps = rows[seen, 0] - found.expected[seen, 0]
    assert gaps.std() < 1.2
    assert np.isnan(found.expected[:, 1]).all()
    with pytest.raises(ValueError, match="covariates"):
        found.forecast(3)
