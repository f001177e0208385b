"""PTW of a chunk of a stream: all times of a level of the tree together.

As in `tree.py` and `family_tree.py`, one level after another from the leaves up. Here the chunk
begins anywhere: the nodes around its first observation have a past, and nodes end inside the chunk
where the time says so. What a node has gathered before t is an associative scan with resets.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from switchpoint.exact.counting import Clock
from switchpoint.segments import Segment
from switchpoint.segments.base import Statistics


class Nodes(NamedTuple):
    """The nodes around an observation, by height."""

    statistics: Statistics
    log_odds: Float[Array, " heights"]


def extend_tree(
    segment: Segment,
    time: Clock,
    nodes: Nodes,
    empty: Nodes,
    values: Float[Array, "time *event"],
) -> tuple[Clock, Nodes, Float[Array, "time *alphabet"]]:
    """The time and the nodes after a chunk, and the predictions of its observations.

    `empty` are the nodes without observations. Predictions are ln P(x_t = k) for each k, or
    ln p(x_t) where there is no alphabet.
    """
    length = len(values)
    times = time.plus(jnp.arange(1, length + 1, dtype=jnp.int32))
    ended = times.trailing_zeros()  # the height up to which nodes end with each observation
    runs = jax.vmap(segment.run_of)(values)

    def climb(below: tuple[Array, Array | None], level: Any) -> tuple[Any, Nodes]:
        mixture, probs = below
        height, node, fresh = level
        resets = ended >= height
        gathered = _since_reset(
            jax.vmap(segment.merge), resets, node.statistics, fresh.statistics, runs
        )
        before, after = _but_last(gathered)
        whole = jax.vmap(segment.log_density)(before, values)
        step = jnp.where(height > 0, whole - mixture, 0.0)  # leaves have nothing below
        log_odds = _since_reset(jnp.add, resets, node.log_odds, fresh.log_odds, step)
        stays = jnp.where(height > 0, log_odds[:-1], jnp.inf)
        mixture = jnp.logaddexp(
            whole + jax.nn.log_sigmoid(stays), mixture + jax.nn.log_sigmoid(-stays)
        )
        if probs is not None:
            chances = jax.vmap(lambda each: _probs(segment, each))(before)
            probs = probs + jax.nn.sigmoid(stays)[:, None] * (chances - probs)
        return (mixture, probs), Nodes(after, log_odds[-1])

    probs = jnp.zeros((length, segment.alphabet)) if segment.finite else None
    heights = jnp.arange(len(nodes.log_odds), dtype=jnp.int32)
    (logs, probs), nodes = lax.scan(climb, (jnp.zeros(length), probs), (heights, nodes, empty))
    if probs is not None:
        logs = jnp.log(probs / probs.sum(-1, keepdims=True))
    return jax.tree.map(lambda leaf: leaf[-1], times), nodes, logs


def _probs(segment: Segment, statistics: Statistics) -> Float[Array, " alphabet"]:
    predictive: Any = segment.predictive(statistics)
    return predictive.probs


def _since_reset(
    merge: Callable[[Any, Any], Any],
    resets: Bool[Array, " time"],
    first: Any,
    fresh: Any,
    runs: Any,
) -> Any:
    """y_0 = first, and y_(t+1) = fresh if there is a reset at t, else merge(y_t, run_t)."""

    def select(reset: Bool[Array, " _"], one: Any, other: Any) -> Any:
        return jax.tree.map(
            lambda a, b: jnp.where(reset.reshape(-1, *(1,) * (b.ndim - 1)), a, b), one, other
        )

    def combine(one: Any, other: Any) -> Any:
        return one[0] | other[0], select(other[0], other[1], merge(one[1], other[1]))

    parts = jax.tree.map(
        lambda head, tail: jnp.concatenate([head[None].astype(tail.dtype), tail]),
        first,
        select(resets, jax.tree.map(lambda leaf: leaf[None], fresh), runs),
    )
    flags = jnp.concatenate([jnp.ones(1, bool), resets])
    return lax.associative_scan(combine, (flags, parts))[1]


def _but_last(tree: Any) -> tuple[Any, Any]:
    """All entries but the last, and the last."""
    return jax.tree.map(lambda leaf: leaf[:-1], tree), jax.tree.map(lambda leaf: leaf[-1], tree)
