"""Priors by the names that commands and configurations use."""

from collections.abc import Callable, Mapping
from typing import Any

from switchpoint import _checks
from switchpoint.priors.base import Prior
from switchpoint.priors.ptw import PTW
from switchpoint.priors.renewal import LIN, Geometric, RandomUniform, RegularPeriodic, Renewal

_PRIORS: Mapping[str, tuple[Callable[..., Prior], tuple[str, ...]]] = {
    "ptw": (PTW, ("depth", "split")),
    "lin": (LIN, ()),
    "regular": (RegularPeriodic, ("period",)),
    "uniform": (lambda longest: RandomUniform(longest), ("longest",)),
    "geometric": (Geometric, ("hazard",)),
    "renewal": (Renewal, ("pmf",)),
}

PRIOR_NAMES: tuple[str, ...] = tuple(_PRIORS)
"""The names that `prior_from_name` takes."""

PARAMETER_OWNERS: Mapping[str, str] = {
    parameter: name for name, (_, known) in _PRIORS.items() for parameter in known
}
"""The name of the prior to which each parameter belongs."""

ATTRIBUTES: Mapping[str, str] = {"longest": "max_length"}
"""The attribute of a prior for each parameter with another name."""


def prior_from_name(name: str, length: int, **parameters: Any) -> Prior:
    """The prior called `name`, for sequences of `length`; parameters that are None are ignored.

    As in the paper, the depth of `ptw` defaults to the smallest that fits the length, and the
    `longest` segment of `uniform` to the length itself.
    """
    if name not in _PRIORS:
        raise ValueError(f"prior must be one of {', '.join(PRIOR_NAMES)}, got {name!r}")
    length = _checks.positive_int("length", length)
    build, known = _PRIORS[name]
    given = {key: value for key, value in parameters.items() if value is not None}
    for key in given:
        if key not in known:
            takes = f"takes {' and '.join(known)}" if known else "takes no parameter"
            raise ValueError(f"{key} is not a parameter of prior {name!r}, which {takes}")
    defaults = {"ptw": {"depth": max(1, (length - 1).bit_length())}, "uniform": {"longest": length}}
    given = {**defaults.get(name, {}), **given}
    missing = [key for key in known if key not in given and key != "split"]
    if missing:
        key = missing[0]
        raise ValueError(
            f"prior {name!r} needs {key}: give --{key} on the command line, or {key}= in Python"
        )
    prior = build(**given)
    prior.check_length(length)
    return prior
