"""The log loss of a network and its gradient."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Shaped

from switchpoint.neural import Network


def loss_and_gradient(
    network: Network,
    values: Shaped[Array, "batch time *event"],
    weights: Float[Array, " time"],
    tbptt_length: int | None = None,
) -> tuple[Float[Array, ""], Network]:
    """The log loss in nats per observation, weighted over time, and its gradient.

    With a `tbptt_length`, memory is carried from one chunk of this many observations to the next,
    and gradients end at the beginning of their chunk.
    """
    if tbptt_length is None or tbptt_length == values.shape[1]:
        return jax.value_and_grad(
            lambda net: _loss(net.observed(net.logits(values), values), weights)
        )(network)
    batch, time = values.shape[:2]
    count = time // tbptt_length

    def in_pieces(array: Array) -> Array:
        return jnp.swapaxes(array.reshape(batch, count, tbptt_length, *array.shape[2:]), 0, 1)

    def piece(network: Network, memory: object, part: tuple[Array, Array, Array]) -> tuple:
        tokens, values, weights = part
        memory, outputs = network.read(memory, tokens)
        return _loss(network.observed(outputs, values), weights), memory

    def add(carry: tuple, part: tuple[Array, Array, Array]) -> tuple[tuple, None]:
        memory, loss, gradient = carry
        (more, memory), slope = jax.value_and_grad(piece, has_aux=True)(
            network, lax.stop_gradient(memory), part
        )
        return (memory, loss + more, jax.tree.map(jnp.add, gradient, slope)), None

    parts = (
        in_pieces(network.tokens_before(values)),
        in_pieces(values),
        weights.reshape(count, tbptt_length),
    )
    zero = jax.tree.map(jnp.zeros_like, network)
    start = (network.memory(batch, time - tbptt_length), jnp.zeros(()), zero)
    (_, loss, gradient), _ = lax.scan(add, start, parts)
    return loss, gradient


def _loss(
    log_density: Float[Array, "batch time"], weights: Float[Array, " time"]
) -> Float[Array, ""]:
    return jnp.sum(-log_density.mean(0) * weights)
