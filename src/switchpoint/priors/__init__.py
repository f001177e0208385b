"""Switching-point priors: the distribution of a segment's length given its start."""

from switchpoint.priors import statistics
from switchpoint.priors.base import Prior
from switchpoint.priors.ptw import PTW
from switchpoint.priors.registry import ATTRIBUTES, PARAMETER_OWNERS, PRIOR_NAMES, prior_from_name
from switchpoint.priors.renewal import LIN, Geometric, RandomUniform, RegularPeriodic, Renewal

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
