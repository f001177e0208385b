"""Symbols of a hidden Markov model with known probabilities."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from switchpoint import _checks
from switchpoint._namespace import Numbers, namespace
from switchpoint._parameters import simplex
from switchpoint.segments._special import LOG_NEVER, log_probs, log_sum
from switchpoint.segments.base import Level, Segment
from switchpoint.segments.distributions import Discrete


class ForwardRun(NamedTuple):
    """The forward operator of a run, exp(scale) exp(logs)."""

    logs: Numbers
    """(..., before, after): ln P(the run, the state after it | the state before), up to `scale`,
    with a maximum of 0."""
    scale: Numbers


class HMM(Segment):
    """Symbols 0..A-1 of a hidden Markov model with K states and known probabilities.

    Generative model: with p = `initial_probs`, T = `transition_probs` and E = `emission_probs`, the
    hidden state of a segment's first symbol is z_0 ~ p, and then

        x_t | z_t ~ E[z_t],    z_{t+1} | z_t ~ T[z_t]

    Every segment starts anew. The statistics of a run are its forward operator, a K x K matrix, and
    those of adjacent runs merge by the product (Rabiner, 1989), in logarithms:

        M(x)_ij = E_ix T_ij,    M(x_1..x_n) = M(x_1) ... M(x_n)

    Predictive, by the filter since the start of the segment:

        P(x_{n+1} = k | x_1..x_n) = sum_j b_j E_jk,    b proportional to p M(x_1..x_n)

    Nothing about a segment is unknown, since its hidden states are no parameters. So the predictive
    is also the truth in a `Draw`, and regret is the cost of not knowing where segments start. After
    a missing symbol the hidden state moves on. A merge takes O(K^3), and the evidence of a run is
    closed. Under `RegularPeriodic(n)`, sequences of n symbols are those of one model, without
    switches.

    - `initial_probs` (K,), `transition_probs` (K, K), `emission_probs` (K, A): distributions along
      the last axis, which `fit` varies on the simplex.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> hmm = sp.HMM([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], [[0.8, 0.2], [0.3, 0.7]])
    >>> bayes = sp.bayes_optimal(sp.Source(sp.RegularPeriodic(100), hmm))
    >>> print(np.exp(bayes.log_density([0, 0, 1, 1])).round(3))
    [0.55  0.641 0.31  0.448]
    """

    initial_probs: Float[np.ndarray | Array, " states"] = simplex()
    transition_probs: Float[np.ndarray | Array, "states states"] = simplex()
    emission_probs: Float[np.ndarray | Array, "states alphabet"] = simplex()

    def __init__(self, initial_probs: Any, transition_probs: Any, emission_probs: Any) -> None:
        self.initial_probs = _checks.distributions("initial_probs", initial_probs, 1)
        self.transition_probs = _checks.distributions("transition_probs", transition_probs, 2)
        self.emission_probs = _checks.distributions("emission_probs", emission_probs, 2)
        states = len(self.initial_probs)
        if self.transition_probs.shape != (states, states):
            raise ValueError(
                f"transition_probs must have shape ({states}, {states}) for {states} initial_probs,"
                f" got shape {self.transition_probs.shape}"
            )
        if len(self.emission_probs) != states or self.alphabet < 2:
            raise ValueError(
                "emission_probs must have a row of at least 2 symbols for each of "
                f"{states} states, got shape {self.emission_probs.shape}"
            )

    @property
    def alphabet(self) -> int:
        return self.emission_probs.shape[1]

    def statistic(self, x: Numbers) -> ForwardRun:
        xp = namespace(x, self.emission_probs)
        chances = xp.asarray(log_probs(self.emission_probs))[:, xp.asarray(x).astype(np.int32)]
        return _scaled(xp.moveaxis(chances, 0, -1)[..., None] + log_probs(self.transition_probs))

    def merge(self, before: ForwardRun, after: ForwardRun) -> ForwardRun:
        run = _scaled(log_sum(before.logs[..., None] + after.logs[..., None, :, :], -2))
        return ForwardRun(run.logs, before.scale + after.scale + run.scale)

    def empty(self) -> ForwardRun:
        states = len(self.initial_probs)
        return ForwardRun(LOG_NEVER * (1 - np.eye(states)), np.zeros(()))

    def initial(self) -> ForwardRun:
        """The operator that forgets the state before: all of its rows are the initial one."""
        return _scaled(log_probs(self.initial_probs) + np.zeros((len(self.initial_probs), 1)))

    def missing(self) -> ForwardRun:
        return _scaled(log_probs(self.transition_probs))

    def predictive(self, statistics: ForwardRun) -> Discrete:
        return Discrete(self._belief(statistics) @ self.emission_probs)

    def observe(self, statistics: ForwardRun, x: Numbers) -> tuple[Numbers, ForwardRun]:
        run = self.statistic(x)
        return self.run_log_density(statistics, run)[1], self.merge(statistics, run)

    def run_log_density(self, before: ForwardRun, run: ForwardRun) -> tuple[Numbers, Numbers]:
        belief = before.logs[..., 0, :]
        paths = log_sum(belief[..., None] + run.logs, -1)
        return 0.0 * run.scale, log_sum(paths, -1) - log_sum(belief, -1) + run.scale

    def level_posterior(self, statistics: ForwardRun) -> Level:
        """The distributions of the states, and the belief about the state of the next symbol."""
        return Level(jnp.asarray(self.emission_probs), None, self._belief(statistics))

    def _belief(self, statistics: ForwardRun) -> Numbers:
        """P(the state of the next symbol | the segment so far), which every row has."""
        weights = namespace(statistics.logs).exp(statistics.logs[..., 0, :])
        return weights / weights.sum(-1, keepdims=True)


def _scaled(logs: Numbers) -> ForwardRun:
    """The operator with these logarithms."""
    most = logs.max((-2, -1), keepdims=True)
    return ForwardRun(logs - most, most[..., 0, 0])
