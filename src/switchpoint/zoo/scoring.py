"""The score of a network on the test sequences of its source, and the check of its card."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from switchpoint._progress import Progress
from switchpoint.exact import bayes_optimal
from switchpoint.neural import Network
from switchpoint.sources import Source
from switchpoint.zoo.manifest import Zoo

TEST_SEED = 0
"""The seed of test sequences, as of `switchpoint evaluate`; training has other keys."""

BLOCK = 50
"""The number of sequences behind each number of `excess_of_blocks`."""

_ROUNDING = 1e-5  # of the numbers on a card


def score(
    network: Network,
    source: Source,
    length: int,
    sequences: int,
    seed: int = TEST_SEED,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The regret of a network and of the exact optimum, as a card has it.

    In bits per sequence, each with its standard error; `excess` is the difference on the same
    sequences, and `excess_of_blocks` that of every 50 of them in turn, with which fewer
    sequences can be compared.
    """
    from switchpoint.evaluation import regrets  # imports xarray

    blocks = whole_blocks(sequences)
    members = [network, bayes_optimal(source)]
    own, optimum = regrets(members, source, length, sequences, seed, progress=progress)
    of_blocks = (own - optimum).reshape(blocks, BLOCK).mean(-1)
    numbers: dict[str, Any] = {"sequences": sequences, "seed": seed, "length": length}
    for name, bits in (("excess", own - optimum), ("regret", own), ("optimum_regret", optimum)):
        numbers[name] = float(bits.mean())
        numbers[f"{name}_error"] = float(bits.std(ddof=1)) / sequences**0.5
    return {**numbers, "excess_of_blocks": [round(float(each), 6) for each in of_blocks]}


def whole_blocks(sequences: int) -> int:
    """The number of blocks of sequences; a part of a block is refused."""
    if sequences % BLOCK or sequences < BLOCK:
        raise ValueError(f"sequences must be a multiple of {BLOCK}, got {sequences}")
    return sequences // BLOCK


def trained_source(card: Mapping[str, Any]) -> Source:
    """The source that the one network of a card was trained on."""
    from switchpoint.training import TrainConfig  # imports xarray

    return TrainConfig.from_dict(card["config"]).source(card["members"][0]["prior"])


@dataclass(frozen=True)
class Check:
    """The claim on one card, and what was measured.

    >>> from switchpoint.zoo import Check
    >>> Check("rnn-ptw", claimed=1.5, measured=1.52, allowed=0.05).passed
    True
    """

    name: str
    claimed: float
    """The excess regret on these sequences by the card, in bits."""
    measured: float
    """The same, measured now."""
    allowed: float
    """The tolerance of the card."""

    @property
    def passed(self) -> bool:
        """Whether the claim holds here; a number that is not finite never does."""
        return abs(self.measured - self.claimed) <= self.allowed


def verify(zoo: Zoo, name: str, sequences: int, progress: Progress | None = None) -> Check:
    """Measure a network again on the first of its test sequences, and compare with its card.

    The first `sequences` of them, a multiple of 50; each takes one pass of the network and of the
    exact optimum. See `Check` for the result.
    """
    card = zoo.card(name)
    test = card["test"]
    if sequences > test["sequences"]:
        raise ValueError(
            f"sequences must be at most the {test['sequences']} of {name}, got {sequences}"
        )
    blocks = np.array(test["excess_of_blocks"])
    if abs(blocks.mean() - test["excess"]) > _ROUNDING:
        raise ValueError(f"the card of {name} contradicts itself about the excess")
    numbers = score(
        zoo.network(name), trained_source(card), test["length"], sequences, test["seed"], progress
    )
    claimed = float(blocks[: whole_blocks(sequences)].mean())
    return Check(name, claimed, measured=numbers["excess"], allowed=test["tolerance"])
