"""Priors on the host: hazard and survival of the hypotheses about the current segment."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import Float

from switchpoint.priors import LIN, PTW, Geometric, Prior, RandomUniform, RegularPeriodic, Renewal

Floats: TypeAlias = Float[np.ndarray, " hypotheses"]
Law: TypeAlias = Callable[[Floats, Floats], tuple[Floats, Floats | None]]
"""From the starts of segments and their lengths up to now: P(a segment ends here | it lasted until
here), and P(it does not), or None where one minus the first is as exact. New arrays."""


class Memoryless(NamedTuple):
    """A law that is the same for all segments at all times."""

    ends: float
    stays: float
    """Above 0."""


def make_law(prior: Prior) -> Law | Memoryless:
    """The law of the segment lengths of a prior, in double precision."""
    match prior:
        case Geometric() if type(prior) is Geometric:
            log_odds = float(prior.hazard_log_odds)
            ends, stays = sigmoid(log_odds), sigmoid(-log_odds)
            return _by_run(np.ones(1)) if stays == 0 else Memoryless(ends, stays)
        case LIN() if type(prior) is LIN:
            return _lin
        case RegularPeriodic() if type(prior) is RegularPeriodic:
            return _by_run(np.array([*[0.0] * (prior.period - 1), 1.0]))
        case RandomUniform() if type(prior) is RandomUniform:
            return _by_run(1 / np.arange(prior.max_length, 0, -1.0))
        case Renewal() if type(prior) is Renewal:
            return _renewal(np.asarray(prior.pmf, np.float64))
        case PTW() if type(prior) is PTW:
            return _tree(prior)
    return _general(prior)


def sigmoid(x: float) -> float:
    """1 / (1 + e^-x) without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


_HALF = np.array(0.5)  # an array is faster than a number here
_divide = np.divide


def _lin(starts: Floats, runs: Floats) -> tuple[Floats, None]:
    del starts
    return _divide(_HALF, runs), None


def _by_run(hazards: Float[np.ndarray, " lengths"], survivals: Any = None) -> Law:
    """A law that looks runs up in a table; the last entry is for all longer ones."""
    survivals = 1 - hazards if survivals is None else survivals
    last = len(hazards) - 1

    def law(starts: Floats, runs: Floats) -> tuple[Floats, Floats]:
        del starts
        index = np.minimum(runs - 1, last).astype(np.intp)
        return hazards[index], survivals[index]

    return law


def _renewal(pmf: Float[np.ndarray, " lengths"]) -> Law:
    tail = np.append(np.cumsum(pmf[::-1])[::-1], 0.0)
    there = tail[:-1] > 0
    whole = np.where(there, tail[:-1], 1.0)
    hazards = np.where(there, pmf / whole, 1.0)
    return _by_run(hazards, np.where(there, tail[1:] / whole, 0.0))


def split_terms(prior: PTW) -> tuple[list[float], list[float], list[float], list[float]]:
    """The hazard and the survival of a node, by the number of nodes above it that it may be.

    With the start of a node of height h that has lasted for the 2^v observations of one of its
    own, h - v larger nodes have the same start. Two lists are for v = 0, and two for others.
    """
    log_odds = float(prior.split_log_odds)
    split, stop = sigmoid(log_odds), sigmoid(-log_odds)
    log_split = math.log(split) if split < 0.5 else math.log1p(-stop)
    above = [-math.expm1(count * log_split) for count in range(prior.depth + 2)]
    powers = [math.exp(count * log_split) for count in range(prior.depth + 2)]
    counts = range(prior.depth + 1)
    return (
        [powers[count] for count in counts],
        [above[count] for count in counts],
        [stop * powers[count] / above[count + 1] if count else 1.0 for count in counts],
        [above[count] / above[count + 1] for count in counts],
    )


def _tree(prior: PTW) -> Law:
    tables = split_terms(prior)
    leaf_hazard, leaf_survival, hazard, survival = (np.array(table) for table in tables)

    def law(starts: Floats, runs: Floats) -> tuple[Floats, Floats]:
        begun, lasted = starts.astype(np.int64), runs.astype(np.int64)
        at_edge = (lasted & (lasted - 1)) == 0
        level = np.log2(np.where(at_edge, lasted, 1)).astype(np.int64)
        height = np.log2(np.where(begun > 0, begun & -begun, 1)).astype(np.int64)
        height = np.where(begun == 0, prior.depth, height)
        above = np.maximum(height - level, 0)
        ends = np.where(level == 0, leaf_hazard[above], hazard[above])
        stays = np.where(level == 0, leaf_survival[above], survival[above])
        return np.where(at_edge, ends, 0.0), np.where(at_edge, stays, 1.0)

    return law


def _general(prior: Prior) -> Law:
    """A user's own prior: a compiled program per observation."""
    compiled = jax.jit(
        lambda prior, starts, runs: (
            prior.hazard_after(starts, runs),
            prior.survival_after(starts, runs),
        )
    )

    def law(starts: Floats, runs: Floats) -> tuple[Floats, Floats]:
        with jax.enable_x64(True):
            terms = compiled(prior, starts.astype(np.int64), runs.astype(np.int64))
            ends, stays = (np.broadcast_to(np.asarray(t, np.float64), starts.shape) for t in terms)
        return ends, stays

    return law
