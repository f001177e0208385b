"""Symbols whose distribution depends on those before them."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint import _checks
from switchpoint._namespace import Numbers, broadcast_batch, namespace
from switchpoint._parameters import Parameter
from switchpoint.segments.base import Level, Segment
from switchpoint.segments.dirichlet import checked_size, pseudo_count
from switchpoint.segments.distributions import Discrete

_MAX_ROWS = 2**16


class ChainRun(NamedTuple):
    """The transitions within a run, and the symbols at both of its ends."""

    counts: Numbers
    """How often each symbol followed each context."""
    first: Numbers
    """The first symbols plus 1; 0 where one is missing, or beyond the run."""
    last: Numbers
    """The last symbols, likewise."""
    length: Numbers
    """The length of the run, up to `order`."""


class MarkovChain(Segment):
    """Symbols 0..size-1, each of which depends on the `order` symbols before.

    Generative model, with a distribution p_c drawn once per segment for each context c, which is
    a sequence of `order` symbols:

        p_c ~ Dirichlet(concentration, ..., concentration),    x_t | x_<t ~ p_{x_{t-order}..x_{t-1}}

    Statistic: how often each symbol k followed each context, n_ck, and the symbols at both ends of
    the run, so that runs merge with the transitions between them. Predictive, in context c:

        P(x = k) = (n_ck + concentration) / sum over j of (n_cj + concentration)

    (Dirichlet-multinomial; Willems, Shtarkov and Tjalkens, 1995, use it per context). The first
    symbols of a segment, and those after a missing one, have shorter contexts, each of which occurs
    once: their prediction is the prior's, 1 / size. The statistics have size^(order + 1) counts.

    - `size` >= 2, the alphabet; `order` >= 1, with at most 65,536 contexts;
    - `concentration` > 0: pseudo-count of every symbol in every context.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.01), sp.MarkovChain(2)))
    >>> print(np.exp(bayes.log_density([0, 1, 0, 1, 0])).round(2))
    [0.5  0.5  0.5  0.74 0.74]
    """

    size: int = eqx.field(static=True)
    order: int = eqx.field(static=True)
    concentration: Parameter = pseudo_count()

    def __init__(self, size: int, order: int = 1, concentration: Parameter = 0.5) -> None:
        self.size = checked_size(size)
        self.order = _checks.positive_int("order", order)
        if self.size**self.order > _MAX_ROWS:
            raise ValueError(
                f"order must leave at most {_MAX_ROWS} contexts, got {self.size}^{self.order}"
            )
        self.concentration = concentration

    @property
    def alphabet(self) -> int:
        return self.size

    @property
    def missing_is_marginal(self) -> bool:
        return False

    def missing(self) -> ChainRun:
        nothing = np.zeros(self.order, np.int32)
        counts = np.zeros((self.size**self.order, self.size), np.int32)
        return ChainRun(counts, nothing, nothing, np.ones((), np.int32))

    def statistic(self, x: Numbers) -> ChainRun:
        xp, (counts, nothing, _, one) = namespace(x), self.missing()
        batch = xp.shape(x)
        symbol = xp.asarray(x).astype(np.int32)[..., None] + 1
        none = xp.broadcast_to(nothing[1:], (*batch, self.order - 1))
        return ChainRun(
            xp.broadcast_to(counts, (*batch, *counts.shape)),
            xp.concatenate([symbol, none], axis=-1),
            xp.concatenate([none, symbol], axis=-1),
            xp.broadcast_to(one, batch),
        )

    def merge(self, before: ChainRun, after: ChainRun) -> ChainRun:
        xp = namespace(before.last, after.first)
        last, first = broadcast_batch(before.last, after.first)
        across = xp.concatenate([last, first], axis=-1)
        counts = before.counts + after.counts
        for i in range(self.order):  # the symbols whose context lies in both runs
            row, known = self._row(across[..., i : i + self.order])
            symbol = across[..., i + self.order]
            follows = self._at(row, symbol - 1) & (known & (symbol > 0))[..., None, None]
            counts = counts + follows.astype(np.int32)
        places = np.arange(self.order)
        length = before.length[..., None]
        both = xp.concatenate(broadcast_batch(before.first, after.first), axis=-1)
        at = xp.where(places < length, places, xp.maximum(places - length, 0) + self.order)
        length = after.length[..., None]
        return ChainRun(
            counts,
            _take(xp, both, at),
            xp.where(length < self.order, _take(xp, across, places + length), after.last),
            xp.minimum(before.length + after.length, self.order),
        )

    def predictive(self, statistics: ChainRun) -> Discrete:
        xp = namespace(statistics.last)
        row, known = self._row(statistics.last)
        if xp is np and row.ndim < 2:
            return Discrete(self._probs(statistics.counts[_each(row)] * known[..., None]))
        counts = xp.take_along_axis(statistics.counts, row[..., None, None], -2)[..., 0, :]
        return Discrete(self._probs(xp.where(known[..., None], counts, 0)))

    def observe(self, statistics: ChainRun, x: Numbers) -> tuple[Numbers, ChainRun]:
        """On the host without the general merge of two runs, which has ten times the calls."""
        counts, first, last, length = statistics
        if namespace(last, x) is not np or np.ndim(x) or np.ndim(length) > 1:
            return super().observe(statistics, x)
        symbol = int(x)
        row, known = self._row(last)
        at = _each(row)
        probs = self._probs(counts[at] * known[..., None])
        counts = counts.copy()
        counts[(*at, symbol)] += known
        first = np.where(np.arange(self.order) == length[..., None], symbol + 1, first)
        after = np.empty_like(last)
        after[..., :-1], after[..., -1] = last[..., 1:], symbol + 1
        run = ChainRun(counts, first, after, np.minimum(length + 1, self.order))
        return np.log(probs[..., symbol]), run

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

    def level_posterior(self, statistics: ChainRun) -> Level:
        """The rows of all full contexts, and that of shorter ones."""
        row, full = self._row(statistics.last)
        rows = self.size**self.order
        shorter = jnp.zeros((1, self.size), jnp.int32)
        probs = self._probs(jnp.concatenate([statistics.counts, shorter]))
        return Level(probs, None, jax.nn.one_hot(jnp.where(full, row, rows), rows + 1))

    def _row(self, context: Any) -> tuple[Any, Any]:
        """The number of a context, and whether it is full."""
        places = self.size ** np.arange(self.order - 1, -1, -1, dtype=np.int32)
        known = context > 0
        return ((context - known) * places).sum(-1), known.all(-1)

    def _at(self, row: Any, symbol: Any) -> Any:
        """True at one row and one symbol of a table of all contexts."""
        rows = np.arange(self.size**self.order)[:, None] == row[..., None, None]
        return rows & (np.arange(self.size) == symbol[..., None, None])

    def _probs(self, counts: Any) -> Any:
        pseudo = counts + self.concentration
        return pseudo / pseudo.sum(-1, keepdims=True)


def _each(row: Any) -> tuple[Any, ...]:
    """The index of a row of one table, or of a row of each of several tables."""
    return (np.arange(len(row)), row) if row.ndim else (row,)


def _take(xp: Any, symbols: Any, at: Any) -> Any:
    """The symbols at these places."""
    at = xp.broadcast_to(at, (*symbols.shape[:-1], at.shape[-1]))
    return xp.take_along_axis(symbols, at, -1)
