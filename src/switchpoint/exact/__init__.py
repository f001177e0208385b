"""Exact Bayes-optimal prediction, and the posterior over switching points."""

from switchpoint.exact.base import ExactPredictor
from switchpoint.exact.forward import ForwardPredictor, ForwardState, bayes_optimal
from switchpoint.exact.kt import KT, KTOracle
from switchpoint.exact.posterior import Posterior, SwitchInterval
from switchpoint.exact.ptw import PTWPredictor, PTWState

__all__ = [
    "KT",
    "ExactPredictor",
    "ForwardPredictor",
    "ForwardState",
    "KTOracle",
    "PTWPredictor",
    "PTWState",
    "Posterior",
    "SwitchInterval",
    "bayes_optimal",
]
