"""Hypotheses about the current segment, as the states of all streams hold them.

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
from switchpoint.segments import MixtureSameFamily, Segment
from switchpoint.segments.base import Statistics, prior_statistics
from switchpoint.segments.values import (
    checked_value,
    checked_values,
    locations,
    rounded_off,
    shiftable,
)

State = TypeVar("State", bound=Any)


def fresh_statistics(segment: Segment, count: int) -> tuple[Statistics, Float[Array, "*event"]]:
    """The statistics of `count` segments without observations, and the offset of a new stream."""
    statistics = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), prior_statistics(segment)
    )
    return statistics, jnp.where(
        jnp.asarray(shiftable(segment)), jnp.nan, jnp.zeros(segment.event_shape)
    )


def anchor(offset: Float[Array, "*event"]) -> Float[Array, "*event"]:
    """The origin of the values: 0 until there is one."""
    return jnp.where(jnp.isnan(offset), 0.0, offset)


def initial_statistics(segment: Segment, offset: Float[Array, "*event"]) -> Statistics:
    """The statistics of a segment before its first observation, for values minus an offset."""
    return segment.translate(prior_statistics(segment), anchor(offset))


def check_statistics(segment: Segment, statistics: Statistics, count: int) -> None:
    """Raise a `ValueError` if statistics of `count` hypotheses are of another family."""
    expected = jax.eval_shape(prior_statistics, segment)
    if str(jax.tree.structure(expected)) != str(jax.tree.structure(statistics)):
        raise ValueError(
            "state must be one that this predictor's init() or update() returned: its statistics "
            "are of another family"
        )
    for one, many in zip(jax.tree.leaves(expected), jax.tree.leaves(statistics), strict=True):
        check_state("statistics", many.shape, (count, *one.shape))


def relative_value(segment: Segment, state: State, x: Any) -> tuple[Any, State]:
    """A checked value minus the offset, and the state with an offset, which the first one sets."""
    relative, state = _relative(segment, state, checked_value(segment, x)[None])
    return relative[0], state


def relative_values(segment: Segment, state: State, values: Any) -> tuple[Any, State]:
    """The same for a chunk of values."""
    array = checked_values(segment, values)
    if array.ndim != 1 + len(segment.event_shape):
        raise ValueError(
            f"values must be a chunk of one stream, got shape {array.shape}: for a batch of "
            "states, use jax.vmap(predictor.extend)"
        )
    return _relative(segment, state, array)


def _relative(segment: Segment, state: State, values: Any) -> tuple[Any, State]:
    values = values - rounded_off(segment)
    known = not any(isinstance(each, jax.core.Tracer) for each in (values, state.offset))
    xp: Any = np if known else jnp  # NumPy subtracts in double precision
    offset: Any = xp.asarray(state.offset)
    there = ~xp.isnan(values)
    first = xp.take_along_axis(values, xp.argmax(there, axis=0)[None], axis=0)[0]
    new = xp.isnan(offset) & there.any(axis=0)
    if not known or new.any():
        by = xp.where(new, first, 0.0).astype(offset.dtype)
        offset = xp.where(new, by, offset)
        translate = jax.vmap(segment.translate, in_axes=(0, None))
        state = eqx.tree_at(
            lambda s: (s.offset, s.statistics),
            state,
            (jnp.asarray(offset), translate(state.statistics, jnp.asarray(by))),
        )
    relative = values - xp.where(xp.isnan(offset), 0.0, offset)
    return relative.astype(offset.dtype), state


def absorb_each(
    segment: Segment, statistics: Statistics, x: Float[Array, "*event"]
) -> tuple[Float[Array, " hypotheses"], Statistics]:
    """ln p(x) of the next observation under each hypothesis, and the statistics that include it."""
    return jax.vmap(segment._absorb, in_axes=(0, None))(statistics, x)


def mixture(
    segment: Segment,
    log_weights: Float[Array, " hypotheses"],
    statistics: Statistics,
    offset: Float[Array, "*event"],
) -> Any:
    """ln P(x = k) of the next observation, or its distribution where there is no alphabet.

    That distribution is of the values minus `rounded_off(segment)`.
    """
    log_weights = log_weights - jax.nn.logsumexp(log_weights)  # they sum to 1 but for rounding
    unknown = jnp.isnan(offset)  # before the first value, which is measured from the origin
    location = jnp.asarray(locations(segment), float)
    statistics = jax.vmap(segment.translate, in_axes=(0, None))(
        statistics, jnp.where(unknown, location, 0.0)
    )
    components: Any = jax.vmap(segment.predictive)(statistics)
    if not segment.finite:
        return MixtureSameFamily(log_weights, components, jnp.where(unknown, location, offset))
    probs = jnp.exp(log_weights) @ components.probs
    return jnp.log(probs / probs.sum())
