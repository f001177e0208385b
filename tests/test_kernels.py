"""The fused kernels, interpreted, against the plain path: values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from switchpoint.neural import network_from_name
from switchpoint.neural.kernels.choice import using
from switchpoint.training import TrainConfig
from switchpoint.training.program import Program


def loss_of(path, network, memory, tokens, target):
    def loss(network, memory):
        with using(path):
            last, logits = network.read(memory, tokens)
        return jnp.sum(logits * target) + sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(last))

    return jax.jit(jax.value_and_grad(loss, (0, 1)))(network, memory)


@pytest.mark.parametrize("model", ["rnn", "lstm"])
@pytest.mark.parametrize(("alphabet", "hidden", "batch", "time"), [(2, 32, 32, 4), (5, 48, 7, 2)])
def test_kernels_compute_what_the_plain_path_does(model, alphabet, hidden, batch, time):
    key = jax.random.key(0)
    network = network_from_name(model, alphabet, 20, key, hidden=hidden, readout=1)
    tokens = jax.random.randint(key, (batch, time), 0, alphabet + 1)
    memory = jax.tree.map(lambda leaf: leaf + 0.3, network.memory(batch, 0))
    target = jax.random.normal(key, (batch, time, alphabet))
    plain = loss_of("plain", network, memory, tokens, target)
    fused = loss_of("fused", network, memory, tokens, target)
    for a, b in zip(jax.tree.leaves(fused), jax.tree.leaves(plain), strict=True):
        # bfloat16 has 8 bits, and a unit near 0 may be active on one path alone.
        assert np.linalg.norm(a - b) < 2e-2 * np.linalg.norm(b)


@pytest.mark.parametrize("model", ["rnn", "lstm"])
def test_predictions_agree_over_a_long_sequence(model):
    network = network_from_name(model, 2, 256, jax.random.key(0), hidden=64)
    symbols = jax.random.randint(jax.random.key(1), (16, 256), 0, 2)
    found = []
    for path in ("plain", "fused"):
        with using(path):
            found.append(
                jax.jit(lambda net, rows: jax.nn.softmax(net.logits(rows)))(network, symbols)
            )
    assert np.abs(found[0] - found[1]).max() < 2e-3
    assert np.abs(found[0] - found[1]).max() > 0  # they are two paths


def test_members_of_an_ensemble_go_through_the_kernels_together():
    keys = jax.random.split(jax.random.key(0), 2)
    networks = jax.vmap(lambda key: network_from_name("rnn", 2, 8, key, hidden=16))(keys)
    symbols = jax.random.randint(keys[0], (2, 16, 3), 0, 2)

    def gradients(path):
        def loss(network, symbols):
            with using(path):
                return network.logits(symbols)[..., 0].sum()

        return jax.jit(jax.vmap(jax.grad(loss)))(networks, symbols)

    plain, fused = gradients("plain"), gradients("fused")
    for a, b in zip(jax.tree.leaves(fused), jax.tree.leaves(plain), strict=True):
        assert np.linalg.norm(a - b) <= 1e-2 * np.linalg.norm(b)


def test_training_takes_the_path_it_is_told():
    config = TrainConfig(model="rnn", hidden=16, readout=0, length=4, batch=16, steps=3)
    ends = {}
    for path in ("plain", "fused"):
        program = Program(config, kernels=path)
        state = program.advance(program.start(), 3)
        ends[path] = np.asarray(state.networks.cell.weight)
    assert 0 < np.abs(ends["plain"] - ends["fused"]).max() < 0.02
    with pytest.raises(ValueError, match="kernels must be one of auto, fused, plain, got 'fast'"):
        Program(config, kernels="fast").advance(program.start(), 1)
