"""Regret and code length."""

import jax.numpy as jnp
import numpy as np
import pytest

import switchpoint as sp


def draw_of(probs, symbols=None):
    probs = jnp.asarray(probs, jnp.float32)
    symbols = jnp.zeros(probs.shape[:-1], jnp.int32) if symbols is None else jnp.asarray(symbols)
    return sp.Draw(symbols, probs, jnp.zeros(probs.shape[:-1], bool))


def test_regret_is_the_divergence_in_bits():
    draw = draw_of([[[0.25, 0.75], [0.5, 0.5]]])
    log_probs = jnp.log(jnp.asarray([[[0.5, 0.5], [0.5, 0.5]]]))
    expected = 0.25 * np.log2(0.25 / 0.5) + 0.75 * np.log2(0.75 / 0.5)
    np.testing.assert_allclose(sp.regret(draw, log_probs), [[expected, 0]], atol=1e-6)
    np.testing.assert_allclose(sp.cumulative_regret(draw, log_probs), [[expected] * 2], atol=1e-6)


def test_regret_is_finite_at_certainty():
    draw = draw_of([[0.0, 1.0], [1.0, 0.0]])
    half = jnp.log(jnp.full((2, 2), 0.5))
    np.testing.assert_allclose(sp.regret(draw, half), [1, 1], atol=1e-6)
    sure = jnp.asarray([[-jnp.inf, 0.0], [0.0, -jnp.inf]])  # and rightly so
    np.testing.assert_allclose(sp.regret(draw, sure), [0, 0])
    np.testing.assert_allclose(sp.excess_regret(draw, half, sure), [1, 1], atol=1e-6)


def test_excess_is_the_difference_of_regrets():
    rng = np.random.default_rng(0)
    probs, one, two = (rng.dirichlet([1, 1, 1], (4, 5)) for _ in range(3))
    draw = draw_of(probs)
    one, two = jnp.log(jnp.asarray(one)), jnp.log(jnp.asarray(two))
    np.testing.assert_allclose(
        sp.excess_regret(draw, one, two), sp.regret(draw, one) - sp.regret(draw, two), atol=1e-5
    )


def test_code_length_is_what_happened():
    log_probs = jnp.log(jnp.asarray([[0.25, 0.75], [0.5, 0.5]]))
    np.testing.assert_allclose(sp.code_length(np.array([0, 1]), log_probs), [2, 1], atol=1e-6)


def test_regret_is_the_expected_code_length_over_entropy(key):
    source = sp.Source(sp.PTW(5))
    draw = source.sample(key, 5000, 32)
    log_probs = sp.bayes_optimal(source).log_probs(draw.symbols)
    spent = sp.code_length(draw.symbols, log_probs) - sp.code_length(
        draw.symbols, jnp.log(draw.probs)
    )
    difference = np.asarray((spent - sp.regret(draw, log_probs)).sum(-1))
    assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(len(difference))


def test_shapes_must_agree():
    draw = draw_of([[0.5, 0.5]])
    with pytest.raises(ValueError, match=r"log_probs must have shape \(1, 2\), got \(2, 2\)"):
        sp.regret(draw, jnp.zeros((2, 2)))
    with pytest.raises(ValueError, match="log_probs must have shape"):
        sp.excess_regret(draw, jnp.zeros((1, 3)), jnp.zeros((1, 3)))
