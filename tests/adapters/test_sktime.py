"""The detector for sktime, under sktime's own checks and against `detect`."""

from inspect import unwrap

import numpy as np
import pandas as pd
import pytest

import switchpoint as sp

pytest.importorskip("sktime")

from sktime.utils.estimator_checks import check_estimator

from switchpoint.adapters.sktime import SwitchpointDetector

DAYS = pd.date_range("2024-01-01", periods=100)


def shift(seed=0, at=60):
    return np.random.default_rng(seed).normal(size=100) + 4.0 * (np.arange(100) >= at)


@pytest.mark.slow
def test_the_checks_of_sktime(monkeypatch):
    # As it is outside of tests: without the run-time checks of types, which hide its arguments.
    monkeypatch.setattr(SwitchpointDetector, "__init__", unwrap(SwitchpointDetector.__init__))
    results = check_estimator(SwitchpointDetector, verbose=False)
    assert {name: each for name, each in results.items() if each != "PASSED"} == {}
    assert len(results) > 80


def test_change_points_are_those_of_detect():
    series = pd.Series(shift(), index=DAYS)
    series.iloc[20] = np.nan
    known = sp.detect(series)
    detector = SwitchpointDetector().fit(series)
    assert detector.predict(series)["ilocs"].tolist() == known.changepoints.tolist() == [60]
    assert detector.predict_scores(series)["scores"].tolist() == known.probability.tolist()
    scores = detector.transform_scores(series)
    assert scores.index.equals(DAYS)
    np.testing.assert_array_equal(scores["scores"], known.switch_probability)
    segments = detector.predict_segments(series)["ilocs"]
    assert [(each.left, each.right) for each in segments] == [(0, 60), (60, 100)]


def test_what_was_fitted_decides_about_other_series():
    small = 0.1 * shift()
    own = SwitchpointDetector(segment="level").fit(small)
    assert own.predict(small)["ilocs"].tolist() == [60]
    # To one that knows noise a hundred times as large, this is a constant.
    assert SwitchpointDetector(segment="level").fit(100 * small).predict(small).empty


def test_columns_have_common_switches():
    source = sp.Source(sp.PTW(2), sp.Independent(sp.Gaussian(), sp.Poisson()))
    frame = pd.DataFrame({"a": [0.1, 0.2, 5.1, 5.2], "n": [0, 1, 9, 8]}, index=DAYS[:4])
    assert SwitchpointDetector(source=source).fit_predict(frame)["ilocs"].tolist() == [2]


def test_bad_parameters_are_named():
    with pytest.raises(ValueError, match=r"segment.*got 'line'"):
        SwitchpointDetector(segment="line").fit(shift())
