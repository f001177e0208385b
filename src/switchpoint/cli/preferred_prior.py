"""The prior that `switchpoint predict` takes where none is given: the one that the data prefer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from switchpoint.evaluation import code_length
from switchpoint.exact import KT, ExactPredictor, bayes_optimal
from switchpoint.priors import PTW, Geometric, Renewal, prior_from_name
from switchpoint.segments import Segment
from switchpoint.sources import Source

_RIVALS = ("lin", "uniform")
_FINER = 2.0 ** np.linspace(-0.75, 0.75, 7)


@dataclass(frozen=True)
class PreferredPrior:
    """A geometric prior whose hazard has the highest evidence, beside other priors."""

    prior: Geometric
    bits: Mapping[str, float]
    """The code length of the sequence under each prior, shortest first."""


def preferred_prior(segment: Segment, symbols: Int[np.ndarray, " time"]) -> PreferredPrior:
    """The hazard under which the sequence is most probable, from 1/2 to 1 in 4 n.

    Priors whose switches may be anywhere tell where a sequence changed. PTW's may not, so that it
    is only compared.
    """
    time = len(symbols)
    runs = np.arange(1, time + 1)
    hazards = 2.0 ** -np.arange(1, max(4, time.bit_length() + 2))
    rivals = [np.asarray(prior_from_name(name, time).hazard_after(0, runs)) for name in _RIVALS]
    bits = _code_lengths([*(np.full(time, h) for h in hazards), *rivals], segment, symbols)
    coarse = hazards[np.argmin(bits[: len(hazards)])]
    finer = np.clip(coarse * _FINER, hazards[-1], 0.5)
    # As many laws as before, so that the same program serves.
    padded = [*finer, *[coarse] * (len(hazards) + len(rivals) - len(finer))]
    best = _code_lengths([np.full(time, hazard) for hazard in padded], segment, symbols)
    # Two digits are as many as the data can tell, and as anybody wants to read.
    prior = Geometric(float(f"{padded[int(np.argmin(best))]:.2g}"))
    ptw = bayes_optimal(Source(prior_from_name("ptw", time), segment))
    lengths = {
        "geometric": float(best.min()),
        **dict(zip(_RIVALS, map(float, bits[len(hazards) :]), strict=True)),
        "ptw": _total(symbols, ptw.log_probs(symbols)),
        "kt": _total(symbols, KT(segment).log_probs(symbols)),
    }
    return PreferredPrior(prior, dict(sorted(lengths.items(), key=lambda item: item[1])))


def _code_lengths(
    hazards: Sequence[Float[np.ndarray, " time"]],
    segment: Segment,
    symbols: Int[np.ndarray, " time"],
) -> Float[np.ndarray, " laws"]:
    """The code length under each law of lengths, given by its hazards after 1..n symbols.

    As tables, whatever the law, since compiling takes longer than all else.
    """
    survival = np.cumprod(1 - np.stack(hazards).astype(np.float64), axis=-1)
    before = np.pad(survival, ((0, 0), (1, 0)), constant_values=1)
    laws = np.concatenate([before[:, :-1] - survival, survival[:, -1:]], axis=-1)

    @jax.jit
    def bits(laws: Float[Array, "laws lengths"]) -> Float[Array, " laws"]:
        def of_law(law: Float[Array, " lengths"]) -> Float[Array, ""]:
            predictor = bayes_optimal(Source(Renewal(law), segment))
            return code_length(symbols, predictor.log_probs(symbols)).sum()

        return jax.lax.map(of_law, laws)

    return np.asarray(bits(jnp.asarray(laws)))


def _total(symbols: Int[np.ndarray, " time"], log_probs: Float[Array, "time alphabet"]) -> float:
    return float(code_length(symbols, log_probs).sum())


def is_dyadic(predictor: object) -> bool:
    """Whether a predictor expects switches only at the midpoints of a binary tree."""
    return isinstance(predictor, ExactPredictor) and isinstance(predictor.prior, PTW)
