"""What every step kernel forms: the sums before the units, and the derivatives of the outputs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from switchpoint.neural.kernels import stack as stacks
from switchpoint.neural.kernels.launch import Tiles


class Part(NamedTuple):
    """What a program computes of step `t`: some units for some sequences."""

    t: Any
    previous: Any
    """The place of the step before; that before the first is the last."""
    last: Any
    """Whether no step follows."""
    rows: Any
    own: Any
    tiles: Tiles


def part_of(time: Any, count: int, tiles: Tiles) -> Part:
    """The part of this program, where there are `count` steps."""
    t = time[0]
    return Part(
        t,
        (t + count - 1) % count,
        t == count - 1,
        pl.ds(pl.program_id(0) * tiles.rows, tiles.rows),
        pl.ds(pl.program_id(1) * tiles.units, tiles.units),
        tiles,
    )


def sums_before(
    part: Part,
    columns: Sequence[Any],
    tokens: Any,
    table: Any,
    weight: Any,
    stack: stacks.Stack | None,
    outputs: Any,
    trace: stacks.Trace | None,
) -> list[Any]:
    """What the output before, the token, and the top of the stack add up to in these columns."""
    factors = [(weight, column) for column in columns]
    if stack is not None:
        factors.append((stack.write, stacks.ALL))
    sums = list(_products(part, outputs, part.previous, factors))
    if stack is not None:
        assert trace is not None
        written = sums.pop() + chosen(stack.table, tokens[part.previous, part.rows], stacks.ALL)
        top = stacks.top(written, trace, part.t, part.previous, part.rows)
        sums = [
            total + jnp.dot(top, stack.read[:, column], preferred_element_type=jnp.float32)
            for total, column in zip(sums, columns, strict=True)
        ]
    token = tokens[part.t, part.rows]
    return [
        total + chosen(table, token, column) for total, column in zip(sums, columns, strict=True)
    ]


def d_output_of(
    part: Part,
    weight: Any,
    stack: stacks.Transposed | None,
    trace: stacks.Trace | None,
    d_outputs: Any,
    d_last: Any,
    d_sums: Any,
    d_trace: stacks.Derivatives | None,
) -> Any:
    """The derivative of the output of this step: its own, and what the next step says of it.

    `weight` is transposed. The derivatives of the next step's sums are at the place of this step;
    after the last step there is `d_last` in their stead.
    """
    factors = [(weight, part.own)]
    if stack is not None:
        factors.append((stack.read, stacks.ALL))
    from_next, *for_stack = _products(part, d_sums, part.t, factors)
    own = d_outputs[part.t, part.rows, part.own]
    found = own + jnp.where(part.last, d_last[part.rows, part.own], from_next)
    if stack is not None:
        assert trace is not None
        assert d_trace is not None
        d_top = jnp.where(part.last, 0.0, for_stack[0])
        d_written = stacks.d_written(d_top, trace, d_trace, part.t, part.rows)
        found += jnp.dot(d_written, stack.write[:, part.own], preferred_element_type=jnp.float32)
    return found


def chosen(table: Any, token: Any, column: Any) -> Any:
    """The table's row of each token, in these columns."""
    rows = [
        jnp.where(token[:, None] == k, table[k, column][None, :], 0.0)
        for k in range(table.shape[0])
    ]
    return sum(rows)


def _products(
    part: Part, left: Any, place: Any, factors: Sequence[tuple[Any, Any]]
) -> tuple[Any, ...]:
    """What is at this place of `left`, times these columns of these matrices, in one loop."""
    inner, rows = part.tiles.inner, part.rows

    def add(k: Any, totals: tuple[Any, ...]) -> tuple[Any, ...]:
        terms = pl.ds(k * inner, inner)
        factor = left[place, rows, terms]
        return tuple(
            total + jnp.dot(factor, matrix[terms, column], preferred_element_type=jnp.float32)
            for total, (matrix, column) in zip(totals, factors, strict=True)
        )

    zeros = tuple(jnp.zeros((rows.size, column.size), jnp.float32) for _, column in factors)
    return lax.fori_loop(0, left.shape[-1] // inner, add, zeros)
