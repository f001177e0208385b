"""The read-out of a recurrence: all its dense layers in one kernel, forward and backward.

Nothing but the logits is kept: what the layers make between them is made again for the gradient.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from switchpoint.neural.dense import Perceptron
from switchpoint.neural.kernels.arithmetic import dot, largest, largest_divisor, product
from switchpoint.neural.kernels.call import NARROW, WIDE, call

LOGITS = 16
"""The columns of the last layer: logits, and then zeros."""

ROWS, WARPS, STAGES = 64, 4, 2

_AT_ONCE = 64  # of the outputs


def forward(
    readout: Perceptron, outputs: Float[Array, "rows hidden"]
) -> Float[Array, "rows alphabet"]:
    """The logits."""
    weights, biases = _parts(readout)
    rows = len(outputs)
    (logits,) = call(
        _forward,
        "read_out",
        (-(-rows // ROWS),),
        (_whole(outputs), [weight.astype(NARROW) for weight in weights], biases),
        made=[((_padded(rows), LOGITS), jnp.float32)],
        warps=WARPS,
        stages=STAGES,
    )
    return logits[:rows, : _alphabet(readout)]


def backward(
    readout: Perceptron,
    outputs: Float[Array, "rows hidden"],
    d_logits: Float[Array, "rows alphabet"],
) -> tuple[Perceptron, Float[Array, "rows hidden"]]:
    """The derivatives of the layers and of the outputs."""
    weights, biases = _parts(readout)
    rows, hidden = outputs.shape
    more, count = _padded(rows), _padded(rows) // ROWS
    size = largest(d_logits)
    wider = ((0, more - rows), (0, LOGITS - d_logits.shape[1]))
    slopes = jnp.pad(d_logits / size, wider).astype(NARROW)
    widths = [bias.shape[0] for bias in biases]
    inner = widths[:-1]
    outputs = _whole(outputs)
    d_outputs, *found = call(
        partial(_backward, layers=len(weights)),
        "read_out_backward",
        (count,),
        (
            outputs,
            [weight.astype(NARROW) for weight in weights],
            biases,
            [weight.T.astype(NARROW) for weight in weights],
            slopes,
            size[None],
        ),
        made=[
            ((more, hidden), WIDE),
            *[((more, width), NARROW) for width in inner],
            *[((more, width), NARROW) for width in inner],
            *[((count, width), jnp.float32) for width in inner],
        ],
        warps=WARPS,
        stages=STAGES,
    )
    made, d_sums, d_biases = (found[i * len(inner) : (i + 1) * len(inner)] for i in range(3))
    pairs = zip([outputs, *made], [*d_sums, slopes], strict=True)
    d_weights = [product(a, b) * size for a, b in pairs]
    d_bias = [*(part.sum(0) * size for part in d_biases), d_logits.sum(0)]
    return _like(readout, d_weights, d_bias), d_outputs[:rows]


def _forward(outputs: Any, weights: Any, biases: Any, logits: Any) -> None:
    rows = pl.ds(pl.program_id(0) * ROWS, ROWS)
    layers = list(zip(weights, biases, strict=True))
    total = _first_sums(outputs, rows, *layers[0])
    for weight, bias in layers[1:]:
        active = jnp.maximum(total, 0).astype(NARROW)
        total = dot(active, _all(weight)) + _row(bias)
    logits[rows, :] = total


def _backward(
    outputs: Any,
    weights: Any,
    biases: Any,
    transposed: Any,
    slopes: Any,
    size: Any,
    d_outputs: Any,
    *made: Any,
    layers: int,
) -> None:
    actives, d_sums, d_biases = (made[i * (layers - 1) : (i + 1) * (layers - 1)] for i in range(3))
    block = pl.program_id(0)
    rows = pl.ds(block * ROWS, ROWS)
    active: list[Any] = []
    for k in range(layers - 1):
        if k == 0:
            total = _first_sums(outputs, rows, weights[0], biases[0])
        else:
            total = dot(active[-1], _all(weights[k])) + _row(biases[k])
        active.append(jnp.maximum(total, 0).astype(NARROW))
        actives[k][rows, :] = active[-1]
    slope = slopes[rows, :]
    for k in range(layers - 1, 0, -1):
        exact = jnp.where(active[k - 1] > 0, dot(slope, _all(transposed[k])), 0.0)
        d_biases[k - 1][block, :] = jnp.sum(exact, axis=0)
        slope = exact.astype(NARROW)
        d_sums[k - 1][rows, :] = slope
    hidden = d_outputs.shape[1]
    cut = largest_divisor(hidden, _AT_ONCE)

    def put(part: Any, _: None) -> None:
        columns = pl.ds(part * cut, cut)
        found = dot(slope, transposed[0][_every(transposed[0]), columns]) * size[0]
        d_outputs[rows, columns] = found.astype(WIDE)

    lax.fori_loop(0, hidden // cut, put, None)


def _first_sums(outputs: Any, rows: Any, weight: Any, bias: Any) -> Any:
    """What the outputs make of the first layer, some of them at a time."""
    hidden, width = weight.shape
    size = largest_divisor(hidden, _AT_ONCE)

    def add(part: Any, total: Any) -> Any:
        terms = pl.ds(part * size, size)
        return total + dot(outputs[rows, terms], weight[terms, :])

    zero = jnp.zeros((ROWS, width), jnp.float32)
    return lax.fori_loop(0, hidden // size, add, zero) + _row(bias)


def _every(matrix: Any) -> Any:
    return pl.ds(0, matrix.shape[0])


def _all(matrix: Any) -> Any:
    return matrix[_every(matrix), :]


def _row(bias: Any) -> Any:
    return bias[pl.ds(0, bias.shape[0])][None, :]


def _parts(readout: Perceptron) -> tuple[list[Array], list[Array]]:
    """Weights and biases, those of the last layer with zeros for what is no logit."""
    *layers, last = readout.layers
    more = LOGITS - last.bias.shape[0]
    weights = [layer.weight for layer in layers] + [jnp.pad(last.weight, ((0, 0), (0, more)))]
    return weights, [layer.bias for layer in layers] + [jnp.pad(last.bias, (0, more))]


def _like(readout: Perceptron, weights: list[Array], biases: list[Array]) -> Perceptron:
    """The derivatives in the places of the weights."""
    alphabet = _alphabet(readout)
    weights = [*weights[:-1], weights[-1][:, :alphabet]]
    biases = [*biases[:-1], biases[-1][:alphabet]]
    leaves = [leaf for pair in zip(weights, biases, strict=True) for leaf in pair]
    return jax.tree.unflatten(jax.tree.structure(readout), leaves)


def _alphabet(readout: Perceptron) -> int:
    return int(readout.layers[-1].bias.shape[0])


def _padded(rows: int) -> int:
    return -(-rows // ROWS) * ROWS


def _whole(outputs: Float[Array, "rows hidden"]) -> Float[Array, "more hidden"]:
    """The outputs with rows of zeros, so that all tiles are full."""
    return jnp.pad(outputs, ((0, _padded(len(outputs)) - len(outputs)), (0, 0)))
