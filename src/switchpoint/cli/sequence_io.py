"""Sequences of symbols in files: texts, tables and arrays, of numbers or of labels."""

import csv
import io
import math
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from switchpoint import _text
from switchpoint._text import name_of, printable, read_bytes, read_text
from switchpoint.cli.output import shortened

SAMPLE_COLUMNS = ("sequence", "t", "symbol", "switch")
"""The first columns of a table written by `switchpoint sample`."""

MAX_LABELS = 256
"""The largest alphabet that a file may imply."""

_MAX_WORD = 32  # characters; a longer token of a text is a run of letters
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SHOWN = 12  # names in a message
_USE_LABELS = "if all are labels, list them with --labels"
_SYMBOLS_ONLY = (
    "only symbols are supported (whole numbers from 0, or labels); turn real values into symbols "
    "first, for example with numpy.digitize, round counts and give --alphabet, or list a few "
    "values with --labels"
)


@dataclass(frozen=True)
class SymbolSequence:
    """Symbols as they are predicted, and the labels that they have in their file."""

    symbols: Int[np.ndarray, " time"]
    alphabet: int
    labels: tuple[str, ...] = ()
    """The labels of the symbols 0, 1, ... of the alphabet; none where symbols are numbers."""


def read_symbols(
    path: Path,
    alphabet: int | None = None,
    labels: str | None = None,
    column: str | None = None,
    row: int | None = None,
) -> SymbolSequence:
    """The sequence in a text, a column of a table, an .npy or an .npz file.

    It consists of numbers, which are symbols 0..alphabet-1, or of labels. `labels` lists all
    labels in the order of their symbols, separated by commas; otherwise they are numbered in order
    of appearance, False before True. `alphabet` defaults to 2, or to the number of labels.
    """
    if alphabet is not None and alphabet < 2:
        raise ValueError(f"alphabet must be at least 2, got {alphabet}")
    listed = None if labels is None else parse_labels(labels)
    suffix = path.suffix.lower()
    content = read_bytes(path) if suffix in (".npy", ".npz") else read_text(path)
    try:
        if isinstance(content, bytes):
            if column is not None:
                raise ValueError(f"--column is for tables, got {column!r}")
            array = _read_array(content, row)
            if array.size and array.dtype.kind not in "US" and listed is None:
                return _from_numbers(array, alphabet)
            tokens = _array_tokens(array)
        elif column is not None or suffix in (".csv", ".tsv"):
            lines = table_lines(content, "\t" if suffix == ".tsv" else ",;\t")
            tokens = _table_tokens(lines, column, row, listed or ()) if lines else []
        else:
            _pick_row(1, row)
            return parse_text(content, alphabet, labels)[0]
        return _from_tokens(tokens, alphabet, listed)
    except ValueError as error:
        raise ValueError(f"{name_of(path)}: {error}") from error


def parse_text(
    text: str, alphabet: int | None = None, labels: str | None = None
) -> tuple[SymbolSequence, list[str]]:
    """The sequence in a text, as in `read_symbols`, and its symbols as the text has them."""
    listed = None if labels is None else parse_labels(labels)
    tokens = _text_tokens(text, alphabet, listed)
    return _from_tokens(tokens, alphabet, listed), tokens


def parse_number(token: str) -> float | None:
    """The finite number that `token` is; stricter than `float`, which accepts nan and 0_1."""
    value = float(token) if _NUMBER.fullmatch(token) else math.inf
    return value if math.isfinite(value) else None


def parse_labels(text: str) -> tuple[str, ...]:
    """The labels in a list separated by commas; one that has a comma is quoted."""
    labels = [label.strip() for line in csv.reader([text]) for label in line]
    if len(labels) < 2 or len(set(labels)) < len(labels) or not all(map(_is_label, labels)):
        raise ValueError(
            f"labels must be two or more different words, such as up,down, got {text!r}"
        )
    return tuple(labels)


def _is_label(word: str) -> bool:
    return word != "" and word.isprintable()


def _is_boolean(word: str) -> bool:
    return word.lower() in ("false", "true")


def _from_tokens(
    tokens: Sequence[str], alphabet: int | None, listed: tuple[str, ...] | None
) -> SymbolSequence:
    """Tokens as symbols: numbers if all of them are, otherwise labels."""
    if not tokens:
        raise ValueError("the file holds no symbols")
    words = [token for token in dict.fromkeys(tokens) if listed or parse_number(token) is None]
    if not words:
        return _from_numbers(np.fromiter(map(float, tokens), float, len(tokens)), alphabet)
    mixed = listed is None and len(words) < len(set(tokens))
    for word in words:
        if listed is not None:
            problem = "" if word in listed else f"not one of the labels {first_of(listed)}"
        elif mixed or _looks_like_a_number(word):
            problem = f"not a number{', but others are' if mixed else ''}; {_USE_LABELS}"
        else:
            problem = "" if _is_label(word) else "neither a number nor a label that can be printed"
        if problem:
            shown, position = shortened(word, _MAX_WORD), tokens.index(word)
            raise ValueError(f"symbol {shown!r} at position {position} is {problem}")
    labels = tuple(words) if listed is None else listed
    if listed is None and all(map(_is_boolean, words)):
        labels, tokens = ("False", "True"), [token.capitalize() for token in tokens]
    most = MAX_LABELS if alphabet is None else alphabet
    if len(labels) > most:
        bound = f"for an alphabet of {alphabet}" if alphabet else f"(at most {most})"
        raise ValueError(f"{len(labels)} labels are too many {bound}, got {first_of(labels)}")
    values = {label: symbol for symbol, label in enumerate(labels)}
    symbols = np.fromiter((values[token] for token in tokens), np.int32, len(tokens))
    return SymbolSequence(symbols, alphabet or max(2, len(labels)), labels)


def _looks_like_a_number(word: str) -> bool:
    """Whether Python reads `word` as a number: nan, infinity, 0_1, digits of other scripts."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def _from_numbers(array: np.ndarray, alphabet: int | None) -> SymbolSequence:
    """Numbers as symbols 0..alphabet-1."""
    size = 2 if alphabet is None else alphabet
    whole = np.isfinite(array) & (np.floor(array) == array) & (array >= 0)
    valid = whole & (array < size) if whole.all() else whole
    if valid.all():
        return SymbolSequence(array.astype(np.int32), size)
    position = int(np.argmin(valid))
    symbol = f"symbol {float(array[position]):.15g} at position {position}"
    if not whole.all():
        raise ValueError(f"{symbol} is not a whole number from 0: {_SYMBOLS_ONLY}")
    remedy, largest = "", int(array.max())
    if alphabet is None and largest < MAX_LABELS:
        remedy = f"; for symbols or counts from 0 to {largest}, give --alphabet {largest + 1}"
    elif alphabet is None:
        remedy = f": {_SYMBOLS_ONLY}"
    raise ValueError(f"{symbol} is outside the alphabet 0..{size - 1}{remedy}")


def first_of(names: Iterable[str]) -> str:
    """The first of many names, for a message."""
    names = list(names)
    more = ", ..." if len(names) > _SHOWN else ""
    return printable(", ".join(names[:_SHOWN])) + more


def _pick_row(count: int, row: int | None) -> int:
    """The index of one of `count` sequences; if there are several, `row` must be given."""
    if row is None and count > 1:
        raise ValueError(
            f"the file holds {count} sequences, choose one with --row 0 to --row {count - 1}"
        )
    if row is not None and not 0 <= row < count:
        raise ValueError(f"row must be from 0 to {count - 1}, got {row}")
    return row or 0


def _text_tokens(text: str, alphabet: int | None, listed: tuple[str, ...] | None) -> list[str]:
    """The symbols in a text, with or without separators between them.

    A token of digits is a run of symbols if every symbol has one digit; tokens of letters are
    runs if they do not look like words.
    """
    tokens = [token for token in re.split(r"[\s,;]+", text) if token]
    if listed is not None:
        single = all(len(label) == 1 for label in listed)
        return _split(tokens, lambda token: single and token not in listed)
    digits = {token for token in tokens if token.isascii() and token.isdigit()}
    if digits:
        runs = (2 if alphabet is None else alphabet) <= 10
        if alphabet is None and any(set(token) - {"0", "1"} for token in digits):
            # An error either way: let it name the number that was meant.
            runs = len(tokens) == 1 or any(token[0] == "0" != token for token in digits)
        return _split(tokens, lambda token: runs and token in digits)
    others = [token for token in dict.fromkeys(tokens) if not token.isalpha()]
    if len(tokens) == 1 or max(map(len, tokens), default=0) > _MAX_WORD:  # these are no words
        odd = next((token for token in others if parse_number(token) is None), None)
        if odd is not None:
            raise ValueError(
                f"{shortened(odd, _MAX_WORD)!r} is neither a number nor letters; separate symbols "
                "by spaces, commas or newlines, or by nothing where they are digits or letters"
            )
        return _split(tokens, str.isalpha)
    # Words recur. If none does and yet few letters are used, the letters are the symbols.
    unique = len({token.lower() for token in tokens}) == len(tokens)
    joined = "".join(tokens)
    letters = not others and unique and 2 * len(set(joined)) <= len(joined)
    return _split(tokens, lambda _: letters)


def _split(tokens: Sequence[str], is_run: Callable[[str], bool]) -> list[str]:
    """The tokens, with every run replaced by its characters."""
    return [part for token in tokens for part in (token if is_run(token) else (token,))]


def table_lines(text: str, delimiters: str, *, gaps: bool = False) -> list[tuple[int, list[str]]]:
    """The cells of the lines that are not empty, with line numbers from 1.

    With `gaps`, lines of empty cells between others are kept: in these, all is missing. An empty
    cell that is the only one of its line is kept if it is quoted, as others write it.
    """
    head = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = next((mark for mark in delimiters if mark in head), delimiters[0])
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        lines = [
            (reader.line_num, [cell.strip() for cell in line])
            for line in reader
            if any(map(str.strip, line)) or (gaps and (len(line) > 1 or line == [""]))
        ]
    except csv.Error as error:
        raise ValueError(f"the file is not a table ({error})") from error
    full = [i for i, (_, cells) in enumerate(lines) if any(cells) or len(cells) == 1]
    return lines[full[0] : full[-1] + 1] if full else []


def _table_tokens(
    lines: Sequence[tuple[int, list[str]]],
    column: str | None,
    row: int | None,
    labels: Sequence[str],
) -> list[str]:
    """The cells of a column, from a table with or without a header.

    From a table that `switchpoint sample` wrote, only those of the sequence number `row`.
    """
    first = lines[0][1]
    header = is_header(first, [cells for _, cells in lines[1:]], column, labels)
    names = first if header else [str(index) for index in range(len(first))]
    if column in names or (column is None and len(names) == 1):
        index = 0 if column is None else names.index(column)
    elif column is None:
        raise ValueError(
            f"the table has {len(names)} columns, choose one with --column: {first_of(names)}"
        )
    elif column.isascii() and column.isdigit() and int(column) < len(names):
        index = int(column)
    else:
        raise ValueError(f"there is no column {column!r}; the columns are: {first_of(names)}")
    data = lines[1:] if header else lines
    if header and tuple(names[: len(SAMPLE_COLUMNS)]) == SAMPLE_COLUMNS and data:
        sequences = list(dict.fromkeys(cells[0] for _, cells in data))
        wanted = sequences[_pick_row(len(sequences), row)]
        data = [(line, cells) for line, cells in data if cells[0] == wanted]
    else:
        _pick_row(1, row)
    for line, cells in data:
        if index >= len(cells) or not cells[index]:
            raise ValueError(f"line {line} has no value in column {printable(names[index])}")
    return [cells[index] for _, cells in data]


def is_header(
    first: Sequence[str],
    rest: Sequence[list[str]],
    column: str | None = None,
    labels: Sequence[str] = (),
) -> bool:
    """Whether the first line of a table names its columns: a name does not recur below."""
    words = {i: cell for i, cell in enumerate(first) if cell and parse_number(cell) is None}
    if column in words.values():
        return True
    if any(word in labels or _is_boolean(word) for word in words.values()):
        return False
    second = rest[0] if rest else []
    numbers = [i for i, cell in enumerate(second) if parse_number(cell) is not None]
    if any(i < len(first) for i in numbers):
        return any(i in words for i in numbers)  # a word above a number
    below = {(i, cell) for cells in rest for i, cell in enumerate(cells) if i in words}
    return bool(words) and not below & set(words.items())


def _read_array(data: bytes, row: int | None) -> np.ndarray:
    """One row of the array in an .npy file, or of `symbols` in an .npz file."""
    file = io.BytesIO(_unpack_symbols(data) if data.startswith(b"PK") else data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers written by Python 2
            array = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # damaged files fail in many ways, some of which suggest pickle
        raise ValueError("the file is damaged, or not a NumPy file of numbers or text") from error
    if array.dtype.kind not in "biufUS" or array.itemsize == 0:
        raise ValueError(f"the array must be of numbers or text, got {printable(str(array.dtype))}")
    if array.ndim not in (1, 2):
        raise ValueError(f"the array must have one or two dimensions, got shape {array.shape}")
    rows = np.atleast_2d(array)
    return rows[_pick_row(len(rows), row)] if rows.size else rows.reshape(-1)


def _unpack_symbols(data: bytes) -> bytes:
    """The file `symbols.npy` in an archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {each.filename.removesuffix(".npy"): each for each in archive.infolist()}
            if "symbols" not in members:
                raise ValueError(f"it has no array `symbols`, but {first_of(list(members))}")
            # The only methods that NumPy writes, and that unpack in bounded memory.
            if members["symbols"].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError("its compression is not one that NumPy writes")
            with archive.open(members["symbols"]) as file:
                unpacked = file.read(_text.LARGEST + 1)
    except Exception as error:  # damaged archives fail in many ways
        reason = printable(str(error)) or type(error).__name__
        raise ValueError(f"the .npz archive cannot be read: {reason}") from error
    return _text.check_size(unpacked, "symbols.npy")


def _array_tokens(array: np.ndarray) -> list[str]:
    try:
        texts = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
        return [str(each).strip() for each in texts.tolist()]
    except (ValueError, SystemError) as error:
        raise ValueError("the array holds text that is not Unicode") from error
