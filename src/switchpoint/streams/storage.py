"""Files of saved streams: safetensors, with a card that says which predictor the state is of."""

from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from switchpoint import spec
from switchpoint._formats import FORMAT, NEWEST, check_format
from switchpoint._tensors import DamagedError, read_tensors, write_tensors
from switchpoint.predictor import Predictor
from switchpoint.streams.engine import Engine

_KIND = "stream"
_FAULT = "is not a saved stream"


def save_state(
    path: Path,
    predictor: Predictor[Any],
    options: Mapping[str, Any],
    engine: Engine,
    notes: Mapping[str, Any],
) -> None:
    """Write a predictor, the state of a stream, its options and notes to `path`, atomically."""
    about, weights = spec.describe_predictor(predictor)
    card = {
        "kind": _KIND,
        FORMAT: NEWEST,
        "predictor": about,
        "engine": engine.name,
        "position": engine.position,
        "log_evidence": engine.log_evidence,
        "options": options,
        "notes": notes,
        "switchpoint": version("switchpoint"),
    }
    arrays = {f"state.{name}": array for name, array in engine.arrays().items()}
    arrays |= {f"predictor.{name}": array for name, array in weights.items()}
    write_tensors(path, card, arrays, "path")


def load_state(
    path: Path,
    predictor: Predictor[Any] | None,
    make_engine: Callable[..., Engine],
) -> tuple[Predictor[Any], dict[str, Any], Engine, dict[str, Any]]:
    """The predictor, the options, the engine and the notes of a stream that was saved."""
    if not path.is_file():
        raise ValueError(f"there is no file {path} to load a stream from")
    try:
        card, arrays = read_tensors(path, _KIND)
        check_format(card, str(path))
        about, weights = card["predictor"], _part(arrays, "predictor.")
        if predictor is None:
            predictor = spec.make_predictor(about, weights)
        elif not spec.is_described(predictor, about, weights):
            name = type(predictor).__name__
            raise DamagedError(f"its state is of another predictor than {name}")
        columns, outliers = card["options"]["columns"], card["options"]["outliers"]
        options = {"columns": None if columns is None else tuple(columns), "outliers": outliers}
        engine = make_engine(predictor, **options)
        if engine.name != card["engine"]:
            raise DamagedError(f"its state is of an engine {card['engine']!r}, not {engine.name!r}")
        position, notes = card["position"], card["notes"]
        if not isinstance(position, int) or position < 0 or not isinstance(notes, dict):
            raise DamagedError(f"it has an invalid position or notes: {position!r}, {notes!r}")
        engine.position = position
        engine.log_evidence = float(card["log_evidence"])
        engine.restore(_part(arrays, "state."))
    except spec.UnknownClassError as error:
        remedy = "pass an equal predictor, as in Stream.load(path, predictor=predictor)"
        raise ValueError(f"{error}: {remedy}") from error
    except (DamagedError, spec.OtherFileError) as error:
        raise ValueError(f"{path} {_FAULT}: {error}") from error
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} {_FAULT}: its card is not complete ({error})") from error
    return predictor, options, engine, notes


def _part(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): array for k, array in arrays.items() if k.startswith(prefix)}
