"""How long segments last: the law of the length given the start."""

from switchpoint.priors import statistics
from switchpoint.priors.base import Prior
from switchpoint.priors.lin import LIN
from switchpoint.priors.names import PARAMETER_OWNERS, PRIOR_NAMES, prior_from_name
from switchpoint.priors.ptw import PTW
from switchpoint.priors.renewal import Geometric, RandomUniform, RegularPeriodic, Renewal

__all__ = [
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
