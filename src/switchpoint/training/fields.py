"""What belongs to a field of a configuration: its panel, its check and its help text."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from switchpoint import _checks

Check = Callable[[str, Any], Any]
"""Takes a field's name and a value; returns the value in the field's type, or refuses it."""

NETWORK = "Network"
SOURCE = "Source"
MEMBERS = "Members"
OPTIMISATION = "Optimisation"
MEASUREMENT = "Measurement"


def about(panel: str, check: Check, help_text: str) -> dict[str, Any]:
    """A field's metadata; help is shown in panels."""
    return {"panel": panel, "check": check, "help": help_text}


def network_option(help_text: str) -> dict[str, Any]:
    """The metadata of a network's option, which the network's own registry checks."""
    return about(NETWORK, lambda _, value: value, help_text)


def text(name: str, value: Any) -> str:
    """`value`, which must be a string."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {value!r}")
    return value


def one_of(*choices: str) -> Check:
    """The check for one of these strings."""

    def check(name: str, value: Any) -> str:
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        return str(value)

    return check


def several(check_one: Check) -> Check:
    """The check for one value or a list of different ones, each of which passes `check_one`."""

    def check(name: str, value: Any) -> tuple[Any, ...]:
        items = tuple(check_one(name, item) for item in (value if _is_list(value) else [value]))
        if not items:
            raise ValueError(f"{name} must hold at least one value, got none")
        for index, item in enumerate(items):
            if item in items[:index]:
                raise ValueError(f"{name} must not hold a value twice, got {item!r} again")
        return items

    return check


def law(name: str, value: Any) -> tuple[float, ...]:
    """`value` as a tuple of floats that is a distribution, with the very numbers given."""
    if not _is_list(value):
        raise ValueError(f"{name} must be a list of numbers, got {value!r}")
    _checks.distribution(name, value)
    return tuple(float(number) for number in value)


def seed_number(name: str, value: Any) -> int:
    """`value` as a seed."""
    try:
        return _checks.seed(value)
    except ValueError as error:
        raise ValueError(f"{name} is no seed: {error}") from error


def sample_size(name: str, value: Any) -> int:
    """`value` as a number of observations that has a standard error."""
    number = _checks.positive_int(name, value)
    if number < 2:
        raise ValueError(f"{name} must be at least 2, for a standard error, got {number}")
    return number


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
