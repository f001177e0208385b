"""Exact Bayes-optimal prediction, and the posterior over switching points."""

from switchpoint.exact.base import ExactPredictor
from switchpoint.exact.forward import ForwardPredictor, ForwardState, bayes_optimal
from switchpoint.exact.kt import KT, KTOracle
from switchpoint.exact.mixture import MixturePosterior, MixturePredictor, MixtureState
from switchpoint.exact.posterior import Posterior, SwitchInterval
from switchpoint.exact.ptw import PTWPredictor, PTWState

__all__ = [
    "KT",
    "ExactPredictor",
    "ForwardPredictor",
    "ForwardState",
    "KTOracle",
    "MixturePosterior",
    "MixturePredictor",
    "MixtureState",
    "PTWPredictor",
    "PTWState",
    "Posterior",
    "SwitchInterval",
    "bayes_optimal",
]
