"""Muon: matrices turn into orthogonal ones, all else is left to Adam."""

import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from switchpoint.neural import MODEL_OPTIONS, network_from_name
from switchpoint.neural.storage import named_leaves
from switchpoint.training import TrainConfig
from switchpoint.training.optimizer import (
    declared_matrices,
    is_matrix,
    make_optimizer,
    with_muon,
)
from switchpoint.training.packing import PackedConfig
from switchpoint.training.program import Program

# With these options every matrix is known by its name, and the number of matrices in it.
MATRICES = {
    "rnn": {".cell.weight": 1, ".output.layers[0].weight": 1},
    "lstm": {".cell.weight": 4, ".output.layers[0].weight": 1},
    "stack-rnn": {".cell.inner.weight": 1, ".output.layers[0].weight": 1},
    "stack-lstm": {".cell.inner.weight": 4, ".output.layers[0].weight": 1},
    "gru": {".cell.weight": 3, ".output.layers[0].weight": 1},
    "lru": {".blocks.drive": 2, ".blocks.observe": 1, ".blocks.gate.weight": 2},
    "mamba": {".blocks.project": 2, ".blocks.out_proj": 1},
    "transformer": {
        ".blocks.qkv": 3,
        ".blocks.out_proj": 1,
        ".blocks.mlp_in.weight": 1,
        ".blocks.mlp_out.weight": 1,
    },
    "markov": {".perceptron.layers[0].weight": 1, ".perceptron.layers[1].weight": 1},
    "memoryless": {},
}
# With these every leaf of two axes has at least 16 rows and columns.
RECURRENT, STACK = {"hidden": 32, "readout": 1}, {"stack_width": 16}
WIDE = {
    "rnn": RECURRENT,
    "lstm": RECURRENT,
    "stack-rnn": {**RECURRENT, **STACK},
    "stack-lstm": {**RECURRENT, **STACK},
    "gru": RECURRENT,
    "lru": {"layers": 1, "width": 32, "state_size": 16},
    "mamba": {"layers": 1, "width": 256, "state_size": 16},
    "transformer": {"layers": 1, "width": 32, "heads": 2},
    "markov": {},
    "memoryless": {},
}
BY_ADAM = {
    "stack-rnn": {"cell.read", "cell.write"},
    "stack-lstm": {"cell.read", "cell.write"},
    "mamba": {f"blocks.{name}" for name in ("conv.weight", "select", "step.weight", "log_rate")},
    "transformer": {"embedding", "blocks.relative.projection"},
    "memoryless": {"table"},
}


def network_of(model):
    # 16 layers, so that vectors of all layers look like a matrix
    defaults = ("lru", "mamba", "markov", "memoryless")
    wide = {"layers": 16, "width": 32, "heads": 2}
    options = wide if model == "transformer" else {} if model in defaults else RECURRENT
    return network_from_name(model, 2, 32, jax.random.key(0), **options)


def gradient_of(network, seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), network)


def by_name(tree):
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_matrices_go_along_an_orthogonal_one(model):
    network = network_of(model)
    gradient = gradient_of(network, 1)
    optimizer = with_muon(optax.set_to_zero())
    ways, _ = jax.jit(optimizer.update)(gradient, optimizer.init(network))
    ways, slopes = by_name(ways), by_name(gradient)
    assert {name for name, way in ways.items() if way.any()} == set(MATRICES[model])
    for name, count in MATRICES[model].items():
        for way, slope in zip(*(np.split(x[name], count, -1) for x in (ways, slopes)), strict=True):
            left, _, right = np.linalg.svd(slope, full_matrices=False)
            # In the directions of the gradient, every step is about as long as every other.
            turned = left.mT @ way @ right.mT / (0.2 * max(way.shape[-2:]) ** 0.5)
            lengths = np.diagonal(turned, axis1=-2, axis2=-1)
            np.testing.assert_allclose(
                turned - lengths[..., None] * np.eye(lengths.shape[-1]), 0, atol=1e-3
            )
            largest = np.linalg.norm(slope, ord=2, axis=(-2, -1))[..., None]
            known = np.linalg.svd(slope, compute_uv=False) > 0.02 * largest
            assert 0.5 < lengths[known].min() <= lengths[known].max() < 1.3


@pytest.mark.parametrize("model", MODEL_OPTIONS)
def test_every_matrix_is_declared(model):
    make = functools.partial(network_from_name, model, 20, 32, **WIDE[model])
    network = eqx.filter_eval_shape(make, key=jax.random.key(0))
    matrices = {
        name
        for name, leaf in named_leaves(network).items()
        if leaf.ndim >= 2 and min(leaf.shape[-2:]) >= 16
    }
    declared = declared_matrices(network)
    left_out = matrices - declared.keys()
    assert not left_out, f"neither Muon's nor, as 0, left to Adam on purpose: {left_out}"
    for_muon = {name for name, count in declared.items() if count}
    assert for_muon == matrices - BY_ADAM.get(model, set())
    counts = declared_matrices(eqx.filter_eval_shape(functools.partial(network_of, model)))
    for name, count in MATRICES[model].items():
        assert counts[re.sub(r"\[(\d+)\]", r".\1", name).removeprefix(".")] == count


class Layer(eqx.Module):
    muon_matrices = {"inner": 2}  # noqa: RUF012
    inner: jax.Array
    other: jax.Array


class Own(eqx.Module):
    """As a user may write it: modules in tuples, and layers that declare nothing."""

    muon_matrices = {"linear.weight": 1, "layers.1.inner": 0}  # noqa: RUF012
    layers: tuple[Layer, Layer]
    linear: eqx.nn.Linear


def test_modules_declare_their_own_matrices_and_those_of_others():
    layer = Layer(jnp.ones((16, 32)), jnp.ones((16, 16)))
    network = Own((layer, layer), eqx.nn.Linear(16, 16, key=jax.random.key(0)))
    declared = {"layers.0.inner": 2, "layers.1.inner": 0, "linear.weight": 1}
    assert declared_matrices(network) == declared
    optimizer = with_muon(optax.set_to_zero())
    ways, _ = optimizer.update(gradient_of(network, 1), optimizer.init(network))
    moved = {name for name, way in by_name(ways).items() if way.any()}
    assert moved == {".layers[0].inner", ".linear.weight"}
    for half in np.split(np.asarray(ways.layers[0].inner), 2, -1):
        lengths = np.linalg.svd(half, compute_uv=False) / (0.2 * 16**0.5)
        assert 0.5 < lengths.max() < 1.3


@pytest.mark.parametrize(
    ("matrices", "message"),
    [
        ({"inne": 1}, "Layer names 'inne'"),
        ({"inner": 3}, r"'inner' is 3 matrices .* shape is \(16, 32\)"),
        ({"other": 1}, r"'other' is 1 matrices .* shape is \(16,\)"),
    ],
)
def test_a_declaration_that_does_not_fit_is_refused(matrices, message, monkeypatch):
    monkeypatch.setattr(Layer, "muon_matrices", matrices)
    with pytest.raises(ValueError, match=message):
        with_muon(optax.set_to_zero()).init(Layer(jnp.ones((16, 32)), jnp.ones(16)))


@pytest.mark.slow
def test_networks_of_few_units_have_adam_alone():
    config = TrainConfig(model="lstm", hidden=8, readout=0, length=8)
    network = jax.jit(config.network)(jax.random.key(0))
    assert config.optimizer == "muon"
    optimizer = make_optimizer(config)
    gradient = jax.tree.map(
        lambda leaf: leaf + jnp.sign(leaf), gradient_of(network, 1)
    )  # not small
    ways, _ = jax.jit(optimizer.update)(gradient, jax.jit(optimizer.init)(network), network)
    for way, slope in zip(jax.tree.leaves(ways), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(way, np.sign(slope), atol=1e-3)  # Adam's first step


SWEPT = {"clip_norm": (0.05, 1.0), "b2": (0.9, 0.999), "matrix_decay": (0.0, 0.3)}


@pytest.mark.slow
def test_members_with_settings_of_their_own_are_as_if_alone():
    settings = {
        "model": "rnn",
        "hidden": 16,
        "readout": 0,
        "length": 8,
        "batch": 4,
        "steps": 20,
        "learning_rate": 0.05,
        "warmup": 0,
    }
    configs = [
        TrainConfig(**settings, **dict(zip(SWEPT, values, strict=True)))
        for values in zip(*SWEPT.values(), strict=True)
    ]
    together = Program(PackedConfig.pack(configs))
    assert [dict(each.settings) for each in together.config.members()] == [
        {name: getattr(config, name) for name in SWEPT} for config in configs
    ]
    state = together.advance(together.start(), 20)
    for index, config in enumerate(configs):
        alone = Program(config)
        expected = alone.advance(alone.start(), 20)
        for a, b in zip(*map(jax.tree.leaves, (state.networks, expected.networks)), strict=True):
            np.testing.assert_allclose(a[0, index], b[0, 0], rtol=2e-3, atol=2e-4)
    with pytest.raises(ValueError, match="must have the same batch, depth, length"):
        PackedConfig.pack([configs[0], TrainConfig(**{**settings, "length": 4, "batch": 2})])


@pytest.mark.slow
def test_decay_of_matrices_is_decoupled_and_of_matrices_alone():
    settings = {"model": "rnn", "hidden": 16, "readout": 0, "length": 8, "batch": 4, "steps": 1}
    settings |= {"learning_rate": 0.1, "warmup": 0, "schedule": "constant"}
    configs = [TrainConfig(**settings, matrix_decay=decay) for decay in (0.0, 0.5)]
    program = Program(PackedConfig.pack(configs))
    start = jax.tree.map(np.array, program.start().networks)
    after = program.advance(program.start(), 1).networks
    plain, decayed = (jax.tree.map(lambda leaf, i=i: leaf[0, i], after) for i in (0, 1))
    matrices = jax.tree.leaves(is_matrix(plain))
    assert any(matrices)
    start = jax.tree.map(lambda leaf: leaf[0, 0], start)
    leaves = map(jax.tree.leaves, (start, plain, decayed))
    for old, a, b, matrix in zip(*leaves, matrices, strict=True):
        np.testing.assert_allclose(b, a - 0.1 * 0.5 * old if matrix else a, atol=1e-6)
