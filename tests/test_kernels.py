"""The fused kernels, interpreted, against the plain path: values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from switchpoint.neural import network_from_name
from switchpoint.neural.dense import Perceptron
from switchpoint.neural.kernels import readout, steps
from switchpoint.neural.kernels.backend import is_fused
from switchpoint.neural.kernels.recurrence import can_fuse
from switchpoint.neural.kernels.relative_positions import lowrank_sinusoids
from switchpoint.neural.positions import sinusoids
from switchpoint.training import TrainConfig, train
from switchpoint.training.program import Program
from switchpoint.training.validation import Validation


@pytest.fixture(autouse=True)
def one_step_at_a_time(monkeypatch):
    """Interpreted kernels take long to compile, and unrolled ones several times as long."""
    monkeypatch.setattr(steps, "_UNROLL", 1)


def loss_of(network, memory, tokens, target):
    def loss(network, memory):
        last, logits = network.read(memory, tokens)
        return jnp.sum(logits * target) + sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(last))

    return jax.jit(jax.value_and_grad(loss, (0, 1)))(network, memory)


SMALL = {"alphabet": 2, "hidden": 32, "batch": 32, "time": 4}
ODD = {"alphabet": 5, "hidden": 48, "batch": 7, "time": 2}


@pytest.mark.parametrize(
    ("model", "sizes", "options"),
    [
        ("rnn", SMALL, {}),
        ("rnn", ODD, {}),
        ("lstm", SMALL, {}),
        ("lstm", ODD, {}),
        ("stack-rnn", SMALL, {"stack_depth": 1, "stack_width": 13}),
        # Two programs share a row and three entries, and there are two tiles of rows.
        ("stack-rnn", {**SMALL, "hidden": 128, "batch": 64}, {"stack_depth": 3, "stack_width": 4}),
        # Three programs share a row and two entries: the third has none.
        ("stack-lstm", {**ODD, "hidden": 96, "time": 5}, {"stack_depth": 2, "stack_width": 3}),
    ],
)
def test_kernels_compute_what_the_plain_path_does(model, sizes, options):
    key, key_memory = jax.random.split(jax.random.key(1))
    alphabet, batch, time = sizes["alphabet"], sizes["batch"], sizes["time"]
    network = network_from_name(
        model, alphabet, 20, key, hidden=sizes["hidden"], readout=0, **options
    )
    # Small weights, with which no action of a stack is nearly certain: all of it matters.
    network = jax.tree.map(lambda leaf: 0.2 * leaf, network)
    tokens = jax.random.randint(key, (batch, time), 0, alphabet + 1)
    memory = jax.tree.map(
        lambda leaf: 0.3 + 0.3 * jax.random.normal(key_memory, leaf.shape), network.memory(batch, 0)
    )
    target = jax.random.normal(key, (batch, time, alphabet))
    plain = loss_of(network.with_backend("plain"), memory, tokens, target)
    fused = loss_of(network.with_backend("fused"), memory, tokens, target)
    for a, b in zip(jax.tree.leaves(fused), jax.tree.leaves(plain), strict=True):
        # bfloat16 has 8 bits, and a ReLU near 0 may be active on one path alone.
        assert np.linalg.norm(a - b) < 1e-2 * np.linalg.norm(b)


@pytest.mark.parametrize(
    ("hidden", "layers", "alphabet", "rows"), [(48, 2, 5, 35), (64, 1, 2, 128), (32, 0, 3, 64)]
)
def test_the_read_out_computes_what_the_plain_path_does(hidden, layers, alphabet, rows):
    keys = jax.random.split(jax.random.key(0), 4)

    def few_bits(key, shape):
        return jax.random.normal(key, shape).astype(jnp.float16).astype(jnp.float32)

    # Numbers that both paths have exactly, so that few ReLUs are active on one alone.
    network = jax.tree.map(
        lambda leaf: few_bits(keys[0], leaf.shape) / 8,
        Perceptron(hidden, layers, alphabet, keys[1]),
    )
    outputs = few_bits(keys[2], (rows, hidden))
    slopes = jax.random.normal(keys[3], (rows, alphabet)) * 1e-6  # too small for float16
    expected, pull_back = jax.vjp(lambda network, outputs: network(outputs), network, outputs)
    narrow = outputs.astype(jnp.float16)
    np.testing.assert_allclose(readout.forward(network, narrow), expected, atol=1e-2)
    found = readout.backward(network, narrow, slopes)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(pull_back(slopes)), strict=True):
        assert np.linalg.norm(a - b) < 1e-2 * np.linalg.norm(b)


@pytest.mark.parametrize(
    ("positions", "context", "batch", "time"),
    [("relative", None, 3, 70), ("alibi", 5, 1, 20), ("sincos", None, 2, 3)],
)
def test_layers_of_a_transformer_compute_what_the_plain_path_does(positions, context, batch, time):
    key = jax.random.key(0)
    options = {"layers": 2, "positions": positions, "context": context}
    network = network_from_name("transformer", 5, 90, key, **options)
    # Scales and biases that are not 1 and 0, as after some training.
    network = jax.tree.map(lambda leaf: leaf + 0.1 * jax.random.normal(key, leaf.shape), network)
    tokens = jax.random.randint(key, (batch, time), 0, 6)
    target = jax.random.normal(key, (batch, time, 5))
    memory = network.memory(batch, 0)

    def gradients(backend):
        def loss(network):
            _, logits = network.read(memory, tokens)
            return jnp.sum(logits * target), logits

        return jax.jit(jax.value_and_grad(loss, has_aux=True))(network.with_backend(backend))

    plain, fused = gradients("plain"), gradients("fused")
    (_, logits), (_, found) = plain[0], fused[0]
    assert 0 < np.abs(jax.nn.softmax(logits) - jax.nn.softmax(found)).max() < 2e-3
    for a, b in zip(jax.tree.leaves(fused[1]), jax.tree.leaves(plain[1]), strict=True):
        # Most of it are ReLUs near 0, active on one path alone.
        assert np.linalg.norm(a - b) < 4e-2 * np.linalg.norm(b)


def test_a_transformer_that_remembers_tokens_takes_the_plain_path():
    network = network_from_name("transformer", 2, 9, jax.random.key(0), layers=1)
    tokens = jax.random.randint(jax.random.key(1), (2, 4), 0, 3)
    found = [
        network.with_backend(backend).read(network.memory(2, 5), tokens)[1]
        for backend in ("plain", "fused")
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(("time", "columns"), [(16, 16), (256, 32), (600, 64)])
def test_sinusoids_of_distances_are_products_of_low_rank(time, columns):
    found = lowrank_sinusoids(time, 64)
    assert found.at_key.shape == (time, columns)
    distances = np.arange(time)[:, None] - np.arange(time)
    expected = sinusoids(jnp.asarray(distances.ravel(), jnp.int32), 64).reshape(time, time, 64)
    products = np.einsum("iwc,jc->ijw", found.at_query(), found.at_key)
    np.testing.assert_allclose(products, expected, atol=2e-5)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("model", ["rnn", "lstm", "stack-rnn", "stack-lstm"])
def test_predictions_agree_over_a_long_sequence(model, seed):
    network = network_from_name(model, 2, 256, jax.random.key(seed), hidden=64)
    symbols = jax.random.randint(jax.random.key(1), (16, 256), 0, 2)
    found = [
        np.exp(network.with_backend(backend).log_probs(symbols)) for backend in ("plain", "fused")
    ]
    assert np.abs(found[0] - found[1]).max() < 2e-3
    assert np.abs(found[0] - found[1]).max() > 0  # they are two paths


@pytest.mark.parametrize(
    ("depth", "width", "known"), [(8, 8, True), (8, 13, True), (8, 14, False), (17, 8, False)]
)
def test_only_stacks_of_a_moderate_size_have_kernels(depth, width, known):
    def network(key):
        return network_from_name("stack-rnn", 2, 20, key, stack_depth=depth, stack_width=width)

    cell = jax.eval_shape(network, jax.random.key(0)).cell
    assert can_fuse(cell, tokens=3, time=4) is known


@pytest.mark.parametrize(
    ("model", "options"),
    [
        # No read-out: few different sequences, so a ReLU active on one path alone weighs much.
        ("rnn", {"hidden": 16, "readout": 0}),
        ("stack-rnn", {"hidden": 16, "readout": 0, "stack_depth": 2, "stack_width": 4}),
        ("transformer", {"layers": 1, "positions": "sincos"}),
    ],
)
def test_members_of_an_ensemble_go_through_the_kernels_together(model, options):
    keys = jax.random.split(jax.random.key(0), 2)
    networks = jax.vmap(lambda key: network_from_name(model, 2, 8, key, **options))(keys)
    symbols = jax.random.randint(keys[0], (2, 16, 3), 0, 2)

    def gradients(backend):
        def loss(network, symbols):
            return network.logits(symbols)[..., 0].sum()

        return jax.jit(jax.vmap(jax.grad(loss)))(networks.with_backend(backend), symbols)

    plain, fused = gradients("plain"), gradients("fused")
    for a, b in zip(jax.tree.leaves(fused), jax.tree.leaves(plain), strict=True):
        assert np.linalg.norm(a - b) <= 1e-2 * np.linalg.norm(b)


def test_validation_takes_the_backend_of_the_networks():
    config = TrainConfig(model="rnn", hidden=16, readout=0, length=32, batch=16, validation=16)
    found = []
    for backend in ("plain", "fused"):
        program = Program(config, backend)
        validation = Validation(config, program.mesh)
        found.append(validation.excess(program.start().networks).mean())
    assert 0 < abs(found[0] - found[1]) < 0.02


def test_training_takes_the_backend_it_is_told():
    config = TrainConfig(model="rnn", hidden=16, readout=0, length=4, batch=16, steps=3)
    ends = {}
    for backend in ("plain", "fused"):
        program = Program(config, backend)
        state = program.advance(program.start(), 3)
        ends[backend] = np.asarray(state.networks.cell.weight)
    assert 0 < np.abs(ends["plain"] - ends["fused"]).max() < 0.02
    with pytest.raises(ValueError, match="backend must be one of auto, fused, plain, got 'fast'"):
        Program(config, "fast")


def test_jit_compiles_each_backend_by_itself():
    network = network_from_name("rnn", 2, 8, jax.random.key(0), hidden=16, readout=0)
    symbols = jnp.zeros((2, 4), jnp.int32)
    traced = []

    @jax.jit
    def logits(network):
        traced.append(network.backend)
        return network.logits(symbols)

    for _ in range(2):
        found = [logits(network.with_backend(backend)) for backend in ("plain", "fused")]
    assert traced == ["plain", "fused"]  # not again for what has been compiled
    assert np.abs(found[0] - found[1]).max() > 0
    np.testing.assert_array_equal(logits(network), found[0])  # on a CPU
    for backend in ("plain", "fused"):
        program = str(jax.make_jaxpr(logits)(network.with_backend(backend)))
        assert ("pallas_call" in program) == (backend == "fused")


def test_auto_is_fused_on_a_gpu(monkeypatch):
    assert [is_fused(backend) for backend in ("auto", "fused", "plain")] == [False, True, False]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert [is_fused(backend) for backend in ("auto", "fused", "plain")] == [True, True, False]
    for device in ("cpu", jax.devices("cpu")[0]):
        with jax.default_device(device):
            assert not is_fused("auto")


@pytest.mark.parametrize("model", ["lstm", "transformer", "markov"])
def test_a_network_on_another_backend_has_the_same_weights(model):
    network = network_from_name(model, 2, 8, jax.random.key(0))
    fused = network.with_backend("fused")
    assert all(a is b for a, b in zip(*map(jax.tree.leaves, (network, fused)), strict=True))
    assert (jax.tree.structure(network) == jax.tree.structure(fused)) == (model == "markov")
    assert jax.tree.structure(fused.with_backend("auto")) == jax.tree.structure(network)
    with pytest.raises(ValueError, match="backend must be one of auto, fused, plain, got 'gpu'"):
        network.with_backend("gpu")


def test_sizes_that_have_no_kernels_take_the_plain_path(tmp_path):
    settings = {"model": "transformer", "layers": 1, "length": 4, "batch": 2, "steps": 1}
    config = TrainConfig(**settings, width=12, heads=2)
    network = config.network(jax.random.key(0))
    symbols = jnp.zeros((2, 4), jnp.int32)
    logits = network.with_backend("fused").logits(symbols)
    np.testing.assert_array_equal(logits, network.logits(symbols))
    with pytest.raises(ValueError, match=r"fused.*width 64 with 8 heads, got width 12 and 2 heads"):
        train(config, out=tmp_path / "run", kernels="fused")
    assert not (tmp_path / "run").exists()
