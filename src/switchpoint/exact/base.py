"""The interface of exact predictors: a source, its predictions and its posterior."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int

from switchpoint import _checks
from switchpoint.exact.posterior import Posterior
from switchpoint.predictor import Predictor, State
from switchpoint.priors import Prior
from switchpoint.segments import Segment


class ExactPredictor(Predictor[State]):
    """The Bayes optimum of a source: it predicts symbols and infers switching points."""

    prior: eqx.AbstractVar[Prior]
    segment: eqx.AbstractVar[Segment]

    @property
    def alphabet(self) -> int:
        return self.segment.alphabet

    def log_probs(self, symbols: Any) -> Float[Array, "*batch time alphabet"]:
        return self._log_probs(self._checked(symbols))

    def posterior(self, symbols: Any) -> Posterior:
        """The exact posterior over switching points of a sequence, or of a batch of them."""
        return self._posterior(self._checked(symbols))

    @abstractmethod
    def _log_probs(self, symbols: Int[Array, "*batch time"]) -> Float[Array, "*batch time k"]:
        """`log_probs` of symbols known to be valid."""

    @abstractmethod
    def _posterior(self, symbols: Int[Array, "*batch time"]) -> Posterior:
        """`posterior` of symbols known to be valid."""

    def _checked(self, symbols: Any) -> Int[Array, "*batch time"]:
        """Valid symbols, in sequences no longer than the prior allows."""
        symbols = _checks.symbols(symbols, self.alphabet)
        self.prior.check_length(symbols.shape[-1])
        return symbols
