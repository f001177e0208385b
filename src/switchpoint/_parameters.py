"""Hyperparameters of priors and segments: leaves with a value in double precision on the host."""

import dataclasses
from typing import Any, TypeAlias

import equinox as eqx
import jax
import numpy as np
import wadler_lindig as wl
from jaxtyping import Array, Float

Parameter: TypeAlias = float | Float[Array, "..."]
"""A hyperparameter that is a leaf of its module: a `numpy.float64`, unless traced."""


class Parametric(eqx.Module):
    """A module whose numbers become NumPy scalars: arrays without axes, in double precision.

    JAX and Equinox trace them and differentiate with respect to them, where Equinox would compile
    anew for every Python number. On the host they keep all their digits.
    """

    def __check_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.metadata.get("static", False):
                continue
            numbers = (float, int) if field.type in (float, "float") else (float,)
            leaves, structure = jax.tree.flatten(getattr(self, field.name))
            if any(type(leaf) in numbers for leaf in leaves):
                arrays = [np.float64(leaf) if type(leaf) in numbers else leaf for leaf in leaves]
                object.__setattr__(self, field.name, jax.tree.unflatten(structure, arrays))

    def __pdoc__(self, **options: Any) -> wl.AbstractDoc:
        shown = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            is_default = value is field.default or (
                isinstance(value, np.float64) and value == field.default
            )
            if not (is_default and options["hide_defaults"]):
                shown[field.name] = value
        return describe(self, shown, **options)


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
