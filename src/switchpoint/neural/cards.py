"""The card of a network file: its format, and the checks that it is well formed."""

import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from switchpoint._checks import shown
from switchpoint._formats import check_format
from switchpoint._tensors import DamagedError


def check_card(card: Mapping[str, Any], shapes: Collection[tuple[int, ...]], path: Path) -> None:
    """Check the card of a file at `path`, whose tensors have these shapes.

    Raises a `DamagedError` for a malformed card, and a `ValueError` for a later format.
    """
    check_format(card, str(path))
    # Layers have tensors of their own, or lie along the first axis of common ones.
    most_layers = max([len(shapes), *(shape[1] for shape in shapes if len(shape) > 1)])
    lacking = sorted({"model", "alphabet", "length", "members"} - set(card))
    if lacking:
        raise DamagedError(f"its card lacks {', '.join(lacking)}")
    _check_fields(card, _CARD, "its card")
    for index, member in enumerate(card["members"]):
        _check_fields(member, _MEMBER, f"its card, for member {index},")
    _check_fields(card.get("test", {}), _TEST, "its card, for the test,")
    for name in ("layers", "readout"):
        count = card.get("options", {}).get(name, 0)
        if type(count) is int and count > most_layers:
            raise DamagedError(f"its card has {name} {count}, more than its tensors have")


def _check_fields(values: Mapping[str, Any], kinds: "Mapping[str, _Kind]", where: str) -> None:
    for name, (must, holds) in kinds.items():
        if name in values and not holds(values[name]):
            raise DamagedError(f"{where} has {name} {shown(values[name])}, which must be {must}")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _list_of(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and bool(value) and all(map(holds, value))


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


_Kind = tuple[str, Callable[[Any], bool]]
_COUNT: _Kind = ("a positive integer", lambda v: type(v) is int and 0 < v < 2**31)
_WHOLE: _Kind = ("an integer of at least 0", lambda v: type(v) is int and v >= 0)
_NUMBER: _Kind = ("a finite number", _is_number)
_TEXT: _Kind = ("a string", lambda v: isinstance(v, str))
_BOOL: _Kind = ("true or false", lambda v: isinstance(v, bool))
_TABLE: _Kind = ("a table", _is_table)
_NUMBER_OR_NONE: _Kind = ("a finite number or null", lambda v: v is None or _is_number(v))

_CARD: Mapping[str, _Kind] = {
    **dict.fromkeys(("model", "name"), _TEXT),
    "alphabet": (
        "a positive integer or null",
        lambda v: v is None or _COUNT[1](v),
    ),
    "length": _COUNT,
    **dict.fromkeys(("options", "values", "config", "versions", "chosen", "test"), _TABLE),
    "members": ("a non-empty list of tables", _list_of(_is_table)),
    **dict.fromkeys(("steps", "format"), _WHOLE),
    "sources": (
        "a table of strings",
        lambda v: _is_table(v) and all(isinstance(each, str) for each in v.values()),
    ),
    "provenance": ("a table or null", lambda v: v is None or _is_table(v)),
}
_MEMBER: Mapping[str, _Kind] = {
    "prior": _TEXT,
    "seed": _WHOLE,
    "learning_rate": _NUMBER,
    **dict.fromkeys(("excess", "excess_error"), _NUMBER_OR_NONE),
    "diverged": _BOOL,
}
_TEST: Mapping[str, _Kind] = {
    **dict.fromkeys(("sequences", "length"), _COUNT),
    "seed": _WHOLE,
    **dict.fromkeys(("excess", "regret", "optimum_regret", "tolerance"), _NUMBER),
    **dict.fromkeys(("excess_error", "regret_error", "optimum_regret_error"), _NUMBER),
    "excess_of_blocks": ("a non-empty list of finite numbers", _list_of(_is_number)),
}
