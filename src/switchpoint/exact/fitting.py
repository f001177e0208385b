"""Hyperparameters by the evidence: `fit` maximises it, `compare` weighs sources by it.

The evidence P(x) of a source is differentiable in all its hyperparameters. They are varied in
unconstrained coordinates: positive ones by their logarithm, probabilities by their log-odds.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint import _checks
from switchpoint._parameters import Parametric, fields_with
from switchpoint.exact.forward import bayes_optimal
from switchpoint.exact.hypotheses import Sequences
from switchpoint.segments.values import centred, translated
from switchpoint.sources import AbstractSource, Source

_GAIN = 1e-3  # of evidence, below which nothing matters


@dataclasses.dataclass(frozen=True)
class Fit:
    """The result of `fit`.

    source
        The source with the fitted hyperparameters theta.
    log_evidence
        ln P(x | theta), summed over all sequences.
    history: (steps + 1, starts)
        ln P(x) of each start before the first step and after each step. A start that settled
        earlier keeps its last value; NaN marks one from which there was no way.
    """

    source: Source
    log_evidence: float
    history: Float[np.ndarray, "steps starts"]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of `compare`.

    log_evidence
        ln P(x | source) by the name of the source.
    """

    log_evidence: dict[str, float]

    @property
    def probability(self) -> dict[str, float]:
        """P(source | x) = P(x | source) / sum_j P(x | source j), under equal priors."""
        logs = np.array(list(self.log_evidence.values()))
        shares = np.exp(logs - np.logaddexp.reduce(logs))
        return dict(zip(self.log_evidence, shares.tolist(), strict=True))

    @property
    def best(self) -> str:
        """The source of highest evidence."""
        return max(self.log_evidence, key=lambda name: self.log_evidence[name])

    def odds(self, name: str, against: str) -> float:
        """P(x | one source) / P(x | another): the Bayes factor, infinite above e^700."""
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
    sources: Mapping[str, AbstractSource], values: Any, max_hypotheses: int | None = None
) -> Comparison:
    """Compare the evidence of several sources for the same values.

    For each source it computes ln P(x) = sum_t ln p(x_t | x_<t), summed over all sequences of a
    batch (..., n) or (..., n, columns). Each takes as long as `log_density`.

    >>> import switchpoint as sp
    >>> bits = [0] * 20 + [1] * 20
    >>> rates = {"rare": 0.01, "frequent": 0.2}
    >>> found = sp.compare({k: sp.Source(sp.Geometric(h)) for k, h in rates.items()}, bits)
    >>> print(found)
    rare      ln P = -8.962  probability 0.8718
    frequent  ln P = -10.878  probability 0.1282
    """
    if not isinstance(sources, Mapping) or not sources:
        raise ValueError(
            "sources must be a mapping from names to at least one Source, got "
            f"{_checks.shown(sources)}"
        )
    optima = {name: bayes_optimal(each, max_hypotheses) for name, each in sources.items()}
    return Comparison(
        {
            name: float(np.asarray(predictor.log_density(values), np.float64).sum())
            for name, predictor in optima.items()
        }
    )


def fit(
    source: AbstractSource,
    values: Any,
    parameters: Iterable[str] | None = None,
    *,
    starts: int = 3,
    steps: int = 40,
    max_hypotheses: int | None = None,
    key: PRNGKeyArray | None = None,
) -> Fit:
    """Fit hyperparameters to values by maximising the evidence, from several starts.

    With theta the hyperparameters of the prior and of the segment, it maximises

        ln P(x | theta) = sum_t ln p(x_t | x_<t, theta),

    summed over all sequences of a batch, by L-BFGS-B (Byrd, Lu, Nocedal and Zhu, 1995) with exact
    gradients. Positive hyperparameters vary by their logarithm, probabilities by their log-odds, a
    probability vector by the logarithms of its entries. The first start is `source` itself, so the
    evidence never falls; the others are drawn around it.

    An evaluation takes about three times as long as `log_density`: O(n^2) for most priors,
    O(n depth) for PTW, O(n max_hypotheses) with pruning, whose evidence is then maximised.

    `values` are (..., n), or (..., n, columns), with NaN for missing observations. `parameters` are
    the names of the hyperparameters to vary, such as "hazard" or "segment.scale"; by default all.
    From each of `starts` starts there are at most `steps` steps; `key` draws the further starts.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> values = np.repeat([0.0, 5.0, 1.0, 6.0], 25) + 0.1 * np.sin(np.arange(100.0) ** 2)
    >>> start = sp.Source(sp.Geometric(0.2), sp.Gaussian(0.0, 5.0, 1.0))
    >>> fitted = sp.fit(start, values, ["hazard", "scale"], starts=1)
    >>> round(float(fitted.source.prior.hazard), 2), round(float(fitted.source.segment.scale), 2)
    (0.03, 0.07)
    """
    bayes_optimal(source, max_hypotheses)  # raises a `ValueError` if there is none
    if not isinstance(source, Source):
        raise ValueError(
            "source must be a Source to be fitted; fit the sources of a mixture each, and compare "
            f"them, got a {type(source).__name__}"
        )
    segment, relative, origin = centred(source.segment, values)
    initial = eqx.tree_at(lambda each: each.segment, source, segment)
    sequences, _ = bayes_optimal(initial, max_hypotheses)._values(relative)
    problem = _Problem(initial, _varied(initial, parameters), max_hypotheses)
    if np.isnan(sequences.values).all():
        raise ValueError(f"values must hold an observation, all {np.size(values)} are missing")
    starts, steps = _checks.positive_int("starts", starts), _checks.positive_int("steps", steps)
    spread = float(np.nanstd(np.asarray(sequences.values))) or 1.0
    first, scales = (
        ravel_pytree(each)[0] for each in (problem.coordinates(), problem.scales(spread))
    )
    noise = jax.random.normal(jax.random.key(0) if key is None else key, (starts, len(first)))
    points = first + noise.at[0].set(0) * scales
    ends, traces = zip(
        *(_maximise(problem, sequences, np.asarray(each, float), steps) for each in points),
        strict=True,
    )
    longest = max(map(len, traces))
    history = np.stack([np.pad(each, (0, longest - len(each)), "edge") for each in traces], axis=1)
    best = int(np.argmax(np.nan_to_num(history[-1], nan=-np.inf)))
    log_evidence = float(history[-1, best])
    if not log_evidence > history[0, 0]:
        return Fit(source, float(history[0, 0]), history)
    fitted = jax.tree.map(_like, problem.source_at(jnp.asarray(ends[best], float)), initial)
    fitted = eqx.tree_at(lambda each: each.segment, fitted, translated(fitted.segment, -origin))
    return Fit(fitted, log_evidence, history)


def _maximise(
    problem: "_Problem",
    sequences: Sequences,
    point: Float[np.ndarray, " coordinates"],
    steps: int,
) -> tuple[Float[np.ndarray, " coordinates"], Float[np.ndarray, " steps"]]:
    """Return the best point near one start, and the evidence there before and after each step."""
    import scipy.optimize

    trace: list[float] = []

    def loss(point: Float[np.ndarray, " coordinates"]) -> tuple[float, np.ndarray]:
        logs, slope = _gradient(problem, sequences, point)
        value, slopes = -np.asarray(logs, np.float64).sum(), np.asarray(slope, np.float64)
        finite = np.isfinite(value) and np.isfinite(slopes).all()
        if not trace:
            trace.append(value if finite else np.nan)
        # Anything large makes the line search step back.
        return (
            (value, slopes)
            if finite
            else (1e3 + 10 * abs(np.nan_to_num(trace[0])), np.zeros_like(slopes))
        )

    def after_step(intermediate_result: Any) -> None:
        trace.append(intermediate_result.fun)
        if trace[-2] - trace[-1] < _GAIN:
            raise StopIteration

    result = scipy.optimize.minimize(
        loss,
        point,
        jac=True,
        method="L-BFGS-B",
        callback=after_step,
        options={"maxiter": steps, "ftol": 0.0},
    )
    return result.x, -np.array(trace)


@eqx.filter_jit
def _gradient(problem: "_Problem", sequences: Sequences, point: Any) -> tuple[Array, Array]:
    """Return the log densities, and the gradient of minus their sum, at a point."""

    def loss(point: Array) -> tuple[Array, Array]:
        logs = problem.log_density(point, sequences)
        return -logs.mean(), logs

    slope, logs = jax.grad(loss, has_aux=True)(jnp.asarray(point, float))
    return logs, slope * logs.size


def _like(new: Any, old: Any) -> Any:
    """A fitted leaf, with the type of the original one."""
    if isinstance(old, float):
        return np.float64(new)
    return np.asarray(new) if isinstance(old, np.ndarray) else new


def _log(value: Array) -> Array:
    return jnp.log(jnp.maximum(value, 1e-30))


_COORDINATES: Mapping[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "real": (jnp.asarray, jnp.asarray),
    "positive": (_log, jnp.exp),
    "unit": (jax.scipy.special.logit, jax.nn.sigmoid),
    "simplex": (_log, jax.nn.softmax),
}
"""From each support to unconstrained coordinates, and back."""


class _Hyperparameter(NamedTuple):
    """A hyperparameter to vary: its name, its place among the leaves, and its support."""

    name: str
    place: int
    support: str

    def free(self, value: Any) -> Float[Array, "..."]:
        """Unconstrained coordinates of a value."""
        return _COORDINATES[self.support][0](jnp.asarray(value, float))


class _Problem(eqx.Module):
    """The evidence as a function of the coordinates of the varied hyperparameters."""

    source: Source
    varied: tuple[_Hyperparameter, ...] = eqx.field(static=True)
    max_hypotheses: int | None = eqx.field(static=True)

    def coordinates(self) -> list[Float[Array, "..."]]:
        """The coordinates of the source itself."""
        leaves = jax.tree.leaves(self.source)
        return [each.free(leaves[each.place]) for each in self.varied]

    def source_at(self, point: Float[Array, " coordinates"]) -> Source:
        leaves, structure = jax.tree.flatten(self.source)
        _, unravel = ravel_pytree(self.coordinates())
        for each, free in zip(self.varied, unravel(point), strict=True):
            leaves[each.place] = _COORDINATES[each.support][1](free)
        return jax.tree.unflatten(structure, leaves)

    def scales(self, spread: float) -> list[Float[Array, "..."]]:
        """Standard deviations of the further starts; for locations, the spread of the values."""
        return [
            jnp.full_like(
                free, spread if each.support == "real" and each.name.startswith("segment") else 1.0
            )
            for each, free in zip(self.varied, self.coordinates(), strict=True)
        ]

    def log_density(
        self, point: Float[Array, " coordinates"], sequences: Sequences
    ) -> Float[Array, "flat time"]:
        predictor = bayes_optimal(self.source_at(point), self.max_hypotheses)
        return predictor._log_density(sequences)


def _varied(source: Source, parameters: Iterable[str] | None) -> tuple[_Hyperparameter, ...]:
    """Find the hyperparameters to vary."""
    varied = [
        (_hyperparameter(source, place, path, value), value)
        for place, (path, value) in enumerate(jax.tree_util.tree_leaves_with_path(source))
        if jnp.issubdtype(jnp.asarray(value).dtype, jnp.floating)
    ]
    names = [each.name for each, _ in varied]
    if not varied:
        raise ValueError(f"there is nothing to fit: {source!r} has no hyperparameters")
    if parameters is not None:
        wanted = [parameters] if isinstance(parameters, str) else list(parameters)

        def chosen(name: str, patterns: Iterable[str] = wanted) -> bool:
            return any(f".{name}".endswith("." + pattern) for pattern in patterns)

        for pattern in wanted or [""]:
            if not any(chosen(name, [pattern]) for name in names):
                raise ValueError(
                    f"parameters must be among {', '.join(names)} (or the last part of one), "
                    f"got {repr(pattern) if wanted else 'none'}"
                )
        varied = [row for row in varied if chosen(row[0].name)]
    for each, value in varied:
        if not np.all(np.isfinite(each.free(value))):
            raise ValueError(f"{each.name} is at the edge of its range, and cannot be fitted")
    return tuple(each for each, _ in varied)


def _hyperparameter(source: Source, place: int, path: Any, value: Any) -> _Hyperparameter:
    """Describe a leaf of the source."""
    parts = [str(getattr(each, "name", getattr(each, "idx", each))) for each in path]
    owner: Any = source
    for each in path[:-1]:
        owner = getattr(owner, each.name) if hasattr(each, "name") else owner[each.idx]
    field, numbers = parts[-1], np.asarray(value)
    support = "positive"
    if field.endswith("_log_odds"):
        parts[-1], support = field.removesuffix("_log_odds"), "real"
    elif isinstance(owner, Parametric) and field in fields_with(type(owner), "real"):
        support = "real"
    elif isinstance(owner, Parametric) and field in fields_with(type(owner), "simplex"):
        support = "simplex"
    elif parts[0] == "prior" and np.all((numbers > 0) & (numbers < 1)):
        support = "unit"
    return _Hyperparameter(".".join(parts), place, support)
