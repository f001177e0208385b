"""What the card and the arrays of a network file must be, whoever wrote them."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from switchpoint._tensors import DamagedError


def check_card(card: Mapping[str, Any], arrays: int) -> None:
    """Raise a `DamagedError` where the card of a file with so many arrays says what it cannot."""
    lacking = sorted({"model", "alphabet", "length", "members"} - set(card))
    if lacking:
        raise DamagedError(f"its card does not say {', '.join(lacking)}")
    _check_fields(card, _CARD, "its card")
    for index, member in enumerate(card.get("members", [])):
        _check_fields(member, _MEMBER, f"its card, for member {index},")
    _check_fields(card.get("test", {}), _TEST, "its card, for the test,")
    for name in ("layers", "readout"):
        count = card.get("options", {}).get(name, 0)
        if type(count) is int and count > arrays:  # each layer has arrays of its own
            raise DamagedError(f"its card says that {name} is {count}, it has fewer arrays")


def check_weights(arrays: Mapping[str, np.ndarray]) -> None:
    """Raise a `DamagedError` where weights are no real numbers."""
    for name, array in arrays.items():
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise DamagedError(f"its array {name} must be of floats, got {array.dtype}")


def _check_fields(values: Mapping[str, Any], kinds: "Mapping[str, _Kind]", where: str) -> None:
    for name, (must, holds) in kinds.items():
        if name in values and not holds(values[name]):
            said = repr(values[name])
            raise DamagedError(f"{where} says that {name} is {said[:40]}, which must be {must}")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**31


def _is_whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


_Kind = tuple[str, Callable[[Any], bool]]
_COUNT: _Kind = ("a whole number of at least 1", _is_count)
_WHOLE: _Kind = ("a whole number of at least 0", _is_whole)
_NUMBER: _Kind = ("a finite number", _is_number)
_TEXT: _Kind = ("a text", _is_text)
_TABLE: _Kind = ("a table", _is_table)
_NUMBER_OR_NONE: _Kind = ("a finite number or null", lambda v: v is None or _is_number(v))
_TABLE_OR_NONE: _Kind = ("a table or null", lambda v: v is None or _is_table(v))

_CARD: Mapping[str, _Kind] = {
    "model": _TEXT,
    "alphabet": _COUNT,
    "length": _COUNT,
    "options": _TABLE,
    "members": (
        "a list of tables, one at least",
        lambda v: isinstance(v, list) and bool(v) and all(map(_is_table, v)),
    ),
    "steps": _WHOLE,
    "sources": ("a table of texts", lambda v: _is_table(v) and all(map(_is_text, v.values()))),
    "config": _TABLE,
    "versions": _TABLE,
    "name": _TEXT,
    "chosen": _TABLE,
    "test": _TABLE,
    "provenance": _TABLE_OR_NONE,
}
_MEMBER: Mapping[str, _Kind] = {
    "prior": _TEXT,
    "seed": _WHOLE,
    "learning_rate": _NUMBER,
    "excess": _NUMBER_OR_NONE,
    "excess_error": _NUMBER_OR_NONE,
    "frozen": ("true or false", lambda v: isinstance(v, bool)),
}
_TEST: Mapping[str, _Kind] = {
    **dict.fromkeys(("sequences", "length"), _COUNT),
    "seed": _WHOLE,
    **dict.fromkeys(("excess", "regret", "optimum_regret", "tolerance"), _NUMBER),
    **dict.fromkeys(("excess_error", "regret_error", "optimum_regret_error"), _NUMBER),
    "excess_of_blocks": (
        "a list of finite numbers, one at least",
        lambda v: isinstance(v, list) and bool(v) and all(map(_is_number, v)),
    ),
}
