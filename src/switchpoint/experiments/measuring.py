"""The regret of many networks of one architecture at once."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from switchpoint.evaluation import regret
from switchpoint.evaluation.chunks import CHUNK, chunks
from switchpoint.neural import Network
from switchpoint.sources import Draw, Source
from switchpoint.training.ensemble import over_members


def regrets(
    networks: Sequence[Network],
    source: Source,
    length: int,
    sequences: int,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> Float[np.ndarray, "member sequence"]:
    """The regret in bits of every sequence, as `switchpoint.evaluate` has it for each member.

    A GPU takes all members at once, which one small network after another would leave idle.
    """
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *networks)
    totals = np.empty((len(networks), sequences))
    for part in chunks(source, length, sequences, seed, CHUNK):
        rows = slice(part.start, part.start + part.wanted)
        bits = np.asarray(_bits(together, part.draw))[:, : part.wanted]
        totals[:, rows] = bits.sum(-1, dtype=np.float64)
        if progress is not None:
            progress(rows.stop, sequences)
    return totals


@eqx.filter_jit
def _bits(networks: Network, draw: Draw) -> Float[Array, "member batch time"]:
    def of_one(network: Network) -> Float[Array, "batch time"]:
        return regret(draw, network.log_probs_unchecked(draw.symbols))

    return over_members(of_one, networks)
