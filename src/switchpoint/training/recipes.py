"""How each architecture is best trained."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from switchpoint.neural.registry import CUSTOM


@dataclass(frozen=True)
class Recipe:
    """The training settings of a model that a configuration leaves unset."""

    learning_rate: float
    steps: int
    batch: int
    warmup: int
    clip_norm: float = 1.0
    b2: float = 0.999
    optimizer: str = "muon"
    matrix_decay: float = 0.0


def _muon(learning_rate: float, steps: int, clip_norm: float) -> Recipe:
    """A recipe for Muon; tight clipping and decay prevent most loss spikes."""
    return Recipe(learning_rate, steps, 128, 200, clip_norm, matrix_decay=0.1)


_MEMORYLESS = Recipe(learning_rate=1e-2, steps=2_000, batch=128, warmup=100, optimizer="adam")

RECIPES: Mapping[str, Recipe] = {
    "rnn": _muon(1e-3, 24_000, 1.0),
    "lstm": _muon(2.5e-3, 8_000, 0.1),
    "stack-rnn": _muon(1.5e-3, 12_000, 0.1),
    "stack-lstm": _muon(2e-3, 10_000, 0.1),
    "transformer": replace(_muon(3e-3, 16_000, 1.0), batch=32, warmup=500, b2=0.99),
    "memoryless": _MEMORYLESS,
    "markov": _MEMORYLESS,
    # Muon trains only matrices that a network declares, and those of users may declare none.
    CUSTOM: Recipe(learning_rate=1.5e-3, steps=10_000, batch=128, warmup=200, optimizer="adam"),
}
"""The recipe of each model, and of networks of users."""
