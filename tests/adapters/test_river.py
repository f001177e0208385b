"""The drift detector and the anomaly scorer for river, under river's own checks."""

import copy
import doctest
import math
import pickle

import numpy as np
import pytest

import switchpoint as sp

pytest.importorskip("river")

from river import base, checks, datasets

from switchpoint.adapters import river
from switchpoint.adapters.river import SwitchpointAnomalyScorer, SwitchpointDriftDetector

BITS = sp.Source(sp.Geometric(1 / 1000), sp.Bernoulli())


class Payments:
    """In the place of a dataset that would be downloaded: every tenth row is an anomaly."""

    def take(self, count):
        rng = np.random.default_rng(0)
        for i in range(count // 10):
            row = rng.normal(size=4) * [1, 10, 100, 1000] + (5e3 if i % 10 == 9 else 0)
            yield dict(zip("abcd", row.tolist(), strict=True)), i % 10 == 9


def alarms(detector, values):
    found = []
    for i, x in enumerate(values):
        detector.update(x)
        if detector.drift_detected:
            found.append(i)
    return found


def shift(size, seed=0, length=600, at=400):
    return (
        np.random.default_rng(seed).normal(size=length) + size * (np.arange(length) >= at)
    ).tolist()


def test_the_examples_print_what_they_say():
    assert doctest.testmod(river) == (0, 10)


@pytest.mark.slow
def test_the_checks_of_river_on_the_scorer(monkeypatch):
    monkeypatch.setattr(datasets, "CreditCard", Payments)
    names = []
    for check in checks.yield_checks(SwitchpointAnomalyScorer()):
        check(SwitchpointAnomalyScorer())
        names.append(check.__name__)
    assert {"check_roc_auc", "check_pickling", "check_bounded_memory_growth"} <= set(names)
    assert len(names) > 20


@pytest.mark.parametrize(
    "check",
    [
        checks.common.check_repr,
        checks.common.check_clone_same_class,
        checks.common.check_clone_is_idempotent,
        checks.common.check_clone_changes_memory_addresses,
        checks.common.check_clone_with_new_params_applies,
        checks.common.check_get_params_matches_signature,
        checks.common.check_init_default_params_are_not_mutable,
        checks.common.check_pickling_supports_roundtrip,
        checks.common.check_repr_roundtrips_clone,
    ],
    ids=lambda check: check.__name__,
)
def test_the_checks_of_river_that_apply_to_drift_detectors(check):
    detector = SwitchpointDriftDetector()
    assert isinstance(detector, base.DriftDetector)
    check(detector)


def test_a_drift_is_detected_once_and_soon():
    found = alarms(detector := SwitchpointDriftDetector(), shift(4.0))
    assert len(found) == 1
    assert 400 <= found[0] <= 405
    assert detector.run_length == 200


STATIONARY = {
    "rare errors": lambda rng, size: rng.random(size) < 0.01,
    "frequent errors": lambda rng, size: rng.random(size) < 0.3,
    "counts": lambda rng, size: rng.poisson(3, size),
    "rare counts": lambda rng, size: rng.poisson(0.02, size),
    "values": lambda rng, size: rng.normal(size=size),
}


@pytest.mark.parametrize("draw", STATIONARY.values(), ids=STATIONARY)
def test_what_is_stationary_does_not_drift(draw):
    values = draw(np.random.default_rng(0), 5000).astype(float)
    assert alarms(SwitchpointDriftDetector(), values.tolist()) == []


@pytest.mark.parametrize(
    ("before", "after", "delay"),
    [
        (lambda rng, size: rng.random(size) < 0.05, lambda rng, size: rng.random(size) < 0.5, 30),
        (lambda rng, size: rng.random(size) < 0.3, lambda rng, size: rng.random(size) < 0.7, 50),
        (lambda rng, size: rng.poisson(3, size), lambda rng, size: rng.poisson(9, size), 10),
        (lambda rng, size: rng.normal(size=size), lambda rng, size: rng.normal(3, 1, size), 10),
        (lambda _, size: np.zeros(size), lambda rng, size: rng.normal(5, 1, size), 10),
        (lambda _, size: np.zeros(size), lambda rng, size: rng.poisson(4, size), 10),
    ],
    ids=["rare errors", "frequent errors", "counts", "values", "silence to values", "to counts"],
)
def test_a_change_is_detected_soon_with_the_default_source(before, after, delay):
    rng = np.random.default_rng(0)
    values = np.concatenate([before(rng, 500), after(rng, 500)]).astype(float)
    found = alarms(SwitchpointDriftDetector(), values.tolist())
    assert len(found) == 1
    assert 500 <= found[0] <= 500 + delay


def test_a_score_of_what_the_model_rules_out_changes_nothing():
    scorer = SwitchpointAnomalyScorer()
    for bit in np.random.default_rng(0).integers(0, 2, 100).tolist():
        scorer.learn_one({"x": bit})
    before = scorer.score_one({"x": 1})
    assert 1 < scorer.score_one({"x": 7.5}) < math.inf
    assert scorer.score_one({"x": 1}) == before


@pytest.mark.usefixtures("float64")
def test_the_probability_is_that_of_the_posterior():
    bits = np.random.default_rng(0).integers(0, 2, 60)
    detector = SwitchpointDriftDetector(source=BITS, horizon=10, max_hypotheses=100)
    for bit in bits.tolist():
        detector.update(bit)
    posterior = sp.bayes_optimal(BITS).posterior(bits)
    exact = float(posterior.switch_within(50, 59))
    assert detector.change_probability == pytest.approx(exact, rel=1e-9)


def test_units_do_not_matter():
    values = shift(2.0)
    found = alarms(SwitchpointDriftDetector(), values)
    assert found == alarms(SwitchpointDriftDetector(), [1e6 + 1e-3 * x for x in values])


def test_missing_observations_tell_nothing():
    values = shift(2.0)
    found = alarms(SwitchpointDriftDetector(horizon=200), values)
    gaps = [each for x in values for each in (x, None)]
    other = alarms(SwitchpointDriftDetector(horizon=200, sensitivity=0.5), gaps)
    assert len(other) == len(found) == 1
    assert abs(other[0] // 2 - found[0]) <= 1


def test_the_score_is_the_surprise_in_bits():
    scorer = SwitchpointAnomalyScorer(source=BITS)
    stream = sp.Stream(sp.bayes_optimal(BITS, max_hypotheses=100))
    for bit in (0, 0, 1, 0):
        stream.update(bit)
        scorer.learn_one({"a": bit, "b": bit})
    expected = -2 * stream.predict()[1] / math.log(2)
    assert scorer.score_one({"a": 1, "b": 1}) == pytest.approx(expected)
    assert scorer.score_one({"a": None, "c": 1}) == 0


@pytest.mark.parametrize(
    ("segment", "bad"),
    [(sp.Bernoulli(), (2, -1, 0.5)), (sp.Poisson(), (-1, 0.5)), (sp.NormalGamma(), ())],
    ids=lambda each: type(each).__name__,
)
def test_a_value_that_cannot_be_learned_has_no_score(segment, bad):
    scorer = SwitchpointAnomalyScorer(source=sp.Source(sp.Geometric(0.1), segment))
    scorer.learn_one({"a": 1})
    for x in (*bad, math.inf, 1e200, 10**400):
        for call in (scorer.learn_one, scorer.score_one):
            with pytest.raises(ValueError, match=r"must be|got"):
                call({"a": x})
    assert scorer._monitors["a"].stream.position == 1


def test_an_infinite_value_does_not_spoil_the_scale():
    values = shift(4.0)
    expected = alarms(SwitchpointDriftDetector(), values)
    detector = SwitchpointDriftDetector()
    with pytest.raises(ValueError, match=r"at most 1e.*got inf"):
        detector.update(math.inf)
    assert alarms(detector, values) == expected


def test_a_scorer_gets_used_to_a_drift():
    scorer = SwitchpointAnomalyScorer()
    for x in shift(0.0):
        scorer.learn_one({"x": x})
    before = scorer.score_one({"x": 8.0})
    for x in shift(0.0, 1, length=50):
        scorer.learn_one({"x": 8 + x})
    assert scorer.score_one({"x": 8.0}) < 3 < 8 < before


def test_copies_are_independent_and_go_on_alike():
    detector = SwitchpointDriftDetector()
    values = shift(2.0)
    alarms(detector, values[:300])
    copies = [copy.deepcopy(detector), pickle.loads(pickle.dumps(detector))]
    found = alarms(detector, values[300:])
    assert found
    assert [alarms(each, values[300:]) for each in copies] == [found, found]


@pytest.mark.parametrize(
    "predictor",
    [
        sp.KT(),
        sp.bayes_optimal(sp.Source(sp.PTW(12))),
        sp.bayes_optimal(BITS, max_hypotheses=5),
        sp.bayes_optimal(sp.Source(sp.LIN(), sp.NormalGamma())),
    ],
    ids=lambda predictor: type(predictor).__name__,
)
def test_a_copy_of_a_stream_goes_on_alike(predictor):
    stream = sp.Stream(predictor)
    for first in ([], [0, 1, 1, 0, 1, 1]):  # before the first observation, too
        stream.extend(first)
        others = [copy.deepcopy(stream), pickle.loads(pickle.dumps(stream))]
        whole = stream.extend([1, 0, 1])
        for other in others:
            np.testing.assert_array_equal(other.extend([1, 0, 1]), whole)
            assert (other.position, other.code_length) == (stream.position, stream.code_length)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("one_in.*got 1.5", lambda: SwitchpointDriftDetector(one_in=1.5)),
        ("horizon.*got 0", lambda: SwitchpointDriftDetector(horizon=0)),
        ("x must be a number, got 'high'", lambda: SwitchpointDriftDetector().update("high")),
        ("0 to 1, got 2", lambda: SwitchpointDriftDetector(source=BITS).update(2)),
        (
            "sensitivity cannot be given with a source",
            lambda: SwitchpointDriftDetector(sensitivity=1.0, source=BITS),
        ),
    ],
)
def test_bad_parameters_and_values_are_named(message, call):
    with pytest.raises(ValueError, match=message):
        call()
