"""Hypotheses about the start of the current segment, and how they are laid out in memory."""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from switchpoint.segments import Dirichlet, Segment
from switchpoint.segments.base import Statistics


class Sequences(eqx.Module):
    """A flat batch of sequences."""

    values: Float[Array, "flat time *event"] | Int[Array, "flat time"]
    """The observations minus the offset, NaN where missing; or symbols, none of which is."""
    offset: Float[Array, "flat *event"]
    complete: bool = eqx.field(static=True, default=False)
    """Whether it is certain that no observation is missing."""

    def counted_by(self, segment: Segment) -> bool:
        """Whether predictions follow from counts: of independent symbols without gaps."""
        whole = jnp.issubdtype(self.values.dtype, jnp.integer)
        return isinstance(segment, Dirichlet) and bool(whole)


class Filtered(NamedTuple):
    """The results of the forward recursion, before and after each observation."""

    log_density: Float[Array, "flat time"]
    """ln p(x_t | x_<t)."""
    log_start: Float[Array, "flat time"]
    """ln P(a segment starts at t | x_<t)."""
    run_length_mean: Float[Array, "flat time"] | None
    """E[observations in the current segment, x_t included | x_<=t], if requested."""
    probs: Float[Array, "flat time alphabet"] | None
    """P(x_t = k | x_<t), for symbols if requested."""
    reach: Int[Array, "flat blocks"] | None = None
    """For each block of times, how long before its end the first segment started that may reach it
    with a probability that is not negligible, if requested."""


class Hypotheses(NamedTuple):
    """Hypotheses about the start of the current segment of one stream.

    In a row, or in rows of lanes: (rows, lanes).
    """

    starts: Int[Array, "*hypotheses"]
    """Their starts, as the prior takes them."""
    runs: Int[Array, "*hypotheses"]
    """The number of observations since."""
    log_weights: Float[Array, "*hypotheses"]
    statistics: Statistics

    def filled(self, size: int, fresh: Statistics) -> "Hypotheses":
        """The same, followed by hypotheses of weight 0."""
        zero = jnp.zeros((), jnp.int32)
        unused = Hypotheses(zero, zero, jnp.asarray(-jnp.inf), fresh)
        return jax.tree.map(functools.partial(_filled, size), self, unused)

    def in_rows(self, lanes: int, fresh: Statistics) -> "Hypotheses":
        """The same in rows, the last of which ends with hypotheses of weight 0."""
        whole = self.filled(-(-len(self.starts) // lanes) * lanes, fresh)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, lanes, *leaf.shape[1:]), whole)


def _filled(size: int, array: Array, fill: Any) -> Array:
    missing = (size - len(array), *array.shape[1:])
    filling = jnp.broadcast_to(jnp.asarray(fill, array.dtype), missing)
    return jnp.concatenate([array, filling])


class Starts(NamedTuple):
    """The starts of the hypotheses of a chunk: those before it, then its own times."""

    absolute: Int[Array, "rows lanes"]
    """As the prior takes them."""
    relative: Int[Array, "rows lanes"]
    """From the first time of the chunk; negative before it."""
    earlier: int
    """The number of rows before the chunk."""

    @classmethod
    def of_chunk(
        cls,
        time: int,
        lanes: int,
        history: Hypotheses | None = None,
        next_starts: Int[Array, " after"] | None = None,
    ) -> "Starts":
        """Those of a whole sequence, or of a chunk after hypotheses in rows."""
        rows = -(-time // lanes)
        times = jnp.arange(rows * lanes, dtype=jnp.int32).reshape(rows, lanes)
        if history is None or next_starts is None:
            return cls(times, times, 0)
        later = _filled(rows * lanes, next_starts[:time], 0)
        return cls(
            jnp.concatenate([history.starts, later.reshape(rows, lanes)]),
            jnp.concatenate([-history.runs, times]),
            len(history.starts),
        )

    def hypotheses(
        self,
        log_weights: Float[Array, "rows lanes"],
        statistics: Statistics,
        following: Hypotheses,
        time: int,
    ) -> Hypotheses:
        """All hypotheses after the chunk, the one that starts right after it last."""
        rows = Hypotheses(self.absolute, time - self.relative, log_weights, statistics)

        def flat(rows: Array, last: Any) -> Array:
            one = jnp.asarray(last, rows.dtype)[None]
            return jnp.concatenate([rows.reshape(-1, *rows.shape[2:]), one])

        return jax.tree.map(flat, rows, following)


class HypothesisLayout(NamedTuple):
    """How the hypotheses of a batch are laid out, so that the fastest axis is long.

    A start is a row, the number of its block, and a lane, its place there: hypotheses are
    (rows, lanes, flat) of many sequences, (flat, rows, lanes) of few.
    """

    batch_last: bool

    @property
    def axes(self) -> tuple[int, int]:
        """The axes of the rows and of the lanes."""
        return (0, 1) if self.batch_last else (1, 2)

    def spread(
        self, per_sequence: Shaped[Array, "... flat"], leading: int = 0
    ) -> Shaped[Array, "..."]:
        """Values of the sequences, to broadcast against hypotheses."""
        return jnp.expand_dims(per_sequence, tuple(axis + leading for axis in self.axes))

    def spread_starts(
        self, per_start: Shaped[Array, "... rows lanes"], leading: int = 0
    ) -> Shaped[Array, "..."]:
        """Values of the starts, to broadcast against hypotheses."""
        return jnp.expand_dims(per_start, (2 if self.batch_last else 0) + leading)

    def spread_block(self, array: Array, leading: int = 0) -> Array:
        """Values of the starts of one block, (lanes, flat), to broadcast against hypotheses."""
        if self.batch_last:
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

    def maximum(self, values: Array, leading: int = 0) -> Shaped[Array, "... flat"]:
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
        shape = (starts, -1) if self.batch_last else (-1, starts)
        spec = "...sf,...ks->k...f" if self.batch_last else "...fs,...ks->k...f"
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
            if self.batch_last:
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


def pieces(count: int, parts: int) -> list[tuple[int, int]]:
    """Ranges of times or blocks, each compiled for the starts up to its end."""
    return list(itertools.pairwise(count * part // parts for part in range(parts + 1)))
