"""Changes that heavy tails explain: each change must beat the tails of the noise by evidence.

The recursion judges values in their order, with normal noise and outliers. A quiet stretch, or a
large value at the beginning, then looks like a change where the noise has heavy tails. So for the
values of both segments beside a change, the evidence of one segment is compared with that of two,
in a model whose noise is Student-t, with the degrees of freedom of highest evidence for the whole
series, normal included. It depends on no order: it is Laplace's approximation in the coefficients
and the logarithm of the noise, from their mode by iterated weighted least squares.
"""

import functools
import math
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit, gammaln

from switchpoint.detection.changes import WINDOW
from switchpoint.detection.elapsed import make_clock
from switchpoint.detection.fits import design, is_real
from switchpoint.detection.outliers import SHARE, blocks, log_outlier_density
from switchpoint.segments import MultivariateNormal
from switchpoint.sources import Source

_DEGREES = (math.inf, 8.0, 4.0, 2.5)
_ROUNDS, _CLOSE = 50, 1e-6
_NONE = math.log(1e-4)  # the probability of none, below which a change is not compared
_MOST, _NEAR = 100, 2000  # changes that are, and observations to either side of them
_FEW = 500  # of these observations, by which the degrees of freedom are chosen


def explained_by_tails(
    source: Source,
    values: Float[np.ndarray, "time columns"],
    positions: list[int],
    probability: Float[np.ndarray, " time"],
    steps: Float[np.ndarray, " steps"] | None,
) -> dict[int, tuple[slice, float]]:
    """The changes that heavy tails explain: the window of each, and P(a switch in it) with them.

    `values` are standardised and those of columns with normal noise, under a geometric prior; no
    change is compared where there are lags, which make a step of a large single innovation. The
    least probable change goes first, and its neighbours are then compared with what is left.
    """
    families = blocks(source.segment)
    if not all(
        is_real(each) and not isinstance(each, MultivariateNormal) and not getattr(each, "lags", 0)
        for _, each in families
    ):
        return {}
    edges = [0, *positions, len(values)]
    firsts = [max(at - WINDOW, (a + at) // 2, 1) for a, at in pairwise(edges[:-1])]
    lasts = [min(at + WINDOW, (at + b) // 2, len(values) - 1) for at, b in pairwise(edges[1:])]
    windows = [slice(a, b + 1) for a, b in zip(firsts, lasts, strict=True)]
    # A bound of P(none), which is far from it only where changes are gradual.
    none = np.array([np.log1p(-np.minimum(probability[each], 1 - 1e-12)).sum() for each in windows])
    order = np.argsort(-none, kind="stable")[:_MOST].tolist()
    # A change within a long gap is reported after it, where its window has little probability.
    doubtful = {
        positions[i]: windows[i]
        for i in order
        if none[i] > _NONE and probability[windows[i]].sum() > 0.5
    }
    if not doubtful:
        return {}
    clock = make_clock(len(values), steps)
    log_odd = log_outlier_density(families[0][1], values) + math.log(SHARE) - math.log1p(-SHARE)

    @functools.cache
    def evidence(column: int, degrees: float, begin: int, end: int) -> float:
        part = slice(begin, end)
        seen = values[part, column], clock[part], log_odd[part, column]
        return segment_log_evidence(families[column][1], *seen, degrees)

    ends = {
        (max(a, b - _FEW), b) if b in doubtful else (a, min(b, a + _FEW))
        for a, b in pairwise(edges)
        if a in doubtful or b in doubtful
    }
    degrees = []
    for column in range(len(families)):
        totals = [sum(evidence(column, each, *near) for near in ends) for each in _DEGREES]
        degrees.append(_DEGREES[int(np.argmax(totals))])
    prior: Any = source.prior
    log_survival = np.logaddexp(0.0, float(prior.hazard_log_odds))

    def log_odds(position: int) -> float:
        """ln P(a switch in the window) / P(none), given the other changes."""
        at = edges.index(position)
        begin, end = max(edges[at - 1], position - _NEAR), min(edges[at + 1], position + _NEAR)
        step = 1.0 if steps is None else float(steps[position - 1])
        chances = probability[doubtful[position]]
        prior_odds = math.expm1(step * log_survival)
        result = math.log(max(prior_odds, 1e-300) * chances.sum() / chances.max())
        for column, each in enumerate(degrees):
            result += evidence(column, each, begin, position) - evidence(column, each, begin, end)
            result += evidence(column, each, position, end)
        return result

    explained = {}
    while doubtful:
        odds = {position: log_odds(position) for position in doubtful}
        least = min(odds, key=odds.__getitem__)
        if odds[least] >= 0:
            break
        explained[least] = doubtful.pop(least), float(expit(odds[least]))
        edges.remove(least)
    return explained


def segment_log_evidence(
    family: Any,
    values: Float[np.ndarray, " time"],
    times: Float[np.ndarray, " time"],
    log_odd: Float[np.ndarray, " time"],
    degrees: float,
) -> float:
    """ln p(the values of one segment), whose noise is Student-t and which may be outliers.

    Values are inliers with probability 1 - e and density f, and else outliers of density q:
    `log_odd` is ln(e q / (1 - e)) of each.
    """
    inside = ~np.isnan(values)
    one = values[:, None]
    features, precision, mean = design(family, one, times - times[0], inside, one[:, 1:])
    rows, near, log_odd = features[inside], values[inside] - mean, log_odd[inside]
    unit = family.rate / family.shape
    starts = np.ones(len(near)), unit / (unit + (near - np.median(near)) ** 2)
    arguments = family, rows, near, precision, log_odd, degrees
    return max(_at_mode(*arguments, start) for start in starts) if len(near) else 0.0


def _at_mode(
    family: Any,
    rows: Float[np.ndarray, "seen features"],
    near: Float[np.ndarray, " seen"],
    precision: Float[np.ndarray, " features"],
    log_odd: Float[np.ndarray, " seen"],
    degrees: float,
    weights: Float[np.ndarray, " seen"],
) -> float:
    """Laplace's approximation at the mode that is reached from a fit with these weights."""
    shape = float(family.shape) + 0.5 * len(precision)
    kept, tau = weights, 0.0
    for _ in range(_ROUNDS):
        gram = (rows.T * weights) @ rows + np.diag(precision)
        coefficients = np.linalg.solve(gram, rows.T @ (weights * near))
        gaps = near - rows @ coefficients
        rate = float(family.rate) + 0.5 * float(precision @ coefficients**2)
        before, tau = tau, (shape + 0.5 * kept.sum()) / (rate + 0.5 * float(weights @ gaps**2))
        u = math.sqrt(tau) * gaps
        logs, once, twice = _student_t(u, degrees)
        logs += 0.5 * math.log(tau)
        kept = expit(logs - log_odd)
        weights = np.where(u == 0, kept, -kept * once / np.where(u == 0, 1.0, u))
        if abs(tau - before) <= _CLOSE * tau:
            break
    # In (sqrt(tau) coefficients, ln tau), whose volume adds to the normal prior of the former.
    slopes = np.column_stack([-once[:, None] * rows, 0.5 * (1 + u * once)])
    mixed = -0.5 * (once + u * twice)
    curved = (kept * twice, kept * mixed, kept * 0.25 * u * (once + u * twice))
    prior = np.append(math.sqrt(tau) * precision * coefficients, tau * rate)
    hessian = -(slopes.T * (kept * (1 - kept))) @ slopes
    hessian[:-1, :-1] += np.diag(precision) - (rows.T * curved[0]) @ rows
    hessian[:-1, -1] += prior[:-1] - rows.T @ curved[1]
    hessian[-1, :-1] = hessian[:-1, -1]
    hessian[-1, -1] += prior[-1] - curved[2].sum()
    sign, log_determinant = np.linalg.slogdet(hessian)
    if sign <= 0:  # between two modes
        log_determinant = np.linalg.slogdet(gram)[1] + math.log(shape + 0.5 * kept.sum())
    alpha, beta = float(family.shape), float(family.rate)
    log_prior = alpha * math.log(beta * tau) - gammaln(alpha) - tau * rate
    log_prior += 0.5 * float(np.log(precision).sum())
    volume = 0.5 * math.log(2 * math.pi) - 0.5 * log_determinant
    return float(np.logaddexp(logs, log_odd).sum()) + log_prior + volume


def _student_t(u: Any, degrees: float) -> tuple[Any, Any, Any]:
    """The logarithm of the density of Student's t distribution, and its two derivatives."""
    if math.isinf(degrees):
        return -0.5 * u * u - 0.5 * math.log(2 * math.pi), -u, np.full_like(u, -1.0)
    spread, half = degrees + u * u, 0.5 * (degrees + 1)
    constant = gammaln(half) - gammaln(0.5 * degrees) - 0.5 * math.log(math.pi * degrees)
    logs = constant - half * np.log1p(u * u / degrees)
    return logs, -2 * half * u / spread, 2 * half * (u * u - degrees) / spread**2
