"""The Bayes-optimal predictor of a source."""

from typing import Any

from switchpoint.exact.base import ExactPredictor
from switchpoint.exact.forward import ForwardPredictor
from switchpoint.exact.ptw import PTWPredictor
from switchpoint.priors import PTW
from switchpoint.sources import Source


def bayes_optimal(source: Source, max_hypotheses: int | None = None) -> ExactPredictor[Any]:
    """The exact Bayes optimum for data of `source`: no predictor has lower expected regret.

    It may be run on data of any other source too. For PTW it needs O(depth) state and work
    per symbol, so a large depth serves streams of unknown length. For every other prior it
    needs O(n); `max_hypotheses` bounds that, at the price that `pruning_error` estimates.
    """
    if not isinstance(source, Source):
        raise ValueError(
            "source must be a Source, such as switchpoint.Source(switchpoint.PTW(8)), "
            f"got {source!r}"
        )
    if isinstance(source.prior, PTW) and max_hypotheses is None:
        return PTWPredictor(source.prior, source.segment)
    return ForwardPredictor(source.prior, source.segment, max_hypotheses)
