"""Exact Bayesian prediction of piecewise stationary sequences, and networks that imitate it.

The public API is `__all__` of this package and of its subpackages; everything else is private.
"""

TYPE_CHECKING = False  # True for type checkers; importing `typing` would take long

if TYPE_CHECKING:  # the names below, for type checkers
    from switchpoint.checking import check as check
    from switchpoint.detection import Segmentation as Segmentation
    from switchpoint.detection import detect as detect
    from switchpoint.evaluation import code_length as code_length
    from switchpoint.evaluation import cumulative_regret as cumulative_regret
    from switchpoint.evaluation import excess_regret as excess_regret
    from switchpoint.evaluation import regret as regret
    from switchpoint.evaluation import summarise as summarise
    from switchpoint.evaluation.evaluate import evaluate as evaluate
    from switchpoint.exact import KT as KT
    from switchpoint.exact import ExactPredictor as ExactPredictor
    from switchpoint.exact import ForwardPredictor as ForwardPredictor
    from switchpoint.exact import KTOracle as KTOracle
    from switchpoint.exact import Posterior as Posterior
    from switchpoint.exact import PTWPredictor as PTWPredictor
    from switchpoint.exact import bayes_optimal as bayes_optimal
    from switchpoint.exact.fitting import compare as compare
    from switchpoint.exact.fitting import fit as fit
    from switchpoint.predictor import Predictor as Predictor
    from switchpoint.priors import LIN as LIN
    from switchpoint.priors import PTW as PTW
    from switchpoint.priors import Geometric as Geometric
    from switchpoint.priors import Prior as Prior
    from switchpoint.priors import RandomUniform as RandomUniform
    from switchpoint.priors import RegularPeriodic as RegularPeriodic
    from switchpoint.priors import Renewal as Renewal
    from switchpoint.priors import prior_from_name as prior_from_name
    from switchpoint.priors import statistics as statistics
    from switchpoint.segments import HMM as HMM
    from switchpoint.segments import Bernoulli as Bernoulli
    from switchpoint.segments import Categorical as Categorical
    from switchpoint.segments import Exponential as Exponential
    from switchpoint.segments import Gaussian as Gaussian
    from switchpoint.segments import Independent as Independent
    from switchpoint.segments import MarkovChain as MarkovChain
    from switchpoint.segments import Mixture as Mixture
    from switchpoint.segments import MultivariateNormal as MultivariateNormal
    from switchpoint.segments import NegativeBinomial as NegativeBinomial
    from switchpoint.segments import NormalGamma as NormalGamma
    from switchpoint.segments import Poisson as Poisson
    from switchpoint.segments import Regression as Regression
    from switchpoint.segments import Segment as Segment
    from switchpoint.segments import Trend as Trend
    from switchpoint.sources import AbstractSource as AbstractSource
    from switchpoint.sources import Draw as Draw
    from switchpoint.sources import Source as Source
    from switchpoint.sources import SourceMixture as SourceMixture
    from switchpoint.streams import Alarm as Alarm
    from switchpoint.streams import Stream as Stream
    from switchpoint.streams import Streams as Streams
    from switchpoint.streams.archive import compress as compress
    from switchpoint.streams.archive import decompress as decompress
    from switchpoint.training import TrainConfig as TrainConfig
    from switchpoint.training.train import train as train
    from switchpoint.zoo import load as load
    from switchpoint.zoo import load_members as load_members

    __version__: str

# Names are imported on first use: JAX takes seconds to import, and the command line can print its
# version without it.
_NAMES = {
    "checking": "check",
    "detection": "Segmentation detect",
    "evaluation": "code_length cumulative_regret evaluate excess_regret regret summarise",
    "exact": "KT ExactPredictor ForwardPredictor KTOracle PTWPredictor Posterior bayes_optimal",
    "exact.fitting": "compare fit",
    "neural": "",
    "predictor": "Predictor",
    "priors": "LIN PTW Geometric Prior RandomUniform RegularPeriodic Renewal prior_from_name "
    "statistics",
    "segments": "HMM Bernoulli Categorical Exponential Gaussian Independent MarkovChain Mixture "
    "MultivariateNormal NegativeBinomial NormalGamma Poisson Regression Segment Trend",
    "sources": "AbstractSource Draw Source SourceMixture",
    "streams": "Alarm Stream Streams",
    "streams.archive": "compress decompress",
    "training": "TrainConfig train",
    "zoo": "load load_members",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_MODULE_OF, "__version__"])


if not TYPE_CHECKING:  # or else any name would pass the type checker

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name == "__version__":
            value = _version()
        elif name in _NAMES and "." not in name:
            value = import_module(f"switchpoint.{name}")
        elif name in _MODULE_OF:
            value = getattr(import_module(f"switchpoint.{_MODULE_OF[name]}"), name)
        else:
            raise AttributeError(f"module 'switchpoint' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_NAMES})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("switchpoint")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"
