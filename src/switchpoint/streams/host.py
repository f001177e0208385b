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
from switchpoint.segments import Distribution, Joint, Segment
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
    """The formulas of a segment model by NumPy, where they work there.

    A family may keep a function of its statistics that it knows from one observation to the next,
    such as a ratio of Gamma functions, as the last array of a table: `_host_cache` computes it, and
    `_host_observe` gives the log densities and the table that includes x. They run on the host
    alone.
    """

    def __init__(self, segment: Segment, width: tuple[int, ...] = ()) -> None:
        self.segment, self.finite = segment, segment.finite
        with jax.enable_x64(True):
            statistics: Any = prior_statistics(segment)
            leaves, self._structure = jax.tree.flatten(statistics)
            self._gap = jax.tree.map(np.asarray, segment.missing())
        self._gaps_count = any(np.any(leaf) for leaf in jax.tree.leaves(self._gap))
        self._named = type(statistics) if _is_flat(statistics) else None
        self.first: Table = [
            np.array(np.broadcast_to(leaf, width or leaf.shape)) for leaf in leaves
        ]
        """The statistics of a segment before its first observation, without hypotheses."""
        self.leaves = len(leaves)
        """The number of arrays of the statistics."""
        parts = statistics._asdict() if segment.passing else {"": statistics}
        counts = {name: len(jax.tree.leaves(part)) for name, part in parts.items()}
        self.fitted = [k not in segment.passing for k, n in counts.items() for _ in range(n)]
        """Whether each array of a table is fitted to the values, and stays so at an outlier."""
        self._formulas: Any = Formulas(segment)
        self.cached: list[int] = []
        """The arrays of a table that are computed from the others."""
        if hasattr(segment, "_host_observe"):
            self.cached.append(self.leaves)
            self._host_observe = self._formulas._host_observe
            self.first = self.table(self.first)
            self.fitted.append(True)

    def rows(self, count: int) -> Table:
        """The statistics of `count` segments before their first observation."""
        return [np.repeat(each[None], count, axis=0) for each in self.first]

    def statistics(self, table: Table) -> Any:
        """The statistics as those of the segment model."""
        if self._named is not None:
            return self._named(*table[: self.leaves])
        return jax.tree.unflatten(self._structure, table[: self.leaves])

    def table(self, leaves: Sequence[np.ndarray]) -> Table:
        """The table of the leaves of statistics: the inverse of `statistics`."""
        if not self.cached:
            return list(leaves)
        return [*leaves, self._formulas._host_cache(self.statistics(list(leaves)))]

    def absorb(self, table: Table, x: Any) -> Any:
        """ln p(x) under each hypothesis, whose statistics in the table then include x.

        None if x is missing, which the statistics may count.
        """
        if x != x if x.__class__ is float else np.isnan(x).any():
            self.skip(table)
            return None
        return self._absorb(table, x)

    def _absorb(self, table: Table, x: Any) -> Any:
        if self.cached:
            logs, table[:] = self._host_observe(table, np.array(x))
            return logs
        logs, after = self._formulas.observe(self.statistics(table), x)
        table[:] = jax.tree.leaves(after) if self._named is None else after
        return logs

    def skip(self, table: Table) -> None:
        """Absorb a missing observation."""
        if self._gaps_count:
            after = self._formulas.merge(self.statistics(table), self._gap)
            table[:] = self.table(jax.tree.leaves(after))

    def elapse(self, table: Table, time: float) -> None:
        """Let time pass without an observation."""
        for index, clock in enumerate(self.clocks):
            if clock.any():
                table[index] = table[index] + time * clock

    @functools.cached_property
    def clocks(self) -> Table:
        """For each array of a table, 1 where it counts time."""
        still = jax.tree.map(np.zeros_like, prior_statistics(self.segment))
        return [*jax.tree.leaves(elapse(still, 1.0)), *[np.zeros(())] * len(self.cached)]

    def probs(self, table: Table) -> Any:
        """P(next symbol = k) under each hypothesis."""
        return self._formulas.predictive(self.statistics(table)).probs

    @functools.cached_property
    def _forecasts(self) -> bool:
        """Whether the formulas of the predictive distribution work in NumPy."""
        try:
            predictive = self._formulas.predictive(self.statistics(self.rows(2)))
            return isinstance(predictive.cdf(np.ones(2)), np.ndarray)
        except _NOT_ON_HOST:
            return False

    def marginals(self, table: Table) -> list[Distribution]:
        """The distributions of the next observation of each column; in NumPy if they work there."""
        if self._forecasts:
            return [self._formulas.predictive(self.statistics(table))]
        with jax.enable_x64(True):
            joint = jax.vmap(self.segment.predictive)(self.statistics(table))
            return list(joint.marginals) if isinstance(joint, Joint) else [joint]

    def works(self, x: Any) -> bool:
        """Whether the formulas give for many hypotheses what they give for each, in NumPy."""

        def results(table: Table) -> Table:
            probs = [self.probs(table)] if self.segment.finite else []
            logs = self._absorb(table, x)
            return [*table, logs, *probs]

        try:
            fresh, seen = self.rows(1), self.rows(1)
            self._absorb(seen, x)
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


class CompiledFamily(HostFamily):
    """The formulas of any segment model, compiled.

    A program takes and returns one array for all hypotheses, since every array costs as much as
    most formulas: the leaves of the statistics side by side, and the log density last.
    """

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment)
        self.cached = []
        leaves = self.first[: self.leaves]
        self._shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
        self.first = [each[0] for each in self.table([leaf[None] for leaf in leaves])]
        self.fitted = [True]
        self._observe = _on_device(_observe_each, segment)
        self._merge = _on_device(_merge_each, segment)
        self._probs = _on_device(_probs_of_each, segment)

    def statistics(self, table: Table) -> Any:
        return jax.tree.unflatten(self._structure, _leaves(table[0], self._shapes))

    def table(self, leaves: Sequence[np.ndarray]) -> Table:
        count = len(leaves[0])
        flat = [np.reshape(leaf, (count, -1)) for leaf in leaves]
        return [np.concatenate([*flat, np.zeros((count, 1))], axis=1)]

    def _absorb(self, table: Table, x: Any) -> Any:
        table[0] = self._observe(table[0], x)
        return table[0][:, -1]

    def skip(self, table: Table) -> None:
        if self._gaps_count:
            table[0] = self._merge(table[0])

    @functools.cached_property
    def clocks(self) -> Table:
        return [self.table([each[None] for each in super().clocks])[0][0]]

    def probs(self, table: Table) -> Any:
        return self._probs(table[0])


class ColumnsFamily(HostFamily):
    """The formulas of several columns: of equal families on the last axis of the same arrays."""

    def __init__(self, segment: Segment) -> None:
        self.segment, self.finite = segment, segment.finite
        columns: Sequence[Segment] = segment.columns  # type: ignore[attr-defined]
        alike: dict[Any, list[int]] = {}
        for index, column in enumerate(columns):
            alike.setdefault(jax.tree.structure(column), []).append(index)
        self._groups: list[tuple[list[int], HostFamily, slice]] = []
        self.first, self.fitted, self.cached = [], [], []
        for group in alike.values():
            stack = _stacked([columns[index] for index in group])
            for indices in [group] if stack is not None else [[index] for index in group]:
                family = stack or host_family(columns[indices[0]])
                end = len(self.first) + len(family.first)
                self._groups.append((indices, family, slice(len(self.first), end)))
                self.cached += [len(self.first) + index for index in family.cached]
                self.first += family.first
                self.fitted += family.fitted
        self._structure = jax.tree.structure(self.statistics(self.first))

    def _by_column(self, results: Sequence[Any]) -> list[Any]:
        """The results for each group by column, where columns may share their arrays."""
        columns: dict[int, Any] = {}
        for (indices, _, _), result in zip(self._groups, results, strict=True):
            for k, index in enumerate(indices):
                alone = len(indices) == 1
                columns[index] = result if alone else jax.tree.map(lambda a, k=k: a[..., k], result)
        return [columns[index] for index in range(len(columns))]

    def statistics(self, table: Table) -> Any:
        each = [family.statistics(table[part]) for _, family, part in self._groups]
        return tuple(self._by_column(each))

    def table(self, leaves: Sequence[np.ndarray]) -> Table:
        columns = list(map(jax.tree.leaves, jax.tree.unflatten(self._structure, leaves)))
        table = []
        for indices, family, _ in self._groups:
            parts = zip(*(columns[index] for index in indices), strict=True)
            table += family.table([np.stack(p, -1) if len(p) > 1 else p[0] for p in parts])
        return table

    def absorb(self, table: Table, x: Any) -> Any:
        values, logs = x.tolist(), None
        for indices, family, part in self._groups:
            leaves = table[part]
            if len(indices) == 1:
                found = family.absorb(leaves, values[indices[0]])
            else:
                found = _absorb_stack(family, leaves, [values[index] for index in indices])
            table[part] = leaves
            if found is not None:
                logs = found if logs is None else logs + found
        return logs

    def marginals(self, table: Table) -> list[Distribution]:
        return self._by_column(
            [family.marginals(table[part])[0] for _, family, part in self._groups]
        )

    @functools.cached_property
    def clocks(self) -> Table:
        return [clock for _, family, _ in self._groups for clock in family.clocks]


def _absorb_stack(family: HostFamily, table: Table, xs: list[float]) -> Any:
    """`absorb` of columns that are the last axis of a table, of which some may be missing."""
    missing = [x != x for x in xs]
    if not any(missing):
        return family._absorb(table, np.array(xs)).dot(np.ones(len(xs)))
    skipped, gaps = list(table), np.array(missing)
    family.skip(skipped)
    logs = family._absorb(table, np.where(gaps, 1.0, xs))
    table[:] = [np.where(gaps, old, new) for old, new in zip(skipped, table, strict=True)]
    return None if all(missing) else np.where(gaps, 0.0, logs).sum(-1)


def _stacked(columns: list[Segment]) -> HostFamily | None:
    """One family for columns of one structure, if its formulas give what they give for each."""
    families = list(map(host_family, columns))
    if len(columns) == 1 or any(isinstance(each, CompiledFamily) for each in families):
        return None
    stack: Any = jax.tree.map(lambda *leaves: np.array(leaves), *columns)
    if stack.finite or any(leaf.ndim for leaf in families[0].first):
        return None
    try:
        family = HostFamily(stack, (len(columns),))
        table = family.rows(2)
        logs = [family._absorb(table, np.ones(len(columns))) for _ in range(2)]
        for k, one in enumerate(families):
            alone = one.rows(2)
            if not all(np.allclose(both[:, k], one._absorb(alone, 1.0)) for both in logs):
                return None
    except _NOT_ON_HOST:
        return None
    return family


def _is_flat(statistics: Any) -> bool:
    """Whether statistics are a named tuple of arrays."""
    each = statistics if hasattr(statistics, "_fields") else [()]
    return all(jax.tree_util.all_leaves([field]) for field in each)


def host_family(segment: Segment) -> HostFamily:
    """The formulas of a segment model, kept for other streams with the same hyperparameters."""
    leaves, structure = jax.tree.flatten(segment)
    arrays = [np.asarray(leaf) for leaf in leaves]
    if any(each.dtype.kind not in "biuf" for each in arrays):
        return _make_family(segment)
    key = tuple((each.tobytes(), each.shape, each.dtype.str) for each in arrays)
    return _host_family(structure, key)


@functools.lru_cache(maxsize=64)
def _host_family(structure: Any, key: tuple[tuple[bytes, tuple[int, ...], str], ...]) -> HostFamily:
    leaves = [np.frombuffer(data, kind).reshape(shape)[()] for data, shape, kind in key]
    return _make_family(jax.tree.unflatten(structure, leaves))


def _make_family(segment: Segment) -> HostFamily:
    if hasattr(segment, "columns"):
        return ColumnsFamily(segment)
    try:
        family = HostFamily(segment)
    except _NOT_ON_HOST:
        return CompiledFamily(segment)
    return family if family.works(np.ones(segment.event_shape)[()]) else CompiledFamily(segment)


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
        numbers = packed[..., begin:end].reshape((*packed.shape[:-1], *leaf.shape))
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
