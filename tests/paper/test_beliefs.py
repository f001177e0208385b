"""Probes of the study of beliefs: exact targets, and what a linear function can decode."""

import numpy as np
import pytest
from reference import bounds, log_marginal_of_segment, partitions, prior_of_partition

import switchpoint as sp
from switchpoint import evaluation
from switchpoint.paper.scale import RECORDED
from switchpoint.paper.studies import beliefs


def test_targets_are_those_of_all_partitions():
    source, length = sp.Source(sp.PTW(4)), 10
    symbols = np.random.default_rng(3).integers(0, 2, (1, length)).astype(np.int32)
    targets, ages = beliefs._exact(sp.bayes_optimal(source), symbols)
    for t in range(length - 1):
        seen = symbols[0, : t + 1]
        runs, weights = [], []
        for switches in partitions(t + 1):
            *_, (start, end) = pieces = bounds(switches)
            fit = sum(log_marginal_of_segment(source.segment, seen[a:b]) for a, b in pieces)
            runs.append(end - start)
            weights.append(prior_of_partition(source.prior, switches) * np.exp(fit))
        chance = np.bincount(runs, np.array(weights) / sum(weights), minlength=length + 1)[1:]
        octaves = np.log2(np.arange(1, length + 1))
        _, run_length, recent, levels = targets[0, t]
        assert run_length == pytest.approx(chance @ octaves, abs=1e-5)
        assert recent == pytest.approx(chance[: min(8, t)].sum(), abs=1e-5)
        assert 2**levels == (t + 1) & -(t + 1)
        by_octave = [chance[2**k - 1 : 2 ** (k + 1) - 1].sum() for k in range(4)]
        np.testing.assert_allclose(ages[0, t], by_octave, atol=1e-5)


def test_probes_decode_what_is_linear_and_nothing_else():
    random = np.random.default_rng(5)
    features = random.standard_normal((60, 40, 6)).astype(np.float32)
    logits = 2 * features @ random.standard_normal((6, 4))
    ages = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    targets = np.stack([features[..., 0] - features[..., 3], features[..., 1] ** 2] * 2, -1)
    tested = beliefs._tested(features, targets, ages)
    assert tested["r2"][0] > 0.999
    assert abs(tested["r2"][1]) < 5 * tested["r2_error"][1] + 0.02
    assert tested["age_bits"] < 0.02
    noise = random.standard_normal(features.shape).astype(np.float32)
    tested = beliefs._tested(noise, targets, ages)
    assert (tested["r2"] < 0.02).all()
    entropy = -(ages * np.log2(ages)).sum(-1).mean()
    assert tested["age_bits"] > 0.3 * entropy


def test_the_record_tells_networks_from_controls():
    record = evaluation.load(RECORDED / "beliefs.nc")
    run_length = record["r2"].sel(target="run length")
    for control in beliefs.CONTROLS:
        gap = run_length.sel(probe="trained") - run_length.sel(probe=control)
        assert (gap > 3 * record["r2_error"].sel(target="run length", probe=control)).all()
