"""A cell run along time, with weight gradients formed in one product at the end.

Left to itself, the derivative of a scan adds to every weight's gradient at each step: a small
product and a pass over the whole matrix. Here the backward scan finds only the derivative of
each step's drive, and one large product with what the weights were multiplied by does the rest.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from switchpoint.neural.cells import Cell, Passage

Carry = Any


@jax.custom_vjp
def recurrence(
    cell: Cell, carry: Carry, drive: Float[Array, "time batch drive"]
) -> tuple[Carry, Float[Array, "time batch hidden"]]:
    """The carry after the last step, and the output after each."""
    carry, (outputs, _) = _scan(cell, carry, drive)
    return carry, outputs


def _scan(
    cell: Cell, carry: Carry, drive: Float[Array, "time batch drive"]
) -> tuple[Carry, tuple[Float[Array, "time batch hidden"], Any]]:
    def step(
        carry: Carry, parts: tuple[Float[Array, "batch _"], ...]
    ) -> tuple[Carry, tuple[Float[Array, "batch hidden"], Any]]:
        after = cell.step(carry, parts)
        return after, (cell.output(after), cell.top(carry))

    # Launches dominate on a GPU, and several steps in one save some of them.
    unroll = 1 if jax.default_backend() == "cpu" else 8
    return lax.scan(step, carry, cell.parts(drive), unroll=unroll)


def _forward(cell: Cell, carry: Carry, drive: Float[Array, "time batch drive"]) -> Any:
    def run(carry: Carry, drive: Float[Array, "time batch drive"]) -> Any:
        last, (outputs, tops) = _scan(cell, carry, drive)
        return (last, outputs), tops

    result, pull_back, tops = jax.vjp(run, carry, drive, has_aux=True)
    return result, (cell, cell.output(carry), result[1], tops, pull_back)


def _backward(residuals: Any, cotangent: Any) -> Any:
    cell, first, after, tops, pull_back = residuals
    d_carry, d_drive = pull_back(cotangent)
    before = jnp.concatenate([first[None], after[:-1]])
    return cell.gradient(Passage(before, after, tops, d_drive)), d_carry, d_drive


recurrence.defvjp(_forward, _backward)
