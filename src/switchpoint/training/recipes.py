"""How each architecture is best trained."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from switchpoint.neural.registry import CUSTOM


@dataclass(frozen=True)
class Recipe:
    """What a training run takes where its configuration says nothing."""

    learning_rate: float
    """The rate after the warm-up."""
    steps: int
    """How many optimiser steps there are."""
    batch: int
    """How many fresh sequences there are in a step."""
    warmup: int
    """Over how many of them the rate rises from 0."""
    clip: float
    """The global norm that gradients are clipped to."""
    b2: float
    """The decay of Adam's mean of squared gradients."""
    optimiser: str = "muon"
    """Of matrices; all else has Adam."""


_LSTM = Recipe(learning_rate=1.5e-3, steps=10_000, batch=128, warmup=200, clip=1.0, b2=0.999)
_RNN = Recipe(learning_rate=7e-4, steps=15_000, batch=128, warmup=200, clip=1.0, b2=0.999)
_FORGETFUL = Recipe(
    learning_rate=1e-2, steps=2_000, batch=128, warmup=100, clip=1.0, b2=0.999, optimiser="adam"
)

RECIPES: Mapping[str, Recipe] = {
    "rnn": _RNN,
    "lstm": _LSTM,
    "stack-rnn": _RNN,
    "stack-lstm": _LSTM,
    "transformer": Recipe(learning_rate=3e-3, steps=6_000, batch=32, warmup=500, clip=1.0, b2=0.99),
    "memoryless": _FORGETFUL,
    "markov": _FORGETFUL,
    # The LSTM's, but Muon knows only the matrices of our own networks.
    CUSTOM: replace(_LSTM, optimiser="adam"),
}
"""The recipe of each model, and of a user's own network."""
