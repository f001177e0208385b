"""The log loss of a network and its gradient."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from switchpoint.neural import Network
from switchpoint.neural.network import tokens_before


def loss_and_gradient(
    network: Network,
    symbols: Int[Array, "batch time"],
    weights: Float[Array, " time"],
    tbptt_length: int | None = None,
) -> tuple[Float[Array, ""], Network]:
    """The log loss in nats per symbol, weighted over time, and its gradient.

    With a `tbptt_length`, memory is carried from one chunk of so many symbols to the next, and
    gradients end at the beginning of their chunk.
    """
    if tbptt_length is None or tbptt_length == symbols.shape[1]:
        return jax.value_and_grad(lambda net: _loss(net.logits(symbols), symbols, weights))(network)
    batch, time = symbols.shape
    count = time // tbptt_length

    def in_pieces(array: Array) -> Array:
        return jnp.swapaxes(array.reshape(batch, count, tbptt_length), 0, 1)

    def piece(network: Network, memory: object, part: tuple[Array, Array, Array]) -> tuple:
        tokens, symbols, weights = part
        memory, logits = network.read(memory, tokens)
        return _loss(logits, symbols, weights), memory

    def add(carry: tuple, part: tuple[Array, Array, Array]) -> tuple[tuple, None]:
        memory, loss, gradient = carry
        (more, memory), slope = jax.value_and_grad(piece, has_aux=True)(
            network, lax.stop_gradient(memory), part
        )
        return (memory, loss + more, jax.tree.map(jnp.add, gradient, slope)), None

    parts = (
        in_pieces(tokens_before(symbols, network.alphabet)),
        in_pieces(symbols),
        weights.reshape(count, tbptt_length),
    )
    zero = jax.tree.map(jnp.zeros_like, network)
    start = (network.memory(batch, time - tbptt_length), jnp.zeros(()), zero)
    (_, loss, gradient), _ = lax.scan(add, start, parts)
    return loss, gradient


def _loss(
    logits: Float[Array, "batch time alphabet"],
    symbols: Int[Array, "batch time"],
    weights: Float[Array, " time"],
) -> Float[Array, ""]:
    hot = jax.nn.one_hot(symbols, logits.shape[-1])
    surprise = -jnp.sum(hot * jax.nn.log_softmax(logits), axis=-1)
    return jnp.sum(surprise.mean(0) * weights)
