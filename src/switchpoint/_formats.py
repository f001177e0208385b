"""The format numbers of files."""

from collections.abc import Mapping
from typing import Any

FORMAT = "format"
"""The key of the number."""

NEWEST = 1
"""The format of every file that this version writes."""


def check_format(content: Mapping[str, Any], name: str) -> None:
    """Raise a `ValueError` unless a file has a format from 1 to `NEWEST`.

    `name` is what the message calls the file.
    """
    number = content.get(FORMAT)
    if type(number) is not int or number < 1:
        raise ValueError(f"{name} must have a whole number from 1 as its format, got {number!r}")
    if number > NEWEST:
        raise ValueError(
            f"{name} has format {number}; this version of switchpoint reads up to {NEWEST}: "
            "upgrade switchpoint to read it"
        )
