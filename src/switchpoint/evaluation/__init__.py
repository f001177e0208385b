"""How well predictors do, in bits."""

from switchpoint.evaluation.metrics import (
    code_length,
    cumulative_regret,
    excess_regret,
    regret,
)

__all__ = ["code_length", "cumulative_regret", "excess_regret", "regret"]
