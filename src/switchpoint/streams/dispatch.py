"""Which engine runs a stream of a predictor."""

from typing import Any

from switchpoint.exact import KT, ForwardPredictor, KTOracle, PTWPredictor
from switchpoint.neural import Recurrent
from switchpoint.predictor import Predictor
from switchpoint.segments import Dirichlet
from switchpoint.streams.compiled import CompiledEngine
from switchpoint.streams.counts import CountEngine
from switchpoint.streams.engine import Engine
from switchpoint.streams.forward import CountHypotheses, FamilyHypotheses, ValueHypotheses
from switchpoint.streams.host import make_family
from switchpoint.streams.networks import RecurrentEngine
from switchpoint.streams.tree import LARGEST_ALPHABET, TreeEngine

_LEAST_LOG_WEIGHT = -600.0


def make_engine(predictor: Predictor[Any], columns: tuple[str, ...] | None) -> Engine:
    """What runs a stream of this predictor."""
    match predictor:
        case KT() | KTOracle():
            return CountEngine(predictor)
        case PTWPredictor() | ForwardPredictor() if _has_few_digits(predictor):
            return CompiledEngine(predictor)
        case PTWPredictor(segment=Dirichlet()) if predictor.alphabet <= LARGEST_ALPHABET:
            return TreeEngine(predictor)
        case PTWPredictor() | ForwardPredictor():
            if isinstance(predictor.segment, Dirichlet):
                return CountHypotheses(predictor)
            if predictor.segment.finite:
                return FamilyHypotheses(predictor, make_family(predictor.segment))
            return ValueHypotheses(predictor, columns)
        case Recurrent():
            return RecurrentEngine(predictor)
    return CompiledEngine(predictor)


def _has_few_digits(predictor: Any) -> bool:
    """Whether the prior probability of a switch in PTW is too small for a float."""
    prior = predictor.prior
    if not hasattr(prior, "split_log_odds"):
        return False
    return prior.depth * float(prior.log_split) < _LEAST_LOG_WEIGHT
