"""The optimisers, and how their rate changes over a run."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from switchpoint.training.config import TrainConfig

# Square matrices side by side, each of which does something else: an LSTM's gates; the queries,
# keys and values of a Transformer.
_SIDE_BY_SIDE = (".cell.weight", ".cell.inner.weight", ".blocks.projections")
_ALONE = (".weight", ".mixing")
_LEAST = 16  # rows and columns
_RMS = 0.2  # the usual size of Adam's steps, so that both take the same rate
_AXES = optax.contrib.MuonDimensionNumbers(reduction_axis=-3, output_axis=-1)


def optimiser_of(config: TrainConfig) -> optax.GradientTransformation:
    """Clipping by the global norm, then the way to go; the rate is multiplied afterwards."""
    clipping = optax.clip_by_global_norm(config.clip)
    adam = optax.scale_by_adam(b2=config.b2)
    if config.optimiser == "adam":
        return optax.chain(clipping, adam)
    return optax.chain(clipping, with_muon(adam))


def with_muon(others: optax.GradientTransformation) -> optax.GradientTransformation:
    """Muon for the matrices of a network, and what is given for all other leaves."""
    return optax.partition({"muon": muon(), "others": others}, _labels)


def has_matrices(network: Any) -> bool:
    """Whether there is a leaf that Muon would take."""
    return "muon" in jax.tree.leaves(_labels(network))


def muon() -> optax.GradientTransformation:
    """For matrices: the orthogonal one near the mean gradient, with entries like Adam's.

    All directions of a matrix move at the same pace, also those that gradients seldom point in
    (Jordan et al., 2024). Matrices that lie side by side are taken one by one.
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


def rate_at(config: TrainConfig, step: Int[Array, ""]) -> Float[Array, ""]:
    """The share of the peak learning rate that is used at a step, from 0.

    It rises linearly over the warm-up, then stays, or falls to zero along a cosine.
    """
    time = step.astype(float)
    rise = jnp.minimum(1.0, (time + 1) / max(config.warmup, 1))
    if config.schedule == "constant":
        return rise
    done = jnp.clip((time - config.warmup) / max(config.steps - config.warmup, 1), 0, 1)
    return rise * 0.5 * (1 + jnp.cos(jnp.pi * done))


def _labels(network: Any) -> Any:
    """Which leaves are matrices; those with a short side are not."""

    def label(path: Any, leaf: Any) -> str:
        name = jax.tree_util.keystr(path)
        known = name.endswith((*_SIDE_BY_SIDE, *_ALONE)) and leaf.ndim >= 2
        return "muon" if known and min(leaf.shape[-2:]) >= _LEAST else "others"

    return jax.tree_util.tree_map_with_path(label, network)


def _apart(network: Any) -> Any:
    """Every leaf with an axis more, of the matrices that lie side by side in it."""

    def split(path: Any, leaf: Float[Array, "*layers rows columns"]) -> Array:
        rows, columns = leaf.shape[-2:]
        together = jax.tree_util.keystr(path).endswith(_SIDE_BY_SIDE) and columns % rows == 0
        return leaf.reshape(*leaf.shape[:-1], columns // rows if together else 1, -1)

    return jax.tree_util.tree_map_with_path(split, network)


def _scaled(way: Float[Array, "*layers rows matrices columns"]) -> Array:
    return way * (_RMS * math.sqrt(max(way.shape[-3], way.shape[-1])))
