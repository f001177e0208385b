"""Hyperparameters by the evidence: `fit` maximises it, `compare` weighs sources by it.

The evidence P(x) of a source is differentiable in all its hyperparameters. They are varied in
unconstrained coordinates: positive ones by their logarithm, probabilities by their log-odds.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from switchpoint import _checks
from switchpoint.exact.base import ExactPredictor
from switchpoint.exact.blocks import Sequences
from switchpoint.exact.forward import bayes_optimal
from switchpoint.segments import Segment
from switchpoint.segments.values import centred
from switchpoint.sources import Source

_SPREAD = 1.0  # standard deviation of further starts, in logarithms
_MEMORY = 10  # steps that L-BFGS remembers
_LINE_SEARCH = 12  # evaluations at most
_GAIN = 1e-3  # of evidence, below which nothing matters


@dataclasses.dataclass(frozen=True)
class Fit:
    """The result of `fit`."""

    source: Source
    """The source with the hyperparameters found."""
    log_evidence: float
    """ln P(values) under it, summed over all sequences."""
    history: Float[np.ndarray, "steps starts"]
    """ln P(values) of each start after each step; the first row is before the first step."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of `compare`."""

    log_evidence: dict[str, float]
    """ln P(values) under each source."""

    @property
    def probability(self) -> dict[str, float]:
        """The posterior probability of each source, if all are equally probable beforehand."""
        logs = np.array(list(self.log_evidence.values()))
        shares = np.exp(logs - np.logaddexp.reduce(logs))
        return dict(zip(self.log_evidence, shares.tolist(), strict=True))

    @property
    def best(self) -> str:
        """The source of highest evidence."""
        return max(self.log_evidence, key=lambda name: self.log_evidence[name])

    def odds(self, name: str, against: str) -> float:
        """P(values | one source) / P(values | another): its posterior odds, if even beforehand."""
        gap = self.log_evidence[name] - self.log_evidence[against]
        return math.exp(gap) if gap < 700 else math.inf

    def __str__(self) -> str:
        rows = sorted(self.log_evidence.items(), key=lambda row: -row[1])
        width = max(len(name) for name, _ in rows)
        chances = self.probability
        return "\n".join(
            f"{name:<{width}}  ln P = {value:.3f}  probability {chances[name]:.4g}"
            for name, value in rows
        )


def compare(
    sources: Mapping[str, Source], values: Any, max_hypotheses: int | None = None
) -> Comparison:
    """The evidence of several sources for the same values, and their posterior odds."""
    if not isinstance(sources, Mapping) or not sources:
        raise ValueError(
            "sources must be a mapping from names to at least one Source, got "
            f"{_checks.shown(sources)}"
        )
    return Comparison(
        {
            name: _log_evidence(bayes_optimal(source, max_hypotheses), values)
            for name, source in sources.items()
        }
    )


def _log_evidence(predictor: ExactPredictor[Any], values: Any) -> float:
    return float(np.asarray(predictor.log_density(values), np.float64).sum())


def fit(
    source: Source,
    values: Any,
    parameters: Iterable[str] | None = None,
    *,
    starts: int = 3,
    steps: int = 40,
    max_hypotheses: int | None = None,
    key: PRNGKeyArray | None = None,
) -> Fit:
    """The hyperparameters of highest evidence for values, by L-BFGS from several starts.

    `parameters` are the names of those to vary, such as "hazard" or "segment.scale"; by default
    all. The first start is `source` itself, so that the evidence never falls; the others are drawn
    around it. All sequences of a batch share their hyperparameters. `max_hypotheses` makes long
    sequences affordable; the evidence is then that of the pruned recursion.
    """
    bayes_optimal(source, max_hypotheses)  # raises a `ValueError` if it cannot be
    segment, relative, origin = centred(source.segment, values)
    start = eqx.tree_at(lambda each: each.segment, source, segment)
    sequences, _ = bayes_optimal(start, max_hypotheses)._sequences(relative)
    leaves, spec = _varied(start, parameters)
    if np.isnan(sequences.values).all():
        raise ValueError(f"values must hold an observation, all {np.size(values)} are missing")
    starts, steps = _checks.positive_int("starts", starts), _checks.positive_int("steps", steps)
    first = jnp.concatenate([jnp.ravel(leaf.free(value)) for leaf, value in leaves])
    noise = jax.random.normal(jax.random.key(0) if key is None else key, (starts, len(first)))
    spread = _SPREAD * noise.at[0].set(0) * _scales(leaves, sequences)
    points = np.asarray(first + spread, np.float64)
    problem = _Problem(start, tuple(leaf for leaf, _ in leaves), spec, max_hypotheses)
    at = _evaluate(problem, sequences, points)
    state = _init(points)
    history = [at.evidence]
    for _ in range(steps):
        directions, state = _directions(at.points, at.slopes, state)
        at = _line_search(problem, sequences, at, np.asarray(directions, np.float64))
        history.append(at.evidence)
        if len(history) > 3 and _settled(history):
            break
    best = int(np.argmax(np.nan_to_num(at.evidence, nan=-np.inf)))
    log_evidence = float(at.evidence[best])
    if not log_evidence > history[0][0]:  # it never ends below where it started
        return Fit(source, float(history[0][0]), np.stack(history))
    found = jax.tree.map(_like, problem.source_at(jnp.asarray(at.points[best], float)), start)
    segment = found.segment.translated(-origin)
    found = eqx.tree_at(lambda each: each.segment, found, segment)
    return Fit(found, log_evidence, np.stack(history))


def _settled(history: Sequence[Float[np.ndarray, " starts"]]) -> bool:
    """Whether no start has gained anything that matters in the last step."""
    gain = np.nan_to_num(history[-1] - history[-2], nan=0.0)
    return bool(np.all(gain < _GAIN))


def _like(new: Any, old: Any) -> Any:
    """A fitted leaf of the type that it had."""
    if isinstance(old, float):
        return np.float64(new)
    return np.asarray(new) if isinstance(old, np.ndarray) else new


class _Leaf(NamedTuple):
    """A hyperparameter, and what it may be."""

    name: str
    support: str  # real, positive, unit or simplex

    def free(self, value: Any) -> Float[Array, "..."]:
        """Its unconstrained coordinates."""
        value = jnp.asarray(value, float)
        match self.support:
            case "real":
                return value
            case "unit":
                return jnp.log(value) - jnp.log1p(-value)
            case _:
                return jnp.log(jnp.maximum(value, 1e-30))

    def bound(self, free: Float[Array, "..."]) -> Float[Array, "..."]:
        """The hyperparameter at unconstrained coordinates."""
        match self.support:
            case "real":
                return free
            case "unit":
                return jax.nn.sigmoid(free)
            case "simplex":
                return jax.nn.softmax(free)
            case _:
                return jnp.exp(free)


class _Problem(eqx.Module):
    """The evidence as a function of the coordinates."""

    source: Source
    leaves: tuple[_Leaf, ...] = eqx.field(static=True)
    varied: Any = eqx.field(static=True)
    max_hypotheses: int | None = eqx.field(static=True)

    def source_at(self, point: Float[Array, " coordinates"]) -> Source:
        flat, structure = jax.tree.flatten(self.source)
        at = 0
        for leaf, index in zip(self.leaves, self.varied, strict=True):
            shape = np.shape(flat[index])
            size = math.prod(shape)
            flat[index] = leaf.bound(point[at : at + size].reshape(shape))
            at += size
        return jax.tree.unflatten(structure, flat)

    def loss(
        self, point: Float[Array, " coordinates"], sequences: Sequences
    ) -> tuple[Float[Array, ""], Float[Array, "flat time"]]:
        """Minus the mean log density, and the log densities."""
        predictor = bayes_optimal(self.source_at(point), self.max_hypotheses)
        logs = predictor._log_density(sequences)
        return -logs.mean(), logs


class _Evaluated(NamedTuple):
    """The points of all starts, with what is known there."""

    points: Float[np.ndarray, "starts coordinates"]
    evidence: Float[np.ndarray, " starts"]
    slopes: Float[np.ndarray, "starts coordinates"]
    """The gradient of minus the evidence."""

    def where(self, chosen: Bool[np.ndarray, " starts"], other: "_Evaluated") -> "_Evaluated":
        """These for the chosen starts, and the others' for the rest."""
        rows = chosen[:, None]
        return _Evaluated(
            np.where(rows, self.points, other.points),
            np.where(chosen, self.evidence, other.evidence),
            np.where(rows, self.slopes, other.slopes),
        )


def _evaluate(
    problem: _Problem, sequences: Sequences, points: Float[np.ndarray, "starts coordinates"]
) -> _Evaluated:
    logs, slopes = _gradients(problem, sequences, jnp.asarray(points, float))
    evidence = np.asarray(logs, np.float64).sum((1, 2))
    return _Evaluated(points, evidence, np.asarray(slopes, np.float64) * logs[0].size)


@eqx.filter_jit
def _gradients(problem: _Problem, sequences: Sequences, points: Array) -> tuple[Array, Array]:
    """The only program with the recursion in it: whatever calls it more than once compiles more."""

    def one(point: Array) -> tuple[Array, Array]:
        slope, logs = jax.grad(problem.loss, has_aux=True)(point, sequences)
        return logs, slope

    return jax.vmap(one)(points)


@jax.jit
def _init(points: Array) -> Any:
    return jax.vmap(optax.scale_by_lbfgs(_MEMORY).init)(jnp.asarray(points, float))


@jax.jit
def _directions(points: Array, slopes: Array, state: Any) -> tuple[Array, Any]:
    """The step of L-BFGS from every start; the steepest descent where that would go uphill."""
    slopes = jnp.asarray(slopes, float)
    steps, state = jax.vmap(optax.scale_by_lbfgs(_MEMORY).update)(
        slopes, state, jnp.asarray(points, float)
    )
    norms = jnp.linalg.norm(slopes, axis=-1, keepdims=True)
    downhill = jnp.sum(steps * slopes, axis=-1, keepdims=True) > 0
    return -jnp.where(downhill, steps, slopes / jnp.maximum(norms, 1.0)), state


def _line_search(
    problem: _Problem,
    sequences: Sequences,
    start: _Evaluated,
    directions: Float[np.ndarray, "starts coordinates"],
) -> _Evaluated:
    """Better points along the directions, by bisection for the weak Wolfe conditions.

    They ask that the loss falls and that its slope flattens, which keeps the Hessian that L-BFGS
    approximates positive. All starts are evaluated together; one that finds nothing stays.
    """
    descent = (directions * start.slopes).sum(-1)
    steps, low = np.ones(len(descent)), np.zeros(len(descent))
    high = np.full(len(descent), np.inf)
    best, searching = start, -descent > _GAIN / 10
    for _ in range(_LINE_SEARCH):
        if not searching.any():
            break
        tried = _evaluate(problem, sequences, start.points + steps[:, None] * directions)
        known = np.isfinite(tried.evidence) & np.isfinite(tried.slopes).all(-1)
        falls = known & (start.evidence - tried.evidence <= 1e-4 * steps * descent)
        steep = (directions * tried.slopes).sum(-1) < 0.9 * descent
        best = tried.where(searching & falls & (tried.evidence > best.evidence), best)
        low = np.where(falls & steep, steps, low)
        high = np.where(falls, high, steps)
        searching &= ~falls | steep
        steps = np.where(np.isinf(high), 2 * steps, 0.5 * (low + high))
        searching &= -steps * descent > _GAIN / 10
    return best


def _varied(
    source: Source, parameters: Iterable[str] | None
) -> tuple[list[tuple[_Leaf, Any]], tuple[int, ...]]:
    """The hyperparameters to vary, with their values, and their places among the leaves."""
    found = [
        (index, _Leaf(*_name_and_support(source, path, value)), value)
        for index, (path, value) in enumerate(jax.tree_util.tree_leaves_with_path(source))
        if jnp.issubdtype(jnp.asarray(value).dtype, jnp.floating)
    ]
    names = [leaf.name for _, leaf, _ in found]
    if not found:
        raise ValueError(f"there is nothing to fit: {source!r} has no hyperparameters")
    if parameters is not None:
        wanted = [parameters] if isinstance(parameters, str) else list(parameters)
        for each in wanted or [""]:
            if not any(_matches(name, each) for name in names):
                raise ValueError(
                    f"parameters must be among {', '.join(names)} (or the last part of one), "
                    f"got {repr(each) if wanted else 'none'}"
                )
        found = [row for row in found if any(_matches(row[1].name, each) for each in wanted)]
    fixed = [leaf.name for _, leaf, value in found if not np.all(np.isfinite(leaf.free(value)))]
    if fixed:
        raise ValueError(f"{fixed[0]} is at the edge of its range, and cannot be fitted from there")
    return [(leaf, value) for _, leaf, value in found], tuple(index for index, _, _ in found)


def _matches(name: str, wanted: str) -> bool:
    return name == wanted or name.endswith("." + wanted)


def _name_and_support(source: Source, path: Any, value: Any) -> tuple[str, str]:
    """The dotted name of a leaf, and what it may be."""
    parts = [str(getattr(each, "name", getattr(each, "idx", each))) for each in path]
    owner: Any = source
    for each in path[:-1]:
        owner = getattr(owner, each.name) if hasattr(each, "name") else owner[each.idx]
    field = parts[-1]
    if field.endswith("_log_odds"):
        return ".".join([*parts[:-1], field.removesuffix("_log_odds")]), "real"
    support, numbers = "positive", np.asarray(value)
    if isinstance(owner, Segment) and field in (owner.location_field, *owner.real_fields):
        support = "real"
    elif parts[0] == "prior" and np.ndim(value) and abs(numbers.sum() - 1) < 1e-5:
        support = "simplex"  # the probabilities of a `Renewal`
    elif parts[0] == "prior" and np.all((numbers > 0) & (numbers < 1)):
        support = "unit"
    return ".".join(parts), support


def _scales(
    leaves: Sequence[tuple[_Leaf, Any]], sequences: Sequences
) -> Float[Array, " coordinates"]:
    """How far starts are spread: real hyperparameters by the spread of the values."""
    spread = float(np.nanstd(np.asarray(sequences.values))) or 1.0
    of_values = [leaf.support == "real" and leaf.name.startswith("segment") for leaf, _ in leaves]
    return jnp.concatenate(
        [
            jnp.full(np.size(value), spread if real else 1.0)
            for (_, value), real in zip(leaves, of_values, strict=True)
        ]
    )
