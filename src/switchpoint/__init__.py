"""Exact Bayesian prediction of piecewise stationary sequences, and networks that imitate it.

The public API is `__all__` of this package and of its subpackages; everything else is private.
"""

TYPE_CHECKING = False  # True for type checkers; importing `typing` would take long

if TYPE_CHECKING:
    from switchpoint.checking.parts import check
    from switchpoint.detection import Segmentation, detect
    from switchpoint.evaluation import (
        code_length,
        cumulative_regret,
        excess_regret,
        regret,
        summarise,
    )
    from switchpoint.evaluation.evaluate import evaluate
    from switchpoint.exact import (
        KT,
        ExactPredictor,
        ForwardPredictor,
        KTOracle,
        Posterior,
        PTWPredictor,
        bayes_optimal,
    )
    from switchpoint.exact.fitting import compare, fit
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
    from switchpoint.segments import (
        HMM,
        Bernoulli,
        Categorical,
        Exponential,
        Gaussian,
        Independent,
        MarkovChain,
        Mixture,
        MultivariateNormal,
        NegativeBinomial,
        NormalGamma,
        Poisson,
        Regression,
        Segment,
        Trend,
    )
    from switchpoint.sources import AbstractSource, Draw, Source, SourceMixture
    from switchpoint.streams import Alarm, Stream, Streams
    from switchpoint.streams.archive import compress, decompress
    from switchpoint.training import TrainConfig
    from switchpoint.training.train import train
    from switchpoint.zoo import load, load_members

    __version__: str

__all__ = [
    "HMM",
    "KT",
    "LIN",
    "PTW",
    "AbstractSource",
    "Alarm",
    "Bernoulli",
    "Categorical",
    "Draw",
    "ExactPredictor",
    "Exponential",
    "ForwardPredictor",
    "Gaussian",
    "Geometric",
    "Independent",
    "KTOracle",
    "MarkovChain",
    "Mixture",
    "MultivariateNormal",
    "NegativeBinomial",
    "NormalGamma",
    "PTWPredictor",
    "Poisson",
    "Posterior",
    "Predictor",
    "Prior",
    "RandomUniform",
    "Regression",
    "RegularPeriodic",
    "Renewal",
    "Segment",
    "Segmentation",
    "Source",
    "SourceMixture",
    "Stream",
    "Streams",
    "TrainConfig",
    "Trend",
    "__version__",
    "bayes_optimal",
    "check",
    "code_length",
    "compare",
    "compress",
    "cumulative_regret",
    "decompress",
    "detect",
    "evaluate",
    "excess_regret",
    "fit",
    "load",
    "load_members",
    "prior_from_name",
    "regret",
    "statistics",
    "summarise",
    "train",
]

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
