"""Symbols whose distribution depends on those before them."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Num, PRNGKeyArray

from switchpoint import _checks
from switchpoint.segments.base import Segment
from switchpoint.segments.dirichlet import pseudo_count
from switchpoint.segments.distributions import Discrete

_NONE = -1  # stands for a symbol that is missing, or before the start of the run
_MAX_ROWS = 2**16


class ChainRun(NamedTuple):
    """The transitions within a run, and the symbols at both of its ends."""

    counts: Int[Array, "*batch contexts size"]
    """How often each symbol followed each context."""
    first: Int[Array, "*batch order"]
    last: Int[Array, "*batch order"]
    length: Int[Array, "*batch"]
    """The length of the run, up to `order`."""


class MarkovChain(Segment):
    """Symbols 0..size-1 with a distribution per context, which is the `order` symbols before.

    Each distribution is drawn from a symmetric Dirichlet distribution, once per segment. The
    first symbols of a segment, and those after a missing one, have shorter contexts, each with a
    distribution of its own: since it is met once, its prediction is the prior's.
    """

    size: int = eqx.field(static=True)
    order: int = eqx.field(static=True)
    concentration: float | Float[Array, ""]

    def __init__(self, size: int, order: int = 1, concentration: ArrayLike = 0.5) -> None:
        self.size = _checks.positive_int("size", size)
        if self.size < 2:
            raise ValueError(f"size must be at least 2, got {self.size}")
        self.order = _checks.positive_int("order", order)
        if self.size**self.order > _MAX_ROWS:
            raise ValueError(
                f"order must leave at most {_MAX_ROWS} contexts, got {self.size}^{self.order}"
            )
        self.concentration = pseudo_count("concentration", concentration)

    @property
    def finite(self) -> bool:
        return True

    @property
    def alphabet(self) -> int:
        return self.size

    def empty(self) -> ChainRun:
        nothing = jnp.full(self.order, _NONE, jnp.int32)
        counts = jnp.zeros((self.size**self.order, self.size), jnp.int32)
        return ChainRun(counts, nothing, nothing, jnp.zeros((), jnp.int32))

    def missing(self) -> ChainRun:
        return self.empty()._replace(length=jnp.ones((), jnp.int32))

    def statistic(self, x: Num[Array, ""]) -> ChainRun:
        symbol = x.astype(jnp.int32)
        run = self.missing()
        return run._replace(first=run.first.at[0].set(symbol), last=run.last.at[-1].set(symbol))

    def merge(self, before: ChainRun, after: ChainRun) -> ChainRun:
        across = jnp.concatenate([before.last, after.first])
        counts = before.counts + after.counts
        for i in range(self.order):  # the symbols whose context lies in both runs
            row, known = self._row(across[i : i + self.order])
            symbol = across[i + self.order]
            counts = counts.at[row, symbol].add((known & (symbol >= 0)).astype(jnp.int32))
        places = jnp.arange(self.order)
        both = jnp.concatenate([before.first, after.first])
        from_after = jnp.clip(places - before.length, 0) + self.order
        first = both[jnp.where(places < before.length, places, from_after)]
        last = jnp.where(after.length < self.order, across[places + after.length], after.last)
        length = jnp.minimum(before.length + after.length, self.order)
        return ChainRun(counts, first, last, length)

    def predictive(self, statistics: ChainRun) -> Discrete:
        row, known = self._row(statistics.last)
        counts = jnp.where(known, statistics.counts[row], 0)
        return Discrete(self._probs(counts))

    def sample(
        self, key: PRNGKeyArray, shape: tuple[int, ...]
    ) -> Float[Array, "*shape contexts size"]:
        """The distributions of the full contexts of each segment."""
        rows = (*shape, self.size**self.order, self.size)
        logs = jax.random.loggamma(key, jnp.asarray(self.concentration, float), rows)
        return jax.nn.softmax(logs, axis=-1)

    def emission(self, parameters: Any, statistics: ChainRun) -> Discrete:
        row, known = self._row(statistics.last)
        return Discrete(jnp.where(known, parameters[row], 1 / self.size))

    def level_mean(self, statistics: ChainRun) -> Float[Array, "contexts size"]:
        """The rows of all full contexts, and that of the others."""
        others = jnp.zeros((1, self.size), jnp.int32)
        return self._probs(jnp.concatenate([statistics.counts, others]))

    def level_features(self, statistics: ChainRun) -> Float[Array, " contexts"]:
        row, known = self._row(statistics.last)
        rows = self.size**self.order
        return jax.nn.one_hot(jnp.where(known, row, rows), rows + 1)

    def _row(self, context: Int[Array, " order"]) -> tuple[Int[Array, ""], Bool[Array, ""]]:
        """The number of a context, and whether it is full."""
        places = self.size ** jnp.arange(self.order - 1, -1, -1, dtype=jnp.int32)
        return jnp.sum(jnp.maximum(context, 0) * places), jnp.all(context >= 0)

    def _probs(self, counts: Int[Array, "*rows size"]) -> Float[Array, "*rows size"]:
        pseudo = counts + jnp.asarray(self.concentration, float)
        return pseudo / pseudo.sum(-1, keepdims=True)
