"""Running sums by triangular products."""

import jax.numpy as jnp
import numpy as np
import pytest

from switchpoint._prefix_sums import sum_after, sum_before, sum_before_within

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("time", [1, 2, 63, 64, 65, 200, 4096, 5000])
def test_sums_before_and_after(time):
    values = RNG.integers(-9, 9, (2, time)).astype(np.float32)
    before = np.cumsum(values, axis=-1) - values
    np.testing.assert_array_equal(sum_before(jnp.asarray(values)), before)
    after = values.sum(-1, keepdims=True) - before - values
    np.testing.assert_array_equal(sum_after(jnp.asarray(values)), after)


@pytest.mark.parametrize(("time", "window"), [(8, 2), (8, 8), (64, 1), (256, 16), (256, 128)])
def test_sums_within_windows(time, window):
    values = RNG.integers(-9, 9, (3, time)).astype(np.float32)
    cut = values.reshape(3, -1, window)
    expected = (np.cumsum(cut, axis=-1) - cut).reshape(3, time)
    np.testing.assert_array_equal(sum_before_within(jnp.asarray(values), window), expected)
