"""Sequences of symbols: read from files of any kind, and written with their predictions."""

import csv
import io
import json
import math
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from switchpoint import _text
from switchpoint._text import name_of, printable, read_bytes, read_text
from switchpoint.cli.analysis import Analysis

SAMPLE_COLUMNS = ("sequence", "t", "symbol", "switch")
"""How the header of a table by `switchpoint sample` begins."""

MOST_LABELS = 256
"""The largest alphabet that a file may imply."""

_LONGEST_WORD = 32  # characters; a longer token of a text is a run of letters
_SEPARATORS = re.compile(r"[\s,;]+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SHOWN = 12  # names in a message
_SYMBOLS_ONLY = (
    "only symbols are supported (whole numbers from 0, or labels); turn real values into symbols "
    "first, for example with numpy.digitize, round counts and give --alphabet, or list a few "
    "values with --labels"
)


@dataclass(frozen=True)
class SymbolSequence:
    """Symbols as they are predicted, and the labels that they had in their file."""

    symbols: Int[np.ndarray, " time"]
    alphabet: int
    labels: tuple[str, ...] = ()
    """The labels of the symbols 0, 1, ... of the alphabet; none where symbols are numbers."""


# --- reading --------------------------------------------------------------------------------


def read_symbols(
    path: Path,
    alphabet: int | None = None,
    labels: str | None = None,
    column: str | None = None,
    row: int | None = None,
) -> SymbolSequence:
    """The sequence in a text, a column of a table, an .npy or an .npz file.

    It consists of numbers, which are symbols 0..alphabet-1, or of labels. `labels` lists all of
    these in the order of their symbols, separated by commas; else they are numbered as they
    appear, False before True. Without `alphabet` there are two numbers, or as many as labels.
    """
    if alphabet is not None and alphabet < 2:
        raise ValueError(f"alphabet must be at least 2, got {alphabet}")
    listed = None if labels is None else _listed(labels)
    suffix, origin = path.suffix.lower(), name_of(path)
    if suffix in (".npy", ".npz"):
        if column is not None:
            raise ValueError(f"--column is for tables, got {column!r} for {origin}")
        array = _array_row(_read_array(path, origin), row, origin)
        if array.size and array.dtype.kind not in "US" and listed is None:
            return _from_numbers(array, alphabet, origin)
        tokens = _array_tokens(array, origin)
    elif column is not None or suffix in (".csv", ".tsv"):
        lines = _lines(read_text(path), origin, tabs=suffix == ".tsv")
        tokens = _table_tokens(lines, origin, column, row, listed or ())
    else:
        _pick_row(1, row, origin)
        tokens = _text_tokens(read_text(path), alphabet, listed, origin)
    if not tokens:
        raise ValueError(f"{origin} holds no symbols")
    return _from_tokens(tokens, alphabet, listed, origin)


def parse_number(token: str) -> float | None:
    """The finite number that `token` is; None for all else, also where `float` would take it."""
    value = float(token) if _NUMBER.fullmatch(token) else math.inf
    return value if math.isfinite(value) else None


def _listed(text: str) -> tuple[str, ...]:
    """The labels of a list separated by commas; one with a comma stands in quotation marks."""
    labels = [label.strip() for line in csv.reader([text]) for label in line]
    if len(labels) < 2 or len(set(labels)) < len(labels) or not all(map(_is_label, labels)):
        raise ValueError(
            f"labels must be two or more different words, such as up,down, got {text!r}"
        )
    return tuple(labels)


def _is_label(word: str) -> bool:
    return word != "" and word.isprintable()


def _from_tokens(
    tokens: Sequence[str], alphabet: int | None, listed: tuple[str, ...] | None, origin: str
) -> SymbolSequence:
    distinct = list(dict.fromkeys(tokens))  # each is looked at once

    def refuse(token: str, why: str) -> ValueError:
        position = tokens.index(token)
        return ValueError(f"{origin}: symbol {_cut(token)!r} at position {position} {why}")

    if listed is not None:
        values = {label: symbol for symbol, label in enumerate(listed)}
        for token in distinct:
            if token not in values:
                raise refuse(token, f"is not one of the labels {_first_of(listed)}")
        return _labelled(tokens, values, listed, alphabet, origin)
    numbers = {token: parse_number(token) for token in distinct}
    words = [token for token, value in numbers.items() if value is None]
    if len(words) < len(distinct):
        if words:
            raise refuse(
                words[0],
                "is not a number, but others are; if all are labels, list them with --labels",
            )
        array = np.fromiter((numbers[token] for token in tokens), float, len(tokens))
        return _from_numbers(array, alphabet, origin)
    for word in words:
        if _looks_like_a_number(word):
            raise refuse(word, "is not a number; if all are labels, list them with --labels")
        if not _is_label(word):
            raise refuse(word, "is neither a number nor a label that can be printed")
    if all(map(_is_truth_value, words)):
        values = {word: int(word.lower() == "true") for word in words}
        return _labelled(tokens, values, ("False", "True"), alphabet, origin)
    values = {word: symbol for symbol, word in enumerate(words)}
    return _labelled(tokens, values, tuple(words), alphabet, origin)


def _is_truth_value(word: str) -> bool:
    return word.lower() in ("false", "true")


def _looks_like_a_number(word: str) -> bool:
    """Whether Python takes `word` for a number: nan, infinity, 0_1, digits of other scripts."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def _labelled(
    tokens: Sequence[str],
    values: Mapping[str, int],
    labels: tuple[str, ...],
    alphabet: int | None,
    origin: str,
) -> SymbolSequence:
    most = MOST_LABELS if alphabet is None else alphabet
    if len(labels) > most:
        bound = f"for an alphabet of {alphabet}" if alphabet else f"(at most {most})"
        raise ValueError(
            f"{origin}: {len(labels)} labels are too many {bound}, got {_first_of(labels)}"
        )
    symbols = np.fromiter((values[token] for token in tokens), np.int32, len(tokens))
    return SymbolSequence(symbols, alphabet or max(2, len(labels)), labels)


def _from_numbers(array: np.ndarray, alphabet: int | None, origin: str) -> SymbolSequence:
    """Numbers as symbols 0..alphabet-1."""
    size = 2 if alphabet is None else alphabet

    def symbol_at(position: np.intp) -> str:
        return f"{origin}: symbol {float(array[position]):.15g} at position {position}"

    natural = np.isfinite(array) & (np.floor(array) == array) & (array >= 0)
    if not natural.all():
        first = symbol_at(np.argmin(natural))
        raise ValueError(f"{first} is not a whole number from 0: {_SYMBOLS_ONLY}")
    inside = array < size
    if not inside.all():
        largest = int(array.max())
        remedy = ""
        if alphabet is None and largest < MOST_LABELS:
            remedy = f"; for symbols or counts from 0 to {largest}, give --alphabet {largest + 1}"
        elif alphabet is None:
            remedy = f": {_SYMBOLS_ONLY}"
        first = symbol_at(np.argmin(inside))
        raise ValueError(f"{first} is outside the alphabet 0..{size - 1}{remedy}")
    return SymbolSequence(array.astype(np.int32), size)


def _first_of(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _SHOWN else ""
    return printable(", ".join(names[:_SHOWN])) + more


def _cut(token: str) -> str:
    return token if len(token) <= _LONGEST_WORD else token[:_LONGEST_WORD] + "..."


def _pick_row(count: int, row: int | None, origin: str) -> int:
    """Which of `count` sequences is meant; where there are several it must be said."""
    if row is None:
        if count > 1:
            raise ValueError(
                f"{origin} holds {count} sequences, choose one with --row 0 to --row {count - 1}"
            )
        return 0
    if not 0 <= row < count:
        raise ValueError(f"row must be from 0 to {count - 1} for {origin}, got {row}")
    return row


# --- texts ----------------------------------------------------------------------------------


def _text_tokens(
    text: str, alphabet: int | None, listed: tuple[str, ...] | None, origin: str
) -> list[str]:
    """The symbols in a text, with or without separators between them.

    A token of digits is a run of symbols where every symbol has one digit, and tokens of
    letters are runs where they do not look like words.
    """
    tokens = [token for token in _SEPARATORS.split(text) if token]
    if listed is not None:
        single = all(len(label) == 1 for label in listed)
        return _split(tokens, lambda token: single and token not in listed)
    digits = {token for token in tokens if token.isascii() and token.isdigit()}
    if digits:
        runs = (2 if alphabet is None else alphabet) <= 10
        if alphabet is None and any(set(token) - {"0", "1"} for token in digits):
            # It is refused either way, which shall be for the number that is meant.
            runs = len(tokens) == 1 or any(token[0] == "0" != token for token in digits)
        return _split(tokens, lambda token: runs and token in digits)
    others = list(dict.fromkeys(token for token in tokens if not token.isalpha()))
    if len(tokens) == 1 or max(map(len, tokens), default=0) > _LONGEST_WORD:  # no words
        for token in others:
            if parse_number(token) is None:
                raise ValueError(
                    f"{origin}: {_cut(token)!r} is neither a number nor letters; separate symbols "
                    "by spaces, commas or newlines, or by nothing where they are digits or letters"
                )
        return _split(tokens, str.isalpha)
    # Words recur. Where none does and yet few letters are used, these are the symbols.
    once = len({token.lower() for token in tokens}) == len(tokens)
    joined = "".join(tokens)
    letters = not others and once and 2 * len(set(joined)) <= len(joined)
    return _split(tokens, lambda _: letters)


def _split(tokens: Sequence[str], is_run: Callable[[str], bool]) -> list[str]:
    """The tokens, with the characters of every run in its place."""
    return [part for token in tokens for part in (token if is_run(token) else (token,))]


# --- tables ---------------------------------------------------------------------------------


def _lines(text: str, origin: str, tabs: bool) -> list[tuple[int, list[str]]]:
    """The lines that are not empty, numbered from 1, in cells."""
    head = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = "\t" if tabs else next((mark for mark in ",;\t" if mark in head), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        cells = [(reader.line_num, [cell.strip() for cell in line]) for line in reader]
    except csv.Error as error:
        raise ValueError(f"{origin} is not a table ({error})") from error
    return [(line, row) for line, row in cells if any(row)]


def _table_tokens(
    lines: Sequence[tuple[int, list[str]]],
    origin: str,
    column: str | None,
    row: int | None,
    labels: Sequence[str],
) -> list[str]:
    """The cells of a column, from a table with or without a header line.

    Of a table that `switchpoint sample` wrote, only the sequence number `row`.
    """
    if not lines:
        return []
    first = lines[0][1]
    header = _is_header(first, [cells for _, cells in lines[1:]], column, labels)
    names = first if header else [str(index) for index in range(len(first))]
    index = _column_index(names, column, origin)
    data = lines[1:] if header else lines
    if header and tuple(names[: len(SAMPLE_COLUMNS)]) == SAMPLE_COLUMNS:
        sequences = list(dict.fromkeys(cells[0] for _, cells in data))
        wanted = sequences[_pick_row(len(sequences), row, origin)] if sequences else None
        data = [(line, cells) for line, cells in data if cells[0] == wanted]
    else:
        _pick_row(1, row, origin)
    for line, cells in data:
        if index >= len(cells) or not cells[index]:
            name = printable(names[index])
            raise ValueError(f"{origin}: line {line} has no value in column {name}")
    return [cells[index] for _, cells in data]


def _is_header(
    first: Sequence[str], rest: Sequence[list[str]], column: str | None, labels: Sequence[str]
) -> bool:
    """Whether the first line of a table names its columns: a name does not recur below."""
    words = {i: cell for i, cell in enumerate(first) if cell and parse_number(cell) is None}
    if column in words.values():
        return True
    if any(word in labels or _is_truth_value(word) for word in words.values()):
        return False
    second = dict(enumerate(rest[0])) if rest else {}
    above_numbers = [i for i, cell in second.items() if parse_number(cell) is not None]
    if any(i in words for i in above_numbers):
        return True
    if any(i < len(first) for i in above_numbers):
        return False  # numbers above numbers
    below = {(i, cell) for cells in rest for i, cell in enumerate(cells) if i in words}
    return bool(words) and not below & set(words.items())


def _column_index(names: Sequence[str], column: str | None, origin: str) -> int:
    if column is None:
        if len(names) == 1:
            return 0
        raise ValueError(
            f"{origin} has {len(names)} columns, choose one with --column: {_first_of(names)}"
        )
    if column in names:
        return names.index(column)
    if column.isascii() and column.isdigit() and int(column) < len(names):
        return int(column)
    raise ValueError(f"column {column!r} is not in {origin}, whose columns are: {_first_of(names)}")


# --- arrays ---------------------------------------------------------------------------------


def _read_array(path: Path, origin: str) -> np.ndarray:
    """The array in an .npy file, or the one called `symbols` in an .npz file.

    NumPy's own reader trusts the sizes in a file, and recommends pickle for damaged ones.
    """
    data = read_bytes(path)
    file = io.BytesIO(_symbols_in_archive(data, origin) if data.startswith(b"PK") else data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers by Python 2
            version = np.lib.format.read_magic(file)
            read = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[version]
            shape, fortran, dtype = read(file)
    except Exception as error:  # damaged headers fail in many ways
        raise ValueError(f"{origin} is damaged, or not a NumPy file: bad header") from error
    if dtype.kind not in "biufUS":
        raise ValueError(f"{origin} must hold numbers or text, got dtype {printable(str(dtype))}")
    content = file.read()
    size = math.prod(shape) * dtype.itemsize
    if dtype.itemsize == 0 or min(shape, default=0) < 0 or size > len(content):
        raise ValueError(
            f"{origin} is damaged: {len(content)} bytes of {dtype} cannot have shape {shape}"
        )
    return np.ndarray(shape, dtype, content, order="F" if fortran else "C")


def _array_tokens(array: np.ndarray, origin: str) -> list[str]:
    try:
        texts = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
        return [str(each).strip() for each in texts.tolist()]
    except (ValueError, SystemError) as error:
        raise ValueError(f"{origin} holds text that is not Unicode") from error


def _symbols_in_archive(data: bytes, origin: str) -> bytes:
    """The unpacked file `symbols.npy` of an archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {each.filename.removesuffix(".npy"): each for each in archive.infolist()}
            if "symbols" not in members:
                raise ValueError(f"it has no array `symbols`, but {_first_of(list(members))}")
            member = members["symbols"]
            # The only kinds that NumPy writes, and that are unpacked in bounded memory.
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError("its compression is not one that NumPy writes")
            with archive.open(member) as file:
                unpacked = file.read(_text.LARGEST + 1)
    except Exception as error:  # a damaged archive fails in many ways
        reason = printable(str(error)) or type(error).__name__
        raise ValueError(f"{origin} cannot be read as an .npz file: {reason}") from error
    return _text.check_size(unpacked, origin)


def _array_row(array: np.ndarray, row: int | None, origin: str) -> np.ndarray:
    if array.ndim not in (1, 2):
        raise ValueError(f"{origin} must hold one or two dimensions, got shape {array.shape}")
    rows = np.atleast_2d(array)
    if rows.size == 0:
        return rows.reshape(-1)
    return rows[_pick_row(len(rows), row, origin)]


# --- writing --------------------------------------------------------------------------------


def csv_lines(analysis: Analysis, labels: Sequence[str] = ()) -> Iterator[str]:
    """A header, then a line for each position."""
    columns = _columns(analysis, labels)
    yield ",".join(["t", "symbol", *map(_csv_cell, columns)]) + "\n"
    for row in _rows(analysis, columns, [_csv_cell(label) for label in labels]):
        yield ",".join(row) + "\n"


def json_lines(analysis: Analysis, labels: Sequence[str] = ()) -> Iterator[str]:
    """One object of a `summary` and of `rows`, with a line for each position."""
    yield f'{{"summary": {json.dumps(analysis.summary(), allow_nan=False)},\n"rows": [\n'
    columns = _columns(analysis, labels)
    names = [json.dumps(name) for name in ["t", "symbol", *columns]]
    last = len(analysis.symbols) - 1
    for position, row in enumerate(_rows(analysis, columns, list(map(json.dumps, labels)))):
        fields = ", ".join(f"{name}: {cell}" for name, cell in zip(names, row, strict=True))
        yield f"{{{fields}}}{'' if position == last else ','}\n"
    yield "]}\n"


FORMATS: Mapping[str, Callable[[Analysis, Sequence[str]], Iterator[str]]] = {
    "csv": csv_lines,
    "json": json_lines,
}
"""The writers of rows, by the name of their format."""


def _columns(analysis: Analysis, labels: Sequence[str]) -> dict[str, Float[np.ndarray, " time"]]:
    """The probabilities at each position, by the name of their column."""
    names = [f"p_{label}" for label in labels]
    names += [f"p{k}" for k in range(len(labels), analysis.probs.shape[1])]
    columns = dict(zip(names, analysis.probs.T, strict=True))
    if analysis.switching is not None:
        columns["switch_filtered"] = analysis.switching.filtered
        columns["switch_smoothed"] = analysis.switching.smoothed
    return columns


def _rows(
    analysis: Analysis,
    columns: Mapping[str, Float[np.ndarray, " time"]],
    labels: Sequence[str],
) -> Iterator[list[str]]:
    """The cells of each position; all but labels are the same in CSV and in JSON."""
    numbers = np.column_stack(list(columns.values()))
    for position, (symbol, values) in enumerate(zip(analysis.symbols, numbers, strict=True)):
        # str of a NumPy float is the shortest text that reads back as the same float.
        shown = labels[symbol] if labels else str(symbol)
        yield [str(position), shown, *map(str, values)]


def _csv_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',";') else text
