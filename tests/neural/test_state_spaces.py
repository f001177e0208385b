"""Networks of linear recurrences against loops over time, as their definitions state them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from switchpoint.neural import network_from_name
from switchpoint.neural.scans import linear_recurrence

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_the_parallel_scan_is_the_loop(dtype):
    rng = np.random.default_rng(0)
    shapes = ((2, 11, 1, 4), (2, 11, 3, 4), (2, 3, 4))
    unit = 1j if dtype is np.complex128 else 0
    decay, drive, first = (
        (real + unit * imaginary).astype(dtype)
        for real, imaginary in (rng.normal(size=shape) for shape in shapes)
    )
    state, expected = first, []
    for a, b in zip(decay, drive, strict=True):
        state = a * state + b
        expected.append(state)

    def energy(parallel, *arrays):
        states = linear_recurrence(*arrays, parallel=parallel)
        return jnp.sum(jnp.abs(states) ** 2), states

    gradients = []
    differentiate = jax.jit(jax.grad(energy, (1, 2, 3), has_aux=True), static_argnums=0)
    for parallel in (False, True):
        gradient, found = differentiate(parallel, decay, drive, first)
        np.testing.assert_allclose(found, np.stack(expected), rtol=1e-12, atol=1e-12)
        gradients.append(gradient)
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def norm(layer, x):
    deviation = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return (x - x.mean(-1, keepdims=True)) / deviation * layer.scale + layer.shift


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lru_layer(layer, xs):
    decay = np.exp(-np.exp(layer.log_rate) + 1j * np.exp(layer.log_phase))
    real, imaginary = np.split(layer.drive, 2, -1)
    state, rows = 0, []
    for x in xs:
        u = norm(layer.norm, x)
        state = decay * state + np.sqrt(1 - abs(decay) ** 2) * (u @ (real + 1j * imaginary))
        y = np.r_[state.real, state.imag] @ layer.observe + layer.skip * u
        y = np.asarray(jax.nn.gelu(y))
        value, gate = np.split(y @ layer.gate.weight + layer.gate.bias, 2)
        rows.append(x + value * sigmoid(gate))
    return np.stack(rows)


def mamba_layer(layer, xs):
    channels, size = layer.log_rate.shape
    seen, state, rows = np.zeros((4, channels)), np.zeros((channels, size)), []
    for x in xs:
        inputs, gate = np.split(norm(layer.norm, x) @ layer.project, 2)
        seen = np.vstack([seen[1:], inputs])
        v = np.sum(seen * layer.conv.weight, axis=0) + layer.conv.bias
        v = v * sigmoid(v)
        low_rank, into, out_of = np.split(v @ layer.select, [-2 * size, -size])
        step = np.log1p(np.exp(low_rank @ layer.step.weight + layer.step.bias))
        kept = np.exp(-step[:, None] * np.exp(layer.log_rate))
        state = kept * state + (step * v)[:, None] * into
        y = state @ out_of + layer.skip * v
        rows.append(x + (y * gate * sigmoid(gate)) @ layer.out_proj)
    return np.stack(rows)


@pytest.mark.parametrize(("name", "layer"), [("lru", lru_layer), ("mamba", mamba_layer)])
def test_logits_are_those_of_the_definition(name, layer):
    options = {"layers": 2, "width": 16, "state_size": 3}
    rng = np.random.default_rng(1)
    network = jax.tree.map(
        lambda leaf: leaf + 0.3 * rng.normal(size=leaf.shape),  # no weight is 0 or 1
        network_from_name(name, 3, 40, jax.random.key(0), **options),
    )
    symbols = rng.integers(0, 3, 37)  # no multiple of the tokens that Mamba reads at a time
    weights = jax.tree.map(np.asarray, network)
    x = weights.embedding.weight[[3, *symbols[:-1]]] + weights.embedding.bias
    for index in range(2):
        x = layer(jax.tree.map(lambda leaf, i=index: leaf[i], weights.blocks), x)
    expected = norm(weights.final_norm, x) @ weights.output.weight + weights.output.bias
    found = jax.jit(lambda rows: network.logits(rows))(jnp.asarray(symbols)[None])[0]
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("name", ["lru", "mamba"])
def test_no_weights_make_a_recurrence_unstable(name):
    """A decay is at most 1, so under a constant input a state grows at most linearly."""
    network = network_from_name(name, 2, 64, jax.random.key(0), layers=1, width=16, state_size=4)
    wild = jax.tree.map(lambda leaf: 5 * leaf, network)
    read = jax.jit(lambda memory: wild.read(memory, jnp.zeros((1, 1000), jnp.int32))[0])
    half = read(wild.memory(1, 0))
    for one, other in zip(*map(jax.tree.leaves, (half, read(half))), strict=True):
        assert np.abs(other).max() < 2.5 * np.abs(one).max()
