"""Priors by the names that commands and configurations use."""

import inspect
from collections.abc import Mapping
from typing import Any

from switchpoint import _checks
from switchpoint.priors.base import Prior

ATTRIBUTES: Mapping[str, str] = {"longest": "max_length"}
"""The attribute of a prior for each parameter with another name."""
_NAMES = {attribute: name for name, attribute in ATTRIBUTES.items()}


def named_priors(parent: type[Prior] = Prior) -> dict[str, type[Prior]]:
    """All priors whose class states a `name`, by it; the first of a name."""
    priors = {parent.name: parent} if vars(parent).get("name") else {}
    for child in parent.__subclasses__():
        for name, prior in named_priors(child).items():
            priors.setdefault(name, prior)
    return priors


def parameters(prior: type[Prior]) -> tuple[str, ...]:
    """The parameters of a prior, as commands and configurations call them."""
    return tuple(_NAMES.get(each, each) for each in inspect.signature(prior).parameters)


def prior_from_name(name: str, length: int, **given: Any) -> Prior:
    """The prior called `name`, for sequences of `length`; parameters that are None are ignored.

    As in the paper, the depth of `ptw` defaults to the smallest that fits the length, and the
    `longest` segment of `uniform` to the length itself.

    >>> import switchpoint as sp
    >>> sp.prior_from_name("ptw", 200)
    PTW(depth=8, split=0.5)
    """
    priors = named_priors()
    _checks.one_of("prior", name, priors)
    length = _checks.positive_int("length", length)
    known = parameters(priors[name])
    given = {key: value for key, value in given.items() if value is not None}
    for key in given:
        if key not in known:
            takes = f"takes {' and '.join(known)}" if known else "takes no parameter"
            raise ValueError(f"{key} is not a parameter of prior {name!r}, which {takes}")
    renamed = {ATTRIBUTES.get(key, key): value for key, value in given.items()}
    arguments = priors[name].defaults(length) | renamed
    for key in known:
        if ATTRIBUTES.get(key, key) not in arguments:
            raise ValueError(
                f"prior {name!r} needs {key}: give --{key} on the command line, or {key}= in Python"
            )
    prior = priors[name](**arguments)
    prior.check_length(length)
    return prior
