"""How large the studies are: the paper's setting, and a small one for any machine."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from switchpoint import _checks
from switchpoint.experiments.shipped import Shipped
from switchpoint.priors import prior_from_name
from switchpoint.sources import Source
from switchpoint.training.config import check_field_name
from switchpoint.training.fields import Check, list_of, one_of, sample_size, seed_number, text
from switchpoint.zoo.manifest import SOURCES

__all__ = ["SETTINGS", "SOURCES", "Ablation", "Scale", "Settings", "Trial", "changed"]

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
    """Everything that a study may ask the size of.

    `dataclasses.replace` makes a scale with other sizes; a `ValueError` names what is wrong.
    """

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
    first_seed: int = 0
    """The first of the seeds that networks are trained with; the others follow it."""
    shipped: Shipped | None = None
    """The networks and recorded results that studies rest on, where nothing is trained."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """What each study is expected to take, with the training that it is the first to need."""

    def __post_init__(self) -> None:
        for name in _FIELDS:
            object.__setattr__(self, name, _checked(name, getattr(self, name)))
        for name in self.other_architectures:
            one_of(*self.architectures)("other_architectures", name)
        if "lstm" not in self.architectures:
            raise ValueError(f"architectures must have lstm, got {', '.join(self.architectures)}")
        if 0 not in self.orders:
            raise ValueError(f"orders must have 0, no memory at all, got {self.orders}")

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


def changed(scale: Scale, settings: Mapping[str, Any]) -> Scale:
    """The scale with other values of these fields.

    Fields that do not exist are refused, and those that a scale with shipped networks and
    recorded results cannot change.
    """
    for name in settings:
        if name not in SETTINGS:
            near = difflib.get_close_matches(name, SETTINGS, n=1)
            every = ", ".join(SETTINGS)
            advice = f"did you mean {near[0]!r}?" if near else f"the fields are {every}"
            raise ValueError(f"a scale has no field {name!r}; {advice}")
        if scale.shipped is not None and name not in _OF_MEASURING:
            raise ValueError(
                f"{name} cannot be changed at scale {scale.name}, whose networks are trained and "
                f"whose results are recorded; {', '.join(_OF_MEASURING)} can, and --scale quick or "
                "full trains networks of its own"
            )
    new = replace(scale, **{name: _checked(name, value) for name, value in settings.items()})
    if scale.shipped is not None:
        recorded = scale.shipped.lengths() or new.longer_lengths
        for length in new.longer_lengths:
            if length not in recorded:
                raise ValueError(
                    f"longer_lengths at scale {scale.name} must be among those of the recorded "
                    f"results, {', '.join(map(str, recorded))}, got {length}"
                )
    return new


_OF_MEASURING = (
    "sequences",
    "off_sequences",
    "longer_lengths",
    "longer_sequences",
    "heat_sequences",
    "prior_sequences",
    "deepest",
    "most_switches",
    "seed",
)
_OPTIONAL = ("off_sequences",)
_OF_THE_PLAN = ("length", "seeds", "first_seed", "prior", "period")


def _checked(name: str, value: Any) -> Any:
    """The value of a field in the type that it has."""
    return None if value is None and name in _OPTIONAL else _FIELDS[name](name, value)


def _settings(name: str, value: Any) -> Settings:
    """`value` as settings of training, of which the studies choose some themselves."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a table of training settings, got {value!r}")
    for key in value:
        try:
            check_field_name(key)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        if key in _OF_THE_PLAN:
            raise ValueError(f"{name} must not set {key}, which the studies choose")
    return value


def _architectures(name: str, value: Any) -> Mapping[str, Settings]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a table of architectures, got {value!r}")
    return {str(model): _settings(f"{name}.{model}", given) for model, given in value.items()}


def _ablation(name: str, value: Any) -> Ablation:
    """An ablation, also as a table of its part and its settings."""
    if isinstance(value, Mapping):
        value = Ablation(value.get("part", ""), {k: v for k, v in value.items() if k != "part"})
    if not isinstance(value, Ablation):
        raise ValueError(f"{name} must be tables of a part and settings, got {value!r}")
    one_of("core", "stack", "positions", "context")(f"the part of {name}", value.part)
    text(f"the model of {name}", _settings(name, value.settings).get("model"))
    return value


def _batches(name: str, value: Any) -> int:
    number = _checks.positive_int(name, value)
    if number < 20:
        raise ValueError(f"{name} must be at least 20, two for each of ten batches, got {number}")
    return number


def _true_or_false(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")
    return value


_FIELDS: Mapping[str, Check] = {
    "name": text,
    **dict.fromkeys(("length", "period", "seeds", "ablation_seeds"), _checks.positive_int),
    **dict.fromkeys(("base_length", "heat_sequences"), _checks.positive_int),
    **dict.fromkeys(("sequences", "off_sequences"), sample_size),
    **dict.fromkeys(("longer_sequences", "other_sequences"), sample_size),
    **dict.fromkeys(("longer_lengths", "other_lengths"), list_of(_checks.positive_int)),
    **dict.fromkeys(("deepest", "most_switches", "bound_order"), _checks.whole_number),
    **dict.fromkeys(("seed", "first_seed"), seed_number),
    "prior_sequences": _batches,
    "orders": list_of(_checks.whole_number),
    "architectures": _architectures,
    "other_architectures": list_of(text),
    "ablations": list_of(_ablation),
    "forgetful": _settings,
    "hasty": _true_or_false,
}


SETTINGS = tuple(_FIELDS)
"""The fields of a scale that may be changed."""


def _plain(value: Any) -> Any:
    if isinstance(value, Ablation):
        return {"part": value.part, **value.settings}
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
