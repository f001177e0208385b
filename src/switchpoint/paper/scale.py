"""How large the studies are: the paper's setting, and a small one for any machine."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from switchpoint import _checks
from switchpoint.priors import prior_from_name
from switchpoint.sources import Source
from switchpoint.training.config import check_field_name
from switchpoint.training.fields import list_of, one_of, sample_size, seed_number, text
from switchpoint.zoo.manifest import PACKAGED, SOURCES

Settings = Mapping[str, Any]
"""Fields of a training configuration."""

RECORDED = Path(__file__).parent / "recorded"
"""Results of the full scale, made on a GPU and shipped with the package."""


@dataclass(frozen=True)
class TestSet:
    """Test sequences: a source, their length, and how many; fewer are the first of more."""

    __test__: ClassVar[bool] = False  # for pytest, which looks for classes with such names
    source: str
    length: int
    sequences: int


@dataclass(frozen=True)
class Ablation:
    """One configuration of the ablation study."""

    part: str
    """What varies: core, stack, positions or context."""
    settings: Settings

    @property
    def name(self) -> str:
        """The model and its options, such as `lstm hidden 64 readout 0`."""
        options = {key: value for key, value in self.settings.items() if key in _OPTIONS}
        return " ".join([self.settings["model"], *(f"{k} {v}" for k, v in options.items())])


_OPTIONS = ("hidden", "readout", "stack_depth", "stack_width", "positions", "layers", "context")
_SET_BY_STUDIES = ("length", "seeds", "first_seed", "prior", "period")


def training_settings(name: str, value: Any) -> Settings:
    """`value` as settings of training, some of which are reserved for the studies."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a table of training settings, got {value!r}")
    for key in value:
        try:
            check_field_name(key)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        if key in _SET_BY_STUDIES:
            raise ValueError(f"{name} must not set {key}, which the studies choose")
    return value


def _architectures(name: str, value: Any) -> Mapping[str, Settings]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a table of architectures, got {value!r}")
    if "lstm" not in value:
        raise ValueError(f"{name} must include lstm, got {', '.join(value)}")
    return {
        str(model): training_settings(f"{name}.{model}", given) for model, given in value.items()
    }


def _fewer_steps(name: str, value: Any) -> Mapping[str, Mapping[str, int]]:
    """Tables of steps by source, in a table by architecture."""
    if not isinstance(value, Mapping) or not all(isinstance(v, Mapping) for v in value.values()):
        raise ValueError(f"{name} must be tables of steps by source, got {value!r}")
    for architecture, steps in value.items():
        for source, number in steps.items():
            one_of(*SOURCES)(f"a source of {name}.{architecture}", source)
            _checks.positive_int(f"{name}.{architecture}.{source}", number)
    return value


def _ablation(name: str, value: Any) -> Ablation:
    """An ablation, also given as a table of its part and its settings."""
    if isinstance(value, Mapping):
        value = Ablation(value.get("part", ""), {k: v for k, v in value.items() if k != "part"})
    if not isinstance(value, Ablation):
        raise ValueError(f"{name} must be tables of a part and settings, got {value!r}")
    one_of("core", "stack", "positions", "context")(f"the part of {name}", value.part)
    text(f"the model of {name}", training_settings(name, value.settings).get("model"))
    return value


def _orders(name: str, value: Any) -> tuple[int, ...]:
    orders = list_of(_checks.whole_number)(name, value)
    if 0 not in orders:
        raise ValueError(f"{name} must include 0, no memory at all, got {orders}")
    return orders


def _batches(name: str, value: Any) -> int:
    number = _checks.positive_int(name, value)
    if number < 20:
        raise ValueError(f"{name} must be at least 20, two for each of ten batches, got {number}")
    return number


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")
    return value


def _setting(check: Callable[[str, Any], Any], measuring: bool = False, **options: Any) -> Any:
    """A field with its check; `measuring` fields may be changed without training anything anew."""
    return field(metadata={"check": check, "measuring": measuring}, **options)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Every size that a study may depend on.

    `dataclasses.replace` makes a scale with other sizes; a `ValueError` names what is wrong.
    """

    name: str = _setting(text)
    length: int = _setting(_checks.positive_int)
    """Symbols in a training sequence."""
    period: int = _setting(_checks.positive_int)
    """The segment length of the regular source."""
    seeds: int = _setting(_checks.positive_int)
    """Networks of each architecture on each source."""
    sequences: int = _setting(sample_size, measuring=True)
    """Test sequences, unless a study has a number of its own."""
    off_sequences: int | None = _setting(sample_size, measuring=True, default=None)
    """Test sequences of networks on other sources; `sequences` if None."""
    architectures: Mapping[str, Settings] = _setting(_architectures)
    """The networks of the main studies, each with its training settings."""
    fewer_steps: Mapping[str, Mapping[str, int]] = _setting(_fewer_steps, default_factory=dict)
    """Training steps of an architecture on sources that it learns sooner than others."""
    longer_lengths: tuple[int, ...] = _setting(list_of(_checks.positive_int), measuring=True)
    longer_sequences: int = _setting(sample_size, measuring=True)
    base_length: int = _setting(_checks.positive_int)
    """The training length of networks that are tested on all `other_lengths`."""
    other_lengths: tuple[int, ...] = _setting(list_of(_checks.positive_int))
    other_architectures: tuple[str, ...] = _setting(list_of(text))
    other_sequences: int = _setting(sample_size)
    ablations: tuple[Ablation, ...] = _setting(list_of(_ablation))
    ablation_seeds: int = _setting(_checks.positive_int)
    prior_sequences: int = _setting(_batches, measuring=True)
    """Partitions that the statistics of a prior are sampled from."""
    max_depth: int = _setting(_checks.whole_number, measuring=True)
    """The largest depth of PTW whose number of switching points is shown."""
    max_switches: int = _setting(_checks.whole_number, measuring=True)
    """The largest number of switching points whose probability under PTW is shown."""
    heatmap_sequences: int = _setting(_checks.positive_int, measuring=True)
    orders: tuple[int, ...] = _setting(_orders)
    """How many of the last symbols the networks of the memory study see."""
    memoryless_settings: Settings = _setting(training_settings)  # noqa: RUF009
    """Training settings of these networks."""
    bound_order: int = _setting(_checks.whole_number)
    """The highest order whose exact lower bound is computed."""
    fast_compile: bool = _setting(_boolean, default=False)
    """Whether programs run so briefly that XLA should spend less effort on compiling them."""
    seed: int = _setting(seed_number, measuring=True, default=0)
    """The seed of the test sequences; training and validation have keys of their own."""
    first_seed: int = _setting(seed_number, default=0)
    """The first training seed; the others follow it."""
    zoo: Path | None = None
    """Where pretrained networks are taken from; None where networks are trained."""
    recorded: Path | None = None
    """Where recorded results are taken from, which are shown beside those of the zoo."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if "check" in each.metadata and not (value is None and each.default is None):
                object.__setattr__(self, each.name, each.metadata["check"](each.name, value))
        for name in self.other_architectures:
            one_of(*self.architectures)("other_architectures", name)
        for name in self.fewer_steps:
            one_of(*self.architectures)("fewer_steps", name)

    def source(self, name: str, length: int | None = None) -> Source:
        """The source called `name`, for sequences of `length`."""
        parameters = {"period": self.period} if name == "regular" else {}
        return Source(prior_from_name(name, length or self.length, **parameters))

    def steps(self, architecture: str, source: str) -> int | None:
        """The training steps of an architecture on a source; None for those of the recipe."""
        usual = self.architectures[architecture].get("steps")
        return self.fewer_steps.get(architecture, {}).get(source, usual)

    def test_set(self, source: str) -> TestSet:
        """A source at the training length, with the usual number of sequences."""
        return TestSet(source, self.length, self.sequences)

    def transfer_test(self, source: str) -> TestSet:
        """The same, for networks that were trained on any source."""
        return TestSet(source, self.length, self.off_sequences or self.sequences)

    def labels(self) -> dict[str, str]:
        """The sources as figures label them."""
        depth = (self.length - 1).bit_length()
        names = (f"PTW_{depth}", "LIN", f"Regular({self.period})", f"Random Uniform({self.length})")
        return dict(zip(SOURCES, names, strict=True))

    def to_dict(self, *names: str) -> dict[str, Any]:
        """The fields of these names that have a value, in the types of JSON."""
        values = {name: getattr(self, name) for name in names}
        return {name: _plain(value) for name, value in values.items() if value is not None}

    def changed(self, settings: Settings) -> "Scale":
        """The scale with other values of these fields; unknown and fixed ones are refused."""
        for name in settings:
            if name not in SETTINGS:
                near = difflib.get_close_matches(name, SETTINGS, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"they are {', '.join(SETTINGS)}"
                raise ValueError(f"a scale has no field {name!r}; {hint}")
            if self.zoo is not None and not SETTINGS[name]["measuring"]:
                free = [other for other, about in SETTINGS.items() if about["measuring"]]
                raise ValueError(
                    f"{name} cannot be changed at scale {self.name}, whose networks are trained "
                    f"and whose results are recorded; {', '.join(free)} can, and --scale quick or "
                    "full trains its own networks"
                )
        checked: Any = {
            name: value if value is None else SETTINGS[name]["check"](name, value)
            for name, value in settings.items()
        }
        return replace(self, **checked)


SETTINGS = {each.name: each.metadata for each in fields(Scale) if "check" in each.metadata}
"""The fields of a scale that may be changed."""


def ablation_plan(table: Settings) -> dict[str, Any]:
    """What tells an ablation from others; its training settings are those of its run."""
    return {name: table[name] for name in ("part", "model", *_OPTIONS) if name in table}


def _plain(value: Any) -> Any:
    if isinstance(value, Ablation):
        return ablation_plan({"part": value.part, **value.settings})
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _core(
    models: tuple[str, ...], sizes: tuple[int, ...], readouts: tuple[int, ...], recipe: Any
) -> Iterator[Ablation]:
    for model in models:
        for hidden in sizes:
            for readout in readouts:
                options = {"model": model, "hidden": hidden, "readout": readout}
                yield Ablation("core", {**options, **recipe[model]})


def _stacks(
    models: tuple[str, ...], depths: tuple[int, ...], widths: tuple[int, ...], recipe: Any
) -> Iterator[Ablation]:
    for model in models:
        for depth in depths:
            for width in widths:
                stack = {"model": model, "stack_depth": depth, "stack_width": width}
                yield Ablation("stack", {**stack, **recipe[model]})


def _positions(layers: tuple[int, ...], recipe: Settings) -> Iterator[Ablation]:
    for positions in ("sincos", "alibi", "relative"):
        for count in layers:
            settings = {"model": "transformer", "positions": positions, "layers": count}
            yield Ablation("positions", {**settings, **recipe})


def _contexts(contexts: tuple[int, ...], recipe: Settings) -> Iterator[Ablation]:
    yield Ablation("context", {"model": "transformer", **recipe})  # full context
    for context in contexts:
        yield Ablation("context", {"model": "transformer", "context": context, **recipe})


# Every setting of training is pinned: recipes change when better ones are found, and what was
# recorded must not change with them.
_MUON: Settings = {
    "optimizer": "muon",
    "matrix_decay": 0.0,
    "schedule": "cosine",
    "clip_norm": 1.0,
    "b2": 0.999,
}
_PAPER: Settings = {**_MUON, "batch": 128, "warmup": 200, "validation": 500, "report_every": 500}


def _full(learning_rate: float, steps: int, **others: Any) -> Settings:
    """A recipe with decay, which prevents most loss spikes."""
    return {
        **_PAPER,
        "matrix_decay": 0.1,
        "learning_rate": learning_rate,
        "steps": steps,
        **others,
    }


_FULL: Mapping[str, Settings] = {
    "rnn": _full(1e-3, 24_000),
    "lstm": _full(2.5e-3, 8_000, clip_norm=0.1),
    "stack-rnn": _full(1.5e-3, 12_000, clip_norm=0.1),
    "stack-lstm": _full(2e-3, 10_000, clip_norm=0.1),
    "transformer": _full(3e-3, 16_000, batch=32, warmup=500, b2=0.99),
}
_FULL_FEWER: Mapping[str, Mapping[str, int]] = {
    "rnn": {"lin": 6_000, "regular": 6_000},
    "lstm": {"lin": 4_000, "regular": 4_000},
    "stack-rnn": {"lin": 6_000, "regular": 6_000},
    "stack-lstm": {"lin": 4_000, "regular": 4_000},
    "transformer": {"lin": 6_000, "regular": 6_000, "uniform": 12_000},
}
_RECURRENT = ("rnn", "lstm", "stack-rnn", "stack-lstm")

FULL = Scale(
    name="full",
    length=256,
    period=20,
    seeds=10,
    sequences=10_000,
    architectures=_FULL,
    fewer_steps=_FULL_FEWER,
    longer_lengths=(256, 512, 1024, 2048, 4096),
    longer_sequences=1_000,
    base_length=32,
    other_lengths=(8, 16, 32, 64, 128, 256),
    other_architectures=tuple(_FULL),
    other_sequences=1_000,
    ablations=(
        *_core(_RECURRENT, (64, 128, 256), (0, 1, 2), _FULL),
        *_stacks(("stack-rnn", "stack-lstm"), (1, 8, 256), (1, 2, 8), _FULL),
        *_positions((2, 4, 8, 16), _FULL["transformer"]),
        *_contexts((16, 32, 64, 128), _FULL["transformer"]),
    ),
    ablation_seeds=5,
    prior_sequences=10_000,
    max_depth=9,
    max_switches=100,
    heatmap_sequences=500,
    orders=(0, 1, 2, 4, 8, 16, 32),
    memoryless_settings={
        **_PAPER,
        "optimizer": "adam",
        "learning_rate": 1e-2,
        "steps": 2_000,
        "warmup": 100,
    },
    bound_order=12,
)
"""The paper's setting, for a GPU."""


def _steps(steps: int) -> Settings:
    return {"steps": steps, "warmup": steps // 10}


_SMALL: Settings = {**_MUON, "batch": 32, "validation": 250, "report_every": 10_000}
_CELL: Settings = {**_SMALL, "hidden": 48, "readout": 0, "learning_rate": 1e-2}
_STACK: Settings = {**_CELL, "stack_depth": 8, "stack_width": 8}
_TRANSFORMER: Settings = {**_SMALL, "batch": 8, "learning_rate": 5e-3}
_BRIEF: Settings = {**_SMALL, **_steps(300), "learning_rate": 1e-2}
_BRIEF_STACK: Settings = {**_BRIEF, "hidden": 32, "readout": 0}

QUICK = Scale(
    name="quick",
    fast_compile=True,
    length=32,
    period=8,
    seeds=2,
    sequences=1_000,
    architectures={
        "rnn": {**_CELL, **_steps(1500)},
        "lstm": {**_CELL, **_steps(1800)},
        "stack-rnn": {**_STACK, **_steps(1000)},
        "stack-lstm": {**_STACK, **_steps(1000)},
        "transformer": {**_TRANSFORMER, "layers": 2, **_steps(1000)},
    },
    longer_lengths=(32, 64, 128, 256),
    longer_sequences=250,
    base_length=16,
    other_lengths=(8, 16, 32),
    other_architectures=("rnn", "lstm"),
    other_sequences=1_000,
    ablations=(
        *_core(("rnn", "lstm"), (8, 32), (0,), dict.fromkeys(_RECURRENT, _BRIEF)),
        *_core(("lstm",), (32,), (1,), {"lstm": _BRIEF}),
        *_stacks(("stack-lstm",), (1, 8), (1,), {"stack-lstm": _BRIEF_STACK}),
        *_positions((1, 2), {**_TRANSFORMER, **_steps(300)}),
        *_contexts((4, 16), {**_TRANSFORMER, **_steps(300), "layers": 1}),
    ),
    ablation_seeds=1,
    prior_sequences=2_000,
    max_depth=9,
    max_switches=64,
    heatmap_sequences=250,
    orders=(0, 1, 2, 4, 8),
    memoryless_settings={**_SMALL, "batch": 16, **_steps(500), "learning_rate": 1e-2},
    bound_order=10,
)
"""Small networks on short sequences: all studies in minutes on two cores."""

ZOO = replace(
    FULL,
    name="zoo",
    sequences=250,  # a check on this machine: the records of 10,000 are shown
    off_sequences=25,
    longer_lengths=(256, 512, 1024),  # a Transformer takes a second for a sequence of 4096
    longer_sequences=25,
    fast_compile=True,
    zoo=PACKAGED,
    recorded=RECORDED,
)
"""The paper's setting with pretrained networks, for any machine."""

SCALES: Mapping[str, Scale] = {scale.name: scale for scale in (QUICK, FULL, ZOO)}
"""All scales by name."""
