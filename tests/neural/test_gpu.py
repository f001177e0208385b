"""On a GPU: the compiled kernels agree with the plain path, and networks learn with them.

Everywhere else `test_kernels.py` interprets the kernels.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import switchpoint as sp
from switchpoint.neural import network_from_name

pytestmark = pytest.mark.gpu
ARCHITECTURES = [
    ("rnn", {"hidden": 64}),
    ("lstm", {"hidden": 64}),
    ("stack-rnn", {"hidden": 64}),
    ("stack-lstm", {"hidden": 64}),
    ("stack-lstm", {"hidden": 128, "stack_depth": 64}),
    ("transformer", {"layers": 2}),
]
architectures = pytest.mark.parametrize(("model", "options"), ARCHITECTURES)


@architectures
def test_kernels_compute_what_the_plain_path_does(model, options):
    network = network_from_name(model, 2, 128, jax.random.key(0), **options)
    # Biased, so that the gradient is not what is left of terms that cancel.
    symbols = jnp.asarray(np.random.default_rng(0).random((32, 128)) < 0.9, jnp.int32)

    @jax.jit
    def predictions_and_gradients(network):
        def code_length(network):
            log_probs = jax.nn.log_softmax(network.logits(symbols))
            observed = jnp.take_along_axis(log_probs, symbols[..., None], axis=-1)
            return -observed.mean(), jnp.exp(log_probs)

        gradients, probs = jax.grad(code_length, has_aux=True)(network)
        return probs, gradients

    with jax.default_matmul_precision("highest"):
        plain, expected = jax.device_get(predictions_and_gradients(network.with_backend("plain")))
    fused, found = jax.device_get(predictions_and_gradients(network.with_backend("fused")))
    assert 0 < np.abs(fused - plain).max() < 2e-3  # two paths, one function
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.linalg.norm(a - b) <= 0.015 * np.linalg.norm(b)


@architectures
def test_a_short_run_with_kernels_improves(model, options):
    config = sp.TrainConfig(
        model=model,
        prior="ptw",
        length=64,
        batch=64,
        steps=100,
        report_every=20,
        validation=500,
        **options,
    )
    run = sp.train(config, kernels="fused")
    first, last = run.reports[0].excess, run.reports[-1].excess
    assert np.mean(last) < 0.7 * np.mean(first)
