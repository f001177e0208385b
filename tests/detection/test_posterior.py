"""The posterior of a stream that is read backwards, against the one of the exact algorithms."""

import jax
import numpy as np
import pytest

import switchpoint as sp
from switchpoint._progress import Progress
from switchpoint.detection.changes import change_points
from switchpoint.detection.forward import MergingForward
from switchpoint.detection.posterior import SwitchPosterior
from switchpoint.exact.posterior import switch_intervals


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


def never():
    return np.random.default_rng(0).normal(size=1400)


def often():
    rng = np.random.default_rng(1)
    values = rng.normal(size=1400) + np.repeat(rng.normal(0, 3, 20), 70)
    values[rng.random(1400) < 0.1] = np.nan
    values[600:680] = np.nan
    return values


def columns():
    rng = np.random.default_rng(2)
    values = rng.standard_t(3, size=(1400, 2)) + np.cumsum(rng.normal(0, 0.05, (1400, 2)), axis=0)
    values[rng.random((1400, 2)) < 0.1] = np.nan
    return values


LEVELS = sp.Source(sp.Geometric(0.005), sp.NormalGamma(0.0, 0.25, 3.0, 1.0))
BOTH = sp.Source(sp.Geometric(0.005), sp.Independent(sp.NormalGamma(0.0, 0.25), sp.Trend()))


@pytest.mark.parametrize(
    ("source", "values"), [(LEVELS, never()), (LEVELS, often()), (BOTH, columns())]
)
def test_merging_hardly_changes_the_posterior(source, values):
    """Up to 512 hypotheses none are merged."""
    windows = np.array([[1, len(values) - 1], [300, 900], [700, 709]])
    seen = ~np.isnan(values.reshape(len(values), -1)).all(1)
    exact = SwitchPosterior(source, values)
    merged = SwitchPosterior(source, values, longest_exact=0)
    assert merged.log_evidence == pytest.approx(exact.log_evidence, abs=1e-3)
    np.testing.assert_allclose(merged.switch_probability, exact.switch_probability, atol=1e-4)
    np.testing.assert_allclose(merged.run_length_mean, exact.run_length_mean, rtol=1e-4)
    np.testing.assert_allclose(
        merged.no_switch_within(windows), exact.no_switch_within(windows), atol=1e-4
    )
    changes = change_points(exact.switch_probability, seen)
    assert change_points(merged.switch_probability, seen) == changes
    short = values[:512]
    exact, merged = (SwitchPosterior(source, short, longest_exact=most) for most in (512, 0))
    assert merged.log_evidence == pytest.approx(exact.log_evidence, abs=1e-9)
    np.testing.assert_allclose(merged.switch_probability, exact.switch_probability, atol=1e-11)
    np.testing.assert_allclose(merged.run_length_mean, exact.run_length_mean, rtol=1e-9)


def test_blocks_are_computed_again_as_they_were():
    """With every state in memory, or few of them."""
    whole, parts = (
        MergingForward(LEVELS, often(), Progress(), memory) for memory in (2**28, 2**17)
    )
    assert len(parts._states) < len(whole._states)
    pairs = zip(whole.rows([0, 3, 9, 10]), parts.rows([0, 3, 9, 10]), strict=True)
    for (block, rows), (same, again) in pairs:
        assert block == same
        np.testing.assert_array_equal(rows, again)


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
    source = sp.Source(sp.Geometric(0.01), sp.NormalGamma())
    posterior = SwitchPosterior(source, values)
    (position,) = change_points(posterior.switch_probability, ~np.isnan(values))
    within = posterior.no_switch_within
    (change,), none = switch_intervals(posterior.switch_probability, [position], 0.8, within)
    assert none == pytest.approx(posterior.no_switch_within(np.array([[1, 119]]))[0])
    width = change.end - change.begin
    others = np.array(
        [[a, a + width - 1] for a in range(1, 119 - width) if a <= position < a + width]
    )
    assert change.interval_probability >= 0.8
    assert (1 - posterior.no_switch_within(others)).max() < 0.81
    # Where not even all positions together reach the coverage, it is a share of what they reach.
    flat = SwitchPosterior(source, values[:70])
    (wide,), none = switch_intervals(flat.switch_probability, [35], 0.8, flat.no_switch_within)
    assert wide.interval_probability == pytest.approx(0.8 * (1 - none), rel=0.1)
    assert wide.end - wide.begin < 68
