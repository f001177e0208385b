"""Changes that heavy tails explain, and those that they do not."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import gamma, norm, t

import switchpoint as sp
from switchpoint.detection.tails import segment_log_evidence


@pytest.mark.parametrize("degrees", [math.inf, 4.0])
@pytest.mark.parametrize("length", [3, 40])
def test_the_evidence_of_a_segment_is_close_to_an_integral_over_level_and_noise(degrees, length):
    x = np.random.default_rng(1).standard_t(3, size=length)
    x[1] = 8.0
    log_odd = np.log(0.01 / 0.99 / (3 * np.pi)) - np.log1p((x / 3) ** 2)
    family = sp.NormalGamma(0.5, 0.25, 3.0, 1.0)
    found = segment_log_evidence(family, x, np.arange(length) + 7.0, log_odd, degrees)
    level, log_scale = np.meshgrid(np.linspace(-8, 8, 801), np.linspace(-2.5, 2, 91))
    scale, tau = np.exp(log_scale), np.exp(-2 * log_scale)
    total = norm.logpdf(level, 0.5, 2 * scale) + gamma.logpdf(tau, 3.0) + np.log(2 * tau)
    for value, odd in zip(x, log_odd, strict=True):
        gap = (value - level) / scale
        inlier = norm.logpdf(gap) if math.isinf(degrees) else t.logpdf(gap, degrees)
        total += np.logaddexp(inlier - log_scale, odd)
    exact = logsumexp(total) + math.log(16 / 800 * 4.5 / 90)
    assert found == pytest.approx(exact, abs=0.3)


@pytest.mark.parametrize("seed", [6, 8, 19])
def test_heavy_tails_are_no_changes_and_hide_none(seed):
    noise = np.random.default_rng(seed).standard_t(3, size=500)
    found = sp.detect(noise)
    assert found.changepoints.tolist() == []
    assert found.no_switch_probability > 0.2
    assert 0 < found.switch_probability.sum() < 2
    stepped = sp.detect(noise + 2.5 * (np.arange(500) >= 250)).changepoints
    assert len(stepped) == 1
    assert abs(stepped[0] - 250) <= 2
