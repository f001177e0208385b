"""What belongs to a field of a configuration: its group, its check and its help text."""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from switchpoint import _checks

Check = Callable[[str, Any], Any]
"""Takes a field's name and a value; returns the value in the field's type, or refuses it."""

MODEL, DATA, OPTIMIZER, RUN = "Model", "Data", "Optimizer", "Run"


def setting(group: str, check: Check, help_text: str, default: Any = None) -> Any:
    """A field of a configuration; TOML files and options are made from it."""
    return field(default=default, metadata={"panel": group, "check": check, "help": help_text})


def optional(group: str, help_text: str, check: Check = lambda _, value: value) -> Any:
    """A field that is None if it does not apply.

    A parameter of a network is checked by the network itself.
    """
    return setting(group, lambda n, value: None if value is None else check(n, value), help_text)


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


def list_of(check_one: Check) -> Check:
    """The check for one value or a list of different ones, each of which passes `check_one`."""

    def check(name: str, value: Any) -> tuple[Any, ...]:
        is_list = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
        items = tuple(check_one(name, item) for item in (value if is_list else [value]))
        if not items:
            raise ValueError(f"{name} must hold at least one value, got none")
        for index, item in enumerate(items):
            if item in items[:index]:
                raise ValueError(f"{name} must not hold a value twice, got {item!r} again")
        return items

    return check


def non_negative(name: str, value: Any) -> float:
    """`value` as a finite float of at least 0."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 <= value < np.inf:
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
    return float(value)


def seed_number(name: str, value: Any) -> int:
    """`value` as a seed."""
    try:
        return _checks.seed(value)
    except ValueError as error:
        raise ValueError(f"{name} is not a seed: {error}") from error


def sample_size(name: str, value: Any) -> int:
    """`value` as a number of observations that has a standard error."""
    number = _checks.positive_int(name, value)
    if number < 2:
        raise ValueError(f"{name} must be at least 2, for a standard error, got {number}")
    return number
