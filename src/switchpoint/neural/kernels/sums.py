"""What every step kernel forms: the sums before the units, and the derivatives of the outputs."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from switchpoint.neural.kernels import stack as stacks
from switchpoint.neural.kernels.arithmetic import dot
from switchpoint.neural.kernels.part import Part


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
    sums = [jnp.zeros((part.rows.size, column.size), jnp.float32) for column in columns]
    if stack is not None:
        assert trace is not None
        written = stacks.added_up(trace.written, part.t + 1, part.rows)
        written += chosen(stack.table, tokens[part.previous, part.rows], stacks.ALL)
        top = stacks.top(part, written, trace)
        sums = [dot(top, stack.read[:, column]) for column in columns]
    sums = _add_products(part, sums, outputs, part.previous, weight, columns)
    token = tokens[part.t, part.rows]
    return [
        total + chosen(table, token, column) for total, column in zip(sums, columns, strict=True)
    ]


def said_by_next(
    part: Part,
    columns: Sequence[Any],
    weight: Any,
    stack: stacks.Transposed | None,
    trace: stacks.Trace | None,
    d_sums: Any,
    d_trace: stacks.Derivatives | None,
) -> list[Any]:
    """What the next step says of the derivatives of the output of this step, in these columns.

    `weight` is transposed. The derivatives of the next step's sums are at the place of this step.
    """
    if stack is not None:
        assert trace is not None
        assert d_trace is not None
        d_top = jnp.where(part.last, 0.0, stacks.added_up(d_trace.tops, part.t + 1, part.rows))
        d_written = stacks.d_written(part, d_top, trace, d_trace)
    sums = [jnp.zeros((part.rows.size, column.size), jnp.float32) for column in columns]
    sums = _add_products(part, sums, d_sums, part.t, weight, columns)
    sums = [jnp.where(part.last, 0.0, total) for total in sums]
    if stack is not None:
        sums = [
            total + dot(d_written, stack.write[:, column])
            for total, column in zip(sums, columns, strict=True)
        ]
    return sums


def chosen(table: Any, token: Any, column: Any) -> Any:
    """The table's row of each token, in these columns."""
    found = table[0, column][None, :]
    for k in range(1, table.shape[0]):
        found = jnp.where(token[:, None] == k, table[k, column][None, :], found)
    return found


def _add_products(
    part: Part, totals: list[Any], left: Any, place: Any, matrix: Any, columns: Sequence[Any]
) -> list[Any]:
    """The totals, and what is at this place of `left` times these columns of the matrix."""
    inner = part.tiles.inner

    def add(k: Any, totals: list[Any]) -> list[Any]:
        terms = pl.ds(k * inner, inner)
        factor = left[place, part.rows, terms]
        return [
            total + dot(factor, matrix[terms, column])
            for total, column in zip(totals, columns, strict=True)
        ]

    return lax.fori_loop(0, left.shape[-1] // inner, add, totals)
