"""Predictors, and the priors and segments in them, as plain data and back.

A prior, a segment or an exact predictor is described by its class and the arguments of its
constructor, so that a class of a user's own is described like any other:
`{"class": "Geometric", "hazard": 0.01}`. A network is described by its file, or by the card of its
architecture and the arrays of its weights. Saved streams and archives hold these descriptions.
"""

import inspect
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from switchpoint import priors, segments
from switchpoint._files import digest_of
from switchpoint._tensors import DamagedError
from switchpoint._text import printable
from switchpoint.exact import (
    KT,
    ExactPredictor,
    ForwardPredictor,
    KTOracle,
    MixturePredictor,
    PTWPredictor,
)
from switchpoint.neural import Network, best_member, load, read_card
from switchpoint.neural.registry import describe_network
from switchpoint.neural.storage import MODEL_FILE, named_leaves, networks_from, shapes_of
from switchpoint.predictor import Predictor
from switchpoint.zoo import Zoo, path_of

_CLASS = "class"
_EXACT = (ForwardPredictor, PTWPredictor, KT, KTOracle, MixturePredictor)
_PREDICTORS = {each.__name__: each for each in _EXACT}

Arrays = Mapping[str, np.ndarray]


class UnknownClassError(ValueError):
    """A description names a class that this process does not have."""


class OtherFileError(ValueError):
    """The file of a network is not there, or is another."""


def describe_predictor(predictor: Predictor[Any]) -> tuple[dict[str, Any], Arrays]:
    """The JSON object and the arrays from which `make_predictor` makes a predictor again.

    The `type` of the object is `exact`, with the class and the arguments of an exact predictor;
    `file` for a network of the zoo; `network` for any other, with its weights as the arrays; or
    `custom` for a class of which only the name is known.

        >>> import switchpoint as sp
        >>> from switchpoint.spec import describe_predictor
        >>> describe_predictor(sp.KT(sp.Bernoulli()))[0]["segment"]
        {'class': 'Bernoulli', 'alpha': 0.5, 'beta': 0.5}
    """
    if isinstance(predictor, (ExactPredictor, *_EXACT)):
        return {"type": "exact", **describe(predictor)}, {}
    card = describe_network(predictor) if isinstance(predictor, Network) else None
    if card is None or not isinstance(predictor, Network):
        return {"type": "custom", _CLASS: type(predictor).__name__}, {}
    name = _name_in_zoo(predictor, card)
    if name is not None:
        return describe_file(name, 0), {}
    arrays = {name: np.asarray(leaf)[None] for name, leaf in named_leaves(predictor).items()}
    return {"type": "network", "card": card}, arrays


def describe_file(model: str, member: int | None = None) -> dict[str, Any]:
    """A network by its name in the zoo or its path, its index, and the SHA-256 of its file.

    The best member (see `switchpoint.load`) if no index is given.
    """
    path = path_of(model)
    index = best_member(read_card(path)) if member is None else member
    return {"type": "file", "name": model, "member": index, "sha256": _file_digest(path)}


def make_predictor(
    about: Mapping[str, Any], arrays: Arrays | None = None, model: str | None = None
) -> Predictor[Any]:
    """The predictor that was described; `model` is where its file is, if it was moved.

    Raises an `UnknownClassError` for a class of a user's own that is not imported, an
    `OtherFileError` if a network has another file now, and a `DamagedError` for any description
    that `describe_predictor` has not made.
    """
    match about["type"]:
        case "exact":
            return make({name: each for name, each in about.items() if name != "type"})
        case "custom":
            raise UnknownClassError(f"switchpoint does not know the class {about[_CLASS]}")
        case "file":
            return _from_file(about, about["name"] if model is None else model)
        case "network":
            return networks_from(1, arrays or {}, shapes_of(about["card"]))[0]
    raise DamagedError(f"its predictor is of an unknown type, {about['type']!r}")


def is_described(predictor: Predictor[Any], about: Mapping[str, Any], arrays: Arrays) -> bool:
    """Whether a description may be of this predictor, but for the rounding of its parameters."""
    actual, weights = describe_predictor(predictor)
    if {actual["type"], about["type"]} == {"file", "network"}:
        return True  # the networks of a zoo may be others after an upgrade
    return _is_close(actual, about) and all(
        np.array_equal(arrays.get(name, ()), array) for name, array in weights.items()
    )


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
    given = {name: _from_plain(value) for name, value in about.items() if name != _CLASS}
    positional: list[Any] = []
    for parameter in inspect.signature(cls).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional = given.pop(parameter.name)
    try:
        return cls(*positional, **given)
    except (TypeError, ValueError) as error:
        raise DamagedError(f"its predictor is not possible: {error}") from error


def _package_class(name: str) -> Any:
    classes = (_PREDICTORS.get(name), getattr(priors, name, None), getattr(segments, name, None))
    return next((each for each in classes if isinstance(each, type)), None)


def _imported_class(name: str) -> Any:
    module, _, qualified = name.partition(":")
    cls: Any = sys.modules.get(module)
    for part in qualified.split("."):
        cls = getattr(cls, part, None)
    if not (isinstance(cls, type) and issubclass(cls, eqx.Module)):
        raise UnknownClassError(f"no imported module has the class {name}")
    return cls


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


def _from_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return make(value)
    if isinstance(value, list):
        items = [_from_plain(each) for each in value]
        return items if any(isinstance(each, eqx.Module) for each in items) else np.array(items)
    return value


def _name_in_zoo(network: Network, card: Mapping[str, Any]) -> str | None:
    """The name of an equal network in the zoo."""
    zoo = Zoo()
    for name in zoo.names():
        other = zoo.card(name)
        if all(other[key] == card[key] for key in ("model", "alphabet", "options")):
            leaves = zip(*map(jax.tree.leaves, (zoo.network(name), network)), strict=True)
            if all(np.array_equal(one, other) for one, other in leaves):
                return name
    return None


def _from_file(about: Mapping[str, Any], model: str) -> Network:
    try:
        path = path_of(model)
        digest = _file_digest(path)
    except (ValueError, OSError) as error:
        raise OtherFileError(
            f"its network is {printable(model)}, which is not here ({error})"
        ) from error
    if digest != about["sha256"]:
        raise OtherFileError(
            f"its network is {printable(about['name'])} with SHA-256 {about['sha256'][:12]}..., "
            f"and {printable(model)} has {digest[:12]}..."
        )
    return load(path, about["member"])


def _file_digest(path: Path) -> str:
    return digest_of(path / MODEL_FILE if path.is_dir() else path)


def _is_close(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, but for the rounding of fitted parameters."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_close(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):  # JSON has no tuples
        return len(one) == len(other) and all(map(_is_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12)
    return bool(one == other)
