"""The readout of a recurrent network: all its dense layers in one kernel, forward and backward.

Only the logits are stored; the backward pass recomputes the hidden layers.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from switchpoint.neural.dense import Perceptron
from switchpoint.neural.kernels.common import (
    BF16,
    FP16,
    call,
    dot,
    largest_divisor,
    max_abs,
    weight_gradient,
)

LOGITS = 16
"""The columns of the last layer: logits, padded with zeros."""

ROWS = 64
"""The number of rows per program."""

_INNER = 64  # of the outputs at a time


def forward(
    readout: Perceptron, outputs: Float[Array, "rows hidden"]
) -> Float[Array, "rows alphabet"]:
    """The logits."""
    weights, biases = _padded_layers(readout)
    outputs, rows = _pad_rows(outputs), len(outputs)
    (logits,) = call(
        _forward,
        "read_out",
        (len(outputs) // ROWS,),
        (outputs, [weight.astype(FP16) for weight in weights], biases),
        outputs=[((len(outputs), LOGITS), jnp.float32)],
    )
    return logits[:rows, : len(readout.layers[-1].bias)]


def backward(
    readout: Perceptron,
    outputs: Float[Array, "rows hidden"],
    d_logits: Float[Array, "rows alphabet"],
) -> tuple[Perceptron, Float[Array, "rows hidden"]]:
    """The gradients of the layers and of the outputs."""
    weights, biases = _padded_layers(readout)
    scale = max_abs(d_logits)
    scaled = jnp.pad(d_logits / scale, ((0, 0), (0, LOGITS - d_logits.shape[1])))
    scaled = _pad_rows(scaled).astype(FP16)
    outputs, rows = _pad_rows(outputs), len(outputs)
    padded, count = len(outputs), len(outputs) // ROWS
    widths = [bias.shape[0] for bias in biases][:-1]
    d_outputs, *results = call(
        _backward,
        "read_out_backward",
        (count,),
        (
            outputs,
            [weight.astype(FP16) for weight in weights],
            biases,
            [weight.T.astype(FP16) for weight in weights],
            scaled,
            scale[None],
        ),
        outputs=[
            ((padded, outputs.shape[1]), BF16),
            *[((padded, width), FP16) for width in widths * 2],
            *[((count, width), jnp.float32) for width in widths],
        ],
    )
    hidden_layers, d_hidden, d_biases = _thirds(results)
    pairs = zip([outputs, *hidden_layers], [*d_hidden, scaled], strict=True)
    d_weights = [weight_gradient(a, b) * scale for a, b in pairs]
    d_weights[-1] = d_weights[-1][:, : d_logits.shape[1]]
    d_bias = [*(part.sum(0) * scale for part in d_biases), d_logits.sum(0)]
    leaves = [leaf for pair in zip(d_weights, d_bias, strict=True) for leaf in pair]
    return jax.tree.unflatten(jax.tree.structure(readout), leaves), d_outputs[:rows]


def _forward(outputs: Any, weights: Any, biases: Any, logits: Any) -> None:
    rows = pl.ds(pl.program_id(0) * ROWS, ROWS)
    layers = list(zip(weights, biases, strict=True))
    total = _first_layer(outputs, rows, *layers[0])
    for weight, bias in layers[1:]:
        active = jnp.maximum(total, 0).astype(FP16)
        total = dot(active, weight[:, :]) + bias[:][None, :]
    logits[rows, :] = total


def _backward(
    outputs: Any,
    weights: Any,
    biases: Any,
    transposed: Any,
    d_logits: Any,
    scale: Any,
    d_outputs: Any,
    *results: Any,
) -> None:
    inner = len(weights) - 1
    hidden_layers, d_hidden, d_biases = _thirds(results)
    block = pl.program_id(0)
    rows = pl.ds(block * ROWS, ROWS)
    active: list[Any] = []
    for k in range(inner):
        if k == 0:
            total = _first_layer(outputs, rows, weights[0], biases[0])
        else:
            total = dot(active[-1], weights[k][:, :]) + biases[k][:][None, :]
        active.append(jnp.maximum(total, 0).astype(FP16))
        hidden_layers[k][rows, :] = active[-1]
    gradient = d_logits[rows, :]
    for k in range(inner, 0, -1):
        exact = jnp.where(active[k - 1] > 0, dot(gradient, transposed[k][:, :]), 0.0)
        d_biases[k - 1][block, :] = jnp.sum(exact, axis=0)
        gradient = exact.astype(FP16)
        d_hidden[k - 1][rows, :] = gradient
    size = largest_divisor(d_outputs.shape[1], _INNER)

    def store(part: Any, _: None) -> None:
        columns = pl.ds(part * size, size)
        d_output = dot(gradient, transposed[0][:, columns]) * scale[0]
        d_outputs[rows, columns] = d_output.astype(BF16)

    lax.fori_loop(0, d_outputs.shape[1] // size, store, None)


def _first_layer(outputs: Any, rows: Any, weight: Any, bias: Any) -> Any:
    """The preactivations of the first layer, summed over a few outputs at a time."""
    hidden, width = weight.shape
    size = largest_divisor(hidden, _INNER)

    def add(part: Any, total: Any) -> Any:
        terms = pl.ds(part * size, size)
        return total + dot(outputs[rows, terms], weight[terms, :])

    zero = jnp.zeros((ROWS, width), jnp.float32)
    return lax.fori_loop(0, hidden // size, add, zero) + bias[:][None, :]


def _padded_layers(readout: Perceptron) -> tuple[list[Array], list[Array]]:
    """Weights and biases, those of the last layer padded with zeros."""
    *layers, last = readout.layers
    more = LOGITS - last.bias.shape[0]
    weights = [layer.weight for layer in layers] + [jnp.pad(last.weight, ((0, 0), (0, more)))]
    return weights, [layer.bias for layer in layers] + [jnp.pad(last.bias, (0, more))]


def _thirds(results: Sequence[Any]) -> list[Sequence[Any]]:
    """The results for all hidden layers: activations, their gradients, those of the biases."""
    count = len(results) // 3
    return [results[i * count : (i + 1) * count] for i in range(3)]


def _pad_rows(values: Float[Array, "rows columns"]) -> Float[Array, "padded columns"]:
    """The values with rows of zeros appended, so that all tiles are full."""
    return jnp.pad(values, ((0, -len(values) % ROWS), (0, 0)))
