"""The formulas of a family and of a prior on the host, for all hypotheses at once, in float64.

They are those of `switchpoint.segments` and `switchpoint.priors`: called on NumPy arrays if they
work there, and otherwise, as may be with classes of a user's own, compiled.
"""

import dataclasses
import functools
import inspect
import math
import types
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from switchpoint.priors import Prior
from switchpoint.segments import Segment
from switchpoint.segments.base import elapse, prior_statistics

Floats: TypeAlias = Float[np.ndarray, " hypotheses"]
Table: TypeAlias = list[Any]
"""The leaves of the statistics, with the hypotheses along their first axis."""
Law: TypeAlias = Callable[[Floats, Floats], tuple[Any, Any]]
"""From the starts of segments and their lengths up to now: P(a segment ends here | it lasted until
here), and P(it does not)."""

_ONE = np.array(1.0)  # an array, from which NumPy subtracts faster than from a number
_NOT_ON_HOST = (TypeError, ValueError, AttributeError, IndexError)


class Formulas:
    """The fields and methods of a prior or a segment model, without the cost of a module.

    Every access to an attribute of an Equinox module takes microseconds, as long as a formula.
    """

    def __init__(self, module: eqx.Module) -> None:
        self._module = module
        for field in dataclasses.fields(module):
            value = getattr(module, field.name)
            if isinstance(value, tuple):
                value = tuple(Formulas(v) if isinstance(v, eqx.Module) else v for v in value)
            setattr(self, field.name, value)

    def __getattr__(self, name: str) -> Any:
        """Methods, whose `self` are these formulas, and properties: computed once."""
        cls = type(self._module)
        if isinstance(inspect.getattr_static(cls, name), property):
            value = getattr(self._module, name)
        else:
            value = types.MethodType(getattr(cls, name), self)
        setattr(self, name, value)
        return value


class HostFamily:
    """The formulas of a segment model, by NumPy or `compiled`; those of several columns in turn.

    Compiled programs take and return one array for all hypotheses, since every array costs as much
    as most formulas: the leaves of the statistics side by side, and the log density last.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._columns = [HostFamily(column) for column in getattr(segment, "columns", ())]
        ends = np.cumsum([len(column.first) for column in self._columns]).tolist()
        self._parts = [slice(*each) for each in zip([0, *ends], ends, strict=False)]
        with jax.enable_x64(True):
            statistics: Any = prior_statistics(segment)
            leaves, self._structure = jax.tree.flatten(statistics)
            self._gap = jax.tree.map(np.asarray, segment.missing())
        self.first: Table = [each for column in self._columns for each in column.first]
        self.first = self.first or [np.array(leaf) for leaf in leaves]
        """The statistics of a segment before its first observation, without hypotheses."""
        self._leaves = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in self.first]
        self.fitted: list[bool] = [each for column in self._columns for each in column.fitted]
        """Whether each leaf is fitted to the values, so that an outlier leaves it as it was."""
        if not self._columns:
            parts = statistics._asdict() if segment.passing else {"": statistics}
            counts = {name: len(jax.tree.leaves(part)) for name, part in parts.items()}
            self.fitted = [k not in segment.passing for k, n in counts.items() for _ in range(n)]
        self._gaps_count = any(np.any(leaf) for leaf in jax.tree.leaves(self._gap))
        formulas: Any = Formulas(segment)
        self._observe, self._merge = formulas.observe, formulas.merge
        self._probs = lambda statistics: formulas.predictive(statistics).probs
        self.compiled = False
        if not self._columns and not self._works_on_rows():
            self.compiled, self.fitted = True, [True]
            self.first = [np.append(np.concatenate([each.ravel() for each in self.first]), 0.0)]
            self._observe = _on_device(_observe_each, segment)
            self._merge = _on_device(_merge_each, segment)
            self._probs = _on_device(_probs_of_each, segment)

    def rows(self, count: int) -> Table:
        """The statistics of `count` segments before their first observation."""
        return [np.repeat(each[None], count, axis=0) for each in self.first]

    def statistics(self, table: Table) -> Any:
        """The statistics as those of the segment model."""
        if self._columns:
            parts = zip(self._columns, self._parts, strict=True)
            return tuple(column.statistics(table[part]) for column, part in parts)
        leaves = _leaves(table[0], self._leaves) if self.compiled else table
        return jax.tree.unflatten(self._structure, leaves)

    def table(self, leaves: Sequence[np.ndarray]) -> Table:
        """The table of the leaves of statistics: the inverse of `statistics`."""
        if self._columns:
            counts = [len(column._leaves) for column in self._columns]
            ends = np.cumsum(counts).tolist()
            parts = zip(self._columns, [0, *ends], ends, strict=False)
            return [each for column, i, j in parts for each in column.table(leaves[i:j])]
        if self.compiled:
            count = len(leaves[0])
            flat = [leaf.reshape(count, -1) for leaf in leaves]
            return [np.concatenate([*flat, np.zeros((count, 1))], axis=1)]
        return list(leaves)

    def absorb(self, table: Table, x: Any) -> Any:
        """ln p(x) under each hypothesis, whose statistics in the table then include x."""
        if self._columns:
            return self._absorb_columns(table, x.tolist())
        if self.compiled:
            table[0] = self._observe(table[0], x)
            return table[0][:, -1]
        logs, after = self._observe(self.statistics(table), x)
        table[:] = jax.tree.leaves(after)
        return logs

    def _absorb_columns(self, table: Table, x: list[float]) -> Any:
        logs = 0.0
        for column, value, part in zip(self._columns, x, self._parts, strict=True):
            leaves = table[part]
            if value != value:  # NaN: missing in this column
                column.skip(leaves)
            else:
                logs = logs + column.absorb(leaves, value)
            table[part] = leaves
        return logs

    def is_missing(self, x: Any) -> bool:
        """Whether no column is observed, or not all entries of a vector without columns."""
        gaps = np.isnan(x)
        return bool(gaps.all() if self._columns else gaps.any())

    def skip(self, table: Table) -> None:
        """Absorb a missing observation."""
        if self._columns:
            self._absorb_columns(table, [math.nan] * len(self._columns))
        elif self._gaps_count and self.compiled:
            table[0] = self._merge(table[0])
        elif self._gaps_count:
            table[:] = jax.tree.leaves(self._merge(self.statistics(table), self._gap))

    def elapse(self, table: Table, time: float) -> None:
        """Let time pass without an observation."""
        for index, clock in enumerate(self._clocks):
            if clock.any():
                table[index] = table[index] + time * clock

    @functools.cached_property
    def _clocks(self) -> Table:
        """For each array of a table, 1 where it counts time."""
        if self._columns:
            return [clock for column in self._columns for clock in column._clocks]
        still = jax.tree.map(np.zeros_like, prior_statistics(self.segment))
        clocks = jax.tree.leaves(elapse(still, 1.0))
        if self.compiled:
            return [np.append(np.concatenate([np.ravel(each) for each in clocks]), 0.0)]
        return clocks

    def probs(self, table: Table) -> Any:
        """P(next symbol = k) under each hypothesis."""
        return self._probs(table[0] if self.compiled else self.statistics(table))

    def _works_on_rows(self) -> bool:
        """Whether the formulas give for many hypotheses what they give for each, in NumPy."""
        x = np.ones(self.segment.event_shape)[()]

        def results(table: Table) -> Table:
            probs = [self.probs(table)] if self.segment.finite else []
            logs = self.absorb(table, x)
            return [*table, logs, *probs]

        try:
            fresh, seen = self.rows(1), self.rows(1)
            self.absorb(seen, x)
            both = [np.concatenate(each) for each in zip(fresh, seen, strict=True)]
            together = results([each.copy() for each in both])
            for row in range(2):
                alone = results([each[row] for each in both])
                for many, one in zip(together, alone, strict=True):
                    if isinstance(many, jax.Array) or not np.allclose(many[row], one):
                        return False
        except _NOT_ON_HOST:
            return False
        return True


def host_family(segment: Segment) -> HostFamily:
    """The formulas of a segment model, kept for other streams with the same hyperparameters."""
    leaves, structure = jax.tree.flatten(segment)
    arrays = [np.asarray(leaf) for leaf in leaves]
    if any(each.dtype.kind not in "biuf" for each in arrays):
        return HostFamily(segment)
    key = tuple((each.tobytes(), each.shape, each.dtype.str) for each in arrays)
    return _host_family(structure, key)


@functools.lru_cache(maxsize=64)
def _host_family(structure: Any, key: tuple[tuple[bytes, tuple[int, ...], str], ...]) -> HostFamily:
    leaves = [np.frombuffer(data, kind).reshape(shape)[()] for data, shape, kind in key]
    return HostFamily(jax.tree.unflatten(structure, leaves))


def make_law(prior: Prior) -> Law:
    """The hazard and the survival of a prior: on NumPy arrays if they work there, else compiled."""
    complement = type(prior).survival_after is Prior.survival_after
    formulas: Any = Formulas(prior)
    hazard_after, survival_after = formulas.hazard_after, formulas.survival_after

    def law(starts: Floats, runs: Floats) -> tuple[Any, Any]:
        ends = hazard_after(starts, runs)
        return ends, _ONE - ends if complement else survival_after(starts, runs)

    try:
        terms = law(np.array([0.0, 4.0, 6.0]), np.array([1.0, 2.0, 3.0]))
        compiled = any(isinstance(term, jax.Array) for term in terms)
    except _NOT_ON_HOST:
        compiled = True
    if compiled:
        terms_of = _on_device(_hazard_and_survival, prior)
        return lambda starts, runs: terms_of(starts.astype(np.int64), runs.astype(np.int64))
    if all(np.shape(term) == () for term in terms):
        ends, stays = terms
        return lambda starts, _: (np.full(starts.shape, ends), np.full(starts.shape, stays))
    return law


def _on_device(function: Callable[..., Any], module: eqx.Module) -> Callable[..., Any]:
    """`function(module, ...)`, compiled: from NumPy arrays to NumPy arrays, in double precision."""
    compiled = jax.jit(function)
    with jax.enable_x64(True):  # hyperparameters are sent to the device once
        module = jax.tree.map(jnp.asarray, module)

    def call(*arguments: Any) -> Any:
        with jax.enable_x64(True):
            return jax.tree.map(np.array, compiled(module, *arguments))

    return call


def _leaves(packed: Any, like: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
    """The leaves of statistics, of which `packed` has the numbers along its last axis."""
    leaves, begin = [], 0
    for leaf in like:
        end = begin + math.prod(leaf.shape)
        numbers = packed[..., begin:end].reshape(*packed.shape[:-1], *leaf.shape)
        leaves.append(numbers.astype(leaf.dtype))
        begin = end
    return leaves


def _on_each(segment: Segment, packed: Any, function: Callable[[Any], Any]) -> Any:
    """`function(statistics)` for each row; its result is packed if it is a pair with statistics."""
    leaves, structure = jax.tree.flatten(jax.eval_shape(prior_statistics, segment))

    def of_row(row: Any) -> Any:
        result = function(jax.tree.unflatten(structure, _leaves(row, leaves)))
        if not isinstance(result, tuple):
            return result
        logs, after = result
        numbers = [jnp.ravel(each).astype(float) for each in (*jax.tree.leaves(after), logs)]
        return jnp.concatenate(numbers)

    return jax.vmap(of_row)(packed)


def _observe_each(segment: Segment, packed: Any, x: Any) -> Any:
    x = jnp.asarray(x, float)
    return _on_each(segment, packed, lambda each: segment.observe(each, x))


def _merge_each(segment: Segment, packed: Any) -> Any:
    return _on_each(segment, packed, lambda each: (0.0, segment.merge(each, segment.missing())))


def _probs_of_each(segment: Segment, packed: Any) -> Any:
    def probs(each: Any) -> Any:
        predictive: Any = segment.predictive(each)
        return jnp.asarray(predictive.probs)

    return _on_each(segment, packed, probs)


def _hazard_and_survival(prior: Prior, starts: Any, runs: Any) -> Any:
    terms = prior.hazard_after(starts, runs), prior.survival_after(starts, runs)
    return jax.tree.map(
        lambda each: jnp.broadcast_to(jnp.asarray(each, float), starts.shape), terms
    )
