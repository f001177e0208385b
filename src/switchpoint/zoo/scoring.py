"""How well a network does on the test sequences of its own source."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from switchpoint.evaluation import regrets
from switchpoint.exact import bayes_optimal
from switchpoint.neural import Network
from switchpoint.sources import Source
from switchpoint.training import TrainConfig

TEST_SEED = 0
"""What test sequences are drawn with, as by `switchpoint evaluate`; training has other keys."""

BLOCK = 50
"""How many sequences each number of `Score.excess_of_blocks` is the mean of."""

Progress = Callable[[int, int], None]
"""Is told how many sequences are done, and how many there are."""


@dataclass(frozen=True)
class Score:
    """Bits per sequence, each with its standard error, on sequences that the seed names."""

    sequences: int
    seed: int
    length: int
    excess: float
    """Regret beyond that of the exact optimum, on the same sequences."""
    excess_error: float
    excess_of_blocks: tuple[float, ...]
    """The same of every 50 sequences in turn, with which fewer sequences can be compared."""
    regret: float
    regret_error: float
    optimum_regret: float
    optimum_regret_error: float

    def fields(self) -> dict[str, Any]:
        """The score as a card has it."""
        return asdict(self)


def score(
    network: Network,
    source: Source,
    length: int,
    sequences: int,
    seed: int = TEST_SEED,
    progress: Progress | None = None,
) -> Score:
    """Measure a network against the exact optimum of a source."""
    blocks = whole_blocks(sequences)
    members = [network, bayes_optimal(source)]
    own, optimum = regrets(members, source, length, sequences, seed, progress=progress)
    of_blocks = (own - optimum).reshape(blocks, BLOCK).mean(-1)
    pairs = {"excess": own - optimum, "regret": own, "optimum_regret": optimum}
    return Score(
        sequences=sequences,
        seed=seed,
        length=length,
        excess_of_blocks=tuple(round(float(each), 6) for each in of_blocks),
        **{name: float(bits.mean()) for name, bits in pairs.items()},
        **{f"{name}_error": _standard_error(bits) for name, bits in pairs.items()},
    )


def _standard_error(bits: Float[np.ndarray, " sequence"]) -> float:
    return float(bits.std(ddof=1)) / len(bits) ** 0.5


def whole_blocks(sequences: int) -> int:
    """How many blocks the sequences are; others than whole ones are refused."""
    if sequences % BLOCK or sequences < BLOCK:
        raise ValueError(f"sequences must be a multiple of {BLOCK}, got {sequences}")
    return sequences // BLOCK


def source_of(card: Mapping[str, Any]) -> Source:
    """The source that the one network of a card was trained on."""
    return TrainConfig.from_dict(card["config"]).source(card["members"][0]["prior"])
