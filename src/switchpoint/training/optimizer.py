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
    declares how many there are in a leaf (see `Network.muon_matrices`).
    """
    optimizer = optax.contrib.scale_by_muon(weight_dimension_numbers=_dimensions)

    def init(weights: Any) -> Any:
        return optimizer.init(_apart(weights))

    def update(gradient: Any, state: Any, weights: Any = None) -> tuple[Any, Any]:
        del weights
        directions, state = optimizer.update(_apart(gradient), state)

        def scaled(direction: Array, like: Array) -> Array:
            entry = _RMS * math.sqrt(max(direction.shape[-3], direction.shape[-1]))
            return entry * direction.reshape(like.shape)

        return jax.tree.map(scaled, directions, gradient), state

    return optax.GradientTransformation(init, update)


def _dimensions(apart: Any) -> Any:
    """The axes of the rows and columns in leaves (*layers, rows, matrices, columns)."""
    return jax.tree.map(lambda _: optax.contrib.MuonDimensionNumbers(-3, -1), apart)


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
