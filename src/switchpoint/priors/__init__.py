"""Switching-point priors: the distribution of a segment's length given its start."""

from collections.abc import Mapping

from switchpoint.priors import registry, statistics
from switchpoint.priors.base import Prior
from switchpoint.priors.ptw import PTW
from switchpoint.priors.registry import ATTRIBUTES, prior_from_name
from switchpoint.priors.renewal import LIN, Geometric, RandomUniform, RegularPeriodic, Renewal

PRIOR_NAMES: tuple[str, ...] = tuple(registry.named_priors())
"""The names that `prior_from_name` takes."""

PARAMETER_OWNERS: Mapping[str, str] = {
    parameter: name
    for name, prior in registry.named_priors().items()
    for parameter in registry.parameters(prior)
}
"""The name of the prior to which each parameter belongs."""

__all__ = [
    "ATTRIBUTES",
    "LIN",
    "PARAMETER_OWNERS",
    "PRIOR_NAMES",
    "PTW",
    "Geometric",
    "Prior",
    "RandomUniform",
    "RegularPeriodic",
    "Renewal",
    "prior_from_name",
    "statistics",
]
