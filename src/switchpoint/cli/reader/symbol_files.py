"""Files as sequences of symbols."""

import base64
import bz2
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from switchpoint.cli.reader.symbols import SymbolSequence, parse_text
from switchpoint.streams.archive import to_content

KINDS = ("text", "bits", "bytes")
"""The kinds of symbols of a file: those that a text lists, its bits, or its bytes."""

_TEXT_OF_BITS = re.compile(rb"[\s,;]*[01][01\s,;]*")


def guess_kind(content: bytes, alphabet: int | None) -> str:
    """The kind of a file: a text if it lists bits, otherwise bytes, or bits for an alphabet of 2.

    For any other alphabet it is a text.
    """
    if alphabet == 256 or not _TEXT_OF_BITS.fullmatch(content):
        return {None: "bytes", 256: "bytes", 2: "bits"}.get(alphabet, "text")
    return "text"


def to_symbols(
    content: bytes, kind: str, alphabet: int | None = None, labels: str | None = None
) -> tuple[SymbolSequence, dict[str, Any]]:
    """The symbols of a file, and the description of it that `to_content` needs."""
    if kind == "text":
        return _text_symbols(content, alphabet, labels)
    if labels is not None:
        raise ValueError(f"labels are for a text of symbols, not for {kind}, got {labels!r}")
    size, symbols = 256, np.frombuffer(content, np.uint8)
    if kind == "bits":
        size, symbols = 2, np.unpackbits(symbols)
    if alphabet not in (None, size):
        raise ValueError(f"alphabet must be {size} for {kind}, got {alphabet}")
    return SymbolSequence(symbols.astype(np.int32), size), {"kind": kind}


def _text_symbols(
    content: bytes, alphabet: int | None, labels: str | None
) -> tuple[SymbolSequence, dict[str, Any]]:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8, so it is not a text") from error
    sequence, tokens = parse_text(text, alphabet, labels)
    about = {"kind": "text", "names": list(sequence.labels), **_layout(text, tokens)}
    if to_content(sequence.symbols, about) != content:  # such as 01 for the symbol 1
        raise ValueError(
            "its symbols are not all written in the same way, so it could not be restored; "
            "compress the file with --as bytes"
        )
    return sequence, about


def _layout(text: str, tokens: Sequence[str]) -> dict[str, Any]:
    """The text before, between and after the symbols."""
    at, gaps = 0, []
    for token in tokens:
        begin = text.index(token, at)
        gaps.append(text[at:begin])
        at = begin + len(token)
    between: Any = list(dict.fromkeys(gaps[1:]))
    if len(between) > 1:
        between = base64.b64encode(bz2.compress("\0".join(gaps[1:]).encode())).decode()
    return {"before": gaps[0], "between": between, "after": text[at:]}
