"""Recurrent networks and baselines against slow, direct computations; network files."""

import json
import os
import tracemalloc
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import switchpoint as sp
from switchpoint._tensors import read_tensors, write_tensors
from switchpoint.neural import GRU, Markov, Memoryless, Recurrent, network_from_name
from switchpoint.neural.cells import stack_update
from switchpoint.neural.networks.recurrent import _scan, recurrence

RECURRENT = ["rnn", "lstm", "stack-rnn", "stack-lstm"]
LAYERED = ["lru", "mamba"]


def small(name, alphabet=3, **options):
    options = {"hidden": 6, "readout": 1, **options}
    if name.startswith("stack"):
        options = {"stack_depth": 4, "stack_width": 2, **options}
    return network_from_name(name, alphabet, 20, jax.random.key(1), **options)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def numpy_logits(network, symbols):
    """The network reimplemented for one sequence in float64 NumPy."""
    weights = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), network)
    cell, stack = weights.cell, None
    units = "gru" if isinstance(network, GRU) else network.units
    if units != "gru" and network.stack_depth:
        stack = np.zeros((network.stack_depth, network.stack_width))
        read, write, cell = cell.read, cell.write, cell.inner
    h, c = np.zeros(network.hidden), np.zeros(network.hidden)
    rows = []
    for token in [network.alphabet, *symbols[:-1]]:
        inputs = weights.input.weight[token] + weights.input.bias
        gates = h @ cell.weight + inputs[: cell.weight.shape[1]]
        if stack is not None:
            gates = gates + stack[0] @ read
        if units == "rnn":
            h = np.maximum(gates, 0)
        elif units == "gru":
            r, z, n = np.split(gates, 3)
            r, z = sigmoid(r), sigmoid(z + 1)
            h = (1 - z) * np.tanh(inputs[cell.weight.shape[1] :] + r * n) + z * h
        else:
            i, f, g, o = np.split(gates, 4)
            c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        if stack is not None:
            written = h @ write + inputs[cell.weight.shape[1] :]
            push, pop, keep = np.exp(written[:3]) / np.exp(written[:3]).sum()
            pushed = np.vstack([written[3:], stack[:-1]])
            popped = np.vstack([stack[1:], 0 * stack[:1]])
            stack = push * pushed + pop * popped + keep * stack
        x = h
        *hidden, last = weights.output.layers
        for layer in hidden:
            x = np.maximum(x @ layer.weight + layer.bias, 0)
        rows.append(x @ last.weight + last.bias)
    return np.stack(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {"readout": 2}) for name in [*RECURRENT, "gru"]),
        ("stack-lstm", {"stack_depth": 1}),
        ("stack-lstm", {"stack_depth": 20}),  # the length of the sequences
    ],
)
def test_recurrent_networks_are_their_definition(name, options):
    network = small(name, **options)
    symbols = np.random.default_rng(0).integers(0, 3, (2, 20))
    logits = jax.jit(lambda rows: network.logits(rows))(jnp.asarray(symbols, jnp.int32))
    for row, expected in zip(logits, symbols, strict=True):
        np.testing.assert_allclose(row, numpy_logits(network, expected), atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rnn", "stack-lstm", "gru"])
@pytest.mark.usefixtures("float64")
def test_weight_gradients_in_one_product_are_the_scan_s_own(name):
    cell = small(name).cell
    inputs = jax.random.normal(jax.random.key(2), (7, 3, cell.input_width))
    carry = jax.tree.map(lambda leaf: leaf + 0.1, cell.start(3))
    target = jax.random.normal(jax.random.key(3), (7, 3, cell.hidden))

    def loss(run, cell, carry, inputs):
        last, outputs = run(cell, carry, inputs)
        return jnp.sum(outputs * target) + sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(last))

    def plain(cell, carry, inputs):
        last, (outputs, _) = _scan(cell, carry, inputs)
        return last, outputs

    ours = jax.jit(jax.grad(lambda *args: loss(recurrence, *args), (0, 1, 2)))(cell, carry, inputs)
    true = jax.jit(jax.grad(lambda *args: loss(plain, *args), (0, 1, 2)))(cell, carry, inputs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(true), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert all(np.abs(leaf).max() > 1e-4 for leaf in jax.tree.leaves(true))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "units"), [("rnn", 16), ("rnn", 256), ("stack-rnn", 64)])
def test_new_rnns_forget_slowly_and_stay_in_bounds(name, units):
    network = small(name, hidden=units)
    cell = network.cell.inner if name == "stack-rnn" else network.cell
    kept = np.abs(np.linalg.eigvals(np.asarray(cell.weight)))
    assert kept.max() < 1
    assert kept.max() ** 256 > 0.1  # a trace of the first symbol remains
    assert np.median(kept) ** 256 < 1e-3  # but not in most units
    symbols = jax.random.randint(jax.random.key(1), (4, 2000), 0, 3)
    logits = np.asarray(jax.jit(lambda rows: network.logits(rows))(symbols))
    assert np.abs(logits).max() < 30


def test_hard_actions_make_an_ordinary_stack_and_soft_ones_mix_them():
    rng = np.random.default_rng(4)
    depth, width = 5, 2
    stack = jnp.zeros((1, depth, width))
    plain = []
    for _ in range(60):
        action = rng.choice(3, p=[0.5, 0.3, 0.2])
        value = rng.normal(size=width).astype(np.float32)
        hard = [
            stack_update(stack, jnp.eye(3)[None, k], jnp.asarray(value)[None]) for k in range(3)
        ]
        soft = stack_update(stack, jnp.asarray([[0.2, 0.3, 0.5]]), jnp.asarray(value)[None])
        np.testing.assert_allclose(soft, 0.2 * hard[0] + 0.3 * hard[1] + 0.5 * hard[2], atol=1e-6)
        stack = hard[action]
        if action == 0:
            plain = [value, *plain][:depth]  # the bottom entry is dropped
        elif action == 1:
            plain = plain[1:]
        filled = [*plain, *[np.zeros(width, np.float32)] * (depth - len(plain))]
        np.testing.assert_array_equal(stack[0], np.stack(filled))


def test_memoryless_ignores_the_past_and_knows_the_time():
    network = Memoryless(3, 4)
    table = jax.random.normal(jax.random.key(0), (4, 3))
    network = jax.tree.unflatten(jax.tree.structure(network), [table])
    one, other = network.log_probs([[0, 1, 2, 0, 1, 1], [2, 2, 0, 1, 0, 2]])
    np.testing.assert_array_equal(one, other)
    expected = np.asarray(jax.nn.log_softmax(table))[[0, 1, 2, 3, 3, 3]]
    np.testing.assert_allclose(one, expected, atol=1e-6)


def test_markov_sees_the_last_symbols_alone():
    network = Markov(2, key=jax.random.key(0), order=3)
    symbols = np.random.default_rng(0).integers(0, 2, 12)
    before = network.log_probs(symbols)
    changed = symbols.copy()
    changed[4] = 1 - changed[4]
    difference = np.abs(network.log_probs(changed) - before).max(-1)
    assert np.flatnonzero(difference > 1e-6).tolist() == [5, 6, 7]


@pytest.mark.parametrize("name", [*RECURRENT, *LAYERED, "gru", "markov", "memoryless"])
def test_states_are_those_of_updating_one_at_a_time(name):
    symbols = np.random.default_rng(0).integers(0, 3, (2, 1, 7))  # batches may have any shape
    options = {"hidden": 6} if name in RECURRENT else {}
    network = network_from_name(name, 3, 20, jax.random.key(0), **options)
    states = network.states(symbols)
    for row in range(2):
        state = network.init()
        for time, symbol in enumerate(symbols[row, 0]):
            state = network.update(state, int(symbol))
            for one, every in zip(*map(jax.tree.leaves, (state.memory, states)), strict=True):
                batch = () if one.ndim == 0 else 1 if name in LAYERED else 0
                expected = np.squeeze(one, batch)
                assert every.shape == (2, 1, 7, *expected.shape)
                np.testing.assert_allclose(every[row, 0, time], expected, atol=1e-6)


class OwnNetwork(sp.neural.Network):
    """A running mean of one-hot symbols, whose logits have the shape that `shape` makes of them."""

    shape: object = eqx.field(static=True, default=lambda logits: logits)
    alphabet_size: int = eqx.field(static=True, default=3)

    def memory(self, batch, capacity):
        del capacity
        return jnp.zeros((self.alphabet, batch))  # the batch is not its first axis

    def read(self, memory, tokens):
        def step(memory, token):
            memory = 0.9 * memory + jax.nn.one_hot(token, self.alphabet).T
            return memory, memory.T

        memory, logits = jax.lax.scan(step, memory, tokens.T)
        return memory, self.shape(jnp.swapaxes(logits, 0, 1))


def test_a_network_of_ones_own_has_states_with_the_batch_in_front():
    symbols = np.random.default_rng(0).integers(0, 3, (2, 9))
    network = OwnNetwork()
    states = network.states(symbols)
    assert states.shape == (2, 9, 3)
    predicted = jax.nn.log_softmax(states[:, :-1])
    np.testing.assert_allclose(predicted, network.log_probs(symbols)[:, 1:], atol=1e-6)


class Forgetful(OwnNetwork):
    """Its `read` returns no memory."""

    def read(self, memory, tokens):
        return super().read(memory, tokens)[1]


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (OwnNetwork(lambda logits: logits[..., :2]), r"\(1, 5, 3\) here, .* shape \(1, 5, 2\)"),
        (OwnNetwork(lambda logits: jnp.swapaxes(logits, 1, 2)), r"got .* shape \(1, 3, 5\)"),
        (OwnNetwork(lambda logits: logits[:, -1]), r"got logits of shape \(1, 3\)"),
        (Forgetful(), ""),
    ],
)
def test_results_of_a_wrong_shape_are_refused_by_name(network, message):
    name = rf"{type(network).__name__}\.read must return the memory and logits"
    with pytest.raises(ValueError, match=f"{name}.*{message}"):
        network.log_probs([0, 1, 2, 0, 1])
    for use in (network.init, lambda: network.states([0, 1])):
        with pytest.raises(ValueError, match=name):
            use()


class TestBadInput:
    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("lstm", {"hidden": 0}, "hidden must be .* at least 1, got 0"),
            ("lstm", {"readout": -1}, "readout must be .* at least 0, got -1"),
            ("transformer", {"positions": "rope"}, "positions must be .*, got 'rope'"),
            ("transformer", {"positions": "rotary", "width": 24}, "even number .* got 24 for 8"),
            ("transformer", {"layers": 0}, "layers must be .* at least 1, got 0"),
            ("transformer", {"width": 60}, "width must be divisible by the 8 heads, got 60"),
            ("transformer", {"heads": 3}, "width must be divisible by the 3 heads, got 64"),
            ("transformer", {"width": 15, "heads": 3}, "width must be even .*'relative'.* got 15"),
            ("lru", {"state_size": 0}, "state_size must be .* at least 1, got 0"),
            ("mamba", {"layers": 0}, "layers must be .* at least 1, got 0"),
            ("markov", {"order": 0}, "order must be .* at least 1, got 0"),
        ],
    )
    def test_options_are_refused_by_name(self, name, options, message):
        with pytest.raises(ValueError, match=message):
            network_from_name(name, 2, 20, jax.random.key(0), **options)

    def test_a_stack_has_depth_and_width(self):
        with pytest.raises(ValueError, match="both"):
            Recurrent(2, "rnn", key=jax.random.key(0), stack_depth=3)

    def test_symbols_are_checked(self):
        network = small("lstm", alphabet=2)
        with pytest.raises(ValueError, match="from 0 to 1, got 2 at position 1"):
            network.log_probs([0, 2])
        with pytest.raises(ValueError, match="from 0 to 1, got 5"):
            network.update(network.init(), 5)


def saved(path, networks, **changes):
    card = {
        "model": "lstm",
        "alphabet": 3,
        "length": 20,
        "options": {"hidden": 6, "readout": 1},
        "members": [{"excess": 0.3}, {"excess": 0.1}, {"excess": None}][: len(networks)],
        **changes,
    }
    sp.neural.save_networks(path, networks, card)
    return path


FILES = Path(__file__).parent / "networks"
EXPECTED = json.loads((FILES / "expected.json").read_text())


@pytest.mark.parametrize("model", sp.neural.MODEL_OPTIONS)
def test_files_load_with_the_predictions_that_they_had_when_they_were_written(model):
    path = FILES / f"{model}.safetensors"
    card, networks = sp.neural.load_with_card(path)
    assert card == sp.neural.read_card(path)
    assert card["format"] == 1
    assert [member["diverged"] for member in card["members"]] == [True, False][: len(networks)]
    assert sp.neural.best_member(card) == len(networks) - 1  # not the one that diverged
    assert card["sources"] == {"uniform": "Source(prior=RandomUniform(max_length=8))"}
    for network, log_probs in zip(networks, EXPECTED[model], strict=True):
        np.testing.assert_allclose(network.log_probs(EXPECTED["symbols"]), log_probs, atol=2e-6)


class TestStorage:
    def test_a_deep_transformer_has_more_layers_than_tensors(self, tmp_path):
        options = {"layers": 40, "width": 8, "heads": 2, "positions": "alibi"}
        network = network_from_name("transformer", 2, 20, jax.random.key(0), **options)
        path = tmp_path / "deep.safetensors"
        saved(path, [network], model="transformer", alphabet=2, options=options)
        assert sp.neural.load(path).log_probs([0, 1]).shape == (2, 2)
        saved(path, [network], model="transformer", alphabet=2, options={**options, "layers": 41})
        with pytest.raises(ValueError, match="layers 41"):
            sp.neural.load(path)

    def test_a_file_says_its_format_and_a_newer_one_is_refused(self, tmp_path):
        path = saved(tmp_path / "model.safetensors", [small("lstm")])
        card, arrays = read_tensors(path, "network")
        assert sp.neural.read_card(path)["format"] == 1
        write_tensors(path, {**card, "format": 3, "members": "in a new form"}, arrays, "path")
        for read in (sp.load, sp.neural.read_card):
            with pytest.raises(ValueError, match=r"model\.\w+ has format 3; .*up to 1: upgrade"):
                read(path)

    def test_the_best_member_is_loaded_or_the_chosen_one(self, tmp_path):
        members = [
            {"prior": "ptw", "excess": 0.1},
            {"prior": "lin", "excess": 0.05, "diverged": True},
            {"prior": "lin", "excess": None},
            {"prior": "lin", "excess": 0.7, "diverged": False},
            {"prior": "lin", "excess": 0.4, "diverged": False},
            {"prior": "regular", "excess": None, "diverged": True},
        ]
        networks = [jax.tree.map(lambda x, i=i: x + i, small("lstm")) for i in range(len(members))]
        path = saved(tmp_path / "model.safetensors", networks, members=members)
        choices = {"ptw": 0, "lin": 4, "regular": 5}
        for loaded, index in (
            (sp.load(path), 0),
            (sp.load(tmp_path, member=2), 2),
            *((sp.load(path, prior=prior), index) for prior, index in choices.items()),
        ):
            same = jax.tree.map(np.array_equal, loaded, networks[index])
            assert all(jax.tree.leaves(same)), index
        assert len(sp.load_members(tmp_path)) == 6
        assert sp.neural.read_card(path)["options"] == {"hidden": 6, "readout": 1}
        for choice, message in (
            ({"member": 6}, "member must be from 0 to 5, got 6"),
            ({"prior": "uniform"}, "prior must be one of ptw, lin, regular, got 'uniform'"),
            ({"member": 0, "prior": "ptw"}, "exclude each other, got 0 and 'ptw'"),
        ):
            with pytest.raises(ValueError, match=message):
                sp.load(path, **choice)

    def test_the_card_outlives_damaged_weights(self, tmp_path):
        path = saved(tmp_path / "a.safetensors", [small("lstm")])
        whole, card = path.read_bytes(), sp.neural.read_card(path)
        path.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
        for read in (sp.load, sp.load_members, sp.neural.load_with_card):
            with pytest.raises(ValueError, match=r"not a switchpoint network: .*checksum"):
                read(path)
        assert sp.neural.read_card(path) == card
        with pytest.raises(ValueError, match="there is no file or directory"):
            sp.load(tmp_path / "none.safetensors")
        path.unlink()
        with pytest.raises(ValueError, match="holds no trained network"):
            sp.load(tmp_path)

    def test_a_card_is_read_without_the_weights(self, tmp_path):
        path = tmp_path / "large.safetensors"
        size = 2**29
        card = {"kind": "network", "format": 1, "model": "memoryless", "alphabet": 2}
        card |= {"length": 2**26, "options": {}, "members": [{"excess": 0.5}], "sha256": "unknown"}
        table = {"dtype": "F32", "shape": [1, 2**26, 2], "data_offsets": [0, size]}
        header = json.dumps({"__metadata__": {"switchpoint": json.dumps(card)}, "table": table})
        with path.open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header.encode())
            file.truncate(file.tell() + size)
        tracemalloc.start()
        try:
            assert sp.neural.read_card(path)["members"] == [{"excess": 0.5}]
            assert sp.neural.count_parameters(path) == 2**27
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()
        os.truncate(path, size)
        with pytest.raises(
            ValueError, match=r"large\.safetensors is not a switchpoint network: .*truncated"
        ):
            sp.neural.read_card(path)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"options": {"hidden": 7, "readout": 1}}, "must have shape"),
            ({"model": "stack-lstm"}, "not those of .*Recurrent: "),
            ({"model": "gpt"}, "describes no known network"),
            ({"members": [{}, {}]}, "must have shape"),
        ],
    )
    def test_a_card_that_does_not_fit_is_refused(self, tmp_path, changes, message):
        path = saved(tmp_path / "a.safetensors", [small("lstm")], **changes)
        with pytest.raises(ValueError, match=message):
            sp.load(path)
