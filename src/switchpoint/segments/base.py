"""The contract of a segment model: independent symbols under a Dirichlet prior."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, PRNGKeyArray

from switchpoint._random import uniform


class Segment(eqx.Module):
    """What happens inside one segment: independent symbols, whose distribution is drawn once.

    The distribution comes from a Dirichlet law (Beta, where there are two symbols), so the
    counts of the symbols are all a predictor has to remember.
    """

    @property
    @abstractmethod
    def pseudo_counts(self) -> tuple[float, ...]:
        """The Dirichlet parameters, one per symbol, each above 0."""

    @property
    def alphabet(self) -> int:
        """How many symbols there are: 0..alphabet-1."""
        return len(self.pseudo_counts)

    def predictive(self, counts: Num[Array, "*batch alphabet"]) -> Float[Array, "*batch alphabet"]:
        """P(next symbol = k | the counts of the symbols so far in this segment)."""
        pseudo = np.asarray(self.pseudo_counts)
        total = counts.sum(-1, keepdims=True) + float(pseudo.sum())
        return (counts + jnp.asarray(pseudo)) / total

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape alphabet"]:
        """Symbol distributions of segments, drawn from the Dirichlet law."""
        if self.pseudo_counts == (0.5, 0.5):
            # The arcsine law: draw the smaller probability, accurate near 0, and its symbol.
            twice = 2 * uniform(key, shape)
            rare = jnp.sin(jnp.minimum(twice, 2 - twice) * float(np.pi / 4)) ** 2
            return jnp.stack(
                [jnp.where(twice < 1, 1 - rare, rare), jnp.where(twice < 1, rare, 1 - rare)],
                axis=-1,
            )
        keys = jax.random.split(key, self.alphabet)
        logs = [
            _log_gamma_draw(key, pseudo, shape)
            for key, pseudo in zip(keys, self.pseudo_counts, strict=True)
        ]
        return jax.nn.softmax(jnp.stack(logs, axis=-1), axis=-1)


def _log_gamma_draw(
    key: PRNGKeyArray, shape_parameter: float, shape: tuple[int, ...]
) -> Float[Array, "..."]:
    """The logarithm of a Gamma variable: cheap where it is a square or an exponential."""
    if shape_parameter == 0.5:
        tiny = float(np.finfo(np.float32).tiny)
        return jnp.log(jnp.maximum(0.5 * jax.random.normal(key, shape) ** 2, tiny))
    if shape_parameter == 1.0:
        return jnp.log(jax.random.exponential(key, shape))
    return jax.random.loggamma(key, shape_parameter, shape)
