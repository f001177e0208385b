"""Files of saved streams: safetensors, with a card that says which predictor the state is of."""

import math
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from switchpoint import spec
from switchpoint._formats import FORMAT, Step, upgrade
from switchpoint._tensors import DamagedError, read_tensors, write_tensors
from switchpoint.exact import KT, ExactPredictor, KTOracle
from switchpoint.neural import Network
from switchpoint.neural.registry import describe_network
from switchpoint.neural.storage import named_leaves, networks_from, shapes_of
from switchpoint.predictor import Predictor
from switchpoint.streams.engine import Engine
from switchpoint.streams.stream import make_engine
from switchpoint.zoo import Zoo

_KIND = "stream"
_STEPS: tuple[Step, ...] = ({},)
_FAULT = "is not a saved stream"
_PASS_PREDICTOR = "pass an equal predictor, as in Stream.load(path, predictor=predictor)"


def save_state(
    path: Path,
    predictor: Predictor[Any],
    columns: tuple[str, ...] | None,
    engine: Engine,
    notes: Mapping[str, Any],
) -> None:
    """Write a predictor, the state of a stream and its notes to `path`, atomically."""
    about, weights = describe_predictor(predictor)
    card = {
        "kind": _KIND,
        FORMAT: len(_STEPS),
        "predictor": about,
        "engine": engine.name,
        "position": engine.position,
        "log_evidence": engine.log_evidence,
        "columns": None if columns is None else list(columns),
        "notes": notes,
        "switchpoint": version("switchpoint"),
    }
    arrays = {f"state.{name}": array for name, array in engine.arrays().items()}
    write_tensors(path, card, {**arrays, **weights}, "path")


def load_state(
    path: Path, predictor: Predictor[Any] | None
) -> tuple[Predictor[Any], tuple[str, ...] | None, Engine, dict[str, Any]]:
    """The predictor, the columns, the engine and the notes of a stream that was saved."""
    if not path.is_file():
        raise ValueError(f"there is no file {path} to load a stream from")
    try:
        card, arrays = read_tensors(path, _KIND)
        card = upgrade(card, str(path), _STEPS)
        state = _part(arrays, "state.")
        if predictor is None:
            predictor = make_predictor(card["predictor"], arrays)
        else:
            _check_equal(predictor, card["predictor"], arrays)
        columns = None if card["columns"] is None else tuple(card["columns"])
        engine = make_engine(predictor, columns)
        if engine.name != card["engine"]:
            raise DamagedError(f"its state is of an engine {card['engine']!r}, not {engine.name!r}")
        position, notes = card["position"], card.get("notes", {})
        if not isinstance(position, int) or position < 0 or not isinstance(notes, dict):
            raise DamagedError(f"its position or its notes cannot be: {position!r}, {notes!r}")
        engine.position = position
        engine.log_evidence = float(card["log_evidence"])
        engine.restore(state)
    except DamagedError as error:
        raise ValueError(f"{path} {_FAULT}: {error}") from error
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} {_FAULT}: its card is not complete ({error})") from error
    return predictor, columns, engine, notes


def describe_predictor(
    predictor: Predictor[Any],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The JSON object and the arrays that make a predictor again."""
    if isinstance(predictor, ExactPredictor | KT | KTOracle):
        return {"type": "exact", **spec.describe(predictor)}, {}
    found = _describe_network(predictor) if isinstance(predictor, Network) else None
    return found or ({"type": "custom", "class": type(predictor).__name__}, {})


def make_predictor(about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Predictor[Any]:
    """The predictor that was described."""
    match about["type"]:
        case "exact":
            try:
                return spec.make({name: each for name, each in about.items() if name != "type"})
            except spec.UnknownClassError as error:
                raise ValueError(f"{error}: {_PASS_PREDICTOR}") from error
        case "custom":
            raise ValueError(
                f"switchpoint does not know the class {about['class']}: {_PASS_PREDICTOR}"
            )
        case "zoo":
            return _from_zoo(about)
        case "network":
            shapes = shapes_of(about["card"])
            return networks_from(1, _part(arrays, "predictor."), shapes)[0]
    raise DamagedError(f"its predictor is of an unknown type, {about['type']!r}")


def _check_equal(
    predictor: Predictor[Any], about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Raise a `DamagedError` if a state is known to be of another predictor than this one."""
    own, weights = describe_predictor(predictor)
    if {own["type"], about["type"]} == {"zoo", "network"}:
        return  # the networks of a zoo may be others after an upgrade
    saved = _part(arrays, "predictor.")
    same = _is_close(own, about) and all(
        np.array_equal(saved.get(name, ()), array)
        for name, array in _part(weights, "predictor.").items()
    )
    if not same:
        raise DamagedError(f"its state is of another predictor than {type(predictor).__name__}")


def _is_close(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, but for the rounding of fitted parameters."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_close(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):  # JSON has no tuples
        return len(one) == len(other) and all(map(_is_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12)
    return bool(one == other)


def _describe_network(network: Network) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """A network of the zoo by its name and the hash of its file, any other with its weights."""
    card = describe_network(network)
    if card is None:
        return None
    zoo = Zoo()
    for name in zoo.names():
        own = zoo.card(name)
        if all(own[key] == card[key] for key in ("model", "alphabet", "options")):
            leaves = zip(*map(jax.tree.leaves, (zoo.network(name), network)), strict=True)
            if all(np.array_equal(one, other) for one, other in leaves):
                return {"type": "zoo", "name": name, "sha256": zoo.entries[name].sha256}, {}
    arrays = {f"predictor.{k}": np.asarray(v)[None] for k, v in named_leaves(network).items()}
    return {"type": "network", "card": card}, arrays


def _from_zoo(about: Mapping[str, Any]) -> Network:
    zoo, name = Zoo(), about["name"]
    entry = zoo.entries.get(name)
    if entry is None or entry.sha256 != about["sha256"]:
        found = "there is none" if entry is None else f"its SHA-256 is {entry.sha256[:12]}"
        raise DamagedError(
            f"its network is {name} of the zoo with SHA-256 {about['sha256'][:12]}, and in this "
            f"installation {found}"
        )
    return zoo.network(name)


def _part(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): array for k, array in arrays.items() if k.startswith(prefix)}
