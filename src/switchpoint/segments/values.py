"""Observations as arrays: checked, and as differences from a typical value."""

from operator import attrgetter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from switchpoint import _checks
from switchpoint.segments.base import (
    Segment,
    Statistics,
    elapse,
    location_field,
    observe,
    prior_statistics,
)

LARGEST = {4: 1e15, 8: 1e150}
"""The largest values by the bytes of a number: sums of their squares do not overflow."""

_SAMPLE = 31  # values whose median is taken for typical


def checked_values(
    segment: Segment, values: Any, name: str = "values"
) -> Float[np.ndarray | Array, "..."]:
    """Values as a float array: (..., time), or (..., time, columns) for several columns.

    NaN is a missing observation. Inside `jit` only the shape is checked.
    """
    traced = isinstance(values, jax.core.Tracer)
    array = (
        values.astype(float) if traced else _checks.numbers(values, name, len(segment.event_shape))
    )
    need = 1 + len(segment.event_shape)
    columns = segment.event_shape
    if array.ndim < need or 0 in array.shape or array.shape[array.ndim - len(columns) :] != columns:
        wanted = f"(..., time, {columns[0]})" if columns else "(..., time)"
        raise ValueError(
            f"{name} must have shape {wanted} and at least one observation, got {array.shape}"
        )
    if not traced:
        _check_each(segment, array, name)
    return array


def checked_value(segment: Segment, value: Any) -> Float[np.ndarray | Array, "*event"]:
    """One observation of a stream."""
    if isinstance(value, jax.core.Tracer):
        return value.astype(float)
    name = "symbol" if segment.finite else "value"
    array = _checks.numbers(value, name, len(segment.event_shape))
    if array.shape != segment.event_shape:
        what = (
            f"an observation of {segment.event_shape[0]} columns"
            if segment.event_shape
            else "one number"
        )
        raise ValueError(f"{name} must be {what}, got shape {array.shape}")
    _check_each(segment, array[None], name, position=False)
    return array


def typical_value(
    segment: Segment, values: Float[np.ndarray | Array, "flat time *event"]
) -> Float[np.ndarray | Array, "flat *event"]:
    """A value near most of each sequence, for families that can move the origin; 0 for others."""
    xp: Any = jnp if isinstance(values, jax.core.Tracer) else np
    movable = shiftable(segment)
    if not movable.any():
        return xp.zeros((len(values), *segment.event_shape), np.float32)
    time = values.shape[1]
    some = values[:, np.unique(np.linspace(0, time - 1, min(time, _SAMPLE)).astype(int))]
    order = xp.sort(some, axis=1)  # NaN last
    known = xp.sum(~xp.isnan(order), axis=1)
    middle = xp.take_along_axis(order, xp.maximum(known - 1, 0)[:, None] // 2, axis=1)[:, 0]
    return xp.where(movable & (known > 0), middle, 0.0).astype(np.float32)


def rounded_off(segment: Segment) -> Float[np.ndarray, "*event"]:
    """What the precision of the device rounds off the location of a family; 0 if it is traced.

    The family with the rounded location gives the same answers to the values minus this.
    """
    location = locations(segment)
    if any(isinstance(each, jax.core.Tracer) for each in jax.tree.leaves(location)):
        return np.zeros(segment.event_shape)
    exact = np.asarray(location, np.float64)
    return np.asarray(exact - exact.astype(jnp.result_type(float)))


def centred(
    segment: Segment, values: Any
) -> tuple[Segment, Float[np.ndarray, "..."], Float[np.ndarray, "*event"]]:
    """A family and checked values near 0, both moved in double precision, and by how much.

    For programs that take the values to the device by themselves, or vary the location.
    """
    values = checked_values(segment, values)
    flat = values.reshape(-1, *values.shape[values.ndim - 1 - len(segment.event_shape) :])
    by = np.median(typical_value(segment, flat).astype(np.float64), axis=0)
    by = np.asarray(by + rounded_off(translated(segment, by)))
    return translated(segment, by), values - by, by


def shiftable(segment: Segment) -> Bool[np.ndarray, "*event"]:
    """Whether there is a location, which moves with the origin, for each column.

    A mixture has one where all of its kinds have; covariates have none.
    """
    if hasattr(segment, "kinds"):
        every = all(shiftable(kind).all() for kind in segment.kinds)
        return np.full(segment.event_shape, every)
    fields = [location_field(family) for family in families_by_column(segment)]
    movable = np.array([field is not None for field in fields])
    if getattr(segment, "covariates", 0):
        movable[1:] = False
    return movable.reshape(segment.event_shape)


def locations(segment: Segment) -> Any:
    """The hyperparameter that moves with the origin of the values, for each column, or 0."""
    if hasattr(segment, "kinds"):
        return locations(segment.kinds[0]) if shiftable(segment).all() else 0.0
    if hasattr(segment, "columns"):
        return tuple(map(locations, segment.columns))
    name = location_field(segment)
    location = 0.0 if name is None else getattr(segment, name)
    covariates = getattr(segment, "covariates", 0)
    return (location, *(0.0,) * covariates) if covariates else location


def translated(segment: Segment, by: Any) -> Segment:
    """The family of the values minus `by`, which is 0 in columns without a location."""
    if hasattr(segment, "kinds"):
        kinds = tuple(translated(kind, by) for kind in segment.kinds)
        return eqx.tree_at(lambda each: each.kinds, segment, kinds)
    if hasattr(segment, "columns"):
        columns = tuple(translated(column, by[i]) for i, column in enumerate(segment.columns))
        return eqx.tree_at(lambda each: each.columns, segment, columns)
    name = location_field(segment)
    if name is None:
        return segment
    by = by[0] if getattr(segment, "covariates", 0) else by
    return eqx.tree_at(attrgetter(name), segment, getattr(segment, name) - by)


def run_statistics(
    segment: Segment, values: Any, steps: Any = None
) -> tuple[Segment, Statistics, Float[np.ndarray, "*event"]]:
    """The statistics of one segment with these values, as `centred` moves the family and them.

    `steps` are the times from each observation to the next, by default 1.
    """
    segment, relative, by = centred(segment, values)
    extra = np.zeros(len(relative)) if steps is None else np.append(0.0, np.asarray(steps) - 1)
    return segment, _observed(segment, jnp.asarray(relative, float), jnp.asarray(extra, float)), by


@jax.jit
def _observed(
    segment: Segment, values: Float[Array, "time *event"], extra: Float[Array, " time"]
) -> Statistics:
    """The statistics of all observations, each after more time than one step."""

    def step(statistics: Statistics, now: tuple[Array, Array]) -> tuple[Statistics, None]:
        x, time = now
        return observe(segment, elapse(statistics, time), x), None

    return jax.lax.scan(step, prior_statistics(segment), (values, extra))[0]


def families_by_column(segment: Segment) -> tuple[Segment, ...]:
    """The family of each column of an observation: one for all, or those of `Independent`."""
    columns = segment.event_shape[0] if segment.event_shape else 1
    return getattr(segment, "columns", (segment,) * columns)


def observations_in_words(segment: Segment) -> str:
    """What the observations of a family are, in words."""
    if segment.finite:
        return f"symbols of {segment.alphabet}"
    supports = [str(family.support) for family in families_by_column(segment)]
    return f"vectors of {', '.join(supports)}" if segment.event_shape else f"single {supports[0]}"


def _check_each(
    segment: Segment, array: Float[np.ndarray, "..."], name: str, *, position: bool = True
) -> None:
    """Raise a `ValueError` that names the first invalid value, and where it is."""
    if segment.complete_rows:
        gaps = np.isnan(array)
        partly = gaps.any(-1) & ~gaps.all(-1)
        if partly.any():
            row = tuple(int(each) for each in np.argwhere(partly)[0])
            where = _checks.place(row) if position else ""
            raise ValueError(
                f"{name} must be observed or missing as a whole in each row for a "
                f"{type(segment).__name__}, got {array[row].tolist()}{where}"
            )
    largest = LARGEST[jnp.zeros(()).dtype.itemsize]
    for i, family in enumerate(families_by_column(segment)):
        column = array[..., i] if segment.event_shape else array
        support = family.support
        for wrong, should in (
            (np.isinf(column), "finite, or NaN where missing"),
            (~support.contains(column) & ~np.isnan(column), str(support)),
            (np.abs(column) > largest, f"at most {largest:g} in size (rescale them)"),
        ):
            if wrong.any():
                at = tuple(int(each) for each in np.argwhere(wrong)[0])
                where = _checks.place(at) if position else ""
                where += f", column {i}" if segment.event_shape else ""
                raise ValueError(f"{name} must be {should}, got {column[at]:.9g}{where}")
