"""Closed forms of every family in float64, from textbooks, and the sum over all partitions.

Nothing here uses the statistics of the library: the marginal likelihood of a run is a multivariate
normal or t density, a ratio of Gamma functions, or a product over contexts.
"""

import itertools
import math

import numpy as np
import scipy.stats
from reference import all_bounds, partitions, pmf
from scipy.special import betaln, gammaln, multigammaln

import switchpoint as sp


def line(segment, values):
    """The design matrix of a line, and the prior mean and covariance of its coefficients."""
    times = np.arange(len(values))
    match segment:
        case sp.Gaussian(mean=mean, mean_scale=mean_scale, scale=scale):
            return (
                np.ones((len(values), 1)),
                np.array([mean]),
                np.eye(1) * (mean_scale / scale) ** 2,
            )
        case sp.NormalGamma(mean=mean, strength=strength):
            return np.ones((len(values), 1)), np.array([mean]), np.eye(1) / strength
        case sp.Trend(level=level, level_scale=level_scale, slope_scale=slope_scale):
            design = np.stack([np.ones(len(values)), times], axis=-1)
            return design, np.array([level, 0.0]), np.diag([level_scale**2, slope_scale**2])
    return None


def log_marginal(segment, values):
    """ln p(values) of one segment; NaN is missing."""
    values = np.asarray(values, float)
    if hasattr(segment, "log_marginal"):  # of a test
        return segment.log_marginal(values)
    if isinstance(segment, sp.Independent):
        return sum(log_marginal(each, values[:, i]) for i, each in enumerate(segment.columns))
    if isinstance(segment, sp.MultivariateNormal):
        return normal_wishart(segment, values[~np.isnan(values).any(-1)])
    if isinstance(segment, sp.Mixture):
        return float(np.logaddexp.reduce(joint_with_kinds(segment, values)))
    seen = ~np.isnan(values)
    if not seen.any():
        return 0.0
    known = values[seen]
    match segment:
        case sp.Gaussian() | sp.NormalGamma() | sp.Trend():
            design, mean, covariance = line(segment, values)
            design = design[seen]
            spread = np.eye(len(known)) + design @ covariance @ design.T
            if isinstance(segment, sp.Gaussian):
                law = scipy.stats.multivariate_normal(design @ mean, segment.scale**2 * spread)
            else:
                shape = segment.rate / segment.shape * spread
                law = scipy.stats.multivariate_t(design @ mean, shape, df=2 * segment.shape)
            return float(law.logpdf(known))
        case sp.Poisson(shape=a, rate=b):
            total, n = known.sum(), len(known)
            gammas = gammaln(a + total) - gammaln(a) - gammaln(known + 1).sum()
            return float(gammas + a * math.log(b) - (a + total) * math.log(b + n))
        case sp.NegativeBinomial(dispersion=r, alpha=a, beta=b):
            choices = gammaln(r + known) - gammaln(r) - gammaln(known + 1)
            posterior = betaln(a + r * len(known), b + known.sum())
            return float(choices.sum() + posterior - betaln(a, b))
        case sp.Exponential(shape=a, rate=b):
            n = len(known)
            return float(
                gammaln(a + n) - gammaln(a) + a * math.log(b) - (a + n) * math.log(b + known.sum())
            )
        case sp.MarkovChain(size=size, order=order):
            return sum(
                dirichlet(np.full(size, segment.concentration), symbols)
                for symbols in by_context(values, order).values()
            )
        case sp.HMM():
            return math.log(over_hidden_paths(segment, values))
        case sp.Bernoulli() | sp.Categorical():
            return dirichlet(np.asarray(segment.pseudo_counts), known)
    raise TypeError(segment)


def joint_with_kinds(mixture, values):
    """ln w_k p_k(values) of each kind."""
    logs = [log_marginal(kind, values) for kind in mixture.kinds]
    return np.log(mixture.weights) + np.array(logs)


def over_hidden_paths(hmm, values):
    """P(values), by the sum over all sequences of hidden states."""
    total, count = 0.0, len(hmm.initial_probs)
    for states in itertools.product(range(count), repeat=len(values)):
        chance = hmm.initial_probs[states[0]] if states else 1.0
        for before, after in itertools.pairwise(states):
            chance *= hmm.transition_probs[before, after]
        for state, x in zip(states, values, strict=True):
            chance *= 1.0 if np.isnan(x) else hmm.emission_probs[state, int(x)]
        total += chance
    return total


def normal_wishart(segment, values):
    """ln p of whole rows, from the normalisers of the inverse-Wishart distribution."""
    n, d = values.shape
    before = 2 * segment.shape + d - 1
    scale = 2 * segment.rate * np.eye(d)
    if not n:
        return 0.0
    gap = values.mean(0) - segment.mean
    deviations = values - values.mean(0)
    share = segment.strength * n / (segment.strength + n)
    after = scale + deviations.T @ deviations + share * np.outer(gap, gap)
    total = multigammaln((before + n) / 2, d) - multigammaln(before / 2, d)
    total += 0.5 * before * np.linalg.slogdet(scale)[1]
    total -= 0.5 * (before + n) * np.linalg.slogdet(after)[1]
    total += 0.5 * d * math.log(segment.strength / (segment.strength + n))
    return float(total - 0.5 * n * d * math.log(math.pi))


def by_context(values, order):
    """The symbols after each context; a short context has a place of its own."""
    found = {}
    for t, value in enumerate(values):
        context = tuple(values[max(0, t - order) : t])
        if len(context) < order or np.isnan(context).any():
            context = t
        if not np.isnan(value):
            found.setdefault(context, []).append(value)
    return found


def dirichlet(pseudo, symbols):
    counts = np.bincount(np.asarray(symbols, int), minlength=len(pseudo))
    gains = gammaln(pseudo + counts).sum() - gammaln(pseudo).sum()
    return float(gains + gammaln(pseudo.sum()) - gammaln((pseudo + counts).sum()))


def level(segment, values):
    """The posterior mean and variance of the level at each time of a segment, or its probs."""
    values = np.asarray(values, float)
    n = len(values)
    if isinstance(segment, sp.Independent):
        parts = [level(each, values[:, i]) for i, each in enumerate(segment.columns)]
        return tuple(np.stack(part, axis=-1) for part in zip(*parts, strict=True))
    if isinstance(segment, sp.MultivariateNormal):
        values = np.where(np.isnan(values).any(-1, keepdims=True), np.nan, values)
        column = sp.NormalGamma(segment.mean, segment.strength, segment.shape, segment.rate)
        parts = [level(column, each) for each in values.T]
        return tuple(np.stack(part, axis=-1) for part in zip(*parts, strict=True))
    if isinstance(segment, sp.Mixture):
        return mixed_level(segment, values)
    seen = ~np.isnan(values)
    known = values[seen]
    match segment:
        case sp.Gaussian() | sp.NormalGamma() | sp.Trend():
            whole, prior_mean, covariance = line(segment, values)
            design = whole[seen]
            precision = np.linalg.inv(covariance) + design.T @ design
            posterior = np.linalg.inv(precision)
            mean = posterior @ (np.linalg.solve(covariance, prior_mean) + design.T @ known)
            if isinstance(segment, sp.Gaussian):
                noise = segment.scale**2
            else:
                gap = mean - prior_mean
                squares = ((known - design @ mean) ** 2).sum()
                rate = segment.rate + 0.5 * (squares + gap @ np.linalg.solve(covariance, gap))
                shape = segment.shape + len(known) / 2
                noise = rate / max(shape - 1, shape / 3)
            return whole @ mean, noise * np.einsum("ti,ij,tj->t", whole, posterior, whole)
        case sp.Poisson(shape=a, rate=b):
            a, b = a + known.sum(), b + len(known)
            return np.full(n, a / b), np.full(n, a / b**2)
        case sp.NegativeBinomial(dispersion=r, alpha=a, beta=b):
            a, b = a + r * len(known), b + known.sum()
            odds = b / max(a - 1, a / 2)
            variance = odds * (odds + 1) / max(a - 2, a / 3)
            return np.full(n, r * odds), np.full(n, r**2 * variance)
        case sp.Exponential(shape=a, rate=b):
            a, b = a + len(known), b + known.sum()
            mean = b / max(a - 1, a / 2)
            return np.full(n, mean), np.full(n, mean**2 / max(a - 2, a / 3))
        case sp.MarkovChain(size=size, order=order):
            contexts = by_context(values, order)
            rows = []
            for t in range(n):
                context = tuple(values[max(0, t - order) : t])
                full = len(context) == order and not np.isnan(context).any()
                after = contexts.get(context, []) if full else []
                counts = np.bincount(np.asarray(after, int), minlength=size)
                counts = counts + segment.concentration
                rows.append(counts / counts.sum())
            return np.stack(rows), None
        case sp.HMM(alphabet=alphabet):
            rows = [
                [over_hidden_paths(segment, [*values[:t], symbol]) for symbol in range(alphabet)]
                for t in range(n)
            ]
            return np.stack([np.array(row) / sum(row) for row in rows]), None
        case sp.Bernoulli() | sp.Categorical():
            pseudo = np.asarray(segment.pseudo_counts)
            counts = np.bincount(known.astype(int), minlength=len(pseudo)) + pseudo
            return np.tile(counts / counts.sum(), (n, 1)), None
    raise TypeError(segment)


def mixed_level(mixture, values):
    """The level under each kind, by the posterior of the kinds."""
    parts = [level(kind, values) for kind in mixture.kinds]
    joint = joint_with_kinds(mixture, values)
    weights = np.exp(joint - np.logaddexp.reduce(joint))
    mean = sum(weight * part for weight, (part, _) in zip(weights, parts, strict=True))
    if parts[0][1] is None:
        return mean, None
    pairs = zip(weights, parts, strict=True)
    return mean, sum(weight * (var + (part - mean) ** 2) for weight, (part, var) in pairs)


class Enumeration:
    """Everything about one sequence, by enumerating its partitions."""

    def __init__(self, prior, segment, values):
        self.segment, self.values = segment, np.asarray(values, float)
        length = len(values)
        self.ends, self.lasts, self.data = {}, {}, {}
        for a in range(length):
            survives = 1.0
            for b in range(a + 1, length + 1):
                self.ends[a, b] = pmf(prior, a, b - a)
                self.lasts[a, b] = survives
                self.data[a, b] = log_marginal(segment, self.values[a:b])
                survives = max(0.0, survives - self.ends[a, b])
        self.log_marginals = [0.0, *(self._weigh(t)[1] for t in range(1, length + 1))]
        self.weights, self.log_marginal = self._weigh(length)
        self.filtered = [self._weigh(t + 1)[0] for t in range(length)]

    def _weigh(self, length):
        logs = []
        for segments in all_bounds(length):
            *done, last = segments
            chance = math.prod(self.ends[each] for each in done) * self.lasts[last]
            data = math.fsum(self.data[each] for each in segments)
            logs.append(math.log(chance) + data if chance > 0 else -math.inf)
        total = float(np.logaddexp.reduce(logs))
        return np.exp(np.asarray(logs) - total), total

    def log_density(self):
        return np.diff(self.log_marginals)

    def switch_smoothed(self):
        return self.weights @ np.asarray(partitions(len(self.values)), float)

    def switch_filtered(self):
        return [
            weights @ np.asarray(partitions(t + 1), float)[:, t]
            for t, weights in enumerate(self.filtered)
        ]

    def run_length_mean(self):
        return self.run_length_pmf() @ np.arange(1, len(self.values) + 1)

    def run_length_pmf(self):
        """P(the segment of x_t has length r up to it | x_<=t), r = 1..length."""
        length = len(self.values)
        lengths = [[b - a for *_, (a, b) in all_bounds(t + 1)] for t in range(length)]
        rows = zip(lengths, self.filtered, strict=True)
        return np.stack([np.bincount(*row, minlength=length + 1)[1:] for row in rows])

    def switch_count_pmf(self):
        counts = np.asarray(partitions(len(self.values))).sum(-1)
        return np.bincount(counts, self.weights, minlength=len(self.values))

    def switch_within(self, begin, end):
        inside = np.asarray(partitions(len(self.values)))[:, begin : end + 1].any(-1)
        return float(self.weights @ inside)

    def weight_of(self, switches):
        return self.weights[partitions(len(self.values)).index(tuple(map(bool, switches)))]

    def levels(self):
        """The posterior mean and standard deviation of the level, or the mean of the probs."""
        of_run = {(a, b): level(self.segment, self.values[a:b]) for a, b in self.ends}
        means, squares = 0.0, 0.0
        for weight, segments in zip(self.weights, all_bounds(len(self.values)), strict=True):
            parts = [of_run[each] for each in segments]
            mean = np.concatenate([part[0] for part in parts])
            means = means + weight * mean
            if parts[0][1] is not None:
                squares = squares + weight * (np.concatenate([p[1] for p in parts]) + mean**2)
        return means, np.sqrt(np.maximum(squares - means**2, 0.0))
