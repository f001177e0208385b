"""How large the studies are: the paper's setting, and a small one for any machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from switchpoint.experiments.shipped import Shipped
from switchpoint.priors import prior_from_name
from switchpoint.sources import Source
from switchpoint.zoo.names import SOURCES

__all__ = ["SOURCES", "Ablation", "Scale", "Settings", "Trial"]

Settings = Mapping[str, Any]
"""Fields of a training configuration."""


@dataclass(frozen=True)
class Trial:
    """What networks are tested on."""

    source: str
    length: int
    sequences: int

    @property
    def name(self) -> str:
        """The source and the length, such as `ptw 256`; fewer sequences are the first of more."""
        return f"{self.source} {self.length}"


@dataclass(frozen=True)
class Ablation:
    """One configuration of the ablation study."""

    part: str
    """What varies: core, stack, positions or context."""
    settings: Settings

    @property
    def name(self) -> str:
        """The model and what it is given, such as `lstm hidden 64 readout 0`."""
        options = {key: value for key, value in self.settings.items() if key in _OPTIONS}
        return " ".join([self.settings["model"], *(f"{k} {v}" for k, v in options.items())])


_OPTIONS = ("hidden", "readout", "stack_depth", "stack_width", "positions", "layers", "context")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Everything that a study may ask the size of."""

    name: str
    length: int
    """Symbols in a sequence that networks are trained on."""
    period: int
    """The length of a segment of the regular source."""
    seeds: int
    """How many networks of each architecture are trained on each source."""
    sequences: int
    """How many test sequences there are, where nothing else is said."""
    off_sequences: int | None = None
    """How many there are where networks of all sources meet, if that is another number."""
    architectures: Mapping[str, Settings]
    """The networks of the main studies, each with what it is trained with beyond its recipe."""
    longer_lengths: tuple[int, ...]
    longer_sequences: int
    base_length: int
    """What networks are trained on that are tested on all the `other_lengths`."""
    other_lengths: tuple[int, ...]
    other_architectures: tuple[str, ...]
    other_sequences: int
    ablations: tuple[Ablation, ...]
    ablation_seeds: int
    prior_sequences: int
    """Partitions that the statistics of a prior are sampled from."""
    deepest: int
    """The largest depth of PTW whose number of switching points is shown."""
    most_switches: int
    """The largest number of switching points whose probability under PTW is shown."""
    heat_sequences: int
    orders: tuple[int, ...]
    """How many of the last symbols are seen by networks that remember too little."""
    forgetful: Settings
    """What these networks are trained with beyond their recipe."""
    bound_order: int
    """Exact lower bounds are computed for up to so many of the last symbols."""
    hasty: bool = False
    """Whether programs run so briefly that less effort should go into compiling them."""
    seed: int = 0
    """What test sequences are drawn with; those of training and validation have other keys."""
    shipped: Shipped | None = None
    """The networks and recorded results that studies rest on, where nothing is trained."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """What each study is expected to take, with the training that it is the first to need."""

    def source(self, name: str, length: int | None = None) -> Source:
        """The source called `name`, for sequences of `length`."""
        parameters = {"period": self.period} if name == "regular" else {}
        return Source(prior_from_name(name, length or self.length, **parameters))

    def trial(self, source: str) -> Trial:
        """A source at the usual length, with the usual number of sequences."""
        return Trial(source, self.length, self.sequences)

    def off_trial(self, source: str) -> Trial:
        """The same, for networks of all sources."""
        return Trial(source, self.length, self.off_sequences or self.sequences)

    def labels(self) -> dict[str, str]:
        """What each source is called in figures."""
        depth = (self.length - 1).bit_length()
        names = (f"PTW_{depth}", "LIN", f"Regular({self.period})", f"Random Uniform({self.length})")
        return dict(zip(SOURCES, names, strict=True))

    def described(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The fields of these names that have a value, in the types that JSON has."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: _plain(value)
            for name, value in values.items()
            if name in names and value is not None
        }


def _plain(value: Any) -> Any:
    if isinstance(value, Ablation):
        return {"part": value.part, **value.settings}
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
