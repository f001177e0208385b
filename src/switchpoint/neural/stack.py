"""A cell with a soft stack, after Joulin and Mikolov (2015)."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint.neural.cells import Cell, LSTMCell, Passage, RNNCell, summed_outer
from switchpoint.neural.dense import fan_in_normal


class StackCarry(eqx.Module):
    """The carry of the cell that uses a stack, and the stack, its top first."""

    inner: Any
    stack: Float[Array, "batch depth width"]


class StackCell(Cell[StackCarry]):
    """A cell with a stack: it reads the top, then pushes, pops or leaves it, softly."""

    muon_matrices: ClassVar[Mapping[str, int]] = {"read": 0, "write": 0}  # narrow, as a rule

    hidden: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    inner: RNNCell | LSTMCell
    read: Float[Array, "width inner_drive"]
    """From the top of the stack to the cell."""
    write: Float[Array, "hidden 3+width"]
    """From the cell's output to the three actions, and to what is pushed."""

    def __init__(
        self, inner: RNNCell | LSTMCell, depth: int, width: int, key: PRNGKeyArray
    ) -> None:
        self.hidden, self.depth, self.width, self.inner = inner.hidden, depth, width, inner
        key_read, key_write = jax.random.split(key)
        self.read = fan_in_normal(key_read, width, inner.drive_width) * inner.feedback_scale
        self.write = fan_in_normal(key_write, inner.hidden, 3 + width)

    @property
    def drive_width(self) -> int:
        return self.inner.drive_width + 3 + self.width

    @property
    def drive_scale(self) -> Float[Array, " drive"]:
        return jnp.concatenate([self.inner.drive_scale, jnp.ones(3 + self.width)])

    def start(self, batch: int) -> StackCarry:
        return StackCarry(self.inner.start(batch), jnp.zeros((batch, self.depth, self.width)))

    def parts(self, drive: Float[Array, "*axes drive"]) -> tuple[Float[Array, "*axes _"], ...]:
        for_inner, for_stack = jnp.split(drive, [self.inner.drive_width], axis=-1)
        return (*self.inner.parts(for_inner), for_stack)

    def step(self, carry: StackCarry, parts: tuple[Float[Array, "batch _"], ...]) -> StackCarry:
        *for_inner, for_stack = parts
        from_stack = self.inner.parts(self.top(carry) @ self.read)
        inner: Any = self.inner.step(
            carry.inner, tuple(a + b for a, b in zip(for_inner, from_stack, strict=True))
        )
        written = self.inner.output(inner) @ self.write + for_stack
        actions, value = jnp.split(written, [3], axis=-1)
        return StackCarry(inner, stack_update(carry.stack, jax.nn.softmax(actions), value))

    def output(self, carry: StackCarry) -> Float[Array, "batch hidden"]:
        return self.inner.output(carry.inner)

    def top(self, carry: StackCarry) -> Float[Array, "batch width"]:
        return carry.stack[:, 0]

    def gradient(self, passage: Passage) -> "StackCell":
        assert passage.top is not None
        for_inner, for_stack = jnp.split(passage.d_drive, [self.inner.drive_width], axis=-1)
        return eqx.tree_at(
            lambda cell: (cell.inner, cell.read, cell.write),
            self,
            (
                self.inner.gradient(passage._replace(d_drive=for_inner)),
                summed_outer(passage.top, for_inner),
                summed_outer(passage.after, for_stack),
            ),
        )


def stack_update(
    stack: Float[Array, "batch depth width"],
    actions: Float[Array, "batch 3"],
    value: Float[Array, "batch width"],
) -> Float[Array, "batch depth width"]:
    """The stack after push, pop and no action, mixed by their probabilities in that order.

    What is pushed out at the bottom is lost, and zeros come up from there.
    """
    pushed = jnp.concatenate([value[:, None], stack[:, :-1]], axis=1)
    popped = jnp.concatenate([stack[:, 1:], jnp.zeros_like(stack[:, :1])], axis=1)
    push, pop, keep = jnp.split(actions[:, :, None], 3, axis=1)
    return push * pushed + pop * popped + keep * stack
