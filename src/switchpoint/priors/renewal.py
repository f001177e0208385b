"""Priors whose segment lengths are independent draws from one law."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from switchpoint import _checks
from switchpoint.priors.base import Positions, Prior


class RegularPeriodic(Prior):
    """Every segment has length `period`."""

    period: int = eqx.field(static=True)

    def __init__(self, period: int) -> None:
        self.period = _checks.positive_int("period", period)

    def hazard_after(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        return _like(start, jnp.where(jnp.asarray(run) >= self.period, 1.0, 0.0))

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

    hazard: float = eqx.field(static=True)

    def __init__(self, hazard: float) -> None:
        self.hazard = _checks.probability("hazard", hazard)

    def hazard_after(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        return jnp.full(jnp.broadcast_shapes(jnp.shape(start), jnp.shape(run)), self.hazard)

    def log_survival(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        stays = -np.inf if self.hazard == 1 else float(np.log1p(-self.hazard))
        return _like(
            start, jnp.where(jnp.asarray(run) < 1, 0.0, jnp.maximum(run, 1).astype(float) * stays)
        )


class Renewal(Prior):
    """Segment lengths are independent with P(L = r) = pmf[r - 1]."""

    pmf: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, pmf: object) -> None:
        self.pmf = _checks.distribution("pmf", pmf)

    def hazard_after(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        pmf, tail = self._tables()
        table = np.append(pmf / tail, 1.0)
        return _like(start, jnp.asarray(table)[jnp.clip(jnp.asarray(run) - 1, 0, len(pmf))])

    @property
    def max_length(self) -> int:
        return len(self.pmf)

    def log_survival(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        table = np.append(np.log(self._tables()[1]), -np.inf)
        return _like(start, jnp.asarray(table)[jnp.clip(run, 0, len(self.pmf))])

    def _tables(self) -> tuple[Float[np.ndarray, " length"], Float[np.ndarray, " length"]]:
        """P(L = r) and P(L >= r), r = 1..max_length."""
        pmf = np.asarray(self.pmf)
        tail = np.cumsum(pmf[::-1])[::-1]
        return pmf, tail


def _like(start: Positions, law: Float[Array, "..."]) -> Float[Array, "..."]:
    """The law of a run, which does not depend on the start, in the shape of both."""
    return jnp.broadcast_to(law, jnp.broadcast_shapes(jnp.shape(start), law.shape))
