"""The interface of a segment model: independent symbols under a Dirichlet prior."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, PRNGKeyArray

from switchpoint._random import uniform


class Segment(eqx.Module):
    """Independent symbols within a segment, whose distribution is drawn once per segment.

    That distribution is Dirichlet (Beta for two symbols), so symbol counts are a sufficient
    statistic. A segment model of your own is a subclass with `pseudo_counts`; `predictive` and
    `sample` follow from them. The exact algorithms rely on that, so neither can be overridden.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("predictive", "sample"):
            if name in cls.__dict__:
                raise TypeError(
                    f"{cls.__name__}.{name} cannot be overridden: exact prediction relies on "
                    "independent symbols under a Dirichlet prior; change `pseudo_counts` instead"
                )

    @property
    @abstractmethod
    def pseudo_counts(self) -> Sequence[Any] | Float[np.ndarray | Array, " alphabet"]:
        """The Dirichlet parameters, one per symbol, each above 0."""

    @property
    def alphabet(self) -> int:
        """The number of symbols, which are 0..alphabet-1."""
        return len(self.pseudo_counts)

    def predictive(self, counts: Num[Array, "*batch alphabet"]) -> Float[Array, "*batch alphabet"]:
        """P(next symbol = k | the symbol counts of this segment so far)."""
        pseudo = jnp.asarray(self.pseudo_counts)
        return (counts + pseudo) / (counts.sum(-1, keepdims=True) + pseudo.sum())

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape alphabet"]:
        """Symbol distributions of segments, drawn from the Dirichlet prior."""
        pseudo = self.pseudo_counts
        known = not any(isinstance(each, jax.core.Tracer) for each in (pseudo, *pseudo[:2]))
        if known and tuple(pseudo) == (0.5, 0.5):
            # The arcsine distribution: draw the smaller probability, accurate near 0.
            twice = 2 * uniform(key, shape)
            rare = jnp.sin(jnp.minimum(twice, 2 - twice) * float(np.pi / 4)) ** 2
            return jnp.stack(
                [jnp.where(twice < 1, 1 - rare, rare), jnp.where(twice < 1, rare, 1 - rare)],
                axis=-1,
            )
        keys = jax.random.split(key, self.alphabet)
        if known and len(set(pseudo)) == 1:
            logs = jax.vmap(lambda key: _log_gamma_draw(key, float(pseudo[0]), shape))(keys)
        else:
            logs = jax.vmap(lambda key, each: jax.random.loggamma(key, each, shape))(
                keys, jnp.asarray(pseudo, float)
            )
        return jax.nn.softmax(jnp.moveaxis(logs, 0, -1), axis=-1)


def _log_gamma_draw(
    key: PRNGKeyArray, shape_parameter: float, shape: tuple[int, ...]
) -> Float[Array, "..."]:
    """The logarithm of a Gamma variable, cheap where that is a square or an exponential."""
    if shape_parameter == 0.5:
        tiny = float(np.finfo(np.float32).tiny)
        return jnp.log(jnp.maximum(0.5 * jax.random.normal(key, shape) ** 2, tiny))
    if shape_parameter == 1.0:
        return jnp.log(jax.random.exponential(key, shape))
    return jax.random.loggamma(key, shape_parameter, shape)
