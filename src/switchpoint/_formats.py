"""Format numbers: files of earlier versions are upgraded by key maps, later ones refused."""

import copy
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

KeyMap = Mapping[str, str]
"""New names by dotted paths: {"members.*.frozen": "diverged"}, where `*` is every item."""


def upgrade(
    content: Mapping[str, Any], kind: str, maps: Sequence[KeyMap], path: str | PathLike[str]
) -> dict[str, Any]:
    """`content` in the latest format, len(`maps`); `maps[n]` leads from format n to n + 1.

    Files of format 0 carry no number. Raises a `ValueError` for a format not known yet.
    """
    found = content.get("format", 0)
    if type(found) is not int or found < 0:
        raise ValueError(f"{path} is damaged: its format must be a whole number, got {found!r}")
    if found > len(maps):
        raise ValueError(
            f"{path} has format {found}; this version of switchpoint reads {kind} files up to "
            f"format {len(maps)}: upgrade it"
        )
    upgraded = copy.deepcopy(dict(content))
    for renamed in maps[found:]:
        for old, new in renamed.items():
            _rename(upgraded, old.split("."), new)
    return {**upgraded, "format": len(maps)}


def _rename(node: Any, path: list[str], new: str) -> None:
    first, *rest = path
    if first == "*":
        for each in node.values() if isinstance(node, dict) else node:
            _rename(each, rest, new)
    elif isinstance(node, dict) and first in node:
        if rest:
            _rename(node[first], rest, new)
        else:
            node[new] = node.pop(first)
