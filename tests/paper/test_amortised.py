"""The study of amortised detection: its loss, its network, and its record."""

import jax
import numpy as np
import pytest
from family_reference import Enumeration
from reference import partitions

from switchpoint import evaluation
from switchpoint.paper.scale import RECORDED
from switchpoint.paper.studies import amortised


def test_the_loss_is_that_expected_over_all_partitions():
    drawn_from = amortised.source(8)
    test = amortised._draw(drawn_from, 2, 6, 0, "test")
    random = np.random.default_rng(3)
    logits = random.normal(size=(2, 6))
    switches = np.array(partitions(6))[:, 1:]
    own = 1 / (1 + np.exp(-logits[:, 1:]))
    for row, chances in enumerate(own):
        exact = Enumeration(drawn_from.prior, drawn_from.segment, test.values[row])
        bits = -np.log2(np.where(switches, chances, 1 - chances)).sum(1)
        found = amortised._loss(logits, test)[row]
        assert found == pytest.approx(exact.weights @ bits, rel=1e-4)
        least = amortised._loss(test.exact, test)[row]
        chances = exact.switch_smoothed()[1:]
        assert least == pytest.approx(
            -(chances * np.log2(chances) + (1 - chances) * np.log2(1 - chances)).sum(), rel=1e-4
        )


def test_every_logit_depends_on_all_values_and_not_on_the_batch():
    network = amortised.Detector(4, jax.random.key(0))
    values = np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32)
    slopes = jax.jacobian(network.logits)(values)
    for row, other in np.ndindex(3, 3):
        assert (np.asarray(slopes[row, 1:, other]) != 0).all() == (row == other)
        assert (np.asarray(slopes[row, :, other]) != 0).any() == (row == other)


def test_the_recorded_networks_come_within_the_bar():
    record = evaluation.load(RECORDED / "amortised.nc").isel(n=0)
    share = record["excess"] / record["loss"]
    for name, each in zip(record["detector"].values, share.values, strict=True):
        assert (each < amortised.BAR) == str(name).startswith("network")
