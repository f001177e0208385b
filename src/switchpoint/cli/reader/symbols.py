"""Sequences of symbols in files: texts, tables and arrays, of numbers or of labels."""

import csv
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Int

from switchpoint._text import locating, name_of
from switchpoint.cli.output import shortened
from switchpoint.cli.reader.cells import first_names, is_boolean, parse_number
from switchpoint.cli.reader.content import read_content
from switchpoint.cli.reader.tables import GUESSED, Layout, Table, read_table

SAMPLE_COLUMNS = ("sequence", "t", "symbol", "switch")
"""The first columns of a table written by `switchpoint sample`."""

MAX_LABELS = 256
"""The largest alphabet that a file may imply."""

_MAX_WORD = 32  # characters; a longer token of a text is a run of letters
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
    notes: tuple[str, ...] = ()
    """How the file was read, for people."""


def read_symbols(
    path: Path,
    alphabet: int | None = None,
    labels: str | None = None,
    column: str | None = None,
    row: int | None = None,
    layout: Layout = GUESSED,
) -> SymbolSequence:
    """The sequence in a text, a column of a table, or an array.

    It consists of numbers, which are symbols 0..alphabet-1, or of labels. `labels` lists all
    labels in the order of their symbols, separated by commas; otherwise they are numbered in order
    of appearance, False before True. `alphabet` defaults to 2, or to the number of labels.
    """
    if alphabet is not None and alphabet < 2:
        raise ValueError(f"alphabet must be at least 2, got {alphabet}")
    listed = None if labels is None else parse_labels(labels)
    content = read_content(path)
    with locating(name_of(path)):
        if content.kind == "array":
            if column is not None:
                raise ValueError(f"--column is for tables, got {column!r}")
            rows = np.atleast_2d(content.array())
            array = rows[_pick_row(len(rows), row)] if rows.size else rows.reshape(-1)
            if array.size and array.dtype.kind not in "US" and listed is None:
                sequence = _from_numbers(array, alphabet)
            else:
                sequence = _from_tokens(_array_tokens(array), alphabet, listed)
            return replace(sequence, notes=(*content.notes, "NumPy"))
        if column is not None or layout != GUESSED or content.kind != "text":
            table = read_table(content, layout, (column,), listed or ())
            tokens = _table_tokens(table, column, row)
            return replace(_from_tokens(tokens, alphabet, listed), notes=table.notes)
        _pick_row(1, row)
        text, notes = content.text()
        sequence, tokens = parse_text(text, alphabet, labels)
        each = "word" if len(tokens) == len(_words(text)) else "character"
        return replace(sequence, notes=(*content.notes, *notes, f"each {each} is a symbol"))


def parse_text(
    text: str, alphabet: int | None = None, labels: str | None = None
) -> tuple[SymbolSequence, list[str]]:
    """The sequence in a text, as in `read_symbols`, and its symbols as the text has them."""
    listed = None if labels is None else parse_labels(labels)
    tokens = _text_tokens(text, alphabet, listed)
    return _from_tokens(tokens, alphabet, listed), tokens


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
            problem = "" if word in listed else f"not one of the labels {first_names(listed)}"
        elif mixed or _looks_like_a_number(word):
            problem = f"not a number{', but others are' if mixed else ''}; {_USE_LABELS}"
        else:
            problem = "" if _is_label(word) else "neither a number nor a label that can be printed"
        if problem:
            shown, position = shortened(word, _MAX_WORD), tokens.index(word)
            raise ValueError(f"symbol {shown!r} at position {position} is {problem}")
    labels = tuple(words) if listed is None else listed
    if listed is None and all(map(is_boolean, words)):
        labels, tokens = ("False", "True"), [token.capitalize() for token in tokens]
    most = MAX_LABELS if alphabet is None else alphabet
    if len(labels) > most:
        bound = f"for an alphabet of {alphabet}" if alphabet else f"(at most {most})"
        raise ValueError(f"{len(labels)} labels are too many {bound}, got {first_names(labels)}")
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
    size = 2 if alphabet is None else min(alphabet, 2**31)  # symbols have 32 bits
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
    tokens = _words(text)
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


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[\s,;]+", text) if word]


def _split(tokens: Sequence[str], is_run: Callable[[str], bool]) -> list[str]:
    """The tokens, with every run replaced by its characters."""
    return [part for token in tokens for part in (token if is_run(token) else (token,))]


def _table_tokens(table: Table, column: str | None, row: int | None) -> list[str]:
    """The cells of a column, or of the only one; of sequence number `row` if there are several."""
    if column is None and len(table.names) > 1:
        raise ValueError(
            f"the table has {len(table.names)} columns, choose one with --column: "
            f"{first_names(table.names)}"
        )
    if table.frame.empty:
        return []
    name = table.names[0] if column is None else table.find(column)
    several = tuple(table.names[: len(SAMPLE_COLUMNS)]) == SAMPLE_COLUMNS
    keys = table.frame["sequence"].unique() if several else [""]
    chosen = keys[_pick_row(len(keys), row)]
    if several:
        table = table.only(f"sequence={chosen}")
    return table.filled_cells(name, "value", operator.not_)


def _array_tokens(array: np.ndarray) -> list[str]:
    try:
        texts = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
        return [str(each).strip() for each in texts.tolist()]
    except (ValueError, SystemError) as error:
        raise ValueError("the array holds text that is not Unicode") from error
