"""Priors whose segment lengths are independent draws from one law."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import wadler_lindig as wl
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from switchpoint import _checks
from switchpoint.priors.base import Positions, Prior, described
from switchpoint.priors.log_odds import Parameter, log_odds_of, probability_of


class RegularPeriodic(Prior):
    """Every segment has length `period`."""

    period: int = eqx.field(static=True)

    def __init__(self, period: int) -> None:
        self.period = _checks.positive_int("period", period)

    def hazard_after(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        return _like(start, jnp.where(jnp.asarray(run) >= self.period, 1.0, 0.0))

    def survival_after(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        return _like(start, jnp.where(jnp.asarray(run) >= self.period, 0.0, 1.0))

    @property
    def max_length(self) -> int:
        return self.period

    def log_survival(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        return _like(start, jnp.where(jnp.asarray(run) < self.period, 0.0, -jnp.inf))


class RandomUniform(Prior):
    """Segment lengths are uniform on 1..`longest`."""

    longest: int = eqx.field(static=True)

    def __init__(self, longest: int) -> None:
        self.longest = _checks.positive_int("longest", longest)

    def hazard_after(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        return _like(start, 1 / jnp.maximum(self.longest - jnp.asarray(run, float) + 1, 1))

    @property
    def max_length(self) -> int:
        return self.longest

    def log_survival(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        return _like(
            start, jnp.log(jnp.maximum(self.longest - jnp.asarray(run, float), 0) / self.longest)
        )


class Geometric(Prior):
    """After every symbol the segment ends with probability `hazard`: lengths are geometric."""

    hazard_log_odds: Parameter

    def __init__(self, hazard: ArrayLike) -> None:
        self.hazard_log_odds = log_odds_of("hazard", hazard)

    @property
    def hazard(self) -> Parameter:
        """The probability that a segment ends after a symbol."""
        return probability_of(self.hazard_log_odds)

    def hazard_after(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        return _constant(start, run, jax.nn.sigmoid(self.hazard_log_odds))

    def survival_after(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        return _constant(start, run, jax.nn.sigmoid(-self.hazard_log_odds))

    def log_survival(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        stays = jax.nn.log_sigmoid(-jnp.asarray(self.hazard_log_odds, float))
        run = jnp.asarray(run)
        return _like(start, jnp.where(run < 1, 0.0, jnp.maximum(run, 1).astype(float) * stays))

    def __pdoc__(self, **options: Any) -> wl.AbstractDoc:
        return described(self, {"hazard": self.hazard}, **options)


class Renewal(Prior):
    """Segment lengths are independent with P(L = r) = pmf[r - 1]."""

    pmf: Float[np.ndarray, " length"] | Float[Array, " length"]

    def __init__(self, pmf: Any) -> None:
        parts = pmf if isinstance(pmf, list | tuple) else [pmf]
        if any(isinstance(part, jax.core.Tracer) for part in parts):
            self.pmf = jnp.asarray(pmf)
        else:
            self.pmf = np.asarray(_checks.distribution("pmf", pmf))

    def hazard_after(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        tail = self._tail()
        return _looked_up(jnp.append(_ratio(self.pmf, tail[:-1], 1.0), 1.0), start, run)

    def survival_after(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        tail = self._tail()
        return _looked_up(jnp.append(_ratio(tail[1:], tail[:-1], 0.0), 0.0), start, run)

    @property
    def max_length(self) -> int:
        return len(self.pmf)

    def log_survival(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        return _looked_up(jnp.log(self._tail()), start, jnp.asarray(run) + 1)

    def log_pmf(self, start: Positions, length: Positions) -> Float[Array, "..."]:
        return _looked_up(jnp.log(jnp.append(self.pmf, 0.0)), start, length)

    def _tail(self) -> Float[Array, " lengths"]:
        """P(L >= r), r = 1..max_length + 1: summed from the end, so that small ones have digits."""
        return jnp.append(lax.cumsum(jnp.asarray(self.pmf, float), reverse=True), 0.0)

    def __pdoc__(self, **options: Any) -> wl.AbstractDoc:
        known = not isinstance(self.pmf, jax.core.Tracer)
        pmf = tuple(np.asarray(self.pmf).tolist()) if known else self.pmf
        return described(self, {"pmf": pmf}, **options)


def _ratio(part: ArrayLike, whole: Float[Array, " lengths"], otherwise: float) -> Array:
    """A conditional probability; of what single precision takes for impossible, `otherwise`."""
    return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1.0), otherwise)


def _looked_up(
    table: Float[Array, " lengths"], start: Positions, run: Positions
) -> Float[Array, "..."]:
    """The entry of each run, from 1; the last is for all that are longer."""
    return _like(start, table[jnp.clip(jnp.asarray(run) - 1, 0, len(table) - 1)])


def _constant(start: Positions, run: Positions, value: Array) -> Float[Array, "..."]:
    return jnp.broadcast_to(value, jnp.broadcast_shapes(jnp.shape(start), jnp.shape(run)))


def _like(start: Positions, law: Float[Array, "..."]) -> Float[Array, "..."]:
    """The law of a run, which does not depend on the start, in the shape of both."""
    return jnp.broadcast_to(law, jnp.broadcast_shapes(jnp.shape(start), law.shape))
