"""Regret and code length of predictors, in bits."""

from switchpoint.evaluation.evaluate import evaluate, regrets
from switchpoint.evaluation.metrics import (
    code_length,
    cumulative_regret,
    excess_regret,
    regret,
)
from switchpoint.evaluation.storage import load, save
from switchpoint.evaluation.summary import summarise

__all__ = [
    "code_length",
    "cumulative_regret",
    "evaluate",
    "excess_regret",
    "load",
    "regret",
    "regrets",
    "save",
    "summarise",
]
