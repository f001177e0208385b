"""Numbers that shall be symbols: checked, with the position of the first that is none."""

import re

import numpy as np
from jaxtyping import Int

_SEPARATORS = re.compile(r"[\s,;]+")
_LONGEST_SHOWN = 20


def text_numbers(text: str, alphabet: int) -> list[float]:
    """The symbols in a text, with or without separators between them.

    A token of digits is a run of symbols where every symbol has one digit.
    """
    numbers: list[float] = []
    for token in _SEPARATORS.split(text):
        if alphabet <= 10 and token.isascii() and token.isdigit():
            numbers.extend(map(float, token))
        elif token:
            numbers.append(number(token, len(numbers)))
    return numbers


def number(token: str, position: int) -> float:
    """A token as a number; `position` is its place among the symbols."""
    try:
        return float(token)
    except ValueError as error:
        shown = token if len(token) <= _LONGEST_SHOWN else token[:_LONGEST_SHOWN] + "..."
        raise ValueError(f"symbol {shown!r} at position {position} is not a number") from error


def checked_symbols(values: object, alphabet: int, origin: str) -> Int[np.ndarray, " time"]:
    """Numbers as symbols 0..alphabet-1, of which there must be one at least."""
    array = np.asarray(values)
    if array.size == 0:
        raise ValueError(f"{origin} holds no symbols")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{origin} must hold numbers, got dtype {array.dtype}")
    whole = np.isfinite(array) & (np.floor(array) == array)
    bad = ~(whole & (array >= 0) & (array < alphabet))
    if bad.any():
        position = int(np.argmax(bad))
        shown = f"symbol {float(array[position]):.15g} at position {position}"
        if not whole[position]:
            raise ValueError(f"{shown} is not a whole number")
        raise ValueError(f"{shown} is outside the alphabet 0..{alphabet - 1}")
    return array.astype(np.int32)


def pick_row(count: int, row: int | None, origin: str) -> int:
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
