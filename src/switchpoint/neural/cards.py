"""The card of a network file: its format, and the checks that it is well formed."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from switchpoint._checks import shown
from switchpoint._formats import FORMAT, Step, rename, upgrade
from switchpoint._tensors import DamagedError

Tensor = TypeVar("Tensor")


def _to_format_1(card: dict[str, Any]) -> dict[str, Any]:
    members = [rename(member, {"frozen": "diverged"}) for member in card["members"]]
    renamed = ("RandomUniform(longest=", "RandomUniform(max_length=")  # in the repr of sources
    sources = {name: text.replace(*renamed) for name, text in card.get("sources", {}).items()}
    return {**card, "members": members, **({"sources": sources} if sources else {})}


STEPS: list[Step] = [_to_format_1]
"""The upgrades of a card; their number is the format that this version writes."""

_TENSOR_NAMES: list[Mapping[str, Mapping[str, str]]] = [
    {
        "transformer": {
            "blocks.before_attention": "blocks.ln1",
            "blocks.projections": "blocks.qkv",
            "blocks.mixing": "blocks.out_proj",
            "blocks.before_widening": "blocks.ln2",
            "blocks.widening": "blocks.mlp_in",
            "blocks.narrowing": "blocks.mlp_out",
            "before_output": "final_norm",
        }
    }
]


def upgrade_card(
    card: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The card and tensors of a file in today's format, checked.

    Raises a `DamagedError` for a malformed card, and a `ValueError` for a later format.
    """
    found = card.get(FORMAT, 0)
    if not (type(found) is int and found > len(STEPS)):  # those are refused by `upgrade`
        shapes = [getattr(tensor, "shape", tensor) for tensor in tensors.values()]
        _check_card(card, max([len(shapes), *(shape[1] for shape in shapes if len(shape) > 1)]))
    return upgrade(card, str(path), STEPS), upgrade_tensor_names(card["model"], tensors, found)


def upgrade_tensor_names(
    model: str, tensors: Mapping[str, Tensor], found: int = 0
) -> dict[str, Tensor]:
    """Tensors by the names of today's attributes, from those of format `found`."""
    for maps in _TENSOR_NAMES[found:]:
        for old, new in maps.get(model, {}).items():
            tensors = {
                new + name.removeprefix(old) if f"{name}.".startswith(f"{old}.") else name: tensor
                for name, tensor in tensors.items()
            }
    return dict(tensors)


def _check_card(card: Mapping[str, Any], most_layers: int) -> None:
    lacking = sorted({"model", "alphabet", "length", "members"} - set(card))
    if lacking:
        raise DamagedError(f"its card lacks {', '.join(lacking)}")
    _check_fields(card, _CARD, "its card")
    for index, member in enumerate(card["members"]):
        _check_fields(member, _MEMBER, f"its card, for member {index},")
    _check_fields(card.get("test", {}), _TEST, "its card, for the test,")
    for name in ("layers", "readout"):
        count = card.get("options", {}).get(name, 0)
        # Layers have tensors of their own, or lie along the first axis of common ones.
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
    **dict.fromkeys(("diverged", "frozen"), _BOOL),
}
_TEST: Mapping[str, _Kind] = {
    **dict.fromkeys(("sequences", "length"), _COUNT),
    "seed": _WHOLE,
    **dict.fromkeys(("excess", "regret", "optimum_regret", "tolerance"), _NUMBER),
    **dict.fromkeys(("excess_error", "regret_error", "optimum_regret_error"), _NUMBER),
    "excess_of_blocks": ("a non-empty list of finite numbers", _list_of(_is_number)),
}
