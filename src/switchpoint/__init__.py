"""switchpoint: sequences whose statistics jump at unknown times, and their exact Bayes optimum."""

from importlib.metadata import PackageNotFoundError, version

from switchpoint.evaluation import (
    code_length,
    cumulative_regret,
    evaluate,
    excess_regret,
    regret,
    summarise,
)
from switchpoint.exact import (
    KT,
    ForwardPredictor,
    KTOracle,
    Posterior,
    PTWPredictor,
    bayes_optimal,
)
from switchpoint.predictor import Predictor
from switchpoint.priors import (
    LIN,
    PTW,
    Geometric,
    Prior,
    RandomUniform,
    RegularPeriodic,
    Renewal,
    prior_from_name,
    statistics,
)
from switchpoint.segments import Bernoulli, Categorical, Segment
from switchpoint.sources import Draw, Source
from switchpoint.training import TrainConfig, train
from switchpoint.zoo import load, load_members

try:
    __version__ = version("switchpoint")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "unknown"

__all__ = [
    "KT",
    "LIN",
    "PTW",
    "Bernoulli",
    "Categorical",
    "Draw",
    "ForwardPredictor",
    "Geometric",
    "KTOracle",
    "PTWPredictor",
    "Posterior",
    "Predictor",
    "Prior",
    "RandomUniform",
    "RegularPeriodic",
    "Renewal",
    "Segment",
    "Source",
    "TrainConfig",
    "__version__",
    "bayes_optimal",
    "code_length",
    "cumulative_regret",
    "evaluate",
    "excess_regret",
    "load",
    "load_members",
    "prior_from_name",
    "regret",
    "statistics",
    "summarise",
    "train",
]
