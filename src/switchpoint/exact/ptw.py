"""The exact predictor of a PTW source: O(depth) state and work per observation."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from switchpoint._batching import in_chunks
from switchpoint.exact.base import ExactPredictor
from switchpoint.exact.counting import Clock
from switchpoint.exact.hypotheses import Sequences
from switchpoint.exact.streams import (
    absorb_each,
    fresh_statistics,
    initial_statistics,
)
from switchpoint.exact.tree import stop_log_odds, tree_levels
from switchpoint.exact.tree_posterior import tree_posterior
from switchpoint.predictor import check_state
from switchpoint.priors import PTW
from switchpoint.segments import Segment
from switchpoint.segments.base import Statistics


class PTWState(eqx.Module):
    """The nodes of the tree around the next observation, at each height 0..depth.

    time
        The number of observations seen.
    statistics: (depth + 1, ...)
        The statistics of each node so far; for symbols, the count of each.
    log_odds: (depth + 1,)
        ln a / (1 - a), where a = P(the node does not split | its x so far).
    offset: the shape of an observation
        The first value, from which all are measured; NaN before it.

    `PTWPredictor` makes it, and has the formulas.
    """

    time: Clock
    statistics: Statistics
    log_odds: Float[Array, " heights"]
    offset: Float[Array, "*event"]


class PTWPredictor(ExactPredictor[PTWState]):
    """Partition Tree Weighting (Veness, White, Bowling and György, 2013): the optimum of PTW.

    With M(y) the marginal probability of a run y as a single segment, d the depth, p the
    probability of a split, and l and r the first 2^(d-1) observations of y and the others,

        PTW_d(y) = (1 - p) M(y) + p PTW_(d-1)(l) PTW_(d-1)(r),   PTW_0(y) = M(y),

    where the empty run has probability 1. It predicts P(x_t | x_<t) = PTW_d(x_<=t) / PTW_d(x_<t).
    The prediction inside a node of 2^v observations is the mixture

        p_v(x_t) = a M(x_t | the node's past) + (1 - a) p_(v-1)(x_t),

    where a = P(the node does not split | its past) has log-odds that begin with ln (1 - p) / p, and
    grow by ln M(x_t | the node's past) - ln p_(v-1)(x_t).

    `log_probs` of symbols (..., n) is (..., n, alphabet), `log_density` of values (..., n) is
    (..., n); both, and `posterior`, take O(n min(d, log n)) time, times the alphabet where there is
    one. The state of a stream is one node per height; an observation takes O(d) time. There are at
    most 2^d observations.

        >>> import numpy as np
        >>> import switchpoint as sp
        >>> bayes = sp.bayes_optimal(sp.Source(sp.PTW(8)))
        >>> print(np.exp(bayes.log_probs([1, 1, 1, 1, 0, 0]))[:, 1].round(3))
        [0.5   0.749 0.831 0.874 0.896 0.728]
    """

    prior: PTW
    segment: Segment

    def __init__(self, prior: PTW, segment: Segment) -> None:
        self.prior = prior
        self.segment = segment

    def init(self, length: int | None = None) -> PTWState:
        del length  # the state has the depth of the tree
        statistics, offset = fresh_statistics(self.segment, self.prior.depth + 1)
        return PTWState(Clock.start(), statistics, self._fresh_log_odds(), offset)

    def _hypotheses(self, state: PTWState) -> tuple[Float[Array, " heights"], Statistics]:
        check_state("log-odds", state.log_odds.shape, (self.prior.depth + 1,))
        stays, splits = jax.nn.log_sigmoid(state.log_odds), jax.nn.log_sigmoid(-state.log_odds)
        # The segment is the node at a height where it does not split, and all above it do.
        above = jnp.cumsum(splits[::-1])[::-1] - splits
        return above + stays.at[0].set(0), state.statistics

    def _observe(
        self, state: PTWState, x: Float[Array, "*event"]
    ) -> tuple[PTWState, Float[Array, ""]]:
        whole, observed = absorb_each(self.segment, state.statistics, x)

        def climb(below: Float[Array, ""], node: tuple[Array, Array]) -> tuple[Array, Array]:
            whole, log_odds = node
            stays, splits = jax.nn.log_sigmoid(log_odds), jax.nn.log_sigmoid(-log_odds)
            return jnp.logaddexp(whole + stays, below + splits), whole - below

        log_density, steps = lax.scan(climb, whole[0], (whole, state.log_odds))
        time = state.time.next()
        done = jnp.arange(self.prior.depth + 1) <= time.trailing_zeros()  # nodes that end here
        statistics = jax.tree.map(
            lambda new, old: jnp.where(done.reshape(-1, *(1,) * (old.ndim - 1)), new, old),
            initial_statistics(self.segment, state.offset),
            observed,
        )
        log_odds = jnp.where(done, self._fresh_log_odds(), state.log_odds + steps)
        return PTWState(time, statistics, log_odds, state.offset), log_density

    @jax.jit
    def _log_probs(self, sequences: Sequences) -> Float[Array, "flat time alphabet"]:
        return jnp.log(self._at_root(sequences, "probs"))

    @jax.jit
    def _log_density(self, sequences: Sequences) -> Float[Array, "flat time"]:
        return self._at_root(sequences, "log_density")

    def _at_root(self, sequences: Sequences, name: str) -> Any:
        """An array of the highest level of the tree."""

        def of_chunk(sequences: Sequences) -> Any:
            levels = tree_levels(self.prior, self.segment, sequences, name == "probs")
            root = functools.reduce(lambda _, level: level, levels)
            return getattr(root, name)[:, : sequences.values.shape[1]]

        return in_chunks(of_chunk, sequences)

    _posterior = tree_posterior

    def _fresh_log_odds(self) -> Float[Array, " heights"]:
        return jnp.pad(stop_log_odds(self.prior, self.prior.depth), (1, 0))
