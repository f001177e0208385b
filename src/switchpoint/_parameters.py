"""Hyperparameters of priors and segments: leaves with a value in double precision on the host."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import numpy as np
import wadler_lindig as wl
from jaxtyping import Array, Float

from switchpoint import _checks

Parameter: TypeAlias = float | Float[Array, "..."]
"""A hyperparameter that is a leaf of its module: a `numpy.float64`, unless traced."""


def positive(default: float | None = None) -> Any:
    """A field for a hyperparameter above 0.

    It is checked when the family is made, unless it is traced, and `fit` searches over its
    logarithm. See `Segment` for how a family declares its fields.

    >>> import switchpoint as sp
    >>> sp.Poisson(shape=-1.0)
    Traceback (most recent call last):
        ...
    ValueError: shape must be a finite number above 0, got -1.0
    """
    return checked_field(_checks.positive_float, default)


def real(default: float | None = None) -> Any:
    """A field for a hyperparameter that may be any real number.

    See `positive` for an example of a field.
    """
    return checked_field(_checks.finite_float, default, real=True)


def location(default: float | None = None) -> Any:
    """A field for a hyperparameter that is itself a value, and moves with the origin of values.

    If x is of the family with the location m, then x - c is of the one with m - c, so that values
    can be centred. See `positive` for an example of a field.
    """
    return checked_field(_checks.finite_float, default, real=True, location=True)


def simplex() -> Any:
    """A field for an array of probabilities, which sum to 1 along its last axis.

    >>> import switchpoint as sp
    >>> sp.HMM([0.5, 0.6], [[0.9, 0.1], [0.1, 0.9]], [[0.9, 0.1], [0.1, 0.9]])
    Traceback (most recent call last):
        ...
    ValueError: initial_probs must sum to one, got a sum of 1.1
    """
    return eqx.field(metadata={"simplex": True})


def checked_field(
    check: Callable[[str, Any], float], default: float | None = None, **metadata: Any
) -> Any:
    """A field whose value, or each element of it, passes a check unless it is traced."""
    optional: dict[str, Any] = {} if default is None else {"default": default}
    return eqx.field(**optional, metadata={"check": check, **metadata})


def fields_with(cls: type, mark: str) -> tuple[str, ...]:
    """The names of the fields of a class that are declared as `real`, `location` or `simplex`."""
    fields = dataclasses.fields(cls)
    return tuple(field.name for field in fields if field.metadata.get(mark))


class Parametric(eqx.Module):
    """A module whose numbers become NumPy scalars: arrays without axes, in double precision.

    JAX and Equinox trace them and differentiate with respect to them, where Equinox would compile
    anew for every Python number. On the host they keep all their digits.
    """

    def __check_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.metadata.get("static", False):
                continue
            value = getattr(self, field.name)
            if "check" in field.metadata and not isinstance(value, jax.core.Tracer):
                value = _checked(field.metadata["check"], field.name, value)
            numbers = (float, int) if field.type in (float, "float") else (float,)
            leaves, structure = jax.tree.flatten(value)
            if any(type(leaf) in numbers for leaf in leaves):
                arrays = [np.float64(leaf) if type(leaf) in numbers else leaf for leaf in leaves]
                value = jax.tree.unflatten(structure, arrays)
            object.__setattr__(self, field.name, value)

    def __pdoc__(self, **options: Any) -> wl.AbstractDoc:
        shown = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            is_default = value is field.default or (
                isinstance(value, np.float64) and value == field.default
            )
            if "check" in field.metadata or not (is_default and options["hide_defaults"]):
                shown[field.name] = value
        return describe(self, shown, **options)


def _checked(check: Callable[[str, Any], float], name: str, value: Any) -> Any:
    """A hyperparameter whose elements all pass a check."""
    if np.ndim(value) == 0:
        return check(name, value)
    return np.array([check(name, each) for each in np.ravel(value)]).reshape(np.shape(value))


def describe(module: eqx.Module, arguments: dict[str, Any], **options: Any) -> wl.AbstractDoc:
    """A module printed as a constructor call, such as `Geometric(hazard=0.01)`."""
    plain = [(name, _plain(value)) for name, value in arguments.items()]
    return wl.bracketed(
        begin=wl.TextDoc(f"{type(module).__qualname__}("),
        docs=wl.named_objs(plain, **options),
        sep=wl.comma,
        end=wl.TextDoc(")"),
        indent=options["indent"],
    )


def _plain(value: Any) -> Any:
    """A value whose numbers are those of Python, which are printed without their type."""
    return jax.tree.map(
        lambda leaf: float(leaf) if isinstance(leaf, np.float64) else leaf,
        value,
        is_leaf=lambda node: isinstance(node, eqx.Module),
    )
