"""Which engine runs a stream of a predictor."""

import math
from typing import Any

from switchpoint.exact import KT, ForwardPredictor, KTOracle, PTWPredictor
from switchpoint.neural import Recurrent
from switchpoint.predictor import Predictor
from switchpoint.segments import Dirichlet
from switchpoint.streams.compiled import CompiledEngine
from switchpoint.streams.counts import CountEngine
from switchpoint.streams.engine import Engine
from switchpoint.streams.families import DirichletFamily, SymbolFamily, make_family
from switchpoint.streams.forward import CountHypotheses, FamilyHypotheses, ValueHypotheses
from switchpoint.streams.laws import sigmoid
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
            family = make_family(predictor.segment)
            if isinstance(family, DirichletFamily):
                return CountHypotheses(predictor, family)
            if isinstance(family, SymbolFamily):
                return FamilyHypotheses(predictor, family)
            return ValueHypotheses(predictor, family, columns)
        case Recurrent():
            return RecurrentEngine(predictor)
    return CompiledEngine(predictor)


def _has_few_digits(predictor: Any) -> bool:
    """Whether the prior probability of a switch in PTW is too small for a float."""
    prior = predictor.prior
    if not hasattr(prior, "split_log_odds"):
        return False
    return prior.depth * math.log(sigmoid(float(prior.split_log_odds))) < _LEAST_LOG_WEIGHT
