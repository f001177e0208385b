"""Irregular times: the hazard and the families count time."""

import itertools
import math

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_t

import switchpoint as sp
from switchpoint.detection.elapsed import in_elapsed_time
from switchpoint.detection.posterior import SwitchPosterior

HAZARD, LEVEL, SLOPE, SHAPE, RATE = 0.2, 2.0, 0.3, 1.5, 0.7
STEPS = np.array([1.0, 0.25, 3.0, 0.0, 1.0, 7.5])
VALUES = np.array([0.3, -0.5, 0.1, 2.9, np.nan, 4.0, 7.1])


def log_density(start, end):
    """ln p(x_start..x_(end-1)) of a line in the time since the start."""
    times = np.append(0.0, np.cumsum(STEPS[start : end - 1]))
    seen = ~np.isnan(VALUES[start:end])
    at = times[seen]
    if not len(at):
        return 0.0
    covariance = np.eye(len(at)) + LEVEL**2 + SLOPE**2 * np.outer(at, at)
    density = multivariate_t(shape=RATE / SHAPE * covariance, df=2 * SHAPE)
    return density.logpdf(VALUES[start:end][seen])


@pytest.mark.parametrize("family", [sp.Trend, sp.Regression], ids=["trend", "regression"])
@pytest.mark.parametrize("longest_exact", [10, 0], ids=["exact", "merging"])
def test_all_partitions_in_elapsed_time(family, longest_exact):
    survival = (1 - HAZARD) ** STEPS
    scores = {}
    for switches in itertools.product([False, True], repeat=6):
        edges = [0, *(np.flatnonzero(switches) + 1).tolist(), 7]
        chances = np.where(switches, 1 - survival, survival)
        with np.errstate(divide="ignore"):
            scores[tuple(edges[1:-1])] = np.log(chances).sum() + sum(
                log_density(*pair) for pair in itertools.pairwise(edges)
            )
    evidence = np.logaddexp.reduce(list(scores.values()))
    segment = family(level_scale=LEVEL, slope_scale=SLOPE, shape=SHAPE, rate=RATE)
    source = in_elapsed_time(sp.Source(sp.Geometric(HAZARD), segment), STEPS)
    posterior = SwitchPosterior(source, VALUES, longest_exact=longest_exact)
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-9)
    expected = [
        sum(math.exp(score - evidence) for at, score in scores.items() if t in at) for t in range(7)
    ]
    np.testing.assert_allclose(posterior.switch_probability, expected, atol=1e-9)
    assert posterior.switch_probability[4] == 0  # no time passes before it


def test_the_law_of_elapsed_time():
    source = in_elapsed_time(sp.Source(sp.Geometric(HAZARD), sp.NormalGamma()), STEPS)
    start, run = np.array([0, 0, 2, 0]), np.array([1, 2, 2, 4])
    hazards = 1 - (1 - HAZARD) ** STEPS[start + run - 1]
    np.testing.assert_allclose(source.prior.hazard_after(start, run), hazards, atol=1e-12)
    with jax.enable_x64(True):
        traced = jax.jit(lambda *each: source.prior.survival_after(*each))(start, run)
    np.testing.assert_allclose(traced, 1 - hazards, atol=1e-12)


def test_missing_rows_and_missing_observations_are_the_same_for_levels():
    rng = np.random.default_rng(0)
    values = rng.normal(size=90) + 2 * (np.arange(90) >= 50)
    kept = rng.random(90) < 0.7
    kept[[0, -1]] = True
    rows = sp.detect(values[kept], np.flatnonzero(kept), segment="level")
    assert rows.summary["spacing"] == "irregular"
    gaps = sp.detect(np.where(kept, values, np.nan), segment="level")
    assert rows.log_evidence == pytest.approx(gaps.log_evidence)
    source = sp.Source(sp.Geometric(HAZARD), sp.NormalGamma())
    in_time = in_elapsed_time(source, np.diff(np.flatnonzero(kept)).astype(float))
    none = [
        SwitchPosterior(law, x).no_switch_within(np.array([[1, len(x) - 1]]))
        for law, x in ((in_time, values[kept]), (source, np.where(kept, values, np.nan)))
    ]
    assert none[0] == pytest.approx(none[1])


def test_units_of_time_do_not_matter_and_slopes_are_per_median_step():
    times = np.cumsum(np.repeat([1.0, 4.0], [40, 20]))  # after a while, fewer observations
    values = 0.3 * times + 0.1 * np.random.default_rng(1).normal(size=60)
    found, scaled = (sp.detect(values, unit * times) for unit in (1.0, 86400.0))
    np.testing.assert_allclose(found.switch_probability, scaled.switch_probability, atol=1e-9)
    assert found.segments["slope"].tolist() == pytest.approx([0.3], abs=0.01)
    counted = sp.detect(values, times, spacing="regular")
    assert counted.steps is None
    assert len(counted.changepoints) > len(found.changepoints) == 0
    np.testing.assert_allclose(found.to_frame()["level"], values, atol=0.5)


def test_even_steps_are_no_other_model():
    values = np.random.default_rng(2).normal(size=50)
    one, other = (sp.detect(values, np.arange(50), spacing=each) for each in (None, "irregular"))
    np.testing.assert_allclose(one.switch_probability, other.switch_probability, atol=1e-12)
