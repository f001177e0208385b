"""The posterior of a stream that is read backwards, against the one of the exact algorithms."""

import jax
import numpy as np
import pytest

import switchpoint as sp
from switchpoint.detection import posterior as module
from switchpoint.detection.changes import change_points, with_intervals
from switchpoint.detection.posterior import SwitchPosterior


def gapped(seed=0, length=60):
    values = np.random.default_rng(seed).normal(size=length)
    values[length // 2 :] += 2
    values[[3, 31, 32]] = np.nan
    return values


@pytest.mark.parametrize(
    "source",
    [
        sp.Source(sp.Geometric(0.01), sp.NormalGamma()),
        sp.Source(sp.LIN(), sp.NormalGamma()),
        sp.Source(sp.PTW(6), sp.NormalGamma()),
    ],
    ids=str,
)
def test_it_is_the_exact_posterior(source):
    values = gapped()
    windows = np.array([[20, 30], [1, 59], [3, 10], [5, 5]])
    with jax.enable_x64(True):
        exact = sp.bayes_optimal(source).posterior(values)
        none = [float(exact.no_switch_within(*each)) for each in windows.tolist()]
        result = SwitchPosterior(source, values)
        assert result.log_evidence == pytest.approx(float(exact.log_marginal), abs=1e-9)
        np.testing.assert_allclose(result.switch_probability, exact.switch_smoothed, atol=1e-9)
        np.testing.assert_allclose(result.run_length_mean, exact.run_length_mean, rtol=1e-6)
        np.testing.assert_allclose(result.no_switch_within(windows), none, rtol=1e-4)


def test_it_does_not_depend_on_what_is_kept_in_memory(monkeypatch):
    source, values = sp.Source(sp.Geometric(0.01), sp.Trend()), gapped(length=200)
    whole = SwitchPosterior(source, values)
    monkeypatch.setattr(module, "_NUMBERS", 1)  # blocks of 64
    parts = SwitchPosterior(source, values)
    assert parts.log_evidence == whole.log_evidence
    np.testing.assert_array_equal(parts.switch_probability, whole.switch_probability)
    windows = np.array([[5, 150], [90, 110]])
    np.testing.assert_array_equal(parts.no_switch_within(windows), whole.no_switch_within(windows))


def test_changes_minimise_the_expected_loss():
    seen = np.ones(40, bool)
    spread = np.zeros(40)
    spread[10:15] = 0.11, 0.12, 0.35, 0.11, 0.11  # a change that no single position is sure of
    assert change_points(spread, seen) == [12]
    spread[30] = 0.35  # improbable, though as likely as the best position of the other
    assert change_points(spread, seen) == [12]
    spread[12:14] = 0.01, 0.8
    assert change_points(spread, seen) == [13]
    two = np.zeros(40)
    two[[10, 16]] = 0.9, 0.8
    assert change_points(two, seen) == [10, 16]
    assert change_points(two, seen, min_length=7) == [10]
    assert change_points(two, seen, max_changes=1) == [10]
    assert change_points(two, seen, max_changes=0) == []
    assert change_points(two, np.arange(40) != 10) == [11, 16]  # the first that is observed


def test_an_interval_is_the_shortest_that_is_sure_enough():
    values = np.random.default_rng(3).normal(size=120) + 1.5 * (np.arange(120) >= 70)
    posterior = SwitchPosterior(sp.Source(sp.Geometric(0.01), sp.NormalGamma()), values)
    (position,) = change_points(posterior.switch_probability, ~np.isnan(values))
    (change,), none = with_intervals(posterior, [position], 0.8)
    assert none == pytest.approx(posterior.no_switch_within(np.array([[1, 119]]))[0])
    width = change.end - change.begin
    others = np.array(
        [[a, a + width - 1] for a in range(1, 119 - width) if a <= position < a + width]
    )
    assert change.interval_probability >= 0.8
    assert (1 - posterior.no_switch_within(others)).max() < 0.81
    # Where not even all positions together reach the coverage, it is a share of what they reach.
    flat = SwitchPosterior(posterior._source, values[:70])
    (wide,), none = with_intervals(flat, [35], 0.8)
    assert wide.interval_probability == pytest.approx(0.8 * (1 - none), rel=0.1)
    assert wide.end - wide.begin < 68
