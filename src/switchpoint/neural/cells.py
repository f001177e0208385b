"""Recurrent cells: how memory changes when a token is read.

A cell adds its products with the memory to an *input preactivation*, the token's contribution. It
has a column for every preactivation that the cell computes, so the gradient of each weight follows
from the gradient of the input preactivations through `Cell.feedback` (see `recurrent.recurrence`).
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint.neural.dense import fan_in_normal

Carry = TypeVar("Carry")


class Cell(eqx.Module, Generic[Carry]):
    """One step of a recurrence; every leaf is a weight matrix."""

    hidden: eqx.AbstractVar[int]

    @property
    @abstractmethod
    def input_width(self) -> int:
        """The number of columns of the input preactivation."""

    @property
    def input_scale(self) -> Float[Array, " inputs"]:
        """The initial scale of each column of the input weights."""
        return jnp.ones(self.input_width)

    @property
    def feedback_scale(self) -> Float[Array, " inputs"]:
        """The initial scale of the weights by which the memory feeds back to itself."""
        return jnp.ones(self.input_width)

    @abstractmethod
    def start(self, batch: int) -> Carry:
        """The memory before the first token."""

    def split(self, inputs: Float[Array, "*axes inputs"]) -> tuple[Float[Array, "*axes _"], ...]:
        """The input preactivation of each gate, as `step` takes them."""
        return (inputs,)

    @abstractmethod
    def step(self, carry: Carry, inputs: tuple[Float[Array, "batch _"], ...]) -> Carry:
        """The memory after one more token, given its input preactivations."""

    @abstractmethod
    def output(self, carry: Carry) -> Float[Array, "batch hidden"]:
        """The part of the memory that the rest of the network sees."""

    def stack_top(self, carry: Carry) -> Float[Array, "batch width"] | None:
        """The top of the stack, if there is one."""
        del carry
        return None

    @abstractmethod
    def feedback(
        self,
        before: Float[Array, "rows hidden"],
        top: Float[Array, "rows width"] | None,
        after: Float[Array, "rows hidden"],
    ) -> Float[Array, "rows inputs"]:
        """The products that `step` adds to the input preactivations, linear in the weights.

        `before` and `after` are the outputs before and after the step, `top` is the top of the
        stack before it.
        """


class RNNCell(Cell[Float[Array, "batch hidden"]]):
    """h' = relu(h W + input).

    RNN units start as leaky integrators with time constants log-spaced over 1 to 256. Random
    weights alone would forget everything within a few steps.
    """

    muon_matrices: ClassVar[Mapping[str, int]] = {"weight": 1}

    hidden: int = eqx.field(static=True)
    weight: Float[Array, "hidden hidden"]

    def __init__(self, hidden: int, key: PRNGKeyArray) -> None:
        self.hidden = hidden
        noise = fan_in_normal(key, hidden, hidden) * self.feedback_scale
        self.weight = jnp.diag(1 - self.feedback_scale) + noise

    @property
    def input_width(self) -> int:
        return self.hidden

    @property
    def input_scale(self) -> Float[Array, " hidden"]:
        # A unit sums about as many terms as its time constant, of either sign.
        return jnp.geomspace(1.0, 256.0, self.hidden) ** -0.5

    @property
    def feedback_scale(self) -> Float[Array, " hidden"]:
        # Feedback may always have the same sign, and must not grow.
        return 1 / jnp.geomspace(1.0, 256.0, self.hidden)

    def start(self, batch: int) -> Float[Array, "batch hidden"]:
        return jnp.zeros((batch, self.hidden))

    def step(
        self, carry: Float[Array, "batch hidden"], inputs: tuple[Float[Array, "batch _"], ...]
    ) -> Float[Array, "batch hidden"]:
        return jax.nn.relu(carry @ self.weight + inputs[0])

    def output(self, carry: Float[Array, "batch hidden"]) -> Float[Array, "batch hidden"]:
        return carry

    def feedback(self, before: Any, top: Any, after: Any) -> Any:
        del top, after
        return before @ self.weight


class LSTMCarry(eqx.Module):
    """The output and the cell state of an LSTM."""

    output: Float[Array, "batch hidden"]
    cell: Float[Array, "batch hidden"]


class LSTMCell(Cell[LSTMCarry]):
    """Hochreiter and Schmidhuber's cell, with a forget gate that starts open."""

    muon_matrices: ClassVar[Mapping[str, int]] = {"weight": 4}  # one for each gate

    hidden: int = eqx.field(static=True)
    weight: Float[Array, "hidden gates"]

    def __init__(self, hidden: int, key: PRNGKeyArray) -> None:
        self.hidden = hidden
        self.weight = fan_in_normal(key, hidden, 4 * hidden)

    @property
    def input_width(self) -> int:
        return 4 * self.hidden

    def start(self, batch: int) -> LSTMCarry:
        return LSTMCarry(jnp.zeros((batch, self.hidden)), jnp.zeros((batch, self.hidden)))

    def split(self, inputs: Float[Array, "*axes inputs"]) -> tuple[Float[Array, "*axes _"], ...]:
        # Split before the loop: XLA's loops on a CPU are slow on a quarter of an array.
        return tuple(jnp.split(inputs, 4, axis=-1))

    def step(self, carry: LSTMCarry, inputs: tuple[Float[Array, "batch _"], ...]) -> LSTMCarry:
        sums = jnp.split(carry.output @ self.weight, 4, axis=-1)
        input_gate, forget_gate, cell_gate, output_gate = (
            a + b for a, b in zip(sums, inputs, strict=True)
        )
        kept = jax.nn.sigmoid(forget_gate + 1) * carry.cell
        cell = kept + jax.nn.sigmoid(input_gate) * jnp.tanh(cell_gate)
        return LSTMCarry(jax.nn.sigmoid(output_gate) * jnp.tanh(cell), cell)

    def output(self, carry: LSTMCarry) -> Float[Array, "batch hidden"]:
        return carry.output

    def feedback(self, before: Any, top: Any, after: Any) -> Any:
        del top, after
        return before @ self.weight


class StackCarry(eqx.Module):
    """The carry of the inner cell, and the stack, top first."""

    inner: Any
    stack: Float[Array, "batch depth width"]


class StackCell(Cell[StackCarry]):
    """A cell with a soft stack (Joulin and Mikolov, 2015): it reads the top, then updates it."""

    muon_matrices: ClassVar[Mapping[str, int]] = {"read": 0, "write": 0}  # usually narrow

    hidden: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    inner: RNNCell | LSTMCell
    read: Float[Array, "width inner_inputs"]
    """From the top of the stack to the inner cell."""
    write: Float[Array, "hidden 3+width"]
    """From the cell's output to the three actions and the value to push."""

    def __init__(
        self, inner: RNNCell | LSTMCell, depth: int, width: int, key: PRNGKeyArray
    ) -> None:
        self.hidden, self.depth, self.width, self.inner = inner.hidden, depth, width, inner
        key_read, key_write = jax.random.split(key)
        self.read = fan_in_normal(key_read, width, inner.input_width) * inner.feedback_scale
        self.write = fan_in_normal(key_write, inner.hidden, 3 + width)

    @property
    def input_width(self) -> int:
        return self.inner.input_width + 3 + self.width

    @property
    def input_scale(self) -> Float[Array, " inputs"]:
        return jnp.concatenate([self.inner.input_scale, jnp.ones(3 + self.width)])

    def start(self, batch: int) -> StackCarry:
        return StackCarry(self.inner.start(batch), jnp.zeros((batch, self.depth, self.width)))

    def split(self, inputs: Float[Array, "*axes inputs"]) -> tuple[Float[Array, "*axes _"], ...]:
        for_inner, for_stack = jnp.split(inputs, [self.inner.input_width], axis=-1)
        return (*self.inner.split(for_inner), for_stack)

    def step(self, carry: StackCarry, inputs: tuple[Float[Array, "batch _"], ...]) -> StackCarry:
        *for_inner, for_stack = inputs
        from_stack = self.inner.split(self.stack_top(carry) @ self.read)
        inner: Any = self.inner.step(
            carry.inner, tuple(a + b for a, b in zip(for_inner, from_stack, strict=True))
        )
        written = self.inner.output(inner) @ self.write + for_stack
        actions, value = jnp.split(written, [3], axis=-1)
        return StackCarry(inner, stack_update(carry.stack, jax.nn.softmax(actions), value))

    def output(self, carry: StackCarry) -> Float[Array, "batch hidden"]:
        return self.inner.output(carry.inner)

    def stack_top(self, carry: StackCarry) -> Float[Array, "batch width"]:
        return carry.stack[:, 0]

    def feedback(self, before: Any, top: Any, after: Any) -> Any:
        inner = self.inner.feedback(before, None, after) + top @ self.read
        return jnp.concatenate([inner, after @ self.write], axis=-1)


def stack_update(
    stack: Float[Array, "batch depth width"],
    actions: Float[Array, "batch 3"],
    value: Float[Array, "batch width"],
) -> Float[Array, "batch depth width"]:
    """The stack after push, pop and keep, weighted by their probabilities in that order.

    An entry pushed off the bottom is lost; a pop fills the bottom with zeros.
    """
    pushed = jnp.concatenate([value[:, None], stack[:, :-1]], axis=1)
    popped = jnp.concatenate([stack[:, 1:], jnp.zeros_like(stack[:, :1])], axis=1)
    push, pop, keep = jnp.split(actions[:, :, None], 3, axis=1)
    return push * pushed + pop * popped + keep * stack
