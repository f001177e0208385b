"""One network of an ensemble."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    """A network of the ensemble, by what sets it apart from the others."""

    index: int
    """Its place in the ensemble, from 0."""
    prior: str
    """The name of the prior whose sequences it learns from."""
    seed: int
    """What its first weights and its sequences are drawn with."""
    learning_rate: float
    """The rate that its schedule is a fraction of."""

    @property
    def label(self) -> str:
        """A name of its own within the ensemble."""
        return f"{self.prior}-seed{self.seed}-lr{self.learning_rate:g}"
