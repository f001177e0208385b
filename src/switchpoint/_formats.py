"""The format numbers of files, and how those of earlier formats are read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Step = Mapping[str, str] | Callable[[dict[str, Any]], dict[str, Any]]
"""From one format to the next: new names by old ones, or a function of the content."""

FORMAT = "format"
"""The key of the number."""


def upgrade(content: Mapping[str, Any], name: str, steps: Sequence[Step]) -> dict[str, Any]:
    """The content of a file as the newest format has it; `name` is what messages call the file.

    `steps[n]` leads from format n to n + 1, so that the newest format is `len(steps)`. A file
    without a number has format 0. A newer format than the newest is a `ValueError`.
    """
    found = content.get(FORMAT, 0)
    if type(found) is not int or found < 0:
        raise ValueError(f"{name} must have a whole number as its format, got {found!r}")
    if found > len(steps):
        raise ValueError(
            f"{name} has format {found}; this version of switchpoint reads up to {len(steps)}: "
            "upgrade switchpoint to read it"
        )
    values = dict(content)
    for step in steps[found:]:
        values = step(values) if callable(step) else rename(values, step)
    return {**values, FORMAT: len(steps)}


def check_format(content: Mapping[str, Any], name: str, newest: int) -> None:
    """Raise a `ValueError` unless a file has a format from 1 to the newest.

    `name` is what the message calls the file.
    """
    number = content.get(FORMAT)
    if type(number) is not int or number < 1:
        raise ValueError(f"{name} must have a whole number from 1 as its format, got {number!r}")
    if number > newest:
        raise ValueError(
            f"{name} has format {number}; this version of switchpoint reads up to {newest}: "
            "upgrade switchpoint to read it"
        )


def rename(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The same values, with the new name of each key that has one."""
    renamed = {names.get(key, key): value for key, value in values.items()}
    if len(renamed) < len(values):
        old = next(key for key in values if names.get(key) in values)
        raise ValueError(f"{old} is the former name of {names[old]}: give one of them")
    return renamed
