"""Recurrent cells: how memory changes when a token is read.

A cell adds its products with the memory to a *drive*, which is what the token contributes. The
drive has a column for every sum that the cell forms, so that its derivative tells the derivative
of every weight (see `recurrence`).
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint.neural.dense import fan_in_normal

Carry = TypeVar("Carry")


class Passage(NamedTuple):
    """What is known of a run along time when the derivatives of the weights are formed."""

    before: Float[Array, "time batch hidden"]
    """The output before each step."""
    after: Float[Array, "time batch hidden"]
    """The output after each step."""
    top: Float[Array, "time batch width"] | None
    """What else each step multiplied, if anything."""
    d_drive: Float[Array, "time batch drive"]
    """The derivative of each step's drive."""


class Cell(eqx.Module, Generic[Carry]):
    """One step of a recurrence; every leaf is a weight matrix."""

    hidden: eqx.AbstractVar[int]

    @property
    @abstractmethod
    def drive_width(self) -> int:
        """How many columns the drive has."""

    @property
    def drive_scale(self) -> Float[Array, " drive"]:
        """How large each column of the drive is at first, where 1 is usual."""
        return jnp.ones(self.drive_width)

    @property
    def feedback_scale(self) -> Float[Array, " drive"]:
        """The same for what comes from the memory, and may return to it."""
        return jnp.ones(self.drive_width)

    @abstractmethod
    def start(self, batch: int) -> Carry:
        """What is remembered before the first token."""

    def parts(self, drive: Float[Array, "*axes drive"]) -> tuple[Float[Array, "*axes _"], ...]:
        """The drive of each group of units apart, as `step` wants it."""
        return (drive,)

    @abstractmethod
    def step(self, carry: Carry, parts: tuple[Float[Array, "batch _"], ...]) -> Carry:
        """What is remembered after one more token, whose drive is given in parts."""

    @abstractmethod
    def output(self, carry: Carry) -> Float[Array, "batch hidden"]:
        """What the rest of the network sees of the memory."""

    def top(self, carry: Carry) -> Float[Array, "batch width"] | None:
        """What a step multiplies besides the output, if anything."""
        del carry
        return None

    @abstractmethod
    def gradient(self, passage: Passage) -> "Cell[Carry]":
        """The derivatives of the weights, in their places."""


class RNNCell(Cell[Float[Array, "batch hidden"]]):
    """h' = relu(h W + drive), whose units forget by themselves at first, each at a pace of its own.

    Random weights alone would forget everything in a few steps.
    """

    muon_matrices: ClassVar[Mapping[str, int]] = {"weight": 1}

    hidden: int = eqx.field(static=True)
    weight: Float[Array, "hidden hidden"]

    def __init__(self, hidden: int, key: PRNGKeyArray) -> None:
        self.hidden = hidden
        from_others = fan_in_normal(key, hidden, hidden) * self.feedback_scale
        self.weight = jnp.diag(1 - 1 / time_scales(hidden)) + from_others

    @property
    def drive_width(self) -> int:
        return self.hidden

    @property
    def drive_scale(self) -> Float[Array, " hidden"]:
        # A unit adds up about as many terms as its time scale says, of either sign.
        return time_scales(self.hidden) ** -0.5

    @property
    def feedback_scale(self) -> Float[Array, " hidden"]:
        # What returns may always have the same sign, and must not grow.
        return 1 / time_scales(self.hidden)

    def start(self, batch: int) -> Float[Array, "batch hidden"]:
        return jnp.zeros((batch, self.hidden))

    def step(
        self, carry: Float[Array, "batch hidden"], parts: tuple[Float[Array, "batch _"], ...]
    ) -> Float[Array, "batch hidden"]:
        return jax.nn.relu(carry @ self.weight + parts[0])

    def output(self, carry: Float[Array, "batch hidden"]) -> Float[Array, "batch hidden"]:
        return carry

    def gradient(self, passage: Passage) -> "RNNCell":
        weight = summed_outer(passage.before, passage.d_drive)
        return eqx.tree_at(lambda cell: cell.weight, self, weight)


class LSTMCarry(eqx.Module):
    """The output and the cell of an LSTM."""

    output: Float[Array, "batch hidden"]
    cell: Float[Array, "batch hidden"]


class LSTMCell(Cell[LSTMCarry]):
    """Hochreiter and Schmidhuber's cell, with a forget gate that is open at first."""

    muon_matrices: ClassVar[Mapping[str, int]] = {"weight": 4}  # one for each gate

    hidden: int = eqx.field(static=True)
    weight: Float[Array, "hidden gates"]

    def __init__(self, hidden: int, key: PRNGKeyArray) -> None:
        self.hidden = hidden
        self.weight = fan_in_normal(key, hidden, 4 * hidden)

    @property
    def drive_width(self) -> int:
        return 4 * self.hidden

    def start(self, batch: int) -> LSTMCarry:
        return LSTMCarry(jnp.zeros((batch, self.hidden)), jnp.zeros((batch, self.hidden)))

    def parts(self, drive: Float[Array, "*axes drive"]) -> tuple[Float[Array, "*axes _"], ...]:
        # Four arrays from the start: XLA's loops on a CPU are slow on a quarter of one.
        return tuple(jnp.split(drive, 4, axis=-1))

    def step(self, carry: LSTMCarry, parts: tuple[Float[Array, "batch _"], ...]) -> LSTMCarry:
        sums = jnp.split(carry.output @ self.weight, 4, axis=-1)
        write, forget, candidate, show = (a + b for a, b in zip(sums, parts, strict=True))
        kept = jax.nn.sigmoid(forget + 1) * carry.cell
        cell = kept + jax.nn.sigmoid(write) * jnp.tanh(candidate)
        return LSTMCarry(jax.nn.sigmoid(show) * jnp.tanh(cell), cell)

    def output(self, carry: LSTMCarry) -> Float[Array, "batch hidden"]:
        return carry.output

    def gradient(self, passage: Passage) -> "LSTMCell":
        weight = summed_outer(passage.before, passage.d_drive)
        return eqx.tree_at(lambda cell: cell.weight, self, weight)


def time_scales(units: int) -> Float[Array, " units"]:
    """How many steps each unit remembers: from 1 to the paper's length, in equal ratios."""
    return jnp.geomspace(1.0, 256.0, units)


def summed_outer(
    left: Float[Array, "time batch left"], right: Float[Array, "time batch right"]
) -> Float[Array, "left right"]:
    """The sum over time and batch of the outer products: one matrix product."""
    return left.reshape(-1, left.shape[-1]).T @ right.reshape(-1, right.shape[-1])
