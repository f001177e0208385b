"""The least regret with a short memory: what the position and the last few symbols allow.

Everything here is float64 on the host, whatever JAX's default precision is.
"""

import itertools

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import digamma, gammaln

from switchpoint import _checks
from switchpoint.priors import statistics
from switchpoint.segments import Segment
from switchpoint.sources import Source

_MOST_WINDOWS = 2**17


def window_regret(source: Source, length: int, order: int) -> Float[np.ndarray, " time"]:
    """The expected regret in bits, at each position, of the best predictor with a short memory.

    It knows the source, the position and the last `order` symbols, and nothing before them; an
    order of 0 is the memoryless predictor of the paper's Definition 4.1, and one of length - 1
    the Bayes optimum. No predictor that sees no more has less regret, trained or not.

    The law of the last symbols is summed over the switching points among them; those before
    count only through where the oldest segment may end.
    """
    length = _checks.positive_int("length", length)
    order = _checks.whole_number("order", order)
    source.prior.check_length(length)
    size = min(order, length - 1) + 1
    if source.segment.alphabet**size > _MOST_WINDOWS:
        raise ValueError(f"order must have at most {_MOST_WINDOWS} windows, got order {order}")
    with jax.enable_x64(True):
        table, _ = statistics.next_start_table(source.prior, length)
    starts = statistics.switch_probability(table)
    starts[0] = 1
    truth = _mean_entropy(source.segment)
    regret = np.empty(length)
    for time in range(length):
        first = max(0, time - order)
        if time <= order:  # once the window is full, its marginals stay the same
            marginals = _marginals(source.segment, time - first + 1)
        oldest = starts[: first + 1] @ table[: first + 1, first : time + 1]
        law = _window_law(oldest, table[first : time + 1, first : time + 1], marginals)
        regret[time] = _conditional_entropy(law, source.segment.alphabet) - truth
    return regret


def _mean_entropy(segment: Segment) -> float:
    """The entropy in bits of a symbol whose distribution is known, averaged over segments."""
    pseudo = np.asarray(segment.pseudo_counts)
    total = pseudo.sum()
    nats = digamma(total + 1) - (pseudo / total) @ digamma(pseudo + 1)
    return float(nats / np.log(2))


def _marginals(segment: Segment, size: int) -> Float[np.ndarray, "start end window"]:
    """P(symbols start..end-1 of a window) within one segment, for every window of `size`."""
    pseudo = np.asarray(segment.pseudo_counts)
    windows = np.array(list(itertools.product(range(segment.alphabet), repeat=size)))
    hot = windows[..., None] == np.arange(segment.alphabet)
    before = np.concatenate([np.zeros_like(hot[:, :1], int), hot.cumsum(1)], axis=1)
    marginals = np.zeros((size, size + 1, len(windows)))
    for start, end in itertools.combinations(range(size + 1), 2):
        counts = pseudo + before[:, end] - before[:, start]
        gains = (gammaln(counts) - gammaln(pseudo)).sum(-1)
        total = pseudo.sum()
        marginals[start, end] = np.exp(gammaln(total) - gammaln(total + end - start) + gains)
    return marginals


def _window_law(
    oldest: Float[np.ndarray, " size"],
    table: Float[np.ndarray, "size size"],
    marginals: Float[np.ndarray, "start end window"],
) -> Float[np.ndarray, " window"]:
    """P(window), for each of them, by recursion from its end.

    `oldest[i]` is the probability that the segment at the window's start is followed by one
    that starts at i; `table[i, j]` the same of a segment that starts at i.
    """
    size = len(oldest)
    rest = np.zeros((size, marginals.shape[-1]))  # P(symbols from i on | a segment starts at i)

    def from_start(start: int, law: Float[np.ndarray, " size"]) -> Float[np.ndarray, " window"]:
        ends = slice(start + 1, size)
        lasting = 1 - law[ends].sum()
        switching = np.einsum("j,jw,jw->w", law[ends], marginals[start, ends], rest[ends])
        return lasting * marginals[start, size] + switching

    for start in range(size - 1, 0, -1):
        rest[start] = from_start(start, table[start])
    return from_start(0, oldest)


def _conditional_entropy(law: Float[np.ndarray, " window"], alphabet: int) -> float:
    """The entropy in bits of the last symbol of a window, given those before it."""
    joint = law.reshape(-1, alphabet)
    return float(-(joint * np.log2(joint / joint.sum(-1, keepdims=True))).sum())
