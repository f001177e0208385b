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
_AXES = optax.contrib.MuonDimensionNumbers(reduction_axis=-3, output_axis=-1)


def optimizer_of(config: TrainConfig, **settings: Any) -> optax.GradientTransformation:
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


def with_muon(others: optax.GradientTransformation) -> optax.GradientTransformation:
    """Muon for the matrices of a network, and what is given for all other leaves."""
    return optax.partition({_MUON: muon(), "others": others}, _labels)


def has_matrices(network: Any) -> bool:
    """Whether there is a leaf that Muon would take."""
    return any(jax.tree.leaves(is_matrix(network)))


def muon() -> optax.GradientTransformation:
    """For matrices: the orthogonal matrix nearest to the mean gradient, with entries like Adam's.

    All directions of a matrix move at the same speed, even those that gradients seldom point in
    (Jordan et al., 2024). Matrices that lie side by side are orthogonalised one by one; the module
    declares how many there are in a leaf (see `Network.muon_matrices`).
    """
    whole = optax.contrib.scale_by_muon(
        weight_dimension_numbers=lambda tree: jax.tree.map(lambda _: _AXES, tree)
    )

    def init(weights: Any) -> Any:
        return whole.init(_apart(weights))

    def update(gradient: Any, state: Any, weights: Any = None) -> tuple[Any, Any]:
        del weights
        ways, state = whole.update(_apart(gradient), state)
        scaled = jax.tree.map(lambda way, like: _scaled(way).reshape(like.shape), ways, gradient)
        return scaled, state

    return optax.GradientTransformation(init, update)


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
    """What the modules of a network declare, by the names of leaves such as `cell.weight`.

    If two modules declare the same leaf, the outer one counts.
    """
    leaves = jax.tree_util.tree_leaves_with_path(network, is_leaf=_is_absent)
    names = {_name(path): leaf for path, leaf in leaves}
    found: dict[str, int] = {}
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
                    f"side, which its shape {shape} cannot be"
                )
            found[name] = count
    return found


def is_matrix(network: Any) -> Any:
    """For each leaf, whether Muon trains it."""
    return jax.tree.map(lambda label: label == _MUON, _labels(network))


def _labels(network: Any) -> Any:
    """Which leaves are matrices; those with a short side are not."""
    declared = declared_matrices(network)

    def label(path: Any, leaf: Any) -> str:
        known = declared.get(_name(path), 0) > 0
        return _MUON if known and min(leaf.shape[-2:]) >= _LEAST else "others"

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


def _scaled(way: Float[Array, "*layers rows matrices columns"]) -> Array:
    return way * (_RMS * math.sqrt(max(way.shape[-3], way.shape[-1])))
