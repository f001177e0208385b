"""Priors, segment models and exact predictors as plain data, and back.

A module is described by its class and the arguments of its constructor, so that a class of a
user's own is described like any other: `{"class": "Geometric", "hazard": 0.01}`.
"""

import inspect
import sys
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np

from switchpoint import priors, segments
from switchpoint._tensors import DamagedError
from switchpoint.exact.forward import ForwardPredictor
from switchpoint.exact.kt import KT, KTOracle
from switchpoint.exact.ptw import PTWPredictor

_CLASS = "class"
_PREDICTORS = {each.__name__: each for each in (ForwardPredictor, PTWPredictor, KT, KTOracle)}


class UnknownClassError(ValueError):
    """A description names a class that no imported module has."""


def describe(module: eqx.Module) -> dict[str, Any]:
    """The class of a module and the arguments that make it again, as JSON has them.

    Every parameter of the constructor must be an attribute of the same name: a number, an array,
    None, another such module, or a sequence of these.
    """
    cls = type(module)
    name = cls.__name__ if _package_class(cls.__name__) is cls else _qualified_name(cls)
    arguments = {each: _plain(getattr(module, each)) for each in inspect.signature(cls).parameters}
    return {_CLASS: name, **arguments}


def make(about: Mapping[str, Any]) -> Any:
    """The module that was described.

    Raises an `UnknownClassError` for a class outside of the package whose module is not imported:
    nothing is imported, and so run, because a file says so.
    """
    cls = _package_class(about[_CLASS]) or _imported_class(about[_CLASS])
    given = {name: _made(value) for name, value in about.items() if name != _CLASS}
    positional: list[Any] = []
    for parameter in inspect.signature(cls).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional = given.pop(parameter.name)
    try:
        return cls(*positional, **given)
    except (TypeError, ValueError) as error:
        raise DamagedError(f"its predictor is not possible: {error}") from error


def _package_class(name: str) -> Any:
    found = (_PREDICTORS.get(name), getattr(priors, name, None), getattr(segments, name, None))
    return next((each for each in found if isinstance(each, type)), None)


def _imported_class(name: str) -> Any:
    module, _, qualified = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, eqx.Module)):
        raise UnknownClassError(f"no imported module has the class {name}")
    return found


def _qualified_name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _plain(value: Any) -> Any:
    if isinstance(value, eqx.Module):
        return describe(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    array = np.asarray(value)
    return (array if array.dtype == bool else array.astype(np.float64)).tolist()


def _made(value: Any) -> Any:
    if isinstance(value, Mapping):
        return make(value)
    if isinstance(value, list):
        made = [_made(each) for each in value]
        return made if any(isinstance(each, eqx.Module) for each in made) else np.array(made)
    return value
