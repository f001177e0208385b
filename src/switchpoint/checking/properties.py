"""The properties of priors, segment models, sources and predictors, and a call that checks them.

The table at the end has all of them.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from switchpoint import _checks
from switchpoint.checking.report import (
    LEAST_P,
    Finding,
    Report,
    require,
    require_equal,
    require_uniform,
)
from switchpoint.checking.subject import FEWEST, Subject
from switchpoint.neural import Network
from switchpoint.predictor import Predictor
from switchpoint.priors import Prior
from switchpoint.segments import Discrete, Distribution, Joint, Segment
from switchpoint.segments.base import Statistics, observe, prior_statistics
from switchpoint.segments.values import shiftable
from switchpoint.sources import AbstractSource, Draw

_DRAWS, _LENGTH, _RUNS = 10_000, 48, 200
_STARTS = (0, 1, 2, 7, 24)
_REACH, _POINTS = 40.0, 40_001  # of a grid that is even in asinh of the distance from the centre
_MOST_COUNTS = 200_000
_MASS_ERROR = 3e-3  # a density that jumps, as at 0, costs half a step of the grid
_STEP = 1e-7  # of finite differences in double precision, relative
_SLOPE = 1e-3  # of gradients in double precision, relative
_SHORT = 16  # observations whose density is differentiated
_FEW = 6  # observations one at a time outside of `jit`
_DRAWN = 24  # observations of each draw of a source

Result = TypeVar("Result")


def check(thing: Any, values: Any = None, *, length: int = 60, seed: int = 0) -> Report:
    """Check a prior, a segment model, a source, a network or any other predictor.

        print(sp.check(Volatility()))  # a table: ok or FAILED, with the numbers that decide
        sp.check(Volatility()).raise_if_failed()  # in a test

    The report has `ok`, the `findings` and those that `failed`. What is checked, as it applies:

    - the law: hazards are probabilities; `survival_after`, `log_survival`, `log_pmf` and
      `max_length` agree with them; predictive distributions have total probability 1;
    - the statistics: `merge` is associative, `empty` neutral; `run_log_density` and `translate`
      agree with one observation after another;
    - the sampler: draws follow the law, and the predictive (their probability integral
      transforms are uniform; a correct one fails with a probability below 1e-4);
    - the predictor, of the source with a standard prior or segment: causal; one observation at a
      time, chunks, whole sequences, `jit` and `vmap` agree; missing values have log density 0;
      gradients equal finite differences in double precision.

    `values`, (time,) or (sequences, time), are observations to check with; by default they are
    drawn, `length` of them. An exception in the code that is checked is a failed finding. Takes
    some seconds, most of which is compilation.

    >>> import switchpoint as sp
    >>> report = sp.check(sp.neural.Memoryless(2, length=10), length=10)
    >>> report.ok, report.failed
    (True, ())
    """
    if not isinstance(thing, Prior | Segment | AbstractSource | Predictor):
        raise ValueError(
            "thing must be a Prior, a Segment, a Source, a Network or another Predictor, such as "
            f"switchpoint.Geometric(0.1), got {_checks.shown(thing)}"
        )
    length, seed = _checks.positive_int("length", length), _checks.seed(seed)
    if length < FEWEST:
        raise ValueError(f"length must be at least {FEWEST}, got {length}")
    line = _checks.one_line(thing)
    subject = line if len(line) <= 80 else type(thing).__name__
    return Report(subject, tuple(findings(Subject(thing, values, length, seed))))


def _compiled(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function compiled without optimisation, which would take longer than a run or two."""
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    jit: Any = eqx.filter_jit  # whose annotation lacks the options of `jax.jit`
    compiled: Callable[..., Result] = jit(function, compiler_options=options)
    return compiled


class Property(NamedTuple):
    """What must hold of a part of the subject."""

    part: str
    name: str
    evidence: Callable[[Subject], Iterator[Any]]
    """Yields (what is compared, one array, another that must be equal), or a detail that holds;
    nothing if the property does not apply. Raises where it does not hold."""
    double: bool = False
    """Whether it is checked in double precision."""
    decisive: bool = False
    """Whether all other properties of the part follow from it."""

    def detail(self, subject: Subject) -> str | None:
        """The numbers that decide, or None."""
        detail = None
        with jax.enable_x64(True) if self.double else contextlib.nullcontext():
            for each in self.evidence(subject):
                if isinstance(each, str):
                    detail = each
                else:
                    what, found, expected = each
                    detail = require_equal(what, found, expected, 1e-6 if self.double else 3e-5)
        return detail


def findings(subject: Subject, parts: Iterable[str] = ()) -> list[Finding]:
    """The findings about a subject, or about these parts of it."""
    found: list[Finding] = []
    without: set[str] = set()
    for each in PROPERTIES:
        if (parts and each.part not in parts) or each.part in without:
            continue
        try:
            detail = None if getattr(subject, each.part) is None else each.detail(subject)
            if detail is not None:
                found.append(Finding(each.name, True, detail))
        except Exception as error:  # of a check, or of the code that is checked
            text = " ".join(str(error).split())
            text = text if len(text) <= 300 else f"{text[:297]}..."
            detail = text if type(error) is ValueError else f"{type(error).__name__}: {text}"
            if all(other.detail != detail for other in found):  # one failure is enough
                found.append(Finding(each.name, False, detail))
            if each.decisive:
                without.add(each.part)
    return found


def _grid(prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Starts and runs, (starts, runs), within the longest sequence."""
    longest = _RUNS if prior.max_sequence is None else min(_RUNS, prior.max_sequence)
    starts = [start for start in _STARTS if start < longest] or [0]
    start, run = np.meshgrid(starts, np.arange(1, longest + 1), indexing="ij")
    return start.astype(np.int32), run.astype(np.int32)


def _hazards(s: Subject) -> Iterator[Any]:
    s.prior.check_hazards()
    hazards = np.asarray(s.prior.hazard_after(*_grid(s.prior)))
    yield f"probabilities from {hazards.min():.3g} to {hazards.max():.3g}"


def _survival(s: Subject) -> Iterator[Any]:
    prior, grid = s.prior, _grid(s.prior)
    survival = prior.survival_after(*grid)
    stays = 1 - np.asarray(prior.hazard_after(*grid))
    yield "survival_after and 1 - hazard_after", survival, stays
    logs = jnp.exp(prior.log_survival_after(*grid))
    yield "exp(log_survival_after) and survival_after", logs, survival


def _lengths(s: Subject) -> Iterator[Any]:
    prior, (start, run) = s.prior, _grid(s.prior)
    survival = np.exp(prior.log_survival(start, run))
    each = np.broadcast_to(prior.survival_after(start, run), run.shape)
    yield "P(L > run) and the product of survivals", survival, np.cumprod(each, axis=-1)
    if prior.max_length is not None:
        longest = np.full_like(start[:, 0], prior.max_length)
        beyond = np.exp(prior.log_survival(start[:, 0], longest))
        yield f"P(L > {prior.max_length}), max_length, and 0", beyond, 0 * beyond
    total = np.exp(prior.log_pmf(start, run)).sum(-1) + survival[:, -1]
    yield "the total of log_pmf and log_survival", total, np.ones_like(total)


def _switches_drawn(s: Subject) -> Iterator[Any]:
    """Positions and first lengths, which all have binomial numbers among independent draws."""
    from scipy import stats  # slow to import

    prior = s.prior
    length = _LENGTH if prior.max_sequence is None else min(_LENGTH, prior.max_sequence)
    switches = np.asarray(prior.sample_switches(jax.random.key(s.seed), _DRAWS, length))
    runs = np.arange(1, length, dtype=np.int32)
    first = np.where(switches.any(1), switches.argmax(1), length)
    law = 1 - np.exp(np.asarray(prior.log_survival(np.zeros_like(runs), runs), np.float64))
    for what, seen, chances in (
        ("switch at", switches[:, 1:], prior.switch_probability(length)[1:]),
        ("have a first segment of at most", first[:, None] <= runs, law),
    ):
        number, binomial = seen.sum(0), stats.binom(_DRAWS, np.clip(chances, 0, 1))
        tails = 2 * np.minimum(binomial.cdf(number), binomial.sf(number - 1))
        at = int(np.argmin(tails, keepdims=True)[0])
        require(
            tails[at] >= LEAST_P,
            f"{number[at]} of {_DRAWS} draws {what} {runs[at]}, with probability "
            f"{chances[at]:.4g} by the hazards",
        )
    yield f"positions and first lengths of {_DRAWS} draws are binomial"


def _normalised(s: Subject) -> Iterator[Any]:
    segment = s.segment
    statistics = prior_statistics(segment)
    for count, x in enumerate(s.values[0, :4]):
        where = f"the predictive after {count} observations"
        predictive: Any = _compiled(segment.predictive)(statistics)
        probs: Any = getattr(predictive, "probs", None)
        require(
            not segment.finite or np.shape(probs) == (segment.alphabet,),
            f"{where} must be a Discrete of {segment.finite and segment.alphabet} probabilities",
        )
        yield _require_normalised(predictive, where)
        statistics = observe(segment, statistics, jnp.asarray(x, float))


def _require_normalised(distribution: Any, where: str) -> str:
    """Raise a `ValueError` unless each column has total mass 1 and no negative probability."""
    if not isinstance(distribution, Distribution):
        raise ValueError(f"{where}: a {type(distribution).__name__} is not a Distribution")
    worst = 0.0
    for _, column in _columns(distribution):
        mass = _total_mass(column)
        require(
            abs(mass - 1) <= _MASS_ERROR, f"{where}: the total probability is {mass:.6g}, not 1"
        )
        least = float(column.probs.min()) if isinstance(column, Discrete) else 0.0
        require(least >= 0, f"{where}: a probability is {least:.6g}")
        worst = max(worst, abs(mass - 1))
    return f"{where}: the total probability is 1 (off by at most {worst:.1g})"


def _columns(distribution: Any) -> list[tuple[Any, Any]]:
    """Distributions of single numbers, each with its index in x."""
    if isinstance(distribution, Joint):
        return [((..., i), column) for i, column in enumerate(distribution.marginals)]
    return [(..., distribution)]


@_compiled
def _log_densities(
    distribution: Distribution, points: Float[Array, " points"]
) -> Float[Array, " points"]:
    return jax.vmap(distribution.log_density)(points)


def _total_mass(distribution: Any) -> float:
    """The sum or the integral of the density of one number, with its tail by `cdf` for counts."""
    if isinstance(distribution, Discrete):
        return float(distribution.probs.sum())
    centre, scale = (float(each) for each in distribution.location)
    if distribution.support.whole:
        size = 2 ** int(centre + 100 * scale + 100).bit_length()  # each size is compiled
        counts = jnp.arange(min(_MOST_COUNTS, size), dtype=float)
        logs = np.asarray(_log_densities(distribution, counts), np.float64)
        return float(np.exp(logs).sum() + 1 - distribution.cdf(counts[-1]))
    steps = np.linspace(-_REACH, _REACH, _POINTS)
    points = jnp.asarray(centre + scale * np.sinh(steps))
    logs = np.asarray(_log_densities(distribution, points), np.float64)
    with np.errstate(over="ignore"):
        heights = np.exp(logs + np.log(scale * np.cosh(steps)))
    return float(heights.sum() * (steps[1] - steps[0]))


@_compiled
def _densities(segment: Segment, values: Float[Array, "time *event"]) -> dict[str, Any]:
    """ln p of observations by statistics that were merged in two orders, for each property."""
    merge, initial, empty = segment.merge, prior_statistics(segment), segment.empty()
    singles = [segment.statistic(x) for x in values[:4]]
    runs = [merge(singles[0], singles[1]), merge(segment.missing(), singles[2]), singles[3]]

    def logs(statistics: Statistics, shift: Any = 0.0) -> Array:
        predictive = segment.predictive(statistics)
        return jnp.stack([predictive.log_density(x - shift) for x in values[4:7]])

    left = merge(merge(merge(initial, runs[0]), runs[1]), runs[2])
    right = merge(initial, merge(runs[0], merge(runs[1], runs[2])))
    neutral = [merge(initial, merge(empty, merge(runs[0], empty))), merge(initial, empty)]
    plain = [merge(initial, runs[0]), initial]
    found = {
        "merge is associative": (logs(left), logs(right)),
        "empty is neutral": tuple(
            jnp.stack([logs(each) for each in group]) for group in (neutral, plain)
        ),
    }
    terms = segment.run_log_density(initial, functools.reduce(merge, singles))
    if terms is not None:
        statistics, one_by_one = initial, jnp.zeros(())
        for x, single in zip(values, singles, strict=False):
            one_by_one += segment.predictive(statistics).log_density(x)
            statistics = merge(statistics, single)
        found["run_log_density"] = terms[0] + terms[1], one_by_one
    movable = shiftable(segment)
    if movable.any():
        by = jnp.where(jnp.asarray(movable), 1.5, 0.0)
        moved = logs(segment.translate(left, by), by)
        found["translate"] = moved, logs(left)
    return found


_AGREEING = {
    "merge is associative": "ln p after merge(merge(a, b), c) and merge(a, merge(b, c))",
    "empty is neutral": "ln p after merging with empty() and before",
    "run_log_density": "ln p of a run and of its observations",
    "translate": "ln p of x - b after translate, and of x",
}


def _agreeing(name: str, s: Subject) -> Iterator[Any]:
    """Two ways to the same densities."""
    if s.densities is None:
        s.densities = _densities(s.segment, jnp.asarray(s.values[0], float))
    if name in s.densities:
        yield _AGREEING[name], *s.densities[name]


def _sampler(s: Subject) -> Iterator[Any]:
    """The probability integral transforms of draws, which are uniform."""
    segment, draws = s.segment, s.draws
    coins = jax.random.uniform(jax.random.key(0), draws.shape[:2])

    def step(statistics: Statistics, now: tuple[Array, Array]) -> tuple[Statistics, Array]:
        ranks = _probability_integral(segment.predictive(statistics), *now)
        return observe(segment, statistics, now[0]), ranks

    @_compiled
    @jax.vmap
    def ranks(values: Array, coins: Array) -> Array:
        return jax.lax.scan(step, prior_statistics(segment), (values, coins))[1]

    yield require_uniform(np.asarray(ranks(draws, coins)), "draws against the predictive")


def _probability_integral(
    distribution: Any, x: Shaped[Array, "*event"], coin: Float[Array, ""]
) -> Float[Array, " columns"]:
    """P(X <= x) of each column; for whole numbers a random point of the step at x.

    Uniform on (0, 1) if x was drawn from the distribution (Rosenblatt, 1952).
    """
    ranks = []
    for at, column in _columns(distribution):
        entry = jnp.asarray(x)[at]
        step = jnp.exp(column.log_density(entry)) if column.support.whole else 0.0
        ranks.append(column.cdf(entry) - coin * step)
    return jnp.stack(ranks)


def _exists(part: str, s: Subject) -> Iterator[Any]:
    """Nothing, but raise if a part cannot be computed."""
    getattr(s, part)
    yield from ()


def _leaves(s: Subject) -> Iterator[Any]:
    if isinstance(s.predictor, Network):
        leaves = jax.tree_util.tree_leaves_with_path(s.predictor)
        for path, leaf in leaves:
            require(
                eqx.is_inexact_array(leaf),
                f"{jax.tree_util.keystr(path)[1:]} is {leaf!r}, not an array of floating-point "
                "numbers: declare what is not trained with eqx.field(static=True)",
            )
        yield f"{len(leaves)} arrays of floating-point numbers"


def _predictions(s: Subject) -> Iterator[Any]:
    """Shapes and total probabilities; an exact mixture of normalised densities is one."""
    predictor, expected = s.predictor, s.values.shape[:2]
    name = "log_probs" if s.finite else "log_density"
    expected = (*expected, predictor.alphabet) if s.finite else expected
    require(s.whole.shape == expected, f"{name}: shape {s.whole.shape}, not {expected}")
    if s.finite:
        total = np.exp(np.asarray(s.whole, np.float64)).sum(-1)
        yield "the sums of exp(log_probs) and 1", total, np.ones_like(total)
        return
    require(jnp.isfinite(s.whole).all(), "log_density is not finite")
    yield "log_density is finite"
    if not (hasattr(predictor, "posterior") or predictor.event_shape):
        state = predictor.init()
        for x in s.values[0, :_FEW]:
            state = predictor.update(state, x)
        where = f"the prediction after {_FEW} observations"
        yield _require_normalised(predictor.predict(state), where)


def _causal(s: Subject) -> Iterator[Any]:
    last = s.values.shape[1] - 1
    for time in (1, last // 2, last):
        changed = s.values.copy()
        changed[:, time:] = s.values[:, ::-1][:, time:]
        if s.finite:
            changed[:, time:] = (s.values[:, time:] + 1) % s.predictor.alphabet
        before = time + s.finite  # a density at `time` is that of the changed value
        found = s.predicted(s.predictor, changed)[:, :before]
        what = f"predictions up to {before - 1}, with other values from {time} on,"
        yield what, found, s.whole[:, :before]
    yield "predictions do not depend on what follows"


def _next(predictor: Any, state: Any, x: Any) -> Float[Array, "*alphabet"]:
    """The prediction of the next observation, in the form of the whole sequence's."""
    prediction = predictor.predict(state)
    return prediction.log_density(x) if hasattr(prediction, "log_density") else prediction


def _stream(s: Subject) -> Iterator[Any]:
    state, rows, next_one = s.predictor.init(), [], _compiled(_next)
    for x in s.values[0, :_FEW]:
        rows.append(next_one(s.predictor, state, x))
        state = s.predictor.update(state, x)
    yield "predict and update, and the whole sequence", np.stack(rows), s.whole[0, :_FEW]


def _chunks(s: Subject) -> Iterator[Any]:
    half = s.values.shape[1] // 2
    state, first = s.predictor.extend(s.predictor.init(), s.values[0, :half])
    _, second = s.predictor.extend(state, s.values[0, half : 2 * half])
    both = np.concatenate([first, second])
    yield "extend in chunks, and the whole sequence", both, s.whole[0, : 2 * half]


@_compiled
def _streams(predictor: Any, values: Array) -> Array:
    """All predictions, one at a time in a compiled loop, for a batch of sequences."""

    def stream(row: Array) -> Array:
        def step(state: Any, x: Array) -> tuple[Any, Array]:
            return predictor.update(state, x), _next(predictor, state, x)

        return jax.lax.scan(step, predictor.init(length=len(row)), row)[1]

    return jax.vmap(stream)(values)


def _inside_jit(s: Subject) -> Iterator[Any]:
    found = _streams(s.predictor, jnp.asarray(s.values))
    yield "streams inside jit and vmap, and whole sequences", found, s.whole


def _missing(s: Subject) -> Iterator[Any]:
    if s.finite and not hasattr(s.predictor, "posterior"):
        return
    gaps = np.array(s.values, np.float64)
    middle = gaps.shape[1] // 2
    gaps[:, [0, *range(middle - 3, middle), middle + 2]] = np.nan
    missing = np.isnan(gaps).reshape(*gaps.shape[:2], -1).all(-1)
    whole = np.asarray(s.predictor.log_density(gaps))
    require((whole[missing] == 0).all(), "ln p of missing values is not 0")
    found = np.asarray(_streams(s.predictor, jnp.asarray(gaps, float)))
    if s.finite:
        symbols = np.where(missing, 0, gaps).astype(int)
        found = np.take_along_axis(found, symbols[..., None], axis=-1)[..., 0]
    found = np.where(missing, 0.0, found)
    yield "streams and whole sequences with missing values", found, whole


def _gradients(s: Subject) -> Iterator[Any]:
    """The gradient by each parameter, in a random direction, against differences."""
    parameters, rest = eqx.partition(s.predictor, _is_parameter)
    named = jax.tree_util.tree_leaves_with_path(parameters)
    if not named:
        return
    structure, values = jax.tree.structure(parameters), s.values[:1, :_SHORT]

    def log_likelihood(leaves: list[Any]) -> Float[Array, ""]:
        combined: Any = eqx.combine(jax.tree.unflatten(structure, leaves), rest)
        logs = s.predicted(combined, values)
        if s.finite:
            logs = jnp.take_along_axis(logs, jnp.asarray(values)[..., None], axis=-1)
        return logs.sum()

    rng, worst = np.random.default_rng(0), 0.0
    evaluate = _compiled(jax.value_and_grad(log_likelihood))
    leaves = [np.asarray(leaf, np.float64) for _, leaf in named]
    value, slopes = evaluate(leaves)
    for i, ((path, _), leaf) in enumerate(zip(named, leaves, strict=True)):
        name, slope = jax.tree_util.keystr(path)[1:], np.asarray(slopes[i])
        require(np.isfinite(slope).all(), f"the gradient by {name} is not finite")
        size = max(float(np.sqrt(np.mean(leaf**2))), 1e-3)
        along = size * (rng.normal(size=leaf.shape) if leaf.ndim else np.ones(()))
        up, down = (
            float(evaluate([*leaves[:i], leaf + step * along, *leaves[i + 1 :]])[0])
            for step in (_STEP, -_STEP)
        )
        found, expected = float(np.sum(slope * along)), (up - down) / (2 * _STEP)
        least = 1e-3 * (1 + abs(float(value)))
        error = abs(found - expected) / max(abs(found), abs(expected), least)
        require(
            error <= _SLOPE,
            f"the derivative along {name} is {found / size:.6g} by jax.grad and "
            f"{expected / size:.6g} by finite differences",
        )
        worst = max(worst, error)
    yield f"finite, and equal to finite differences (off by at most {worst:.1g})"


def _is_parameter(leaf: Any) -> bool:
    """Whether a leaf is a real number or an array of them, none of which is infinite."""
    return eqx.is_inexact_array_like(leaf) and bool(np.isfinite(np.asarray(leaf)).all())


def _draws(s: Subject) -> Iterator[Any]:
    """Draws have the right shape, and symbols follow their true probabilities."""
    key_draw, key_coin = jax.random.split(jax.random.key(s.seed))
    shape = _DRAWS, min(s.length, _DRAWN)
    draw = s.sampler.sample(key_draw, *shape)
    require(isinstance(draw, Draw), f"sample returned {_checks.shown(draw)}, not a Draw")
    found = draw.switches.shape
    require(found == shape, f"sample returned shape {found}, not {shape}")
    require(not draw.switches[:, 0].any(), "switches are True at 0, where the first segment starts")
    if draw.symbol_probs is None:
        require(jnp.isfinite(draw.log_density).all(), "true log densities are not all finite")
        yield "true log densities are all finite"
        return
    coins = jax.random.uniform(key_coin, shape)
    ranks_of = _compiled(jax.vmap(jax.vmap(_probability_integral)))
    ranks = ranks_of(Discrete(draw.probs), draw.symbols, coins)
    yield require_uniform(np.asarray(ranks), "symbols against their true probabilities")


PROPERTIES = (
    Property("prior", "hazards", _hazards, decisive=True),
    Property("prior", "survival", _survival, double=True),
    Property("prior", "lengths", _lengths, double=True),
    Property("prior", "switches drawn", _switches_drawn),
    Property("source", "source", functools.partial(_exists, "predictor")),
    Property("segment", "sampler", functools.partial(_exists, "draws"), decisive=True),
    Property("segment", "normalised", _normalised, double=True),
    *(
        Property("segment", name, functools.partial(_agreeing, name), double=True)
        for name in _AGREEING
    ),
    Property("segment", "sampler", _sampler),
    Property("predictor", "predictions", functools.partial(_exists, "whole"), decisive=True),
    Property("predictor", "leaves", _leaves),
    Property("predictor", "predictions", _predictions),
    Property("predictor", "causal", _causal),
    Property("predictor", "stream", _stream),
    Property("predictor", "chunks", _chunks),
    Property("predictor", "jit and vmap", _inside_jit),
    Property("predictor", "missing values", _missing),
    Property("predictor", "gradients", _gradients, double=True),
    Property("sampler", "draws", _draws),
)
"""All properties, in the order in which they are checked."""
