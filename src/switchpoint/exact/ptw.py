"""The exact predictor of a PTW source: O(depth) state and work per symbol."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Int

from switchpoint import _checks
from switchpoint._batching import flat_batch, in_chunks
from switchpoint.exact.base import ExactPredictor, Posterior
from switchpoint.exact.counting import Clock, count_symbol
from switchpoint.exact.tree import stop_log_odds, tree_levels
from switchpoint.exact.tree_posterior import tree_posterior
from switchpoint.predictor import check_state
from switchpoint.priors import PTW
from switchpoint.segments import Segment


class PTWState(eqx.Module):
    """The nodes around the next symbol, at each height 0..depth."""

    time: Clock
    """The number of symbols seen."""

    counts: Int[Array, "heights alphabet"]
    """The count of each symbol in the node so far."""

    log_odds: Float[Array, " heights"]
    """ln P(the node does not split | its symbols so far) / P(it splits | its symbols so far)."""


class PTWPredictor(ExactPredictor[PTWState]):
    """Partition Tree Weighting (Veness et al., 2013), the Bayes optimum of a PTW source."""

    prior: PTW
    segment: Segment

    def init(self, length: int | None = None) -> PTWState:
        del length  # the state has the depth of the tree
        heights = self.prior.depth + 1
        return PTWState(
            time=Clock.start(),
            counts=jnp.zeros((heights, self.alphabet), jnp.int32),
            log_odds=self._fresh_log_odds(),
        )

    @jax.jit
    def predict(self, state: PTWState) -> Float[Array, " alphabet"]:
        """ln P(x_t = k | x_<t)."""
        return jnp.log(self._mixtures(state)[0])

    def update(self, state: PTWState, symbol: Any) -> PTWState:
        symbol = _checks.symbol(symbol, self.alphabet)
        if not isinstance(state.time.low, jax.core.Tracer):
            self.prior.check_length(int(state.time) + 1)
        return self._update(state, symbol)

    @jax.jit
    def _update(self, state: PTWState, symbol: Int[ArrayLike, ""]) -> PTWState:
        _, steps = self._mixtures(state)
        time = state.time.next()
        counts = count_symbol(state.counts, symbol)
        log_odds = state.log_odds + steps[:, symbol]
        done = jnp.arange(self.prior.depth + 1) <= time.trailing_zeros()  # nodes that end here
        return PTWState(
            time=time,
            counts=jnp.where(done[:, None], 0, counts),
            log_odds=jnp.where(done, self._fresh_log_odds(), log_odds),
        )

    @jax.jit
    def _log_probs(self, symbols: Int[Array, "*batch time"]) -> Float[Array, "*batch time k"]:
        rows, batch = flat_batch(symbols)

        def log_probs(rows: Int[Array, "flat time"]) -> Float[Array, "flat time k"]:
            *_, root = tree_levels(self.prior, self.segment, rows)
            return jnp.log(root.probs()[:, : rows.shape[1]])

        return in_chunks(log_probs, rows).reshape(*batch, symbols.shape[-1], self.alphabet)

    def _posterior(self, symbols: Int[Array, "*batch time"]) -> Posterior:
        return tree_posterior(self.prior, self.segment, symbols)

    def _mixtures(
        self, state: PTWState
    ) -> tuple[Float[Array, " alphabet"], Float[Array, "heights alphabet"]]:
        """The root's prediction, and the increment of every node's log-odds for each symbol."""
        check_state("counts", state.counts.shape, (self.prior.depth + 1, self.alphabet))
        whole = self.segment.predictive(state.counts)
        stays = jax.nn.sigmoid(state.log_odds)

        def mix(below: Float[Array, " k"], node: tuple[Array, Array]) -> tuple[Array, Array]:
            whole, stays = node
            return below + stays * (whole - below), jnp.log(whole / below)

        return lax.scan(mix, whole[0], (whole, stays))

    def _fresh_log_odds(self) -> Float[Array, " heights"]:
        return jnp.pad(stop_log_odds(self.prior, self.prior.depth), (1, 0))
