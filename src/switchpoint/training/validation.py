"""The excess regret of members, on sequences that no member is trained on."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float

from switchpoint._random import key_for
from switchpoint.evaluation import excess_regret
from switchpoint.evaluation.measure import over_networks, predictions
from switchpoint.evaluation.metrics import standard_error
from switchpoint.exact import bayes_optimal
from switchpoint.neural import Network
from switchpoint.sources import AbstractSource, Draw
from switchpoint.training.config import TrainConfig
from switchpoint.training.metrics_log import EvalRecord
from switchpoint.training.program import TrainState


class Validation:
    """Sequences of each prior, with the predictions of the exact optimum.

    The networks are measured where they are: each device has those of some replicas.
    """

    def __init__(self, config: TrainConfig, mesh: Mesh) -> None:
        self._excess = jax.jit(
            jax.shard_map(
                _excess,
                mesh=mesh,
                in_specs=(PartitionSpec("replica"), PartitionSpec(), PartitionSpec()),
                out_specs=PartitionSpec("replica"),
                check_vma=False,
            )
        )
        self._tests: list[tuple[Draw, Float[Array, "sequence time *alphabet"]]] = []
        for prior in config.prior:
            source = config.source(prior)
            draw = source.sample(key_for(0, "validation"), config.validation, config.length)
            self._tests.append((draw, _reference(source, draw)))

    def record(self, state: TrainState, since: int) -> EvalRecord:
        """How the members of a state do; its losses are sums since the step `since`."""
        steps = int(state.step) - since
        bits = self.excess(state.networks)
        return EvalRecord(
            step=int(state.step),
            loss=tuple(float(loss) / steps for loss in np.asarray(state.loss).ravel()),
            excess=tuple(bits.mean(-1).tolist()),
            excess_error=tuple(standard_error(bits).tolist()),
            diverged=tuple(np.flatnonzero(np.asarray(state.diverged_at).ravel() >= 0).tolist()),
        )

    def excess(self, networks: Network) -> Float[np.ndarray, "member sequence"]:
        """Bits of regret beyond the exact optimum's, on sequences common to all of a prior.

        The leaves of the networks have leading axes of priors and replicas.
        """
        rows = [
            np.asarray(self._excess(jax.tree.map(lambda leaf, i=i: leaf[i], networks), *test))
            for i, test in enumerate(self._tests)
        ]
        return np.concatenate(rows).astype(np.float64)


def _reference(source: AbstractSource, draw: Draw) -> Float[Array, "sequence time *alphabet"]:
    """The predictions of the exact optimum; if that is unknown, the true distributions."""
    if not source.overrides_sample:
        return predictions(bayes_optimal(source), draw)
    warnings.warn(
        f"the optimum of {type(source).__name__} is unknown, since its sampler is its own: the "
        "excess of its networks is their regret, in bits above the true distributions",
        stacklevel=2,
    )
    return draw.log_density if draw.symbol_probs is None else jnp.log(draw.probs)


def _excess(
    networks: Network, draw: Draw, optimum: Float[Array, "sequence time *alphabet"]
) -> Float[Array, "replica sequence"]:
    def excess(log_probs: Float[Array, "sequence time *alphabet"]) -> Float[Array, " sequence"]:
        return jnp.sum(excess_regret(draw, log_probs, optimum), axis=-1)

    return over_networks(excess, networks, draw)
