"""The Transformer against plain NumPy: context window, cache, and the memory of attention."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from switchpoint.neural import attention
from switchpoint.neural.attention import (
    RelativePositions,
    alibi_slopes,
    attend,
    sinusoids,
)
from switchpoint.neural.networks.transformer import HEADS, WIDTH, Transformer

SIZE = WIDTH // HEADS


def plain_sinusoids(positions, width):
    frequencies = 10_000.0 ** (-2 * np.arange(width // 2) / width)
    angles = np.asarray(positions, np.float64)[..., None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)


def plain_relative_scores(relative, query, key):
    """Transformer-XL as its authors write it, with R for every pair of a query and a key."""
    u, v, projection = (
        np.asarray(leaf, np.float64)
        for leaf in (relative.content_bias, relative.position_bias, relative.projection)
    )
    queries, keys = query.shape[1], key.shape[1]
    distances = np.arange(keys - queries, keys)[:, None] - np.arange(keys)
    pairs = np.einsum("hws,qkw->qkhs", projection, plain_sinusoids(distances, projection.shape[1]))
    content = np.einsum("bqhs,bkhs->bhqk", query + u, key)
    return content + np.einsum("bqhs,qkhs->bhqk", query + v, pairs)


def plain_rotary_scores(query, key):
    """Re sum_k q_k conj(k_k) exp(i w_k (t - s)), with a complex number for each pair of numbers."""
    times, size = query.shape[1], query.shape[-1]
    query, key = (x[..., : size // 2] + 1j * x[..., size // 2 :] for x in (query, key))
    distances = np.arange(times)[:, None] - np.arange(times)
    turns = np.exp(1j * distances[..., None] * 10_000.0 ** (-2 * np.arange(size // 2) / size))
    return np.einsum("bqhs,bkhs,qks->bhqk", query, key.conj(), turns).real


def plain_softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def plain_norm(norm, x):
    spread = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return (x - x.mean(-1, keepdims=True)) / spread * norm.scale + norm.shift


def plain_residuals(network, tokens):
    """The residual stream before the first layer and after each, attending to all pairs at once."""
    batch, time = tokens.shape
    x = np.asarray(network.embedding)[tokens]
    if network.positions == "sincos":
        x = x + plain_sinusoids(np.arange(time), network.width)
    size = network.width // network.heads
    distances = np.arange(time)[:, None] - np.arange(time)
    residuals = [x]
    for layer in range(network.layers):
        block = jax.tree.map(lambda leaf, layer=layer: np.asarray(leaf[layer]), network.blocks)
        projected = plain_norm(block.ln1, x) @ block.qkv
        query, key, value = (
            part.reshape(batch, time, network.heads, size)
            for part in np.split(projected, 3, axis=-1)
        )
        if network.positions == "rotary":
            scores = plain_rotary_scores(query, key) / np.sqrt(size)
        elif network.positions == "relative":
            scores = plain_relative_scores(block.relative, query, key) / np.sqrt(size)
        else:
            scores = np.einsum("bqhs,bkhs->bhqk", query, key) / np.sqrt(size)
        if network.positions == "alibi":
            slopes = 2.0 ** (-8 / network.heads * np.arange(1, network.heads + 1))
            scores = scores - slopes[:, None, None] * distances
        unseen = (distances < 0) | (distances >= (network.context or time))
        weights = plain_softmax(np.where(unseen, -np.inf, scores))
        x = x + np.einsum("bhqk,bkhs->bqhs", weights, value).reshape(x.shape) @ block.out_proj
        wide = plain_norm(block.ln2, x) @ block.mlp_in.weight + block.mlp_in.bias
        x = x + np.maximum(wide, 0) @ block.mlp_out.weight + block.mlp_out.bias
        residuals.append(x)
    return np.stack(residuals, axis=2)


def plain_logits(network, tokens):
    last = plain_residuals(network, tokens)[:, :, -1]
    return plain_norm(network.final_norm, last) @ network.output.weight + network.output.bias


def with_random_weights(build, seed=0):
    """What `build` builds, where no weight is 0 or 1 as at the start; nothing is compiled."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(build, jax.random.key(0))
    return jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(0, 0.3, leaf.shape), leaf.dtype), shapes
    )


def make(layers=2, positions="relative", context=None, seed=0, **sizes):
    options = {"layers": layers, "positions": positions, "context": context, **sizes}
    return with_random_weights(lambda key: Transformer(3, key=key, **options), seed)


read = jax.jit(Transformer.read)


def random_tokens(batch, time):
    return np.random.default_rng(2).integers(0, 4, (batch, time))


PLACES = np.array([-(2**31), -4096, -3, 0, 1, 255, 4096, 10**6 + 1, 2**31 - 1])


class TestPositions:
    def test_sinusoids_are_exact_at_any_position(self):
        waves = jax.jit(sinusoids, static_argnums=1)(jnp.asarray(PLACES, jnp.int32), WIDTH)
        np.testing.assert_allclose(waves, plain_sinusoids(PLACES, WIDTH), atol=1e-6)

    def test_alibi_slopes_are_a_geometric_sequence(self):
        np.testing.assert_array_equal(alibi_slopes(8), [2.0**-h for h in range(1, 9)])
        np.testing.assert_allclose(alibi_slopes(16), [2 ** (-h / 2) for h in range(1, 17)])

    @pytest.mark.parametrize(("wide", "tolerance"), [(False, 1e-5), (True, 1e-10)])
    @pytest.mark.parametrize("queries", [2, 30])
    def test_relative_scores_are_those_of_transformer_xl(self, queries, wide, tolerance):
        with jax.enable_x64(wide):
            relative = with_random_weights(lambda key: RelativePositions(4, 8, 16, key))
            rng = np.random.default_rng(1)
            query = jnp.asarray(rng.normal(size=(2, queries, 4, 8)), float)
            rel_query, by_distance = relative.scores(query, sinusoids(jnp.arange(50), 16))
            of_heads = np.broadcast_to(by_distance, (4, *by_distance.shape[1:]))
            scores = np.einsum("bqht,htd->bhqd", rel_query, of_heads)
            no_key = np.zeros((2, 50, 4, 8))
            plain = plain_relative_scores(relative, np.asarray(query), no_key)
        assert scores.dtype == (np.float64 if wide else np.float32)
        assert len(by_distance) == (1 if queries == 2 else 4)  # fewer operations for few queries
        places = np.arange(50 - queries, 50)
        for row, place in enumerate(places):  # the key at distance d is d places before
            expected = plain[:, :, row, place::-1]
            np.testing.assert_allclose(scores[:, :, row, : place + 1], expected, atol=tolerance)


def plain_attend(query, key, value, first, context, slopes, relative):
    """All scores of a sequence in one matrix, and a mask."""
    queries, keys = query.shape[1], key.shape[1]
    distance = np.arange(keys - queries, keys)[:, None] - np.arange(keys)
    scores = np.einsum("bqhs,bkhs->bhqk", query, key)
    products = np.einsum("bqht,htd->bhqd", *relative)
    scores += np.take_along_axis(products, np.maximum(distance, 0)[None, None], axis=-1)
    scores = scores / np.sqrt(query.shape[-1]) - slopes[:, None, None] * distance
    visible = (distance >= 0) & (distance < context) & (np.arange(keys) >= first)
    weights = plain_softmax(np.where(visible, scores, -np.inf))
    return np.einsum("bhqk,bkhs->bqhs", weights, value)


def random_arrays():
    """Queries, keys, values, and the two factors of relative scores."""
    rng = np.random.default_rng(3)
    shapes = ((5, 11, 2, 6), (5, 17, 2, 6), (5, 17, 2, 6), (5, 11, 2, 4), (2, 4, 17))
    return [rng.normal(size=shape) for shape in shapes]


class TestAttention:
    @pytest.mark.parametrize(
        ("limits", "context"),
        [((64, 2**20), 9), ((64, 800), 9), ((3, 2**20), 9), ((2, 170), 100), ((1, 1), 9)],
    )
    def test_blocks_are_the_plain_formula(self, limits, context):
        # A sequence has 374 scores, 34 for each query: all of them at once, two sequences of five,
        # blocks of 3 queries, of 2 queries of two sequences, and one query of one sequence.
        *arrays, rel_query, by_distance = random_arrays()
        relative = attention.RelativeScores(rel_query, by_distance)
        slopes = alibi_slopes(2)
        expected = plain_attend(*arrays, 2, context, np.asarray(slopes), relative)
        single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (*arrays, relative))

        @jax.jit
        def found(query, key, value, relative):
            options = {"first": 2, "context": context, "slopes": slopes, "relative": relative}
            return attend(query, key, value, **options, limits=limits)

        np.testing.assert_allclose(found(*single), expected, atol=1e-5)

    @pytest.mark.parametrize("limits", [(64, 800), (3, 2**20)])
    def test_blocks_have_the_gradient_of_all_at_once(self, limits):
        given = [jnp.asarray(array, jnp.float32) for array in random_arrays()]

        def gradient(limits):
            def loss(query, key, value, *relative):
                options = {"first": jnp.asarray(2), "context": 9, "slopes": alibi_slopes(2)}
                relative = attention.RelativeScores(*relative)
                options |= {"relative": relative, "limits": limits}
                return (attend(query, key, value, **options) ** 2).sum()

            return jax.jit(jax.grad(loss, range(5)))(*given)

        pairs = zip(gradient(limits), gradient((64, 2**20)), strict=True)
        for blocks, whole in pairs:
            np.testing.assert_allclose(blocks, whole, atol=2e-5)

    def test_memory_grows_with_the_length(self):
        def temporary(length):
            shape = jax.ShapeDtypeStruct((1, length, HEADS, SIZE), jnp.float32)
            gradient = jax.jit(jax.grad(lambda *arrays: (attend(*arrays) ** 2).sum(), (0, 1, 2)))
            compiled = gradient.lower(shape, shape, shape).compile()
            return compiled.memory_analysis().temp_size_in_bytes

        short, long = temporary(2048), temporary(8192)
        assert long < 2**27  # the scores alone would be 2^31
        assert long < 4.5 * short


class TestNetwork:
    @pytest.mark.usefixtures("float64")
    @pytest.mark.parametrize(
        ("positions", "context", "sizes"),
        [
            ("sincos", 5, {}),
            ("alibi", 4, {}),
            ("relative", None, {}),
            ("rotary", None, {}),
            ("rotary", 5, {"width": 12, "heads": 3}),
            ("relative", 5, {"width": 18, "heads": 3}),
            ("alibi", None, {"width": 15, "heads": 5}),
        ],
    )
    def test_logits_and_states_are_the_plain_formula(self, positions, context, sizes):
        network = make(2, positions, context, **sizes)
        symbols = random_tokens(3, 12) % 3
        tokens = np.concatenate([np.full((3, 1), 3), symbols], axis=1)
        _, logits = read(network, network.memory(3, 0), jnp.asarray(tokens))
        np.testing.assert_allclose(logits, plain_logits(network, tokens), atol=1e-10)
        expected = plain_residuals(network, tokens)[:, 1:]  # the residual stream of every layer
        np.testing.assert_allclose(network.states(symbols), expected, atol=1e-10)

    def test_what_is_added_up_is_small_at_the_start(self, key):
        build = jax.jit(lambda key: Transformer(2, key=key, layers=9).blocks)
        blocks = build(key)
        deviation = 0.8796  # of the normal law cut at two
        added = [(blocks.out_proj, 64), (blocks.mlp_out.weight, 256)]
        for weights, inputs in added:
            expected = deviation / np.sqrt(inputs * 2 * 9)
            np.testing.assert_allclose(np.std(weights, axis=(1, 2)), expected, rtol=0.06)
        expected = deviation / np.sqrt(64)
        np.testing.assert_allclose(np.std(blocks.qkv, axis=(1, 2)), expected, rtol=0.06)


class TestMemory:
    def test_a_full_memory_is_a_window(self):
        narrow = make(1, "relative", 4)
        wide = make(1)
        tokens = jnp.asarray(random_tokens(2, 9))
        _, windowed = read(narrow, narrow.memory(2, 0), tokens)
        memory, rows = wide.memory(2, 3), []
        for time in range(9):
            memory, logits = read(wide, memory, tokens[:, time : time + 1])
            rows.append(logits)
        np.testing.assert_allclose(jnp.concatenate(rows, axis=1), windowed, atol=1e-5)
        assert narrow.memory(2, 12).keys.shape[2] == 3  # its context, without the token itself
        assert wide.grow(memory) is memory  # dropped tokens do not come back

    def test_gradients_pass_through_memory_unless_stopped(self):
        network = make(1)
        tokens = jnp.asarray(random_tokens(2, 8))

        def second_half(embedding, stop):
            changed = eqx.tree_at(lambda network: network.embedding, network, embedding)
            memory, _ = changed.read(network.memory(2, 4), tokens[:, :4])
            memory = jax.lax.stop_gradient(memory) if stop else memory
            return (network.read(memory, tokens[:, 4:])[1] ** 2).sum()

        gradient = jax.jit(jax.grad(second_half), static_argnums=1)
        assert np.abs(gradient(network.embedding, False)).max() > 1e-4
        np.testing.assert_array_equal(gradient(network.embedding, True), 0)
