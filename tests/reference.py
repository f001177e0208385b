"""Slow, obvious computations in float64 that the tests compare with.

None of this uses the library's inference: partitions are enumerated, laws are written down
again from the paper, marginals come from log-gamma functions.
"""

import functools
import itertools
import math

import numpy as np

import switchpoint as sp


def trailing_zeros(number):
    return (number & -number).bit_length() - 1


def pmf(prior, start, length):
    """P(L = length | start), from the table of laws in the design."""
    match prior:
        case sp.RegularPeriodic(period=period):
            return float(length == period)
        case sp.RandomUniform(max_length=longest):
            return 1 / longest if length <= longest else 0.0
        case sp.Geometric(hazard=hazard):
            return hazard * (1 - hazard) ** (length - 1)
        case sp.Renewal(pmf=law):
            return law[length - 1] if length <= len(law) else 0.0
        case sp.LIN():
            return 0.5 / length * math.prod(1 - 0.5 / r for r in range(1, length))
        case sp.PTW(depth=depth, split=split):
            height = depth if start == 0 else trailing_zeros(start)
            law = {2 ** (height - j): (1 - split) * split**j for j in range(height)}
            law[1] = law.get(1, 0.0) + split**height
            return law.get(length, 0.0)
    raise TypeError(prior)


def survival(prior, start, run):
    """P(L > run | start)."""
    return max(0.0, 1 - math.fsum(pmf(prior, start, r) for r in range(1, run + 1)))


def log_marginal_of_segment(segment, symbols):
    """ln P(symbols) inside one segment: a ratio of Beta functions."""
    pseudo = np.asarray(segment.pseudo_counts)
    counts = np.bincount(np.asarray(symbols, int), minlength=len(pseudo))
    gains = sum(math.lgamma(a + c) - math.lgamma(a) for a, c in zip(pseudo, counts, strict=True))
    return math.lgamma(pseudo.sum()) - math.lgamma(pseudo.sum() + len(symbols)) + gains


def bounds(switches):
    """The segments (start, end) of a partition given by its switches."""
    edges = [0, *(t for t in range(1, len(switches)) if switches[t]), len(switches)]
    return list(itertools.pairwise(edges))


@functools.cache
def partitions(length):
    """All partitions of a sequence, as rows of switches: False at 0."""
    return [(False, *rest) for rest in itertools.product([False, True], repeat=length - 1)]


@functools.cache
def all_bounds(length):
    """The segments of each of the partitions."""
    return [bounds(switches) for switches in partitions(length)]


def prior_of_partition(prior, switches):
    """P(partition): the last segment may continue beyond the end."""
    *done, (last, end) = bounds(switches)
    chances = [pmf(prior, a, b - a) for a, b in done]
    return math.prod(chances) * survival(prior, last, end - last - 1)


PRIORS = [
    sp.PTW(4),
    sp.PTW(5, split=0.3),
    sp.PTW(7, split=0.8),
    sp.LIN(),
    sp.RegularPeriodic(3),
    sp.RandomUniform(4),
    sp.RandomUniform(30),
    sp.Geometric(0.2),
    sp.Geometric(1.0),
    sp.Renewal([0.1, 0.0, 0.5, 0.4]),
]


def name(value):
    """A short name for a test's parameter."""
    options = "".join(repr(value).split())
    return options.split(",input=")[0].split(",embedding=")[0]  # without a network's weights
