"""A lower bound on the regret of predictors that see only the last few symbols.

Computed in float64 on the host, regardless of JAX's default precision.
"""

import itertools

import numpy as np
from jaxtyping import Float
from scipy.special import digamma, gammaln

from switchpoint import _checks
from switchpoint.priors import statistics
from switchpoint.segments import Segment
from switchpoint.segments.dirichlet import as_dirichlet
from switchpoint.sources import Source

_MOST_WINDOWS = 2**17


def markov_bound(source: Source, length: int, order: int) -> Float[np.ndarray, " time"]:
    """The expected regret in bits, at each position, of the best Markov predictor of an order.

    That predictor knows the source, the position and the last `order` symbols. Order 0 is the
    memoryless predictor of the paper's Definition 4.1, and order length - 1 is the Bayes optimum.
    No predictor that sees no more than this has lower regret, trained or not.

    The distribution of the last symbols is summed over the switching points among them; earlier
    ones matter only through the end of the oldest segment in the window.
    """
    length = _checks.positive_int("length", length)
    order = _checks.whole_number("order", order)
    size = min(order, length - 1) + 1
    if source.segment.alphabet**size > _MOST_WINDOWS:
        raise ValueError(f"order must have at most {_MOST_WINDOWS} windows, got order {order}")
    table, _ = statistics.next_start_table(source.prior, length)
    starts = statistics.switch_probability(table)
    starts[0] = 1
    truth = _mean_entropy(source.segment)
    regret = np.empty(length)
    for time in range(length):
        first = max(0, time - order)
        if time <= order:  # once the window is full, its marginals no longer change
            marginals = _marginals(source.segment, time - first + 1)
        oldest = starts[: first + 1] @ table[: first + 1, first : time + 1]
        probs = _window_probs(oldest, table[first : time + 1, first : time + 1], marginals)
        regret[time] = _conditional_entropy(probs, source.segment.alphabet) - truth
    return regret


def _mean_entropy(segment: Segment) -> float:
    """The entropy in bits of a symbol whose distribution is known, averaged over segments."""
    pseudo = np.asarray(as_dirichlet(segment).pseudo_counts)
    total = pseudo.sum()
    nats = digamma(total + 1) - (pseudo / total) @ digamma(pseudo + 1)
    return float(nats / np.log(2))


def _marginals(segment: Segment, size: int) -> Float[np.ndarray, "start end window"]:
    """P(symbols start..end-1 of a window) within one segment, for every window of `size`."""
    pseudo = np.asarray(as_dirichlet(segment).pseudo_counts)
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


def _window_probs(
    oldest: Float[np.ndarray, " size"],
    table: Float[np.ndarray, "size size"],
    marginals: Float[np.ndarray, "start end window"],
) -> Float[np.ndarray, " window"]:
    """P(window), for every window, by recursion from its end.

    `oldest[i]` is the probability that the segment at the start of the window is followed by one
    that starts at i; `table[i, j]` is the same for a segment that starts at i and one at j.
    """
    size = len(oldest)
    rest = np.zeros((size, marginals.shape[-1]))  # P(symbols from i on | a segment starts at i)

    def from_start(start: int, probs: Float[np.ndarray, " size"]) -> Float[np.ndarray, " window"]:
        ends = slice(start + 1, size)
        lasting = 1 - probs[ends].sum()
        switching = np.einsum("j,jw,jw->w", probs[ends], marginals[start, ends], rest[ends])
        return lasting * marginals[start, size] + switching

    for start in range(size - 1, 0, -1):
        rest[start] = from_start(start, table[start])
    return from_start(0, oldest)


def _conditional_entropy(probs: Float[np.ndarray, " window"], alphabet: int) -> float:
    """The entropy in bits of the last symbol of a window, given those before it."""
    joint = probs.reshape(-1, alphabet)
    return float(-(joint * np.log2(joint / joint.sum(-1, keepdims=True))).sum())
