"""The law of a prior's segment lengths, and of its number of switches, as small tables."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from switchpoint.priors import Prior

_FEW = 16


@dataclass(frozen=True)
class LengthLaw:
    """The law of a segment's length r, at r = 1, 2, ..."""

    pmf: Float[np.ndarray, " lengths"]
    """P(L = r | start)."""
    at_least: Float[np.ndarray, " lengths"]
    """P(L >= r | start)."""
    hazard: Float[np.ndarray, " lengths"]
    """P(L = r | start, L >= r)."""

    def telling_lengths(self) -> list[int]:
        """All possible lengths where there are few; else powers of two, the support, the end."""
        count = int(np.count_nonzero(self.at_least))
        if count <= _FEW:
            return list(range(1, count + 1))
        chosen = {2**k for k in range(count.bit_length())} | {count}
        support = np.flatnonzero(self.pmf) + 1
        if len(support) <= _FEW:
            chosen |= {int(length) for length in support}
        return sorted(chosen)


def length_law(prior: Prior, start: int, longest: int) -> LengthLaw:
    """The law of the length of a segment that starts at `start`, up to `longest`, in float64."""
    with jax.enable_x64(True):
        lengths = jnp.arange(1, min(longest, prior.max_length or longest) + 1, dtype=jnp.int32)
        starts = jnp.full_like(lengths, start)
        return LengthLaw(
            pmf=np.exp(np.asarray(prior.log_pmf(starts, lengths))),
            at_least=np.exp(np.asarray(prior.log_survival(starts, lengths - 1))),
            hazard=np.asarray(prior.hazard_after(starts, lengths)),
        )


def densest(law: Float[np.ndarray, " count"], width: int = 10) -> Int[np.ndarray, " window"]:
    """Up to `width` neighbouring counts that have most of the probability.

    Counts at either end that have no probability are left out.
    """
    window = np.arange(len(law))
    if len(law) > width:
        sums = np.convolve(law, np.ones(width), mode="valid")
        window = np.arange(width) + int(np.argmax(sums))
    inside = np.flatnonzero(law[window])
    return window[inside[0] : inside[-1] + 1]
