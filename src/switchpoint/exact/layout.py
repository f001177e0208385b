"""How hypotheses about the start of the current segment are laid out in memory."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from switchpoint.segments.base import Statistics


class Layout(NamedTuple):
    """How the hypotheses of a batch are laid out, so that the fastest axis is long.

    A start is a row, the number of its block, and a lane, its place there: hypotheses are
    (rows, lanes, flat) of many sequences, (flat, rows, lanes) of few.
    """

    many: bool

    @property
    def axes(self) -> tuple[int, int]:
        """The axes of the rows and of the lanes."""
        return (0, 1) if self.many else (1, 2)

    def spread(
        self, per_sequence: Shaped[Array, "... flat"], leading: int = 0
    ) -> Shaped[Array, "..."]:
        """Values of the sequences, to broadcast against hypotheses."""
        return jnp.expand_dims(per_sequence, tuple(axis + leading for axis in self.axes))

    def spread_starts(
        self, per_start: Shaped[Array, "... rows lanes"], leading: int = 0
    ) -> Shaped[Array, "..."]:
        """Values of the starts, to broadcast against hypotheses."""
        return jnp.expand_dims(per_start, (2 if self.many else 0) + leading)

    def spread_block(self, array: Array, leading: int = 0) -> Array:
        """Values of the starts of one block, (lanes, flat), to broadcast against hypotheses."""
        if self.many:
            return jnp.expand_dims(array, leading)
        return jnp.expand_dims(jnp.swapaxes(array, leading, leading + 1), leading + 1)

    def put_block(
        self, array: Array, part: Array, index: Int[Array, ""], leading: int = 0
    ) -> Array:
        """The array with the starts of one block replaced.

        A selection, and not an update in place, since that would not be vectorised.
        """
        part = self.spread_block(part, leading)
        row = self.axes[0] + leading
        at = jnp.arange(array.shape[row]) == index
        shape = [1] * array.ndim
        shape[row] = -1
        return jnp.where(at.reshape(shape), part, array)

    def maximum(self, values: Array, leading: int = 0) -> Float[Array, "... flat"]:
        """The maximum over the starts."""
        rows, lanes = (axis + leading for axis in self.axes)
        return values.max(rows).max(lanes - 1)

    def sums(
        self, values: Array, factors: tuple[Any, ...], leading: int = 0
    ) -> tuple[Float[Array, "... flat"], ...]:
        """The sums over the starts, times each of several factors of the starts."""
        first = values.shape[:leading]
        rows, lanes = (values.shape[axis + leading] for axis in self.axes)
        starts = rows * lanes
        table = [jnp.broadcast_to(each, (*first, rows, lanes)).astype(float) for each in factors]
        stacked = jnp.stack(table, leading).reshape(*first, len(factors), starts)
        shape = (starts, -1) if self.many else (-1, starts)
        spec = "...sf,...ks->k...f" if self.many else "...fs,...ks->k...f"
        return tuple(
            jnp.einsum(
                spec, values.reshape(*first, *shape), stacked, precision=lax.Precision.HIGHEST
            )
        )

    def mixture(self, weights: Array, probs: Float[Array, "..."]) -> Float[Array, "flat alphabet"]:
        """The sum of the starts' probabilities, by their weights."""
        return jnp.sum(weights[..., None] * probs, self.axes)

    def by_hypothesis(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function(statistics, *of the sequence)` of all hypotheses."""

        def vectorized(statistics: Statistics, *others: Any) -> Any:
            per_start = functools.partial(jax.vmap, in_axes=(0, *(None,) * len(others)))
            if self.many:
                return per_start(per_start(jax.vmap(function)))(statistics, *others)
            return jax.vmap(per_start(per_start(function)))(statistics, *others)

        return vectorized

    def by_pair(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function(statistics, *of the time)` of all (time, hypothesis) pairs."""

        def vectorized(statistics: Statistics, *others: Any) -> Any:
            by_time = jax.vmap(self.by_hypothesis(function), in_axes=(None, *(0,) * len(others)))
            return by_time(statistics, *others)

        return vectorized

    def fresh_hypotheses(self, fresh: Statistics, rows: int, lanes: int) -> Statistics:
        """Statistics that stand for starts that are still to come."""

        def repeat(leaf: Array) -> Array:
            shape = list(self.spread(leaf).shape)
            shape[self.axes[0]], shape[self.axes[1]] = rows, lanes
            return jnp.broadcast_to(self.spread(leaf), shape)

        return jax.tree.map(repeat, fresh)

    def append(self, hypotheses: Any, more: Any) -> Any:
        """Hypotheses followed by others."""
        return jax.tree.map(
            lambda one, other: jnp.concatenate([one, other], self.axes[0]), hypotheses, more
        )
