"""Whether the networks do on this machine what their cards say."""

from dataclasses import dataclass

from switchpoint.zoo.collection import Zoo
from switchpoint.zoo.scoring import Progress, score, source_of

_ERRORS = 3.0  # standard errors of this measurement that are granted beyond the tolerance


@dataclass(frozen=True)
class Check:
    """What became of the claim on one card."""

    name: str
    claimed: float
    """The excess regret on the card, in bits."""
    claimed_error: float
    measured: float
    """The same, measured now."""
    measured_error: float
    allowed: float
    """How far apart the two may be: the tolerance on the card and the error of measuring."""

    @property
    def passed(self) -> bool:
        """Whether the claim holds here; a number that is not finite never does."""
        return abs(self.measured - self.claimed) <= self.allowed


def verify(zoo: Zoo, name: str, sequences: int, progress: Progress | None = None) -> Check:
    """Measure a network again on the first of its test sequences, and compare with its card."""
    card = zoo.card(name)
    test = card["test"]
    found = score(
        zoo.network(name), source_of(card), test["length"], sequences, test["seed"], progress
    )
    return Check(
        name=name,
        claimed=test["excess"],
        claimed_error=test["excess_error"],
        measured=found.excess,
        measured_error=found.excess_error,
        allowed=test["tolerance"] + _ERRORS * found.excess_error,
    )
