"""Recurrent networks on the host, in double precision by NumPy."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from switchpoint.neural import Recurrent
from switchpoint.neural.cells import LSTMCell, RNNCell, StackCell
from switchpoint.segments import make_segment
from switchpoint.streams.compiled import no_posterior
from switchpoint.streams.engine import Runs, SymbolEngine, check_arrays

_HALF, _ONE = np.array(0.5), np.array(1.0)


def _float64(array: Any) -> Float[np.ndarray, "..."]:
    return np.asarray(array, np.float64)


class RecurrentEngine(SymbolEngine):
    """The memory of an RNN or an LSTM, with or without a stack, after the last symbol."""

    name = "recurrent"

    def __init__(self, network: Recurrent) -> None:
        super().__init__(make_segment(network.alphabet))
        self.network = network
        cell: Any = network.cell
        stacked = isinstance(cell, StackCell)
        inner: LSTMCell | RNNCell = cell.inner if stacked else cell
        self.units = inner.hidden
        self.lstm = isinstance(inner, LSTMCell)
        inputs = _float64(network.input.weight) + _float64(network.input.bias)
        width = inner.input_width
        scale, shift, order = self._gates()
        self.weight = np.ascontiguousarray(_float64(inner.weight)[:, order] * scale)
        self.inputs = np.ascontiguousarray((inputs[:, :width][:, order] + shift) * scale)
        self.output = [
            (_float64(each.weight), _float64(each.bias)) for each in network.output.layers
        ]
        self.hidden, self.cell = np.zeros(self.units), np.zeros(self.units)
        self.stack: Float[np.ndarray, "depth width"] | None = None
        if stacked:
            self.read = np.ascontiguousarray(_float64(cell.read)[:, order] * scale)
            self.write, self.written = _float64(cell.write), inputs[:, width:]
            self.stack = np.zeros((cell.depth, cell.width))
        self._read(network.alphabet)  # the start token

    def _gates(self) -> tuple[Any, Any, Any]:
        """Scale, shift and order of the preactivations of the cell.

        All gates of an LSTM by one hyperbolic tangent: sigmoid(x) = (tanh(x / 2) + 1) / 2.
        """
        if not self.lstm:
            return 1.0, 0.0, slice(None)
        size = self.units
        numbers = np.arange(4 * size).reshape(4, size)
        order = numbers[[0, 1, 3, 2]].ravel()  # the three sigmoids first
        scale = np.repeat([0.5, 0.5, 0.5, 1.0], size)
        return scale, np.repeat([0.0, 1.0, 0.0, 0.0], size), order

    def _read(self, token: int) -> None:
        """Read a token, and compute the logits of the next symbol."""
        sums = self.hidden @ self.weight
        sums += self.inputs[token]
        if self.stack is not None:
            sums += self.stack[0] @ self.read
        if self.lstm:
            self._gate(sums)
        else:
            self.hidden = np.maximum(sums, 0.0)
        if self.stack is not None:
            self._move(token, self.stack)
        x = self.hidden
        for weight, bias in self.output[:-1]:
            x = x @ weight
            x += bias
            np.maximum(x, 0.0, out=x)
        weight, bias = self.output[-1]
        logits = (x @ weight + bias).tolist()
        top = max(logits)
        log_total = top + math.log(math.fsum([math.exp(each - top) for each in logits]))
        self.log_probs = [each - log_total for each in logits]

    def _gate(self, sums: Float[np.ndarray, " gates"]) -> None:
        size = self.units
        np.tanh(sums, sums)
        gates = sums[: 3 * size]
        np.add(gates, _ONE, gates)
        np.multiply(gates, _HALF, gates)
        self.cell = gates[size : 2 * size] * self.cell + gates[:size] * sums[3 * size :]
        self.hidden = gates[2 * size :] * np.tanh(self.cell)

    def _move(self, token: int, stack: Float[np.ndarray, "depth width"]) -> None:
        """Push, pop and keep, each with its probability."""
        written = self.hidden @ self.write + self.written[token]
        actions = np.exp(written[:3] - written[:3].max())
        push, pop, keep = (actions / actions.sum()).tolist()
        moved = keep * stack
        moved[0] += push * written[3:]
        moved[1:] += push * stack[:-1]
        moved[:-1] += pop * stack[1:]
        self.stack = moved

    def predict(self) -> Float[np.ndarray, " alphabet"]:
        return np.array(self.log_probs)

    def _checked_all(self, xs: Any) -> list[int]:
        symbols = super()._checked_all(xs)
        if -1 in symbols:
            raise ValueError(
                "a missing symbol cannot be read by a network, got one at position "
                f"{symbols.index(-1)}"
            )
        return symbols

    def step(self, x: int) -> float:
        if x < 0:
            raise ValueError("a missing symbol cannot be read by a network, got one")
        log_prob = self.log_probs[x]
        self._read(x)
        self.position += 1
        return log_prob

    def _runs(self) -> Runs:
        raise no_posterior(self.network)

    def levels(self, since: int) -> tuple[Any, Any]:
        del since
        raise no_posterior(self.network)

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = {"hidden": self.hidden, "cell": self.cell, "log_probs": np.array(self.log_probs)}
        return arrays if self.stack is None else {**arrays, "stack": self.stack}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        check_arrays(arrays, {name: array.shape for name, array in self.arrays().items()})
        self.hidden, self.cell = arrays["hidden"].copy(), arrays["cell"].copy()
        self.log_probs = arrays["log_probs"].tolist()
        if self.stack is not None:
            self.stack = arrays["stack"].copy()
