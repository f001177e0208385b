"""The optimizers, and the schedule of the learning rate."""

import math
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from switchpoint.training.config import TrainConfig

_MUON = "muon"
_LEAST = 16  # rows and columns
_RMS = 0.2  # the usual size of Adam's steps, so that both take the same rate
_MOMENTUM = 0.95


def make_optimizer(config: TrainConfig, **settings: Any) -> optax.GradientTransformation:
    """Clipping by the global norm, then the direction; the learning rate is multiplied afterwards.

    `settings` replace those of the configuration, and may be traced.
    """
    values = {name: getattr(config, name) for name in ("clip_norm", "b2", "matrix_decay")}
    values |= settings
    clipping = optax.clip_by_global_norm(values["clip_norm"])
    adam = optax.scale_by_adam(b2=values["b2"])
    if config.optimizer == "adam":
        return optax.chain(clipping, adam)
    decay = values["matrix_decay"]
    if isinstance(decay, float) and decay == 0:
        return optax.chain(clipping, with_muon(adam))
    return optax.chain(clipping, with_muon(adam), optax.add_decayed_weights(decay, is_matrix))


def with_muon(rest: optax.GradientTransformation) -> optax.GradientTransformation:
    """Muon for the matrices of a network, and `rest` for all other leaves."""
    return optax.partition({_MUON: muon(), "rest": rest}, _labels)


def has_matrices(network: Any) -> bool:
    """Whether there is a leaf that Muon would take."""
    return any(jax.tree.leaves(is_matrix(network)))


def muon() -> optax.GradientTransformation:
    """For matrices: the orthogonal matrix nearest to the mean gradient, with entries like Adam's.

    All directions of a matrix move at the same speed, even those that gradients seldom point in
    (Jordan et al., 2024). Matrices that lie side by side are orthogonalised one by one; the module
    declares how many there are in a leaf (see `Network.muon_matrices`). The mean is Nesterov's.
    """

    def init(weights: Any) -> Any:
        return optax.contrib.scale_by_muon().init(_apart(weights))

    def update(gradient: Any, state: Any, weights: Any = None) -> tuple[Any, Any]:
        del weights
        now = _apart(gradient)
        count = state.count + 1
        mean = optax.tree.update_moment(now, state.mu, _MOMENTUM, 1)
        ahead = jax.tree.map(
            lambda mean, now: _MOMENTUM * mean + (1 - _MOMENTUM) * now,
            optax.tree.bias_correction(mean, _MOMENTUM, count + 1),
            optax.tree.bias_correction(now, _MOMENTUM, count),
        )
        directions = jax.tree.map(
            lambda mean, like: _orthogonal(mean).reshape(like.shape), ahead, gradient
        )
        return directions, state._replace(count=count, mu=mean)

    return optax.GradientTransformation(init, update)


def _orthogonal(
    leaf: Float[Array, "*layers rows matrices columns"],
) -> Float[Array, "*layers rows matrices columns"]:
    """Each matrix with all singular values near 1, scaled to entries of the usual size.

    Five Newton-Schulz steps with the coefficients of Jordan et al., as there in bfloat16 where that
    is faster.
    """
    x = jnp.swapaxes(leaf, -3, -2)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (jnp.linalg.norm(x, axis=(-2, -1), keepdims=True) + 1e-8)
    x = x.astype(jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * (square @ square)) @ x
    x = x.mT if tall else x
    scale = _RMS * math.sqrt(max(x.shape[-2:]))
    return jnp.swapaxes(x.astype(leaf.dtype) * scale, -3, -2)


def lr_schedule(config: TrainConfig, step: Int[Array, ""]) -> Float[Array, ""]:
    """The share of the peak learning rate that is used at a step, from 0.

    It rises linearly over the warm-up, then stays, or falls to zero along a cosine.
    """
    time = step.astype(float)
    rise = jnp.minimum(1.0, (time + 1) / max(config.warmup, 1))
    if config.schedule == "constant":
        return rise
    done = jnp.clip((time - config.warmup) / max(config.steps - config.warmup, 1), 0, 1)
    return rise * 0.5 * (1 + jnp.cos(jnp.pi * done))


def declared_matrices(network: Any) -> dict[str, int]:
    """The number of matrices side by side in each leaf that the modules of a network declare.

    Leaves have names such as `cell.weight`.

    If two modules declare the same leaf, the outer one counts.
    """
    leaves = jax.tree_util.tree_leaves_with_path(network, is_leaf=_is_absent)
    names = {_name(path): leaf for path, leaf in leaves}
    counts: dict[str, int] = {}
    for prefix, module in _modules(network, ""):
        for field, count in getattr(module, "muon_matrices", {}).items():
            name, owner = f"{prefix}{field}", type(module).__name__
            if name not in names:
                raise ValueError(
                    f"muon_matrices of {owner} names {field!r}, which it does not have"
                )
            shape = getattr(names[name], "shape", (0, 0))
            if count and (len(shape) < 2 or shape[-1] % count):
                raise ValueError(
                    f"muon_matrices of {owner} says that {field!r} is {count} matrices side by "
                    f"side, but its shape is {shape}"
                )
            counts[name] = count
    return counts


def is_matrix(network: Any) -> Any:
    """For each leaf, whether Muon trains it."""
    return jax.tree.map(lambda label: label == _MUON, _labels(network))


def _labels(network: Any) -> Any:
    """Which leaves are matrices; those with a short side are not."""
    declared = declared_matrices(network)

    def label(path: Any, leaf: Any) -> str:
        is_declared = declared.get(_name(path), 0) > 0
        return _MUON if is_declared and min(leaf.shape[-2:]) >= _LEAST else "rest"

    return jax.tree_util.tree_map_with_path(label, network)


def _apart(network: Any) -> Any:
    """Every leaf with an axis more, of the matrices that lie side by side in it."""
    declared = declared_matrices(network)

    def split(path: Any, leaf: Float[Array, "*layers rows columns"]) -> Array:
        return leaf.reshape(*leaf.shape[:-1], declared.get(_name(path), 1), -1)

    return jax.tree_util.tree_map_with_path(split, network)


def _modules(module: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """The modules of a tree with the prefix of their leaves' names, from the inside out."""
    inner = jax.tree_util.tree_leaves_with_path(
        module, is_leaf=lambda node: node is not module and isinstance(node, eqx.Module)
    )
    for path, node in inner:
        if isinstance(node, eqx.Module):
            yield from _modules(node, f"{prefix}{_name(path)}.")
    yield prefix, module


def _is_absent(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, optax.MaskedNode)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
