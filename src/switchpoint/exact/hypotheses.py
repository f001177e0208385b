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

from switchpoint.exact.streams import initial_statistics
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

    def initial_statistics(self, segment: Segment) -> Statistics:
        """The statistics of a segment before its first observation, for each sequence."""
        return jax.vmap(functools.partial(initial_statistics, segment))(self.offset)


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


class FilteredChunk(NamedTuple):
    """The hypotheses in rows after a chunk of one stream."""

    log_weights: Float[Array, "rows lanes"]
    statistics: Statistics
    log_start: Float[Array, ""]
    """ln P(a segment starts right after the chunk | x)."""


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
        self, after: FilteredChunk, start: Int[Array, ""], fresh: Statistics, time: int
    ) -> Hypotheses:
        """All hypotheses after the chunk, the one that starts right after it last."""
        rows = Hypotheses(self.absolute, time - self.relative, after.log_weights, after.statistics)
        following = Hypotheses(start, jnp.zeros((), jnp.int32), after.log_start, fresh)

        def flat(rows: Array, last: Any) -> Array:
            one = jnp.asarray(last, rows.dtype)[None]
            return jnp.concatenate([rows.reshape(-1, *rows.shape[2:]), one])

        return jax.tree.map(flat, rows, following)


# Hypotheses of a batch are (rows, lanes, flat, ...): a start is a row, the number of its block, and
# a lane, its place there.


def spread(per_sequence: Shaped[Array, "... flat"]) -> Shaped[Array, "... 1 1 flat"]:
    """Values of the sequences, to broadcast against hypotheses."""
    return per_sequence[..., None, None, :]


def put_block(array: Array, part: Array, index: Int[Array, ""], leading: int = 0) -> Array:
    """Hypotheses with those of one block replaced, both behind some leading axes.

    A selection, and not an update in place, since that would not be vectorised.
    """
    at = jnp.arange(array.shape[leading]) == index
    at = at.reshape(-1, *(1,) * (array.ndim - 1 - leading))
    return jnp.where(at, jnp.expand_dims(part, leading), array)


def highest(values: Shaped[Array, "... rows lanes flat"]) -> Shaped[Array, "... flat"]:
    """The maximum over the starts."""
    return values.max(-3).max(-2)


def sums_over_starts(
    values: Float[Array, "*block rows lanes flat"], factors: tuple[Any, ...]
) -> tuple[Float[Array, "*block flat"], ...]:
    """The sums over the starts, times each of several factors, (*block, rows, lanes)."""
    *block, rows, lanes, flat = values.shape
    table = [jnp.broadcast_to(each, (*block, rows, lanes)).astype(float) for each in factors]
    stacked = jnp.stack(table, -3).reshape(*block, len(factors), -1)
    by_start = values.reshape(*block, -1, flat)
    spec = "...sf,...ks->k...f"
    return tuple(jnp.einsum(spec, by_start, stacked, precision=lax.Precision.HIGHEST))


def by_hypothesis(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function(statistics, *of the sequence)` of all hypotheses."""

    def vectorized(statistics: Statistics, *others: Any) -> Any:
        per_start = functools.partial(jax.vmap, in_axes=(0, *(None,) * len(others)))
        return per_start(per_start(jax.vmap(function)))(statistics, *others)

    return vectorized


def by_pair(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function(statistics, *of the time)` of all (time, hypothesis) pairs."""

    def vectorized(statistics: Statistics, *others: Any) -> Any:
        by_time = jax.vmap(by_hypothesis(function), in_axes=(None, *(0,) * len(others)))
        return by_time(statistics, *others)

    return vectorized


def pieces(count: int, parts: int) -> list[tuple[int, int]]:
    """Ranges of times or blocks, each compiled for the starts up to its end."""
    return list(itertools.pairwise(count * part // parts for part in range(parts + 1)))
