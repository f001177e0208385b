"""Any predictor: its forms agree, it is causal, and its gradients are right."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from switchpoint.checking.distributions import mass_finding
from switchpoint.checking.report import Collector, compared
from switchpoint.exact import ExactPredictor
from switchpoint.neural import Network
from switchpoint.predictor import Predictor

_CLOSE = 3e-5  # of logarithms, relative to 1 or to their size, in single precision
_STEP = 1e-7  # of finite differences in double precision, relative
_SLOPE = 1e-2  # of gradients in single precision, relative

Values = Shaped[np.ndarray, "batch time *event"]


def check_predictor(findings: Collector, predictor: Predictor[Any], values: Values) -> None:
    """The findings about a predictor, with sequences that it can predict."""
    whole = findings.make("predictions", lambda: predicted(predictor, values))
    if whole is None:
        return
    if isinstance(predictor, Network):
        findings.run("leaves", _leaves, predictor)
    findings.run("predictions", _predictions, predictor, values, whole)
    findings.run("causal", _causal, predictor, values, whole)
    findings.run("stream", _stream, predictor, values[0], whole[0])
    findings.run("chunks", _chunks, predictor, values[0], whole[0])
    check_missing(findings, "missing values", predictor, values)
    findings.run("batch", _batch, predictor, values, whole)
    findings.run("jit and vmap", _transformed, predictor, values, whole)
    findings.run("gradients", _gradients, predictor, values)


def check_missing(
    findings: Collector, name: str, predictor: Predictor[Any], values: Values
) -> None:
    """The finding about streams, chunks and whole sequences some of whose values are missing."""
    if isinstance(predictor, ExactPredictor) or not is_finite(predictor):
        findings.run(name, _missing, predictor, values[0])


def is_finite(predictor: Predictor[Any]) -> bool:
    """Whether it predicts symbols."""
    return getattr(predictor, "alphabet", None) is not None


def predicted(predictor: Any, values: Any) -> Float[Array, "..."]:
    """ln P(x_t = k | x_<t), or ln p(x_t | x_<t) where there is no alphabet."""
    return predictor.log_probs(values) if is_finite(predictor) else predictor.log_density(values)


@eqx.filter_jit
def _next(predictor: Any, state: Any, x: Any) -> Float[Array, "*alphabet"]:
    """What `predict` says of the next observation, in the form of `predicted`."""
    found = predictor.predict(state)
    return found if is_finite(predictor) else found.log_density(x)


def _leaves(network: Network) -> tuple[bool, str]:
    leaves = jax.tree_util.tree_leaves_with_path(network)
    for path, leaf in leaves:
        if not eqx.is_inexact_array(leaf):
            return False, (
                f"{jax.tree_util.keystr(path)[1:]} is {leaf!r}, not an array of floating-point "
                "numbers: declare what is not trained with eqx.field(static=True)"
            )
    return True, f"{len(leaves)} arrays of floating-point numbers"


def _predictions(predictor: Any, values: Values, whole: Any) -> tuple[bool, str]:
    """Shapes and total probabilities; an exact mixture of normalised densities is one."""
    if is_finite(predictor):
        expected = (*values.shape[:2], predictor.alphabet)
        if whole.shape != expected:
            return False, f"log_probs: shape {whole.shape}, not {expected}"
        total = np.exp(np.asarray(whole, np.float64)).sum(-1)
        return compared(total, np.ones_like(total), _CLOSE, "the sums of exp(log_probs) and 1")
    if whole.shape != values.shape[:2]:
        return False, f"log_density: shape {whole.shape}, not {values.shape[:2]}"
    if not bool(jnp.isfinite(whole).all()):
        return False, "log_density is not finite"
    if isinstance(predictor, ExactPredictor) or predictor.event_shape:
        return True, "log_density is finite"
    state = predictor.init()
    for x in values[0, :5]:
        state = predictor.update(state, x)
    return mass_finding(predictor.predict(state), "the prediction after 5 observations")


def _causal(predictor: Any, values: Values, whole: Any) -> tuple[bool, str]:
    last = values.shape[1] - 1
    for time in sorted({1, last // 2, last} - {0}):
        changed = values.copy()
        changed[:, time:] = values[:, ::-1][:, time:]
        if is_finite(predictor):
            changed[:, time:] = (values[:, time:] + 1) % predictor.alphabet
        known = time + is_finite(predictor)  # a density at `time` is that of the changed value
        found = predicted(predictor, changed)[:, :known]
        what = f"predictions up to {known - 1}, with other values from {time} on,"
        finding = compared(found, whole[:, :known], _CLOSE, what)
        if not finding[0]:
            return finding
    return True, "predictions do not depend on what follows"


def _stream(predictor: Any, values: Any, whole: Any) -> tuple[bool, str]:
    found = _one_at_a_time(predictor, values)
    return compared(found, whole, _CLOSE, "predict and update, and the whole sequence")


def _chunks(predictor: Any, values: Any, whole: Any) -> tuple[bool, str]:
    found = _in_chunks(predictor, values)
    return compared(found, whole, _CLOSE, "extend in chunks, and the whole sequence")


def _one_at_a_time(predictor: Any, values: Any) -> Float[np.ndarray, "time *alphabet"]:
    state, rows = predictor.init(), []
    for x in values:
        rows.append(_next(predictor, state, x))
        state = predictor.update(state, x)
    return np.stack(rows)


def _in_chunks(predictor: Any, values: Any) -> Float[np.ndarray, "time *alphabet"]:
    size = (len(values) - 1) // 2  # of two chunks, which one program serves
    state, rows = predictor.init(), []
    for begin in range(0, len(values), size + 1):
        state, logs = predictor.extend(state, values[begin : begin + size])
        rows.append(logs)
        for x in values[begin + size : begin + size + 1]:
            rows.append(_next(predictor, state, x)[None])
            state = predictor.update(state, x)
    return np.concatenate(rows)


def _missing(predictor: Any, values: Any) -> tuple[bool, str]:
    gaps = np.array(values, np.float64)
    middle = len(gaps) // 2
    gaps[[0, *range(middle - 3, middle), middle + 2]] = np.nan
    missing = np.isnan(gaps).reshape(len(gaps), -1).all(-1)
    whole = np.asarray(predictor.log_density(gaps))
    finding = compared(whole[missing], 0 * whole[missing], 0.0, "ln p of missing values, and 0")
    if not finding[0]:
        return finding
    for what, found in (
        ("a stream", _one_at_a_time(predictor, gaps)),
        ("chunks", _in_chunks(predictor, gaps)),
    ):
        if is_finite(predictor):
            symbols = np.where(missing, 0, gaps).astype(int)
            found = np.take_along_axis(found, symbols[:, None], axis=-1)[:, 0]
        found = np.where(missing, 0.0, found)
        what = f"{what} and a whole sequence with missing values"
        finding = compared(found, whole, _CLOSE, what)
        if not finding[0]:
            return finding
    return finding


def _batch(predictor: Any, values: Values, whole: Any) -> tuple[bool, str]:
    found = predicted(predictor, values[:, None])
    return compared(found, whole[:, None], _CLOSE, "batches of shape (n, 1) and (n,)")


def _transformed(predictor: Any, values: Values, whole: Any) -> tuple[bool, str]:
    def stream(row: Array) -> Array:
        """One at a time, then a chunk."""

        def step(state: Any, x: Array) -> tuple[Any, Array]:
            return predictor.update(state, x), _next(predictor, state, x)

        half = len(row) // 2
        state, first = jax.lax.scan(step, predictor.init(length=len(row)), row[:half])
        return jnp.concatenate([first, predictor.extend(state, row[half:])[1]])

    inside = jnp.asarray(values)
    for what, function in (
        ("whole sequences", lambda row: predicted(predictor, row)),
        ("streams", stream),
    ):
        found = jax.jit(jax.vmap(function))(inside)
        finding = compared(found, whole, _CLOSE, f"{what} inside jit and vmap, and outside")
        if not finding[0]:
            return finding
    return finding


def _gradients(predictor: Any, values: Values) -> tuple[bool, str] | None:
    """The gradient by each parameter, in a random direction, against differences in float64."""
    parameters, rest = eqx.partition(predictor, _is_parameter)
    named = jax.tree_util.tree_leaves_with_path(parameters)
    if not named:
        return None
    names = [jax.tree_util.keystr(path)[1:] for path, _ in named]
    structure = jax.tree.structure(parameters)

    def log_likelihood(leaves: list[Any]) -> Float[Array, ""]:
        combined: Any = eqx.combine(jax.tree.unflatten(structure, leaves), rest)
        found = predicted(combined, values)
        if is_finite(combined):
            found = jnp.take_along_axis(found, jnp.asarray(values)[..., None], axis=-1)
        return found.sum()

    slopes = jax.jit(jax.grad(log_likelihood))([jnp.asarray(leaf, float) for _, leaf in named])
    for name, slope in zip(names, slopes, strict=True):
        if not bool(jnp.isfinite(slope).all()):
            return False, f"the gradient by {name} is not finite at {values.shape[1]} observations"
    rng = np.random.default_rng(0)
    worst = 0.0
    with jax.enable_x64(True):
        evaluate = jax.jit(log_likelihood)
        leaves = [np.asarray(leaf, np.float64) for _, leaf in named]
        value = float(evaluate(leaves))
        for i, (name, leaf, slope) in enumerate(zip(names, leaves, slopes, strict=True)):
            size = max(float(np.sqrt(np.mean(leaf**2))), 1e-3)
            along = size * (rng.normal(size=leaf.shape) if leaf.ndim else np.ones(()))
            up, down = (
                float(evaluate([*leaves[:i], leaf + step * along, *leaves[i + 1 :]]))
                for step in (_STEP, -_STEP)
            )
            found, expected = float(np.sum(np.asarray(slope) * along)), (up - down) / (2 * _STEP)
            error = abs(found - expected) / max(abs(found), abs(expected), 1e-3 * (1 + abs(value)))
            if not error <= _SLOPE:
                return False, (
                    f"the derivative along {name} is {found / size:.6g} by jax.grad and "
                    f"{expected / size:.6g} by finite differences"
                )
            worst = max(worst, error)
    return True, f"finite, and equal to finite differences (off by at most {worst:.1g})"


def _is_parameter(leaf: Any) -> bool:
    """Whether a leaf is a real number or an array of them, none of which is infinite."""
    return eqx.is_inexact_array_like(leaf) and bool(np.isfinite(np.asarray(leaf)).all())
