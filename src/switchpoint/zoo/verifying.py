"""Whether the networks do on this machine what their cards say."""

from dataclasses import dataclass

import numpy as np

from switchpoint.zoo.collection import Zoo
from switchpoint.zoo.scoring import Progress, score, source_of, whole_blocks

_ROUNDING = 1e-5  # of the numbers on a card


@dataclass(frozen=True)
class Check:
    """What became of the claim on one card."""

    name: str
    claimed: float
    """The excess regret on these sequences by the card, in bits."""
    measured: float
    """The same, measured now."""
    allowed: float
    """How far apart the two may be, by the card."""

    @property
    def passed(self) -> bool:
        """Whether the claim holds here; a number that is not finite never does."""
        return abs(self.measured - self.claimed) <= self.allowed


def verify(zoo: Zoo, name: str, sequences: int, progress: Progress | None = None) -> Check:
    """Measure a network again on the first of its test sequences, and compare with its card."""
    card = zoo.card(name)
    test = card["test"]
    if sequences > test["sequences"]:
        raise ValueError(
            f"sequences must be at most the {test['sequences']} of {name}, got {sequences}"
        )
    blocks = np.array(test["excess_of_blocks"])
    if abs(blocks.mean() - test["excess"]) > _ROUNDING:
        raise ValueError(f"the card of {name} contradicts itself about the excess")
    found = score(
        zoo.network(name), source_of(card), test["length"], sequences, test["seed"], progress
    )
    return Check(
        name=name,
        claimed=float(blocks[: whole_blocks(sequences)].mean()),
        measured=found.excess,
        allowed=test["tolerance"],
    )
