"""The declaration of a network in its class: names, options, and how it is best trained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from switchpoint._settings import PositiveInt


class Option(NamedTuple):
    """An option of a network, for commands, configurations and files."""

    default: Any
    help: str
    type: Any = PositiveInt
    """The annotation that values are validated with."""


@dataclass(frozen=True)
class Recipe:
    """The training settings of a model that a configuration leaves unset."""

    learning_rate: float
    steps: int
    batch: int = 128
    warmup: int = 200
    clip_norm: float = 1.0
    b2: float = 0.999
    optimizer: str = "muon"
    matrix_decay: float = 0.1
    """The decay of matrices and tight clipping prevent most loss spikes."""


def adam_recipe(learning_rate: float, steps: int, warmup: int = 200) -> Recipe:
    """A recipe without Muon, for networks that declare no matrices."""
    return Recipe(learning_rate, steps, warmup=warmup, optimizer="adam", matrix_decay=0.0)


@dataclass(frozen=True)
class Model:
    """A name of a network's class (see `Network.models`), with all that the name implies.

    The class is called with the number of symbols (or of outputs), `key`, the options, and
    `inputs`, the number of features of a token, for real values.
    """

    options: Mapping[str, Option]
    recipe: Recipe
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the class that this name implies."""
    check: Callable[[int, Mapping[str, Any]], None] | None = None
    """Raises a `ValueError` for options that do not fit together, or not the length."""
    takes_length: bool = False
    """Whether the class takes the length of sequences."""
    takes_values: bool = True
    """Whether the class takes `inputs`."""
