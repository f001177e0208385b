"""Geometric lengths and linear trends in NumPy, by the table of all O(n^2) segments in float64.

Nothing of the library is used: it checks the exact core, and `detect`, on series of real length.
"""

import numpy as np
from scipy.special import gammaln, logsumexp


def trend_log_marginals(values, level_scale, slope_scale, shape, rate):
    """The table ln p(values[s:e] | one segment), (time, time + 1); -inf where e <= s.

    y = a + b t + noise with t from s, precision ~ Gamma(shape, rate), and given the precision
    a ~ N(0, level_scale^2 / precision), b ~ N(0, slope_scale^2 / precision). NaN is missing.
    """
    seen, x = ~np.isnan(values), np.nan_to_num(values)
    times = np.arange(len(x), dtype=float)
    start, before = times[:, None], np.tri(len(x), dtype=bool)

    def between(terms):
        sums = np.concatenate([[0.0], np.cumsum(terms)])
        return sums[None, :] - sums[:-1, None]

    count, sum_t, sum_x = between(seen), between(seen * times), between(x)
    gram_t = sum_t - start * count
    gram_tt = between(seen * times**2) - 2 * start * sum_t + start**2 * count
    moment_t = between(times * x) - start * sum_x
    a, b, d = count + level_scale**-2, gram_t, gram_tt + slope_scale**-2
    determinant = a * d - b * b
    explained = (d * sum_x**2 - 2 * b * sum_x * moment_t + a * moment_t**2) / determinant
    shape_n = shape + count / 2
    rate_n = rate + np.maximum(between(x**2) - explained, 0) / 2
    with np.errstate(invalid="ignore"):  # where e <= s
        table = (
            gammaln(shape_n) - gammaln(shape) + shape * np.log(rate) - shape_n * np.log(rate_n)
        ) - (count * np.log(2 * np.pi) + np.log(determinant * (level_scale * slope_scale) ** 2)) / 2
    table[:, :-1][before] = -np.inf
    return table


class GeometricSegmentation:
    """The posterior over partitions, given the log marginals of all segments and a hazard."""

    def __init__(self, log_marginals, hazard):
        time = len(log_marginals)
        run = np.arange(time + 1)[None, :] - np.arange(time)[:, None]
        self.weights = log_marginals + np.where(run > 0, (run - 1) * np.log1p(-hazard), 0.0)
        self.weights[:, :time] += np.log(hazard)  # every segment but the last has ended
        self.until = np.zeros(time + 1)
        for end in range(1, time + 1):
            self.until[end] = logsumexp(self.until[:end] + self.weights[:end, end])
        self.after = np.zeros(time + 1)
        for start in reversed(range(time)):
            later = self.weights[start, start + 1 :] + self.after[start + 1 :]
            self.after[start] = logsumexp(later)

    @property
    def log_evidence(self):
        return self.until[-1]

    def switch_probability(self):
        """P(a segment starts at t | all values); 0 at t = 0."""
        smoothed = np.exp(self.until + self.after - self.until[-1])[:-1]
        smoothed[0] = 0
        return smoothed

    def most_probable(self):
        """The switches of the most probable partition, and its log posterior probability."""
        time = len(self.weights)
        best, previous = np.zeros(time + 1), np.zeros(time + 1, int)
        for end in range(1, time + 1):
            scores = best[:end] + self.weights[:end, end]
            previous[end] = scores.argmax()
            best[end] = scores[previous[end]]
        switches, end = [], time
        while previous[end] > 0:
            end = previous[end]
            switches.append(int(end))
        return switches[::-1], best[-1] - self.until[-1]
