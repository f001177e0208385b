"""Slow, obvious computations in float64 that the tests compare with.

None of this uses the library's inference: partitions are enumerated, laws are written down
again from the paper, marginals come from log-gamma functions.
"""

import copy
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


class Enumeration:
    """The posterior of one sequence, by enumerating its partitions."""

    def __init__(self, prior, segment, symbols):
        self.segment, self.symbols = segment, symbols
        pseudo = np.asarray(segment.pseudo_counts)
        # For each segment from a up to b: P(it ends at b), P(it ends at b or later), P(symbols).
        self.ends, self.lasts, self.data, self.means = {}, {}, {}, {}
        for a in range(len(symbols)):
            survives = 1.0
            for b in range(a + 1, len(symbols) + 1):
                counts = np.bincount(symbols[a:b], minlength=segment.alphabet) + pseudo
                self.ends[a, b] = pmf(prior, a, b - a)
                self.lasts[a, b] = survives
                self.data[a, b] = log_marginal_of_segment(segment, symbols[a:b])
                self.means[a, b] = counts / counts.sum()
                survives = max(0.0, survives - self.ends[a, b])
        self._sum_up(len(symbols))

    def _sum_up(self, length):
        self.length = length
        self.partitions, self.bounds = partitions(length), all_bounds(length)
        logs = []
        for segments in self.bounds:
            *done, last = segments
            chance = math.prod(self.ends[each] for each in done) * self.lasts[last]
            data = math.fsum(self.data[each] for each in segments)
            logs.append(math.log(chance) + data if chance > 0 else -math.inf)
        self.log_marginal = float(np.logaddexp.reduce(logs))
        self.weights = np.exp(np.asarray(logs) - self.log_marginal)

    def of_first(self, length):
        """The posterior given the first symbols only."""
        shorter = copy.copy(self)
        shorter._sum_up(length)
        return shorter

    def switch_probability(self):
        return self.weights @ np.asarray(self.partitions, float)

    def switch_count_pmf(self):
        """P(k switches), k = 0..length-1."""
        counts = np.asarray(self.partitions).sum(-1)
        return np.bincount(counts, self.weights, minlength=self.length)

    def switch_within(self, begin, end):
        """P(at least one switch at begin..end, both included)."""
        inside = np.asarray(self.partitions)[:, begin : end + 1].any(-1)
        return float(self.weights @ inside)

    def probs(self):
        """The posterior mean of the distribution at each time."""
        mean = np.zeros((self.length, self.segment.alphabet))
        for weight, segments in zip(self.weights, self.bounds, strict=True):
            for a, b in segments:
                mean[a:b] += weight * self.means[a, b]
        return mean

    def run_length_mean(self):
        """The mean length of the last segment."""
        return float(self.run_length_pmf() @ np.arange(1, self.length + 1))

    def run_length_pmf(self):
        """P(the last segment has length r), r = 1..length."""
        lengths = [b - a for *_, (a, b) in self.bounds]
        return np.bincount(lengths, self.weights, minlength=self.length + 1)[1:]

    def weight_of(self, switches):
        return self.weights[self.partitions.index(tuple(bool(s) for s in switches))]


def ptw_marginal(depth, symbols, split=0.5):
    """PTW_d(x) by its recursive definition (Veness et al., 2013), KT inside the segments."""
    if len(symbols) == 0:
        return 1.0
    whole = math.exp(log_marginal_of_segment(sp.Bernoulli(), symbols))
    if depth == 0:
        return whole
    half = 2 ** (depth - 1)
    halves = [ptw_marginal(depth - 1, part, split) for part in (symbols[:half], symbols[half:])]
    return (1 - split) * whole + split * math.prod(halves)


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
