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


_LSTM = Recipe(learning_rate=1.5e-3, steps=10_000, batch=128, warmup=200)
_RNN = Recipe(learning_rate=7e-4, steps=15_000, batch=128, warmup=200)
_MEMORYLESS = Recipe(learning_rate=1e-2, steps=2_000, batch=128, warmup=100, optimizer="adam")

RECIPES: Mapping[str, Recipe] = {
    "rnn": _RNN,
    "lstm": _LSTM,
    "stack-rnn": _RNN,
    "stack-lstm": _LSTM,
    "transformer": Recipe(learning_rate=3e-3, steps=6_000, batch=32, warmup=500, b2=0.99),
    "memoryless": _MEMORYLESS,
    "markov": _MEMORYLESS,
    # The LSTM's, except that Muon trains only matrices that a network declares.
    CUSTOM: replace(_LSTM, optimizer="adam"),
}
"""The recipe of each model, and of a user's own network."""
