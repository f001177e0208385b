"""Willems' linear-complexity prior over all partitions."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from switchpoint.priors.base import Positions, Prior

_EXACT_BELOW = 16


class LIN(Prior):
    """Willems' (1996) prior: after r symbols a segment ends with probability 1 / (2 r)."""

    def hazard_after(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        return jnp.broadcast_to(
            0.5 / jnp.asarray(run, float), jnp.broadcast_shapes(jnp.shape(start), jnp.shape(run))
        )

    def log_survival(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        # P(L > r) is binomial(2r, r) / 4^r: exact for small r, its series beyond. A difference
        # of log-gammas would lose all digits in float32.
        small = np.arange(_EXACT_BELOW)
        table = np.concatenate([[0.0], np.cumsum(np.log1p(-0.5 / small[1:]))])
        exact = jnp.asarray(table)[jnp.clip(run, 0, _EXACT_BELOW - 1)]
        inverse = 1 / jnp.maximum(run, _EXACT_BELOW).astype(float)
        square = inverse * inverse
        tail = inverse * (-1 / 8 + square * (1 / 192 - square * (1 / 640 - square * 17 / 14336)))
        series = 0.5 * (jnp.log(inverse) - float(np.log(np.pi))) + tail
        survival = jnp.where(jnp.asarray(run) < _EXACT_BELOW, exact, series)
        return jnp.broadcast_to(survival, jnp.broadcast_shapes(jnp.shape(start), jnp.shape(run)))
