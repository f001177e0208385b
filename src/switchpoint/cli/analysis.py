"""What the Bayes optimum says about one sequence, as arrays on the host."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from switchpoint.evaluation import code_length
from switchpoint.exact import KT, bayes_optimal
from switchpoint.priors import PTW, Prior
from switchpoint.sources import Source

LONGEST_QUADRATIC = 20_000
"""The longest sequence for priors whose exact predictor takes work in n^2: all but PTW."""


@dataclass(frozen=True)
class Analysis:
    """Predictions and posterior of one sequence under a source."""

    source: Source
    symbols: Int[np.ndarray, " time"]
    probs: Float[np.ndarray, "time alphabet"]
    """P(x_t = k | x_<t): before the symbol is seen."""
    probs_smoothed: Float[np.ndarray, "time alphabet"]
    switch_filtered: Float[np.ndarray, " time"]
    switch_smoothed: Float[np.ndarray, " time"]
    map_switches: Bool[np.ndarray, " time"]
    map_log_prob: float
    bits: float
    """The realised code length of the sequence under the optimum."""
    kt_bits: float
    """The same under KT, which knows no switching points."""

    @property
    def map_positions(self) -> list[int]:
        """Where the most probable partition has its switching points."""
        return [int(position) for position in np.flatnonzero(self.map_switches)]

    def summary(self) -> dict[str, Any]:
        """The few numbers that describe the whole, ready for JSON."""
        return {
            "symbols": len(self.symbols),
            "alphabet": self.probs.shape[1],
            "prior": repr(self.source.prior),
            "segment": repr(self.source.segment),
            "bits": self.bits,
            "bits_per_symbol": self.bits / len(self.symbols),
            "kt_bits": self.kt_bits,
            "kt_bits_per_symbol": self.kt_bits / len(self.symbols),
            "map_switches": self.map_positions,
            "map_log_prob": self.map_log_prob,
        }


def check_work(prior: Prior, length: int) -> None:
    """Raise a `ValueError` where the exact predictor would take too long."""
    if length > LONGEST_QUADRATIC and not isinstance(prior, PTW):
        raise ValueError(
            f"{length} symbols are too many for {prior!r}, whose work grows with the square "
            f"(at most {LONGEST_QUADRATIC}); --prior ptw has no such limit"
        )


def analyse(source: Source, symbols: Int[np.ndarray, " time"]) -> Analysis:
    """Predict the sequence symbol by symbol, then look back at its switching points."""
    optimum = bayes_optimal(source)
    log_probs = optimum.log_probs(symbols)
    kt_log_probs = KT(source.segment).log_probs(symbols)
    posterior = optimum.posterior(symbols)
    return Analysis(
        source=source,
        symbols=symbols,
        probs=np.exp(np.asarray(log_probs)),
        probs_smoothed=np.asarray(posterior.probs_smoothed),
        switch_filtered=np.asarray(posterior.switch_filtered),
        switch_smoothed=np.asarray(posterior.switch_smoothed),
        map_switches=np.asarray(posterior.map_switches),
        map_log_prob=float(posterior.map_log_prob),
        bits=_total(code_length(jnp.asarray(symbols), log_probs)),
        kt_bits=_total(code_length(jnp.asarray(symbols), kt_log_probs)),
    )


def _total(bits: Any) -> float:
    return float(np.sum(np.asarray(bits), dtype=np.float64))
