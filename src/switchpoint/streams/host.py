"""The formulas of a family and of a prior on the host, for all hypotheses at once, in float64.

They are those of `switchpoint.segments` and `switchpoint.priors`: called on NumPy arrays if they
work there, and otherwise, as may be with classes of a user's own, compiled.
"""

import dataclasses
import inspect
import types
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from switchpoint.priors import Prior
from switchpoint.segments import Segment
from switchpoint.segments.base import log_density, observe, prior_statistics

Floats: TypeAlias = Float[np.ndarray, " hypotheses"]
Table: TypeAlias = list[Any]
"""The leaves of the statistics, with the hypotheses along their first axis."""
Law: TypeAlias = Callable[[Floats, Floats], tuple[Any, Any]]
"""From the starts of segments and their lengths up to now: P(a segment ends here | it lasted until
here), and P(it does not)."""

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
    """A segment model whose formulas are called on NumPy arrays."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._formulas: Any = Formulas(segment)
        self._observe = self._formulas.observe
        self._several = bool(segment.event_shape)
        with jax.enable_x64(True):
            leaves, self._structure = jax.tree.flatten(prior_statistics(segment))
            gap = jax.tree.map(np.asarray, segment.missing())
        self.first: Table = [np.array(leaf) for leaf in leaves]
        """The statistics of a segment before its first observation, without hypotheses."""
        self._gap = gap
        self._gaps_count = any(np.any(leaf) for leaf in jax.tree.leaves(gap))

    def rows(self, count: int) -> Table:
        """The statistics of `count` segments before their first observation."""
        return [np.repeat(each[None], count, axis=0) for each in self.first]

    def statistics(self, table: Table) -> Any:
        """The statistics as those of the segment model."""
        return jax.tree.unflatten(self._structure, table)

    def absorb(self, table: Table, x: Any) -> Any:
        """ln p(x) under each hypothesis, whose statistics in the table then include x."""
        statistics = self.statistics(table)
        if self._several:  # columns, some of which may be missing
            logs = log_density(self._formulas, statistics, x)
            after = observe(self._formulas, statistics, x)
        else:
            logs, after = self._observe(statistics, x)
        table[:] = jax.tree.leaves(after)
        return logs

    def skip(self, table: Table) -> None:
        """Absorb a missing observation."""
        if self._gaps_count:
            table[:] = jax.tree.leaves(self._formulas.merge(self.statistics(table), self._gap))

    def probs(self, table: Table) -> Any:
        """P(next symbol = k) under each hypothesis."""
        predictive: Any = self._formulas.predictive(self.statistics(table))
        return predictive.probs


class CompiledFamily(HostFamily):
    """A segment model whose formulas are compiled."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment)
        self._on_device = _on_device(segment)

    def absorb(self, table: Table, x: Any) -> Any:
        with jax.enable_x64(True):
            x = np.asarray(x, np.float64)
            logs, after = _absorb(self._on_device, self.statistics(table), x)
            table[:] = [np.array(leaf) for leaf in jax.tree.leaves(after)]
            return np.array(logs)

    def skip(self, table: Table) -> None:
        self.absorb(table, np.full(self.segment.event_shape, np.nan))

    def probs(self, table: Table) -> Any:
        with jax.enable_x64(True):
            return np.asarray(_probs(self._on_device, self.statistics(table)), np.float64)


def _on_device(module: Any) -> Any:
    """A module whose hyperparameters need not be sent to the device at every call."""
    with jax.enable_x64(True):
        return jax.tree.map(jnp.asarray, module)


@jax.jit
def _absorb(segment: Segment, statistics: Any, x: Any) -> tuple[Any, Any]:
    def one(statistics: Any) -> tuple[Any, Any]:
        return log_density(segment, statistics, x), observe(segment, statistics, x)

    return jax.vmap(one)(statistics)


@jax.jit
def _probs(segment: Segment, statistics: Any) -> Any:
    def probs(statistics: Any) -> Any:
        predictive: Any = segment.predictive(statistics)
        return jnp.asarray(predictive.probs)

    return jax.vmap(probs)(statistics)


def make_family(segment: Segment) -> HostFamily:
    """The formulas of a segment model: on NumPy arrays if they work there, else compiled."""
    family = HostFamily(segment)
    return family if _works_on_rows(family) else CompiledFamily(segment)


def _works_on_rows(family: HostFamily) -> bool:
    """Whether the formulas give for many hypotheses what they give for each, in NumPy."""
    x = np.ones(family.segment.event_shape)[()]

    def results(table: Table) -> Table:
        probs = [family.probs(table)] if family.segment.finite else []
        logs = family.absorb(table, x)
        return [*table, logs, *probs]

    try:
        fresh, seen = family.rows(1), family.rows(1)
        family.absorb(seen, x)
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


def make_law(prior: Prior) -> Law:
    """The hazard and the survival of a prior: on NumPy arrays if they work there, else compiled."""
    complement = type(prior).survival_after is Prior.survival_after
    formulas: Any = Formulas(prior)
    hazard_after, survival_after = formulas.hazard_after, formulas.survival_after

    def law(starts: Floats, runs: Floats) -> tuple[Any, Any]:
        ends = hazard_after(starts, runs)
        return ends, 1 - ends if complement else survival_after(starts, runs)

    starts, runs = np.array([0.0, 4.0, 6.0]), np.array([1.0, 2.0, 3.0])
    try:
        terms = law(starts, runs)
    except _NOT_ON_HOST:
        return _compiled_law(prior)
    if any(isinstance(term, jax.Array) for term in terms):
        return _compiled_law(prior)
    if all(np.shape(term) == () for term in terms):
        ends, stays = terms
        return lambda starts, _: (np.full(starts.shape, ends), np.full(starts.shape, stays))
    return law


def _compiled_law(prior: Prior) -> Law:
    compiled = jax.jit(
        lambda prior, starts, runs: (
            prior.hazard_after(starts, runs),
            prior.survival_after(starts, runs),
        )
    )

    prior = _on_device(prior)

    def law(starts: Floats, runs: Floats) -> tuple[Any, Any]:
        with jax.enable_x64(True):
            terms = compiled(prior, starts.astype(np.int64), runs.astype(np.int64))
            ends, stays = (np.broadcast_to(np.asarray(t, np.float64), starts.shape) for t in terms)
        return ends, stays

    return law
