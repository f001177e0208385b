"""States of streams as bytes and files, with a card that says which predictor they are of.

A `Stream` is a safetensors file. The states of many keys are an SQLite database, of which a part
can be replaced in one transaction.
"""

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from switchpoint import spec
from switchpoint._files import atomic_write
from switchpoint._formats import FORMAT, NEWEST, check_format
from switchpoint._tensors import DamagedError, read_tensors, tensors_to_bytes
from switchpoint.predictor import Predictor
from switchpoint.streams.engine import Engine

_KIND, _STATES = "stream", "state of many streams"


def state_to_bytes(
    predictor: Predictor[Any],
    options: Mapping[str, Any],
    engine: Engine,
    notes: Mapping[str, Any],
) -> bytes:
    """The content of a file with a predictor, the state of a stream, its options and notes."""
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
    return tensors_to_bytes(card, arrays)


def load_state(
    source: Path | bytes,
    predictor: Predictor[Any] | None,
    make_engine: Callable[..., Engine],
) -> tuple[Predictor[Any], dict[str, Any], Engine, dict[str, Any]]:
    """The predictor, the options, the engine and the notes of a stream that was saved."""
    name = _name(source, "stream")
    with _faults_named(name, _KIND, "Stream"):
        card, arrays = read_tensors(source, _KIND)
        check_format(card, name)
        predictor = described_predictor(card["predictor"], predictor, _part(arrays, "predictor."))
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
    return predictor, options, engine, notes


def described_predictor(
    about: Mapping[str, Any],
    predictor: Predictor[Any] | None,
    weights: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Predictor[Any]:
    """The predictor of a card, or the given one if the card may be of it."""
    if predictor is None:
        return spec.make_predictor(about, weights)
    if not spec.is_described(predictor, about, weights):
        raise DamagedError(f"its state is of another predictor than {type(predictor).__name__}")
    return predictor


@contextmanager
def _faults_named(name: str, kind: str, cls: str) -> Iterator[None]:
    """Turn faults of a file or its content into a `ValueError` that names it."""
    try:
        yield
    except spec.UnknownClassError as error:
        remedy = f"pass an equal predictor, as in {cls}.load(path, predictor=predictor)"
        raise ValueError(f"{error}: {remedy}") from error
    except (DamagedError, spec.OtherFileError, sqlite3.Error) as error:
        raise ValueError(f"{name} is not a saved {kind}: {error}") from error
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{name} is not a saved {kind}: its card is not complete ({error})"
        ) from error


def _name(source: Path | bytes, what: str) -> str:
    """What messages call a file, which must be there, or the bytes of one."""
    if isinstance(source, bytes):
        return "content"
    if not source.is_file():
        raise ValueError(f"there is no file {source} to load a {what} from")
    return str(source)


State: TypeAlias = tuple[Any, Any, np.ndarray]
"""A key and what else is known of it, as JSON has them, and the numbers of its row."""


def states_to_bytes(card: Mapping[str, Any], states: Iterable[State]) -> bytes:
    """An SQLite database of a card and of states by key."""
    with closing(sqlite3.connect(":memory:")) as database:
        _create(database, card, states)
        return database.serialize()


def write_states(path: Path, card: Mapping[str, Any], states: Iterable[State]) -> None:
    """Write the same to a file, atomically."""
    with atomic_write(path, "path") as file, closing(sqlite3.connect(file.name)) as database:
        database.execute("PRAGMA journal_mode = OFF")
        _create(database, card, states)


def _create(database: sqlite3.Connection, card: Mapping[str, Any], states: Iterable[State]) -> None:
    with database:
        database.execute("CREATE TABLE card (about TEXT)")
        database.execute(
            "CREATE TABLE states (key TEXT PRIMARY KEY, other TEXT, numbers BLOB, checksum INTEGER)"
        )
        _write(database, card, states)


def update_states(
    path: Path, card: Mapping[str, Any], states: Iterable[State], dropped: Iterable[Any]
) -> None:
    """Replace some states of a file, and its card, in one transaction."""
    keys = [(json.dumps(key),) for key in dropped]
    with (
        _faults_named(str(path), _STATES, "Streams"),
        closing(sqlite3.connect(path)) as database,
        database,
    ):
        database.executemany("DELETE FROM states WHERE key = ?", keys)
        _write(database, card, states)


def saved_token(path: Path) -> str | None:
    """The token of the card of a file; None if there is none."""
    try:
        with closing(sqlite3.connect(path)) as database:
            return _card(database, str(path))["token"]
    except (ValueError, KeyError, sqlite3.Error):
        return None


@contextmanager
def read_states(
    source: Path | bytes, predictor: Predictor[Any] | None
) -> Iterator[tuple[dict[str, Any], Iterator[State]]]:
    """The card, with the predictor, and the states; faults in this context name the file."""
    name = _name(source, _STATES)
    with (
        _faults_named(name, _STATES, "Streams"),
        closing(sqlite3.connect(":memory:" if isinstance(source, bytes) else source)) as database,
    ):
        if isinstance(source, bytes):
            database.deserialize(source)
        card = _card(database, name)
        predictor = described_predictor(card["predictor"], predictor)
        yield {**card, "predictor": predictor}, _states(database)


def _card(database: sqlite3.Connection, name: str) -> dict[str, Any]:
    (text,) = database.execute("SELECT about FROM card").fetchone()
    card = json.loads(text)
    check_format(card, name)
    return card


def _write(database: sqlite3.Connection, card: Mapping[str, Any], states: Iterable[State]) -> None:
    predictor, _ = spec.describe_predictor(card["predictor"])
    about = {"kind": _STATES, FORMAT: NEWEST, **card, "predictor": predictor}
    database.execute("DELETE FROM card")
    database.execute("INSERT INTO card VALUES (?)", (json.dumps(about),))

    def rows() -> Iterator[tuple[str, str, bytes, int]]:
        for key, other, numbers in states:
            row = json.dumps(key), json.dumps(other), numbers.astype("<f8").tobytes()
            yield *row, _checksum(*row)

    database.executemany("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)", rows())


def _states(database: sqlite3.Connection) -> Iterator[State]:
    for key, other, numbers, checksum in database.execute("SELECT * FROM states"):
        if _checksum(key, other, numbers) != checksum:
            raise DamagedError(f"the state of key {key} does not match its checksum")
        yield json.loads(key), json.loads(other), np.frombuffer(numbers, "<f8")


def _checksum(key: str, other: str, numbers: bytes) -> int:
    return zlib.crc32(numbers, zlib.crc32(f"{key} {other}".encode()))


def _part(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): array for k, array in arrays.items() if k.startswith(prefix)}
