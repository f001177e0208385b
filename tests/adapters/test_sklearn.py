"""The transformer for scikit-learn, under scikit-learn's own checks and against the predictors."""

from unittest import SkipTest

import numpy as np
import pandas as pd
import pytest

import switchpoint as sp

pytest.importorskip("sklearn")

from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

from switchpoint.adapters.sklearn import EXPECTED_FAILED_CHECKS, SwitchpointTransformer

ALL = ("prediction", "log_density", "run_length", "switch_probability", "segment")


def shift(seed=0, at=60, length=100):
    return np.random.default_rng(seed).normal(size=length) + 4.0 * (np.arange(length) >= at)


@pytest.mark.slow
def test_the_checks_of_scikit_learn():
    passed, skipped = 0, []
    for transformer, check in estimator_checks_generator(
        SwitchpointTransformer(), expected_failed_checks=EXPECTED_FAILED_CHECKS, mark="skip"
    ):
        try:
            check(transformer)
            passed += 1
        except SkipTest as reason:
            skipped.append(str(reason))
    assert [each for each in skipped if each.startswith("Skipping")] == [
        f"Skipping {name} for SwitchpointTransformer: {reason}"
        for name, reason in EXPECTED_FAILED_CHECKS.items()
    ]
    assert len(skipped) <= 3  # other libraries' arrays, only with SCIPY_ARRAY_API
    assert passed > 40


def test_features_are_those_of_detect_and_of_the_predictor():
    x = 10 + 3 * shift()
    x[20] = np.nan
    transformer = SwitchpointTransformer(ALL)
    found = dict(zip(ALL, transformer.fit_transform(x[:, None]).T, strict=True))
    known = sp.detect(x, segment="trend")
    np.testing.assert_allclose(found["switch_probability"], known.switch_probability, atol=1e-6)
    np.testing.assert_array_equal(found["segment"], known.to_frame()["segment"])
    assert found["log_density"][20] == 0
    model = transformer.models_[0]
    bayes = sp.bayes_optimal(model.source)
    evidence = float(bayes.log_density((x - model.centres[0]) / model.scales[0]).sum())
    evidence -= (len(x) - 1) * np.log(model.scales[0])
    assert found["log_density"].sum() == pytest.approx(evidence, abs=1e-3)
    state = bayes.init()
    for t in range(5):
        expected = model.centres[0] + model.scales[0] * float(bayes.predict(state).mean)
        assert found["prediction"][t] == pytest.approx(expected, rel=1e-4)
        state = bayes.update(state, (x[t] - model.centres[0]) / model.scales[0])


def test_the_past_decides_the_causal_features():
    causal = SwitchpointTransformer(ALL[:3])
    x = shift()[:, None]
    whole = causal.fit_transform(x)
    np.testing.assert_allclose(causal.transform(x[:61]), whole[:61], rtol=1e-4, atol=1e-5)


def test_names_and_tables():
    frame = pd.DataFrame({"a": shift(), "b": shift(1)})
    transformer = SwitchpointTransformer().set_output(transform="pandas")
    found = transformer.fit_transform(frame)
    names = ["prediction", "switch_probability", "segment"]
    assert list(found.columns) == [f"{column}_{name}" for column in "ab" for name in names]
    assert found.index.equals(frame.index)
    assert found["a_segment"].iloc[-1] == 1
    pl = pytest.importorskip("polars")
    polars = SwitchpointTransformer().set_output(transform="polars").fit_transform(frame)
    assert isinstance(polars, pl.DataFrame)
    np.testing.assert_array_equal(polars.to_numpy(), found.to_numpy())


def test_columns_that_switch_together():
    frame = pd.DataFrame({"a": [0.1, 0.2, 5.1, 5.2], "n": [0, 1, 9, 8]})
    source = sp.Source(sp.PTW(2), sp.Independent(sp.Gaussian(), sp.Poisson()))
    outputs = ("prediction", "switch_probability", "segment")
    transformer = SwitchpointTransformer(outputs, source=source, common_switches=True)
    found = transformer.fit_transform(frame)
    names = ["a_prediction", "n_prediction", "switch_probability", "segment"]
    assert transformer.get_feature_names_out().tolist() == names
    np.testing.assert_allclose(found[0, :2], [0, 1])  # the means of the priors
    known = sp.bayes_optimal(source).posterior(frame).switch_smoothed
    np.testing.assert_allclose(found[:, 2], known, rtol=1e-6)
    np.testing.assert_array_equal(found[:, 3], [0, 0, 1, 1])


def test_predictions_of_large_values_keep_their_digits():
    noise = 1e-3 * shift()[:, None]
    far, near = (
        SwitchpointTransformer(
            ("prediction", "log_density"),
            source=sp.Source(sp.PTW(8), sp.NormalGamma(level, 0.1, 1.0, 1e-6)),
        ).fit_transform(level + noise)
        for level in (100_000.0013, 0.0)
    )
    np.testing.assert_allclose(far, np.add(near, [100_000.0013, 0.0]), rtol=0, atol=1e-4)


def test_symbols_have_a_probability_each():
    bits = np.array([0, 1, 1, 0, 1, 1, 1, 1])[:, None]
    source = sp.Source(sp.PTW(3))
    transformer = SwitchpointTransformer("prediction", source=source).fit(bits)
    assert transformer.get_feature_names_out().tolist() == ["x0_prediction_0", "x0_prediction_1"]
    exact = np.exp(sp.bayes_optimal(source).log_probs(bits[:, 0]))
    np.testing.assert_allclose(transformer.transform(bits), exact, rtol=1e-6)


def test_inside_a_pipeline_the_units_of_the_training_series_are_kept():
    x = 100 + 5 * shift()[:, None]
    pipeline = make_pipeline(SwitchpointTransformer("prediction"), LinearRegression())
    pipeline.fit(x[:-1], x[1:, 0])
    again = pipeline[0].transform(x[:20])
    np.testing.assert_allclose(again, pipeline[0].transform(x[:-1])[:20], rtol=1e-4)


@pytest.mark.parametrize(
    ("message", "source", "values"),
    [
        (r"got -1 at position 2", sp.Source(sp.LIN(), sp.Poisson()), [3, 4, -1]),
        (r"0 to 1, got 2.* at position 1", sp.Source(sp.LIN()), [1, 2]),
        (r"at most 2.*got 3", sp.Source(sp.PTW(1), sp.Gaussian()), [1, 2, 3]),
    ],
)
def test_values_that_the_source_cannot_have(message, source, values):
    rows = np.array(values, float)[:, None]
    for output in ("prediction", "segment"):
        transformer = SwitchpointTransformer(output, source=source).fit(rows)
        with pytest.raises(ValueError, match=message):
            transformer.transform(rows)


@pytest.mark.parametrize(
    ("message", "options", "values"),
    [
        ("outputs.*got 'means'", {"outputs": ["means"]}, shift()[:, None]),
        ("outputs.*got none", {"outputs": []}, shift()[:, None]),
        ("segment.*got 'line'", {"segment": "line"}, shift()[:, None]),
        ("column x1 has no observation", {}, np.full((5, 2), [1.0, np.nan])),
        (
            "segment cannot be given with a source",
            {"segment": "level", "source": sp.Source(sp.PTW(7))},
            shift()[:, None],
        ),
    ],
)
def test_bad_parameters_are_named(message, options, values):
    with pytest.raises(ValueError, match=message):
        SwitchpointTransformer(**options).fit(values)
