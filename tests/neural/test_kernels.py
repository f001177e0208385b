"""The fused kernels, interpreted, against the plain path: values and gradients."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from switchpoint.neural import network_from_name
from switchpoint.neural.attention import sinusoids
from switchpoint.neural.dense import Perceptron
from switchpoint.neural.kernels import backend as backend_module
from switchpoint.neural.kernels import readout, steps
from switchpoint.neural.kernels.backend import is_fused
from switchpoint.neural.kernels.recurrence import can_fuse
from switchpoint.neural.kernels.relative_positions import lowrank_sinusoids
from switchpoint.paper.registry import all_runs
from switchpoint.paper.scale import FULL
from switchpoint.training import TrainConfig, train


@pytest.fixture(autouse=True)
def one_step_at_a_time(monkeypatch):
    """Interpreted kernels take long to compile, and unrolled ones several times as long."""
    monkeypatch.setattr(steps, "_UNROLL", 1)


def network_of(model, alphabet, length, seed=0, change=lambda _, leaf: leaf, **options):
    """A network with its leaves changed, made by one program."""

    def make(key):
        network = network_from_name(model, alphabet, length, key, **options)
        return jax.tree.map(lambda leaf: change(key, leaf), network)

    return jax.jit(make)(jax.random.key(seed))


def errors(found, expected):
    """The relative error of each leaf."""
    pairs = zip(*map(jax.tree.leaves, jax.device_get((found, expected))), strict=True)
    return [np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30) for a, b in pairs]


def loss_of(network, memory, tokens, target):
    def loss(network, memory):
        last, logits = network.read(memory, tokens)
        return jnp.sum(logits * target) + sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(last))

    return jax.jit(jax.value_and_grad(loss, (0, 1)))(network, memory)


SMALL = {"alphabet": 2, "hidden": 32, "batch": 32, "time": 4}
ODD = {"alphabet": 5, "hidden": 48, "batch": 7, "time": 2}


@pytest.mark.slow
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
        # Two programs share 19 entries, a few at a time, and the last ones are not there.
        ("stack-lstm", {**SMALL, "hidden": 128}, {"stack_depth": 19, "stack_width": 4}),
        # Three programs share a row and two entries: the third has none.
        ("stack-lstm", {**ODD, "hidden": 96, "time": 5}, {"stack_depth": 2, "stack_width": 3}),
    ],
)
def test_kernels_compute_what_the_plain_path_does(model, sizes, options):
    rng = np.random.default_rng(1)
    alphabet, batch, time = sizes["alphabet"], sizes["batch"], sizes["time"]
    # Small weights, with which no action of a stack is nearly certain: all of it matters.
    options = {**options, "hidden": sizes["hidden"], "readout": 0}
    network = network_of(model, alphabet, 20, 1, lambda _, leaf: 0.2 * leaf, **options)
    tokens = jnp.asarray(rng.integers(0, alphabet + 1, (batch, time)))
    memory = jax.tree.map(
        lambda leaf: jnp.asarray(0.3 + 0.3 * rng.normal(size=leaf.shape), leaf.dtype),
        jax.eval_shape(lambda: network.memory(batch, 0)),
    )
    target = rng.normal(size=(batch, time, alphabet)).astype(np.float32)
    plain = loss_of(network.with_backend("plain"), memory, tokens, target)
    fused = loss_of(network.with_backend("fused"), memory, tokens, target)
    # bfloat16 has 8 bits, and a ReLU near 0 may be active on one path alone.
    assert max(errors(fused, plain)) < 1e-2


@pytest.mark.parametrize(
    ("hidden", "layers", "alphabet", "rows"), [(48, 2, 5, 35), (64, 1, 2, 128), (32, 0, 3, 64)]
)
def test_the_readout_computes_what_the_plain_path_does(hidden, layers, alphabet, rows):
    rng = np.random.default_rng(0)

    def few_bits(shape):
        return jnp.asarray(rng.normal(size=shape).astype(np.float16).astype(np.float32))

    # Numbers that both paths have exactly, so that few ReLUs are active on one alone.
    network = jax.tree.map(
        lambda leaf: few_bits(leaf.shape) / 8,
        jax.eval_shape(lambda key: Perceptron(hidden, layers, alphabet, key), jax.random.key(0)),
    )
    outputs = few_bits((rows, hidden))
    slopes = rng.normal(size=(rows, alphabet)).astype(np.float32) * 1e-6  # too small for float16

    @jax.jit
    def both(network, outputs, slopes):
        expected, pull_back = jax.vjp(lambda network, outputs: network(outputs), network, outputs)
        narrow = outputs.astype(jnp.float16)
        found = readout.forward(network, narrow), readout.backward(network, narrow, slopes)
        return found, (expected, pull_back(slopes))

    (found, found_slopes), (expected, expected_slopes) = both(network, outputs, slopes)
    np.testing.assert_allclose(found, expected, atol=1e-2)
    assert max(errors(found_slopes, expected_slopes)) < 1e-2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("positions", "context", "batch", "time"),
    [("relative", None, 3, 70), ("alibi", 5, 1, 20), ("sincos", None, 2, 3)],
)
def test_layers_of_a_transformer_compute_what_the_plain_path_does(positions, context, batch, time):
    def change(key, leaf):  # scales and biases that are not 1 and 0, as after some training
        return leaf + 0.1 * jax.random.normal(key, leaf.shape)

    rng = np.random.default_rng(0)
    options = {"layers": 2, "positions": positions, "context": context}
    network = network_of("transformer", 5, 90, 0, change, **options)
    tokens = jnp.asarray(rng.integers(0, 6, (batch, time)))
    target = rng.normal(size=(batch, time, 5)).astype(np.float32)

    def gradients(backend):
        def loss(network):
            _, logits = network.read(network.memory(batch, 0), tokens)
            return jnp.sum(logits * target), jax.nn.softmax(logits)

        return jax.jit(jax.value_and_grad(loss, has_aux=True))(network.with_backend(backend))

    plain, fused = gradients("plain"), gradients("fused")
    ((_, expected), slopes), ((_, found), found_slopes) = jax.device_get((plain, fused))
    assert 0 < np.abs(found - expected).max() < 2e-3
    assert max(errors(found_slopes, slopes)) < 4e-2  # most are ReLUs active on one path alone


def test_a_transformer_that_remembers_tokens_takes_the_plain_path():
    network = network_of("transformer", 2, 9, layers=1)
    tokens = jnp.asarray(np.random.default_rng(1).integers(0, 3, (2, 4)))
    read = jax.jit(lambda network: network.read(network.memory(2, 5), tokens)[1])
    found = [read(network.with_backend(backend)) for backend in ("plain", "fused")]
    np.testing.assert_array_equal(*found)


@pytest.mark.slow
@pytest.mark.parametrize(("time", "columns"), [(16, 16), (256, 32), (600, 64)])
def test_sinusoids_of_distances_are_products_of_low_rank(time, columns):
    found = lowrank_sinusoids(time, 64)
    assert found.at_key.shape == (time, columns)
    distances = np.arange(time)[:, None] - np.arange(time)
    of_distance = np.asarray(sinusoids(jnp.arange(-time + 1, time, dtype=jnp.int32), 64))
    some = np.unique(np.linspace(0, time - 1, 50).astype(int))  # queries
    products = np.asarray(found.at_query())[some] @ np.asarray(found.at_key).T  # query, wave, key
    expected = of_distance[distances[some] + time - 1].swapaxes(1, 2)
    np.testing.assert_allclose(products, expected, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rnn", "stack-lstm"])
def test_predictions_agree_over_a_long_sequence(model):
    network = network_of(model, 2, 256, hidden=64)
    symbols = np.random.default_rng(1).integers(0, 2, (16, 256))
    plain, fused = (
        np.exp(network.with_backend(backend).log_probs(symbols)) for backend in ("plain", "fused")
    )
    assert 0 < np.abs(plain - fused).max() < 2e-3  # two paths, one function


@pytest.mark.parametrize(
    ("depth", "width", "known"),
    [(8, 8, True), (8, 13, True), (8, 14, False), (256, 8, True), (257, 8, False)],
)
def test_only_stacks_of_a_moderate_size_have_kernels(depth, width, known):
    def network(key):
        return network_from_name("stack-rnn", 2, 300, key, stack_depth=depth, stack_width=width)

    cell = jax.eval_shape(network, jax.random.key(0)).cell
    assert can_fuse(cell, tokens=3, time=4) is known


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options"),
    [
        # No readout: few different sequences, so a ReLU active on one path alone weighs much.
        ("stack-rnn", {"hidden": 16, "readout": 0, "stack_depth": 2, "stack_width": 4}),
        ("transformer", {"layers": 1, "positions": "sincos"}),
    ],
)
def test_members_of_an_ensemble_go_through_the_kernels_together(model, options):
    make = jax.vmap(lambda key: network_from_name(model, 2, 8, key, **options))
    networks = jax.jit(make)(jax.random.split(jax.random.key(0), 2))
    symbols = jnp.asarray(np.random.default_rng(0).integers(0, 2, (2, 16, 3)))

    def gradients(backend):
        def loss(network, symbols):
            return network.logits(symbols)[..., 0].sum()

        return jax.jit(jax.vmap(jax.grad(loss)))(networks.with_backend(backend), symbols)

    assert max(errors(gradients("fused"), gradients("plain"))) <= 1e-2


def test_jit_compiles_each_backend_by_itself():
    network = network_of("rnn", 2, 8, hidden=16, readout=0)
    symbols = jnp.zeros((2, 4), jnp.int32)
    traced = []

    @jax.jit
    def logits(network):
        traced.append(network.backend)
        return network.logits(symbols)

    def both():
        return [logits(network.with_backend(backend)) for backend in ("plain", "fused")]

    both()
    assert traced == ["plain", "fused"]
    both()  # jax 0.11 traces again, once, after Pallas has been imported
    compiled = len(traced)
    found = both()
    assert len(traced) == compiled
    assert np.abs(found[0] - found[1]).max() > 0
    np.testing.assert_array_equal(logits(network), found[0])  # on a CPU
    for backend in ("plain", "fused"):
        program = str(jax.make_jaxpr(logits)(network.with_backend(backend)))
        assert ("pallas_call" in program) == (backend == "fused")


def test_auto_is_fused_on_a_gpu(monkeypatch):
    assert [is_fused(backend) for backend in ("auto", "fused", "plain")] == [False, True, False]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(backend_module, "kernel_failure", lambda _: None)
    assert [is_fused(backend) for backend in ("auto", "fused", "plain")] == [True, True, False]
    for device in ("cpu", jax.devices("cpu")[0]):
        with jax.default_device(device):
            assert not is_fused("auto")


@pytest.fixture
def fresh_probe(monkeypatch):
    """No memory of which kernels compile, before and after a test that makes them fail."""

    def forget():
        backend_module.kernel_failure.cache_clear()
        backend_module._warn_of_plain_path.cache_clear()
        jax.clear_caches()  # whose programs contain the decision

    forget()
    yield monkeypatch
    monkeypatch.undo()
    forget()


@pytest.mark.parametrize("missing", ["import", "lowering"])
def test_without_triton_a_gpu_takes_the_plain_path_with_one_warning(missing, fresh_probe):
    network = network_of("lstm", 2, 8, hidden=16)
    transformer = network_of("transformer", 2, 8, layers=1)
    symbols = np.random.default_rng(0).integers(0, 2, (3, 8))
    expected = [each.with_backend("plain").log_probs(symbols) for each in (network, transformer)]
    fresh_probe.setattr("switchpoint.neural.kernels.backend.on_gpu", lambda: True)
    if missing == "import":  # a JAX that has dropped it
        fresh_probe.setitem(sys.modules, "jax.experimental.pallas.triton", None)
        fresh_probe.delattr("jax.experimental.pallas.triton", raising=False)
    else:  # kernels are not interpreted, and this machine has no GPU to compile them for
        fresh_probe.setattr(jax, "local_devices", lambda **_: jax.devices())
    with pytest.warns(UserWarning, match="take the plain path") as warned:
        found = [each.log_probs(symbols) for each in (network, transformer)]
    network.log_probs(symbols[:2])  # traced again, where a second warning would be an error
    assert len(warned) == 1
    message = str(warned[0].message)
    assert {"import": "pallas.triton", "lowering": "interpret"}[missing] in message
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match=r"'fused' needs the Triton backend .* use 'auto' or"):
        network.with_backend("fused").log_probs(symbols)


H200 = AbstractMesh((1,), ("one",), abstract_device=AbstractDevice("NVIDIA H200", None, "gpu"))


@pytest.mark.parametrize(
    "run",
    [
        "rnn",
        "lstm",
        "stack-rnn",
        "stack-lstm",
        "transformer",
        *(
            pytest.param(f"ablation-{name}", marks=pytest.mark.slow)
            for name in (
                "stack-lstm-stack_depth-256-stack_width-8",
                "transformer-positions-alibi-layers-2",
            )
        ),
    ],
)
def test_gradients_at_the_papers_size_are_kernels_for_a_gpu(run, monkeypatch):
    """Every kind of run is lowered to Triton, on a machine that has no GPU."""
    monkeypatch.setattr("switchpoint.neural.kernels.common.on_gpu", lambda: True)
    monkeypatch.setattr(steps, "_UNROLL", 2)
    config = all_runs(FULL)[run].config
    networks = jax.eval_shape(jax.vmap(config.network), jax.random.split(jax.random.key(0), 5))
    symbols = jax.ShapeDtypeStruct((5, config.batch, config.length), jnp.int32)

    def loss(network, symbols):
        return jnp.sum(network.with_backend("fused").logits(symbols))

    with use_abstract_mesh(H200):
        traced = jax.jit(jax.vmap(jax.grad(loss))).trace(networks, symbols)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "triton" in text


@pytest.mark.parametrize("model", ["lstm", "transformer", "markov"])
def test_a_network_on_another_backend_has_the_same_weights(model):
    network = network_of(model, 2, 8)
    fused = network.with_backend("fused")
    assert all(a is b for a, b in zip(*map(jax.tree.leaves, (network, fused)), strict=True))
    assert (jax.tree.structure(network) == jax.tree.structure(fused)) == (model == "markov")
    assert jax.tree.structure(fused.with_backend("auto")) == jax.tree.structure(network)
    with pytest.raises(ValueError, match="backend must be one of auto, fused, plain, got 'gpu'"):
        network.with_backend("gpu")


@pytest.mark.slow
def test_sizes_that_have_no_kernels_take_the_plain_path(tmp_path):
    settings = {"model": "transformer", "layers": 1, "length": 4, "batch": 2, "steps": 1}
    config = TrainConfig(**settings, width=12, heads=2)
    network = jax.jit(config.network)(jax.random.key(0))
    symbols = jnp.zeros((2, 4), jnp.int32)
    logits = network.with_backend("fused").logits(symbols)
    np.testing.assert_array_equal(logits, network.logits(symbols))
    for other in (config, TrainConfig(**settings, positions="rotary")):
        with pytest.raises(ValueError, match=r"fused.*width 64 with 8 heads and no rotary.* got"):
            train(other, out=tmp_path / "run", kernels="fused")
    assert not (tmp_path / "run").exists()
