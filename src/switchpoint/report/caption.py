"""What is said about one figure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Caption:
    """The words that go with a figure."""

    alt: str
    """What the picture is, for those who cannot see it."""
    seen: str
    """What is seen in it, in numbers of this run."""
    paper: str
    """What the paper saw."""
