"""Alarms of streams: what they must not miss, and how often they may be false."""

import copy
import json

import numpy as np
import pytest

import switchpoint as sp

LEVEL = sp.NormalGamma(0.0, 0.5, 10.0, 9.0)


def changes(values, one_in=100_000, outliers=0.02, segment=LEVEL, hazard=0.005, **rule):
    """The alarms of a stream of these values."""
    bayes = sp.bayes_optimal(sp.Source(sp.Geometric(hazard), segment), 100)
    stream = sp.Stream(bayes, outliers=outliers)
    alarm, raised = sp.Alarm(one_in, **rule), []
    for x in values:
        stream.update(x)
        change = alarm.check(stream, x)
        raised += [] if change is None else [change]
    return raised


def shifted(rng, shift, begin, end, length):
    values = rng.normal(size=length)
    values[begin:end] += shift
    return values


def test_the_return_to_the_old_level_is_a_change_of_its_own():
    rng = np.random.default_rng(1)
    missed = 0
    for _ in range(10):
        raised = changes(shifted(rng, 5.0, 100, 120, 140))
        missed += not any(change.position >= 120 for change in raised)
    assert missed == 0


def test_a_small_change_adds_up_over_the_horizon():
    rng = np.random.default_rng(2)
    for _ in range(2):
        raised = changes(shifted(rng, 0.5, 500, 1200, 1200))
        assert any(change.position >= 500 for change in raised)
    assert not changes(shifted(rng, 0.5, 500, 1200, 1200), horizon=10)


def test_missing_values_do_not_use_up_the_horizon():
    rng = np.random.default_rng(3)
    for _ in range(5):
        values = shifted(rng, 2.0, 200, 320, 320)
        values[200:260] = np.nan
        (change,) = changes(values, horizon=40)
        assert change.position >= 260
        assert change.interval[0] <= 260 <= change.interval[1] + 5


def test_false_alarms_come_at_the_rate_that_is_set():
    rng = np.random.default_rng(4)
    count = len(changes(rng.normal(size=8000), one_in=250))
    assert 16 < count < 64  # 32 expected
    bits = rng.random(8000) < 0.2
    count = len(changes(bits, one_in=250, outliers=None, segment=sp.Bernoulli(), hazard=0.01))
    assert 16 < count < 64


def test_one_outlier_is_no_change():
    rng = np.random.default_rng(5)
    values = rng.normal(size=400)
    values[[100, 200, 300]] = 6.0, -8.0, 50.0
    assert not changes(values)
    assert changes(values, outliers=None)


def test_an_alarm_describes_the_change():
    rng = np.random.default_rng(6)
    (change,) = changes(shifted(rng, 4.0, 300, 320, 320))
    assert 300 <= change.position <= 304
    assert change.interval[0] <= change.began <= change.interval[1]
    assert change.interval[0] <= 300 <= change.interval[1]
    assert abs(change.level_before) < 0.4
    assert abs(change.level_after - 4) < 2
    assert 0.99 < change.probability <= 1


@pytest.mark.parametrize("prior", [sp.Geometric(0.02), sp.PTW(10), sp.LIN()])
def test_levels_of_symbols_are_those_of_the_two_segments(prior):
    values = [0] * 64 + [1] * 40
    bayes = sp.bayes_optimal(sp.Source(prior))
    stream = sp.Stream(bayes)
    stream.extend(values)
    before, after = stream.levels(32)
    assert before[1] < 0.6 < 0.9 < after[1]
    starts, probabilities = stream.starts()
    assert probabilities.sum() == pytest.approx(1, abs=1e-12)
    recent = probabilities[starts >= 32].sum()
    assert recent == pytest.approx(stream.change_probability(last=72), abs=1e-12)


def test_a_robust_stream_is_the_exact_one_where_no_value_is_an_outlier():
    values = np.random.default_rng(7).normal(size=200)
    bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.01), sp.NormalGamma()), 30)
    robust, exact = sp.Stream(bayes, outliers=1e-200), sp.Stream(bayes)
    np.testing.assert_array_equal(robust.extend(values), exact.extend(values))


def test_a_rule_continues_from_its_state():
    rng = np.random.default_rng(8)
    values = shifted(rng, 3.0, 150, 300, 300)
    bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.005), LEVEL), 100)
    stream, alarm = sp.Stream(bayes), sp.Alarm(1000)
    expected, actual = [], []
    for x in values:
        stream.update(x)
        expected.append(alarm.check(stream, x))
    stream, alarm = sp.Stream(bayes), sp.Alarm(1000)
    for x in values:
        stream.update(x)
        actual.append(alarm.check(stream, x))
        alarm = sp.Alarm.from_state(json.loads(json.dumps(alarm.state())))
    assert actual == expected
    assert any(expected)


def test_rules_refuse_invalid_settings():
    with pytest.raises(ValueError, match="one_in"):
        sp.Alarm(one_in=1)
    with pytest.raises(ValueError, match="horizon"):
        sp.Alarm(horizon=0)
    stream = sp.Stream(sp.KT())
    stream.update(1)
    with pytest.raises(ValueError, match="prior"):
        sp.Alarm().check(stream, 1)
    with pytest.raises(ValueError, match="outliers"):
        sp.Stream(sp.bayes_optimal(sp.Source(sp.PTW(4))), outliers=0.1)


def test_densities_of_a_robust_stream_integrate_to_1():
    bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.01), sp.NormalGamma(shape=5.0)), 30)
    stream = sp.Stream(bayes, outliers=0.3)
    stream.extend([0.1, -0.4, 0.2, 7.0])
    grid = np.linspace(-30, 30, 121)
    logs = [copy.deepcopy(stream).update(x) for x in grid]
    assert np.exp(logs).sum() * (grid[1] - grid[0]) == pytest.approx(1, abs=1e-3)
