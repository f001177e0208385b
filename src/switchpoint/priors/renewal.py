"""Priors whose segment lengths are independent draws from one distribution."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import wadler_lindig as wl
from jaxtyping import Array, ArrayLike, Float

from switchpoint import _checks
from switchpoint._namespace import Numbers, as_float, log_sigmoid, namespace, sigmoid
from switchpoint._parameters import Parameter, describe, simplex
from switchpoint.priors.base import Positions, Prior
from switchpoint.priors.log_odds import log_odds_of, probability_of, shown_probability

_EXACT_BELOW = 16


class LIN(Prior):
    """The linear-complexity prior of Willems (1996), by the estimator of Krichevsky and Trofimov.

    The hazard falls with the length so far, h(r) = 1 / (2 r), so that lengths have a heavy tail:

        P(L > r) = binomial(2 r, r) / 4^r, about (pi r)^(-1/2)

    There are no parameters. Exact prediction costs O(t) at time t, or O(1) with `max_hypotheses`.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> print(np.exp(sp.LIN().log_survival(0, np.arange(4))).round(4))
    [1.     0.5    0.375  0.3125]
    """

    name = "lin"

    def hazard_after(self, start: Positions, run: Positions) -> Numbers:
        del start
        return 0.5 / as_float(run)

    def log_survival(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        # P(L > r) is binomial(2r, r) / 4^r: exact for small r, a series beyond. A difference of
        # log-gammas would lose all digits in float32.
        small = np.arange(_EXACT_BELOW)
        table = np.concatenate([[0.0], np.cumsum(np.log1p(-0.5 / small[1:]))])
        exact = jnp.asarray(table)[jnp.clip(run, 0, _EXACT_BELOW - 1)]
        inverse = 1 / jnp.maximum(run, _EXACT_BELOW).astype(float)
        square = inverse * inverse
        tail = inverse * (-1 / 8 + square * (1 / 192 - square * (1 / 640 - square * 17 / 14336)))
        series = 0.5 * (jnp.log(inverse) - float(np.log(np.pi))) + tail
        return _like(start, jnp.where(jnp.asarray(run) < _EXACT_BELOW, exact, series))


class RegularPeriodic(Prior):
    """Every segment has length `period`: P(L = period) = 1.

    - `period` >= 1.

    >>> import switchpoint as sp
    >>> sp.RegularPeriodic(2).switch_probability(5).tolist()
    [0.0, 0.0, 1.0, 0.0, 1.0]
    """

    name = "regular"
    period: int = eqx.field(static=True)

    def __init__(self, period: int) -> None:
        self.period = _checks.positive_int("period", period)

    def hazard_after(self, start: Positions, run: Positions) -> Numbers:
        del start
        return namespace(run).where(run >= self.period, 1.0, 0.0)

    def survival_after(self, start: Positions, run: Positions) -> Numbers:
        del start
        return namespace(run).where(run >= self.period, 0.0, 1.0)

    @property
    def max_length(self) -> int:
        return self.period

    def log_survival(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        return _like(start, jnp.where(jnp.asarray(run) < self.period, 0.0, -jnp.inf))


class RandomUniform(Prior):
    """Segment lengths are uniform: P(L = r) = 1 / n for r = 1..n, with n = `max_length`.

    The hazard is h(r) = 1 / (n - r + 1). Exact prediction has at most n hypotheses.

    - `max_length` >= 1; in commands and configurations it is called `longest`.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> print(np.exp(sp.RandomUniform(4).log_survival(0, np.arange(4))).round(2))
    [1.   0.75 0.5  0.25]
    """

    name = "uniform"
    _max_length: int = eqx.field(static=True)

    def __init__(self, max_length: int) -> None:
        self._max_length = _checks.positive_int("max_length", max_length)

    @classmethod
    def defaults(cls, length: int) -> dict[str, Any]:
        return {"max_length": length}

    @property
    def max_length(self) -> int:
        return self._max_length

    def hazard_after(self, start: Positions, run: Positions) -> Numbers:
        del start
        return 1 / namespace(run).maximum(self.max_length - as_float(run) + 1, 1)

    def log_survival(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        left = jnp.maximum(self.max_length - jnp.asarray(run, float), 0)
        return _like(start, jnp.log(left / self.max_length))

    def __pdoc__(self, **options: Any) -> wl.AbstractDoc:
        return describe(self, {"max_length": self.max_length}, **options)


class Geometric(Prior):
    """A segment ends after every symbol with probability h = `hazard`.

        P(L = r) = h (1 - h)^(r - 1),    E[L] = 1 / h

    It has no memory, and is the prior of most Bayesian change-point models (Adams and MacKay,
    2007). The log-odds of h are kept, so that hazards near 0 and near 1 have all their digits.

    - `hazard`, in (0, 1].

    >>> import switchpoint as sp
    >>> print(sp.Geometric(0.25).switch_count_pmf(3).round(4))
    [0.5625 0.375  0.0625]
    """

    name = "geometric"
    hazard_log_odds: Parameter

    def __init__(self, hazard: ArrayLike) -> None:
        self.hazard_log_odds = log_odds_of("hazard", hazard)

    @property
    def hazard(self) -> Parameter:
        """The probability that a segment ends after a symbol."""
        return probability_of(self.hazard_log_odds)

    def hazard_after(self, start: Positions, run: Positions) -> Numbers:
        del start, run
        return sigmoid(self.hazard_log_odds)

    def survival_after(self, start: Positions, run: Positions) -> Numbers:
        del start, run
        return sigmoid(-self.hazard_log_odds)

    def log_survival_after(self, start: Positions, run: Positions) -> Numbers:
        del start, run
        return log_sigmoid(-self.hazard_log_odds)

    @property
    def memoryless(self) -> bool:
        return True

    def log_survival(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        stays = jax.nn.log_sigmoid(-jnp.asarray(self.hazard_log_odds, float))
        run = jnp.asarray(run)
        return _like(start, jnp.where(run < 1, 0.0, jnp.maximum(run, 1).astype(float) * stays))

    def __pdoc__(self, **options: Any) -> wl.AbstractDoc:
        return describe(self, {"hazard": shown_probability(self.hazard_log_odds)}, **options)


class Renewal(Prior):
    """Segment lengths are independent draws of any law: P(L = r) = pmf[r - 1].

    The hazard is h(r) = P(L = r) / P(L >= r), whose tails are summed from the end. Exact prediction
    has at most len(pmf) hypotheses.

    - `pmf`: probabilities of the lengths 1, 2, ..., which sum to 1.

    >>> import switchpoint as sp
    >>> sp.Renewal([0.0, 0.5, 0.5]).switch_probability(4).tolist()
    [0.0, 0.0, 0.5, 0.5]
    """

    name = "renewal"
    pmf: Float[np.ndarray, " length"] | Float[Array, " length"] = simplex()

    def __init__(self, pmf: Any) -> None:
        parts = pmf if isinstance(pmf, list | tuple) else [pmf]
        if any(isinstance(part, jax.core.Tracer) for part in parts):
            self.pmf = jnp.asarray(pmf)
        else:
            self.pmf = np.asarray(_checks.distribution("pmf", pmf))

    def hazard_after(self, start: Positions, run: Positions) -> Numbers:
        del start
        tail = self._tail()
        xp = namespace(tail, run)
        return _lookup(xp.append(_ratio(self.pmf, tail[:-1], 1.0), 1.0), run)

    def survival_after(self, start: Positions, run: Positions) -> Numbers:
        del start
        tail = self._tail()
        xp = namespace(tail, run)
        return _lookup(xp.append(_ratio(tail[1:], tail[:-1], 0.0), 0.0), run)

    @property
    def max_length(self) -> int:
        return len(self.pmf)

    def log_survival(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        return _like(start, _lookup(jnp.log(self._tail()), jnp.asarray(run) + 1))

    def log_pmf(self, start: Positions, length: Positions) -> Float[Array, "..."]:
        return _like(start, _lookup(jnp.log(jnp.append(self.pmf, 0.0)), length))

    def _tail(self) -> Float[np.ndarray | Array, " lengths"]:
        """P(L >= r), r = 1..max_length + 1, summed from the end to keep small digits."""
        xp = namespace(self.pmf)
        return xp.append(xp.cumsum(self.pmf[::-1])[::-1], 0.0)

    def __pdoc__(self, **options: Any) -> wl.AbstractDoc:
        known = eqx.is_array(self.pmf) and not isinstance(self.pmf, jax.core.Tracer)
        pmf = tuple(np.asarray(self.pmf).tolist()) if known else self.pmf
        return describe(self, {"pmf": pmf}, **options)


def _ratio(part: Any, whole: Any, otherwise: float) -> Any:
    """A conditional probability, or `otherwise` where the condition underflows to 0."""
    xp = namespace(part, whole)
    return xp.where(whole > 0, part / xp.where(whole > 0, whole, 1.0), otherwise)


def _lookup(table: Any, run: Any) -> Any:
    """The entry of each run, from 1; the last entry is for all longer runs."""
    xp = namespace(table, run)
    at = xp.clip(xp.asarray(run) - 1, 0, len(table) - 1)
    return xp.asarray(table)[at.astype(np.int32)]


def _like(start: Positions, of_run: Float[Array, "..."]) -> Float[Array, "..."]:
    """A function of the run alone, broadcast against the start."""
    return jnp.broadcast_to(of_run, jnp.broadcast_shapes(jnp.shape(start), of_run.shape))
