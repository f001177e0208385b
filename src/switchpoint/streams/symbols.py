"""Symbols in plain Python floats: KT, and PTW with a small alphabet.

The hypotheses of PTW are the nodes around the next symbol, but only those with different starts:
one for each binary digit 1 of the time, and one more. All larger nodes with the same start are one
hypothesis, so that a tree of depth 40 costs no more than the stream is long. They are a stack: when
nodes end, which the time tells, the last hypotheses are removed. Sums are correctly rounded.
"""

import math
from collections.abc import Mapping
from operator import mul, truediv
from typing import Any

import numpy as np
from jaxtyping import Float

from switchpoint.exact import KT, KTOracle, PTWPredictor
from switchpoint.priors import PTW
from switchpoint.segments.dirichlet import as_dirichlet
from switchpoint.streams.engine import (
    Runs,
    Slots,
    SymbolEngine,
    check_arrays,
    log_ratios,
    split_levels,
)

LARGEST_ALPHABET = 4
"""Of a tree; beyond it arrays are faster."""

_fsum = math.fsum  # found faster than in a module
_SMALL = 1e-60  # weights are only proportional to probabilities; they are rescaled below this sum


class CountEngine(SymbolEngine):
    """The counts of the current segment, whose start is known: 0, or the last true switch."""

    name = "counts"

    def __init__(self, predictor: KT | KTOracle) -> None:
        super().__init__(predictor.segment)
        self.pseudo = [float(each) for each in as_dirichlet(predictor.segment).pseudo_counts]
        self.switches: list[bool] | None = None
        if isinstance(predictor, KTOracle):
            predictor.init()  # which refuses several rows
            self.switches = np.asarray(predictor.switches).tolist()
        self._restart()

    def _restart(self) -> None:
        self.run = 0
        self.counts = list(self.pseudo)
        self.total = math.fsum(self.pseudo)

    def predict(self) -> Float[np.ndarray, " alphabet"]:
        if self.switches is not None and True in self.switches[self.position : self.position + 1]:
            return log_ratios(self.pseudo, math.fsum(self.pseudo))
        return log_ratios(self.counts, self.total)

    def step(self, x: int) -> float:
        if self.switches is not None:
            self.check_length(self.position + 1)
            if self.switches[self.position]:
                self._restart()
        log_prob = 0.0
        if x >= 0:
            count = self.counts[x]
            log_prob = math.log(count / self.total)
            self.counts[x] = count + 1
            self.total += 1
        self.position += 1
        self.run += 1
        return log_prob

    def check_length(self, length: int) -> None:
        if self.switches is not None and length > len(self.switches):
            raise ValueError(
                f"switches must cover the sequence, got {len(self.switches)} of them for "
                f"{length} symbols"
            )

    def _runs(self) -> Runs:
        return Runs(np.array([float(self.run)]), np.ones(1))

    def levels(self, since: int) -> tuple[Any, Any]:
        probs = np.array([self.counts]) / self.total
        start = np.array([float(self.position - self.run)])
        return split_levels(start, np.ones(1), probs, since)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"counts": np.array(self.counts), "run": np.array(float(self.run))}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        check_arrays(arrays, {"counts": (len(self.pseudo),), "run": ()})
        self.counts, self.run = arrays["counts"].tolist(), int(arrays["run"])
        self.total = math.fsum(self.counts)


class TreeEngine(SymbolEngine):
    """The state of PTW: weights and counts of each hypothesis, the earliest start first."""

    name = "tree"

    def __init__(self, predictor: PTWPredictor) -> None:
        super().__init__(predictor.segment)
        self.prior = predictor.prior
        self.depth = predictor.prior.depth
        self.limit = predictor.prior.max_sequence
        self.terms = _leaf_and_node_terms(predictor.prior)
        self.pseudo = [float(each) for each in as_dirichlet(predictor.segment).pseudo_counts]
        self.weights = [1.0]
        self.counts = [[each] for each in self.pseudo]
        self.total = math.fsum(self.pseudo)
        self.totals = [self.total]
        self.last_joint = [1.0]
        self._joint: list[list[float]] = []
        self._probs: list[float] = []
        self._norm = 1.0

    def _mix(self) -> list[float]:
        """The joint probabilities of each symbol and hypothesis, and their sums."""
        shares = list(map(truediv, self.weights, self.totals))
        self._joint, self._probs = [], []
        for counts in self.counts:  # faster than two comprehensions
            joint = list(map(mul, shares, counts))
            self._joint.append(joint)
            self._probs.append(_fsum(joint))
        probs = self._probs
        self._norm = probs[0] + probs[1] if len(probs) == 2 else _fsum(probs)
        return probs

    def predict(self) -> Float[np.ndarray, " alphabet"]:
        probs = self._probs or self._mix()
        return log_ratios(probs, self._norm)

    def step(self, x: int) -> float:
        self.position = time = self.position + 1
        if time > self.limit:
            self.position -= 1
            self.check_length(time)
        if x < 0:
            log_prob, joint = 0.0, self.weights
        else:
            probs = self._probs or self._mix()
            norm = probs[x]
            log_prob = math.log(norm / self._norm)
            joint = self._joint[x]
            if norm < _SMALL:
                joint = [each / norm for each in joint]
            self.counts[x] = [count + 1.0 for count in self.counts[x]]
            self.totals = [total + 1.0 for total in self.totals]
        self._probs = []
        self.last_joint = joint
        # The last `level` hypotheses end here, and the one before them may have ended too: unless
        # it is one of the `above` larger nodes with the same start.
        if time & 1:
            level, start = 0, time - 1
        else:
            last = time & -time
            level, start = last.bit_length() - 1, time - last
        above = ((start & -start).bit_length() - 1 if start else self.depth) - level
        ends, stays = self.terms[level > 0]
        kept = len(joint) - level
        self.weights = weights = joint[:kept]
        split = weights[-1]
        weights[-1] = split * stays[above]
        ended = split * ends[above]
        weights.append(math.fsum([*joint[kept:], ended]) if level else ended)
        for counts, first in zip(self.counts, self.pseudo, strict=True):
            counts[kept:] = (first,)
        self.totals[kept:] = (self.total,)
        return log_prob

    def check_length(self, length: int) -> None:
        self.prior.check_length(length)

    def _runs(self) -> Runs:
        joint = np.array(self.last_joint)
        lengths = np.array([float(self.position - start) for start in self._last_starts()])
        return Runs(lengths, joint / np.add.reduce(joint))

    def levels(self, since: int) -> tuple[Any, Any]:
        starts, weights = np.array(_starts(self.position), float), np.array(self.weights)
        probs = np.array(self.counts).T / np.array(self.totals)[:, None]
        old = starts < self.position
        return split_levels(starts[old], weights[old], probs[old], since)

    def _last_starts(self) -> list[int]:
        """The starts around the last observation; before the first one, those around that."""
        return _starts(max(self.position - 1, 0))

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "weights": np.array(self.weights),
            "joint": np.array(self.last_joint),
            "counts": np.array(self.counts),
        }

    def adopt(self, slots: Slots, gap: Any) -> None:
        del gap
        (counts,) = slots.statistics
        starts, last_starts = np.array(_starts(self.position)), np.array(self._last_starts())
        # By start, of which each has one slot at most.
        now = (starts[:, None] == slots.starts) & (slots.log_weights > -math.inf)
        last = last_starts[:, None] == slots.last_starts
        counts = (now @ counts).T + np.array(self.pseudo)[:, None]
        weights = now @ np.exp(slots.log_weights)
        self.restore({"weights": weights, "joint": last @ slots.joint, "counts": counts})

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        now, last = len(_starts(self.position)), len(self._last_starts())
        shapes = {"weights": (now,), "joint": (last,), "counts": (len(self.pseudo), now)}
        check_arrays(arrays, shapes)
        self.weights, self.last_joint = arrays["weights"].tolist(), arrays["joint"].tolist()
        self.counts = arrays["counts"].tolist()
        self.totals = [math.fsum(column) for column in zip(*self.counts, strict=True)]
        self._probs, self._known = [], None


def _leaf_and_node_terms(prior: PTW) -> list[tuple[list[float], list[float]]]:
    """The hazard and survival of leaves and of larger nodes, by the number of nodes above them.

    A node that may still be one of `above` larger nodes with the same start: one that starts at
    2^(height + above), or at 0 if these are all there are.
    """
    terms = []
    for height in (0, 1):
        above = np.arange(prior.depth + 1 - height)
        starts = np.where(above == prior.depth - height, 0, 2.0 ** (above + height))
        runs = np.full(len(above), 2.0**height)
        law = prior.hazard_after(starts, runs), prior.survival_after(starts, runs)
        terms.append(tuple(np.asarray(each).tolist() for each in law))
    return terms


def _starts(time: int) -> list[int]:
    """The starts of the nodes around the observation at a time, the earliest first."""
    starts = [time]
    while time:
        time &= time - 1
        starts.append(time)
    return starts[::-1]
