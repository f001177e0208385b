"""Files of saved streams: safetensors, with a card that says which predictor the state is of."""

import dataclasses
import math
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from switchpoint import segments
from switchpoint._formats import FORMAT, Step, upgrade
from switchpoint._tensors import DamagedError, read_tensors, write_tensors
from switchpoint.exact import KT, ForwardPredictor, KTOracle, PTWPredictor
from switchpoint.neural import Network
from switchpoint.neural.registry import describe_network
from switchpoint.neural.storage import named_leaves, networks_from, shapes_of
from switchpoint.predictor import Predictor
from switchpoint.priors import LIN, PTW, Geometric, Prior, RandomUniform, RegularPeriodic, Renewal
from switchpoint.segments import Independent, Segment
from switchpoint.streams.dispatch import make_engine
from switchpoint.streams.engine import Engine
from switchpoint.zoo import Zoo

_KIND = "stream"
_STEPS: tuple[Step, ...] = ({},)
_FAULT = "is not a saved stream"

_PRIORS: Mapping[type[Prior], tuple[str, ...]] = {
    PTW: ("depth", "split"),
    LIN: (),
    RegularPeriodic: ("period",),
    RandomUniform: ("max_length",),
    Geometric: ("hazard",),
    Renewal: ("pmf",),
}
_SEGMENTS: tuple[type[Segment], ...] = (
    segments.Bernoulli,
    segments.Categorical,
    segments.MarkovChain,
    segments.Gaussian,
    segments.NormalGamma,
    segments.Poisson,
    segments.Exponential,
    segments.Trend,
)


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
    """What makes a predictor again: a JSON object, and arrays."""
    match predictor:
        case ForwardPredictor() | PTWPredictor():
            prior, segment = _describe_prior(predictor.prior), _describe_segment(predictor.segment)
            if prior is not None and segment is not None:
                most = getattr(predictor, "max_hypotheses", None)
                kind = "forward" if isinstance(predictor, ForwardPredictor) else "ptw"
                about = {"prior": prior, "segment": segment, "max_hypotheses": most}
                return {"type": kind, **about}, {}
        case KT() | KTOracle():
            segment = _describe_segment(predictor.segment)
            if segment is not None and isinstance(predictor, KT):
                return {"type": "kt", "segment": segment}, {}
            if segment is not None and isinstance(predictor, KTOracle):
                switches = {"predictor.switches": np.asarray(predictor.switches, np.uint8)}
                return {"type": "oracle", "segment": segment}, switches
        case Network():
            found = _describe_network(predictor)
            if found is not None:
                return found
    return {"type": "custom", "class": _class_name(predictor)}, {}


def make_predictor(about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Predictor[Any]:
    """The predictor that was described."""
    match about["type"]:
        case "custom":
            raise ValueError(
                f"the predictor of this stream, {about['class']}, has classes that switchpoint "
                "does not know: pass an equal one, as in Stream.load(path, predictor=predictor)"
            )
        case "zoo":
            return _from_zoo(about)
        case "network":
            shapes = shapes_of(about["card"])
            return networks_from(1, _part(arrays, "predictor."), shapes)[0]
        case "kt":
            return KT(_dirichlet(about))
        case "oracle":
            return KTOracle(arrays["predictor.switches"] > 0, _dirichlet(about))
        case "ptw":
            prior: Any = _make_prior(about["prior"])
            return PTWPredictor(prior, _make_segment(about["segment"]))
        case "forward":
            prior, segment = _make_prior(about["prior"]), _make_segment(about["segment"])
            return ForwardPredictor(prior, segment, about["max_hypotheses"])
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
        raise DamagedError(f"its state is of another predictor than {_class_name(predictor)}")


def _is_close(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, but for the rounding of fitted parameters."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_close(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):  # JSON has no tuples
        return len(one) == len(other) and all(map(_is_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12)
    return bool(one == other)


def _describe_prior(prior: Prior) -> dict[str, Any] | None:
    if type(prior) not in _PRIORS:
        return None
    values = {name: _json(getattr(prior, name)) for name in _PRIORS[type(prior)]}
    return {"class": type(prior).__name__, **values}


def _make_prior(about: Mapping[str, Any]) -> Prior:
    classes = {each.__name__: each for each in _PRIORS}
    return _make(classes, about)


def _describe_segment(segment: Segment) -> dict[str, Any] | None:
    if type(segment) is Independent:
        columns = [_describe_segment(column) for column in segment.columns]
        return None if None in columns else {"class": "Independent", "columns": columns}
    if type(segment) not in _SEGMENTS:
        return None
    fields = [field.name for field in dataclasses.fields(segment)]
    return {"class": type(segment).__name__, **{f: _json(getattr(segment, f)) for f in fields}}


def _make_segment(about: Mapping[str, Any]) -> Segment:
    if about["class"] == "Independent":
        return Independent(*map(_make_segment, about["columns"]))
    return _make({each.__name__: each for each in _SEGMENTS}, about)


def _dirichlet(about: Mapping[str, Any]) -> Any:
    return _make_segment(about["segment"])


def _make(classes: Mapping[str, Any], about: Mapping[str, Any]) -> Any:
    options = {name: value for name, value in about.items() if name != "class"}
    if about["class"] not in classes:
        raise DamagedError(f"its predictor has an unknown part, {about['class']!r}")
    try:
        return classes[about["class"]](**options)
    except ValueError as error:
        raise DamagedError(f"its predictor is not possible: {error}") from error


def _json(value: Any) -> Any:
    """A hyperparameter as JSON has it."""
    if isinstance(value, int | float):
        return value
    return np.asarray(value, np.float64).tolist()


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


def _class_name(predictor: Predictor[Any]) -> str:
    parts = [predictor, getattr(predictor, "prior", None), getattr(predictor, "segment", None)]
    return " with ".join(type(each).__name__ for each in parts if each is not None)


def _part(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): array for k, array in arrays.items() if k.startswith(prefix)}
