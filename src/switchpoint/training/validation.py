"""How far members are from the optimum, on sequences that no member is trained on."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float

from switchpoint._random import key_for
from switchpoint.evaluation import excess_regret
from switchpoint.evaluation.measure import over_networks
from switchpoint.exact import bayes_optimal
from switchpoint.neural import Network
from switchpoint.sources import Draw
from switchpoint.training.config import TrainConfig


@dataclass(frozen=True)
class Excess:
    """Bits of regret per sequence beyond the exact optimum's, one for each member."""

    mean: Float[np.ndarray, " member"]
    error: Float[np.ndarray, " member"]
    """The standard error of the mean; the sequences are the same for all members of a prior."""


class Validation:
    """Sequences of each prior, with what the exact optimum says of them.

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
        self._tests: list[tuple[Draw, Float[Array, "sequence time alphabet"]]] = []
        for prior in config.prior:
            source = config.source(prior)
            draw = source.sample(key_for(0, "validation"), config.validation, config.length)
            self._tests.append((draw, bayes_optimal(source).log_probs(draw.symbols)))

    def excess(self, networks: Network) -> Excess:
        """The excess of networks whose leaves have leading axes of priors and replicas."""
        rows = [
            np.asarray(self._excess(jax.tree.map(lambda leaf, i=i: leaf[i], networks), *test))
            for i, test in enumerate(self._tests)
        ]
        bits = np.concatenate(rows).astype(np.float64)
        with np.errstate(invalid="ignore"):  # members that are not finite
            deviation = bits.std(-1, ddof=1) if bits.shape[1] > 1 else np.full(len(bits), np.nan)
            return Excess(bits.mean(-1), deviation / bits.shape[1] ** 0.5)


def _excess(
    networks: Network, draw: Draw, optimum: Float[Array, "sequence time alphabet"]
) -> Float[Array, "replica sequence"]:
    def excess(log_probs: Float[Array, "sequence time alphabet"]) -> Float[Array, " sequence"]:
        return jnp.sum(excess_regret(draw, log_probs, optimum), axis=-1)

    return over_networks(excess, networks, draw)
