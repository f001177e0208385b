"""What states of streams have in common: the hypotheses about the current segment.

Values are measured from the first of the stream, so that a series with mean 10^6 and standard
deviation 1 keeps its digits in single precision.
"""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from switchpoint.predictor import check_state
from switchpoint.segments import Mixture, Segment
from switchpoint.segments.base import Statistics
from switchpoint.segments.values import checked_value

State = TypeVar("State", bound=Any)


def fresh_statistics(segment: Segment, count: int) -> tuple[Statistics, Float[Array, "*event"]]:
    """The statistics of `count` segments without observations, and the offset of a new stream."""
    statistics = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), segment.initial()
    )
    return statistics, jnp.where(jnp.asarray(segment.located), jnp.nan, jnp.zeros(segment.event))


def anchor(offset: Float[Array, "*event"]) -> Float[Array, "*event"]:
    """The origin of the values: 0 until there is one."""
    return jnp.where(jnp.isnan(offset), 0.0, offset)


def check_statistics(segment: Segment, statistics: Statistics, count: int) -> None:
    """Raise a `ValueError` if statistics of `count` hypotheses are of another family."""
    expected = jax.eval_shape(segment.initial)
    if str(jax.tree.structure(expected)) != str(jax.tree.structure(statistics)):
        raise ValueError(
            "state must be one that this predictor's init() or update() returned: its statistics "
            "are of another family"
        )
    for one, many in zip(jax.tree.leaves(expected), jax.tree.leaves(statistics), strict=True):
        check_state("statistics", many.shape, (count, *one.shape))


def relative_value(segment: Segment, state: State, x: Any) -> tuple[Any, State]:
    """A checked value minus the offset, and the state with an offset, which the first one sets."""
    x = checked_value(segment, x)
    known = not isinstance(x, jax.core.Tracer) and not isinstance(state.offset, jax.core.Tracer)
    xp: Any = np if known else jnp  # NumPy subtracts in double precision
    offset: Any = xp.asarray(state.offset)
    first = xp.isnan(offset) & ~xp.isnan(x)
    if not known or first.any():
        by = xp.where(first, x, 0.0).astype(offset.dtype)
        offset = xp.where(first, by, offset)
        translate = jax.vmap(segment.translate, in_axes=(0, None))
        state = eqx.tree_at(
            lambda s: (s.offset, s.statistics),
            state,
            (jnp.asarray(offset), translate(state.statistics, jnp.asarray(by))),
        )
    relative = x - xp.where(xp.isnan(offset), 0.0, offset)
    return relative.astype(offset.dtype), state


def log_densities(
    segment: Segment, statistics: Statistics, x: Float[Array, "*event"]
) -> Float[Array, " hypotheses"]:
    """ln p(x) of the next observation under each hypothesis."""
    return jax.vmap(segment.log_density, in_axes=(0, None))(statistics, x)


def mixture(
    segment: Segment,
    log_weights: Float[Array, " hypotheses"],
    statistics: Statistics,
    offset: Float[Array, "*event"],
) -> Any:
    """ln P(x = k) of the next observation, or its distribution where there is no alphabet."""
    log_weights = log_weights - jax.nn.logsumexp(log_weights)  # they sum to 1 but for rounding
    components: Any = jax.vmap(segment.predictive)(statistics)
    if not segment.finite:
        return Mixture(log_weights, components, anchor(offset))
    probs = jnp.exp(log_weights) @ components.probs
    return jnp.log(probs / probs.sum())
