"""Any predictor: its forms agree, it is causal, and its gradients are right."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from switchpoint.checking.families import require_normalised
from switchpoint.checking.report import Collector, require, require_equal
from switchpoint.neural import Network
from switchpoint.predictor import Predictor

_CLOSE = 3e-5  # of logarithms, relative to 1 or to their size, in single precision
_STEP = 1e-7  # of finite differences in double precision, relative
_SLOPE = 1e-3  # of gradients in double precision, relative
_SHORT = 16  # observations whose density is differentiated
_FEW = 6  # observations one at a time outside of `jit`

Values = Shaped[np.ndarray, "batch time *event"]


def check_predictor(findings: Collector, predictor: Predictor[Any], values: Values) -> None:
    """The findings about a predictor, with sequences that it can predict."""
    whole = findings.make("predictions", predicted, predictor, values)
    if whole is None:
        return
    if isinstance(predictor, Network):
        findings.run("leaves", _leaves, predictor)
    findings.run("predictions", _predictions, predictor, values, whole)
    findings.run("causal", _causal, predictor, values, whole)
    findings.run("stream", _stream, predictor, values[0], whole[0])
    findings.run("chunks", _chunks, predictor, values[0], whole[0])
    findings.run("jit and vmap", _inside_jit, predictor, values, whole)
    if hasattr(predictor, "posterior") or not is_finite(predictor):
        findings.run("missing values", _missing, predictor, values)
    findings.run("gradients", _gradients, predictor, values)


def is_finite(predictor: Predictor[Any]) -> bool:
    """Whether it predicts symbols."""
    return getattr(predictor, "alphabet", None) is not None


def predicted(predictor: Any, values: Any) -> Float[Array, "..."]:
    """ln P(x_t = k | x_<t), or ln p(x_t | x_<t) where there is no alphabet."""
    return predictor.log_probs(values) if is_finite(predictor) else predictor.log_density(values)


def _leaves(network: Network) -> str:
    leaves = jax.tree_util.tree_leaves_with_path(network)
    for path, leaf in leaves:
        require(
            eqx.is_inexact_array(leaf),
            f"{jax.tree_util.keystr(path)[1:]} is {leaf!r}, not an array of floating-point "
            "numbers: declare what is not trained with eqx.field(static=True)",
        )
    return f"{len(leaves)} arrays of floating-point numbers"


def _predictions(predictor: Any, values: Values, whole: Any) -> str:
    """Shapes and total probabilities; an exact mixture of normalised densities is one."""
    if is_finite(predictor):
        expected = (*values.shape[:2], predictor.alphabet)
        require(whole.shape == expected, f"log_probs: shape {whole.shape}, not {expected}")
        total = np.exp(np.asarray(whole, np.float64)).sum(-1)
        ones = np.ones_like(total)
        return require_equal(total, ones, _CLOSE, "the sums of exp(log_probs) and 1")
    expected = values.shape[:2]
    require(whole.shape == expected, f"log_density: shape {whole.shape}, not {expected}")
    require(jnp.isfinite(whole).all(), "log_density is not finite")
    if hasattr(predictor, "posterior") or predictor.event_shape:
        return "log_density is finite"
    state = predictor.init()
    for x in values[0, :_FEW]:
        state = predictor.update(state, x)
    return require_normalised(predictor.predict(state), f"the prediction after {_FEW} observations")


def _causal(predictor: Any, values: Values, whole: Any) -> str:
    last = values.shape[1] - 1
    for time in (1, last // 2, last):
        changed = values.copy()
        changed[:, time:] = values[:, ::-1][:, time:]
        if is_finite(predictor):
            changed[:, time:] = (values[:, time:] + 1) % predictor.alphabet
        before = time + is_finite(predictor)  # a density at `time` is that of the changed value
        found = predicted(predictor, changed)[:, :before]
        what = f"predictions up to {before - 1}, with other values from {time} on,"
        require_equal(found, whole[:, :before], _CLOSE, what)
    return "predictions do not depend on what follows"


@eqx.filter_jit
def _next(predictor: Any, state: Any, x: Any) -> Float[Array, "*alphabet"]:
    """The prediction of the next observation, in the form of `predicted`."""
    prediction = predictor.predict(state)
    return prediction if is_finite(predictor) else prediction.log_density(x)


def _stream(predictor: Any, values: Any, whole: Any) -> str:
    state, rows = predictor.init(), []
    for x in values[:_FEW]:
        rows.append(_next(predictor, state, x))
        state = predictor.update(state, x)
    what = "predict and update, and the whole sequence"
    return require_equal(np.stack(rows), whole[:_FEW], _CLOSE, what)


def _chunks(predictor: Any, values: Any, whole: Any) -> str:
    half = len(values) // 2
    state, first = predictor.extend(predictor.init(), values[:half])
    _, second = predictor.extend(state, values[half : 2 * half])
    both = np.concatenate([first, second])
    what = "extend in chunks, and the whole sequence"
    return require_equal(both, whole[: 2 * half], _CLOSE, what)


@eqx.filter_jit
def _streams(predictor: Any, values: Array) -> Array:
    """All predictions, one at a time in a compiled loop, for a batch of sequences."""

    def stream(row: Array) -> Array:
        def step(state: Any, x: Array) -> tuple[Any, Array]:
            return predictor.update(state, x), _next(predictor, state, x)

        return jax.lax.scan(step, predictor.init(length=len(row)), row)[1]

    return jax.vmap(stream)(values)


def _inside_jit(predictor: Any, values: Values, whole: Any) -> str:
    found = _streams(predictor, jnp.asarray(values))
    return require_equal(found, whole, _CLOSE, "streams inside jit and vmap, and whole sequences")


def _missing(predictor: Any, values: Values) -> str:
    gaps = np.array(values, np.float64)
    middle = gaps.shape[1] // 2
    gaps[:, [0, *range(middle - 3, middle), middle + 2]] = np.nan
    missing = np.isnan(gaps).reshape(*gaps.shape[:2], -1).all(-1)
    whole = np.asarray(predictor.log_density(gaps))
    require_equal(whole[missing], 0 * whole[missing], 0.0, "ln p of missing values, and 0")
    found = np.asarray(_streams(predictor, jnp.asarray(gaps, float)))
    if is_finite(predictor):
        symbols = np.where(missing, 0, gaps).astype(int)
        found = np.take_along_axis(found, symbols[..., None], axis=-1)[..., 0]
    found = np.where(missing, 0.0, found)
    return require_equal(found, whole, _CLOSE, "streams and whole sequences with missing values")


def _gradients(predictor: Any, values: Values) -> str | None:
    """The gradient by each parameter, in a random direction, against differences in float64."""
    parameters, rest = eqx.partition(predictor, _is_parameter)
    named = jax.tree_util.tree_leaves_with_path(parameters)
    if not named:
        return None
    structure, values = jax.tree.structure(parameters), values[:, :_SHORT]

    def log_likelihood(leaves: list[Any]) -> Float[Array, ""]:
        combined: Any = eqx.combine(jax.tree.unflatten(structure, leaves), rest)
        logs = predicted(combined, values)
        if is_finite(combined):
            logs = jnp.take_along_axis(logs, jnp.asarray(values)[..., None], axis=-1)
        return logs.sum()

    rng, worst = np.random.default_rng(0), 0.0
    with jax.enable_x64(True):
        evaluate = jax.jit(jax.value_and_grad(log_likelihood))
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
    return f"finite, and equal to finite differences (off by at most {worst:.1g})"


def _is_parameter(leaf: Any) -> bool:
    """Whether a leaf is a real number or an array of them, none of which is infinite."""
    return eqx.is_inexact_array_like(leaf) and bool(np.isfinite(np.asarray(leaf)).all())
