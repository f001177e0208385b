"""How large the studies are: the paper's setting, and a small one for any machine."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, model_validator

from switchpoint._settings import (
    NaturalNumber,
    OneOrMore,
    PositiveInt,
    SampleSize,
    Seed,
    SettingError,
    Settings,
    one_of,
    unknown_field,
)
from switchpoint.priors import prior_from_name
from switchpoint.sources import Source
from switchpoint.training.config import TrainConfig
from switchpoint.zoo.manifest import PACKAGED, SOURCES

RECORDED = Path(__file__).parent / "recorded"
"""Results of the full scale, made on a GPU and shipped with the package."""


RICHER_SOURCES = ("categorical", "markov", "gaussian", "concepts", "hmm")
"""The names of the sources beyond Bernoulli segments."""


@dataclass(frozen=True)
class TestSet:
    """Test sequences: a source, their length, and how many; fewer are the first of more."""

    __test__: ClassVar[bool] = False  # for pytest, which looks for classes with such names
    source: str
    length: int
    sequences: int


MODEL_OPTIONS = (
    "hidden", "readout", "stack_depth", "stack_width", "positions", "layers", "context"
)  # fmt: skip
"""The options of networks that ablations vary, in the order of their names."""

_PARTS = ("core", "stack", "positions", "context")
_SET_BY_STUDIES = ("length", "seeds", "first_seed", "prior", "period")


def _check_training_settings(value: dict[str, Any]) -> dict[str, Any]:
    for name in value:
        if name not in TrainConfig.model_fields:
            raise ValueError(f"has an {unknown_field(name, TrainConfig.model_fields)}")
        if name in _SET_BY_STUDIES:
            raise ValueError(f"must not set {name}, which the studies choose")
    return value


TrainingSettings = Annotated[dict[str, Any], AfterValidator(_check_training_settings)]
"""Fields of a training configuration, without those that the studies choose."""


def _including(element: Any) -> Any:
    """The annotation of a collection that includes `element`."""

    def check(values: Any) -> Any:
        if element not in values:
            raise ValueError(f"must include {element}")
        return values

    return AfterValidator(check)


def _check_ablation(value: dict[str, Any]) -> dict[str, Any]:
    if value.get("part") not in _PARTS:
        raise ValueError(f"must have a part, one of {', '.join(_PARTS)}")
    if "model" not in value:
        raise ValueError("must have a model")
    _check_training_settings({name: each for name, each in value.items() if name != "part"})
    return value


Ablation = Annotated[dict[str, Any], AfterValidator(_check_ablation)]
"""Training settings of a network, and the part of them that varies in the study of ablations."""


class Scale(Settings):
    """Every size that a study may depend on.

    `replace` makes a scale with other sizes; a `SettingError` has the name of an invalid one.
    """

    name: str
    length: PositiveInt
    """Symbols in a training sequence."""
    period: PositiveInt
    """The segment length of the regular source."""
    seeds: PositiveInt
    """Networks of each architecture on each source."""
    sequences: SampleSize
    """Test sequences, unless a study sets another number."""
    off_sequences: SampleSize | None = None
    """Test sequences of networks on other sources; `sequences` if None."""
    architectures: Annotated[dict[str, TrainingSettings], _including("lstm")]
    """The networks of the main studies, each with its training settings."""
    fewer_steps: dict[str, dict[Annotated[str, one_of(*SOURCES)], PositiveInt]] = Field(
        default_factory=dict
    )
    """Training steps of an architecture on sources that it learns sooner."""
    longer_lengths: OneOrMore[PositiveInt]
    longer_sequences: SampleSize
    base_length: PositiveInt
    """The training length of networks that are tested on all `other_lengths`."""
    other_lengths: OneOrMore[PositiveInt]
    other_architectures: OneOrMore[str]
    other_sequences: SampleSize
    ablations: OneOrMore[Ablation]
    ablation_seeds: PositiveInt
    prior_sequences: Annotated[int, Field(ge=20)]
    """Partitions that the statistics of a prior are sampled from, in ten batches."""
    max_depth: NaturalNumber
    """The largest depth of PTW whose number of switching points is shown."""
    max_switches: NaturalNumber
    """The largest number of switching points whose probability under PTW is shown."""
    heatmap_sequences: PositiveInt
    worst_length: PositiveInt
    """Symbols of the sequences that are searched for the worst case."""
    probe_sequences: Annotated[int, Field(ge=8)]
    """Sequences to fit linear probes of states to, and as many to test them on."""
    richer_length: PositiveInt
    """Symbols in the sequences of the study of richer sources."""
    richer_sources: OneOrMore[Annotated[str, one_of(*RICHER_SOURCES)]]
    """The names of these sources."""
    richer_architectures: dict[str, TrainingSettings]
    """The networks that are trained on them, each with its training settings."""
    passing_settings: TrainingSettings
    """Training settings of the steps by which networks of the main studies are trained further."""
    passing_sequences: SampleSize
    detector_settings: TrainingSettings
    """Training settings of the networks that emit posteriors, on half the training length."""
    detector_sequences: SampleSize
    orders: Annotated[OneOrMore[NaturalNumber], _including(0)]
    """How many of the last symbols the networks of the memory study see."""
    memoryless_settings: TrainingSettings
    """Training settings of these networks."""
    bound_order: NaturalNumber
    """The highest order whose exact lower bound is computed."""
    fast_compile: bool = False
    """Whether programs run so briefly that XLA should spend less effort on compiling them."""
    seed: Seed = 0
    """The seed of the test sequences; training and validation have separate keys."""
    first_seed: Seed = 0
    """The first training seed; all other seeds follow it."""
    zoo: Path | None = None
    """The source of pretrained networks; None where networks are trained."""
    recorded: Path | None = None
    """The source of recorded results, which are shown beside those of the zoo."""

    @model_validator(mode="after")
    def _check_architectures(self) -> "Scale":
        for field in ("other_architectures", "fewer_steps"):
            for name in getattr(self, field):
                if name not in self.architectures:
                    known = ", ".join(self.architectures)
                    raise SettingError(field, f"{field} must be among {known}, got {name!r}")
        return self

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
        values = self.model_dump(mode="json", include=set(names), exclude_none=True)
        if "ablations" in values:  # the other settings are in the plan of each run
            kept = ("part", "model", *MODEL_OPTIONS)
            values["ablations"] = [
                {name: each[name] for name in kept if name in each} for each in self.ablations
            ]
        return {name: values[name] for name in names if name in values}

    def changed(self, settings: Mapping[str, Any]) -> "Scale":
        """The scale with other values of these fields; unknown and fixed ones are refused."""
        for name in settings:
            if name not in SETTINGS:
                raise SettingError(name, f"a scale has an {unknown_field(name, SETTINGS)}")
            if self.zoo is not None and name not in _FREE:
                raise SettingError(
                    name,
                    f"{name} is fixed at scale {self.name}, whose networks are trained; "
                    f"{', '.join(_FREE)} can be changed, and --scale quick or full trains its own "
                    "networks",
                )
        return self.replace(**settings)


SETTINGS = tuple(name for name in Scale.model_fields if name not in ("zoo", "recorded"))
"""The fields of a scale that may be changed."""
_FREE = (
    "sequences", "off_sequences", "longer_lengths", "longer_sequences", "prior_sequences",
    "max_depth", "max_switches", "heatmap_sequences", "probe_sequences", "worst_length",
    "detector_settings", "detector_sequences", "passing_settings", "passing_sequences", "seed",
)  # fmt: skip
"""Those that need no other networks than the zoo's."""


def _ablations(
    part: str, recipes: Mapping[str, Any], model: tuple[str, ...], **axes: tuple[Any, ...]
) -> Iterator[dict[str, Any]]:
    """Every combination of models and values of their options; an option of None is left out."""
    for name, *values in itertools.product(model, *axes.values()):
        given = zip(axes, values, strict=True)
        options = {option: value for option, value in given if value is not None}
        yield {"part": part, "model": name, **options, **recipes[name]}


# Every setting of training is pinned: recipes may improve, and recorded results must not change
# with them.
_MUON: Mapping[str, Any] = {
    "optimizer": "muon",
    "matrix_decay": 0.0,
    "schedule": "cosine",
    "clip_norm": 1.0,
    "b2": 0.999,
}
_PAPER: Mapping[str, Any] = {
    **_MUON,
    "batch": 128,
    "warmup": 200,
    "validation": 500,
    "report_every": 500,
}


def _full(learning_rate: float, steps: int, **changes: Any) -> dict[str, Any]:
    """A recipe with decay, which prevents most loss spikes."""
    return {
        **_PAPER,
        "matrix_decay": 0.1,
        "learning_rate": learning_rate,
        "steps": steps,
        **changes,
    }


_FULL: dict[str, Any] = {
    "rnn": _full(1e-3, 24_000),
    "lstm": _full(2.5e-3, 8_000, clip_norm=0.1),
    "stack-rnn": _full(1.5e-3, 12_000, clip_norm=0.1),
    "stack-lstm": _full(2e-3, 10_000, clip_norm=0.1),
    "transformer": _full(3e-3, 16_000, batch=32, warmup=500, b2=0.99),
}
_FULL_FEWER: dict[str, dict[str, int]] = {
    "rnn": {"lin": 6_000, "regular": 6_000},
    "lstm": {"lin": 4_000, "regular": 4_000},
    "stack-rnn": {"lin": 6_000, "regular": 6_000},
    "stack-lstm": {"lin": 4_000, "regular": 4_000},
    "transformer": {"lin": 6_000, "regular": 6_000, "uniform": 12_000},
}
_STACKS = ("stack-rnn", "stack-lstm")
_RECURRENT = ("rnn", "lstm", *_STACKS)
_TRANSFORMERS = ("transformer",)
_POSITIONS = ("sincos", "alibi", "relative")


def _steps(steps: int) -> dict[str, Any]:
    return {"steps": steps, "warmup": steps // 10}


def _richer(steps: int, learning_rate: float, **settings: Any) -> dict[str, Any]:
    """The default recipe of a network, with fewer sequences."""
    reports = {"validation": 250, "report_every": steps // 4}
    more = {"batch": 16, "matrix_decay": 0.1, "learning_rate": learning_rate, **settings}
    return {**_MUON, **_steps(steps), **reports, **more}


_CELL_64: Mapping[str, Any] = {"hidden": 64, "readout": 1}
_LAYERS: Mapping[str, Any] = {"layers": 2, "width": 32}
_RICHER: dict[str, Any] = {
    "rnn": _richer(8_000, 1e-3, **_CELL_64),
    "lstm": _richer(4_000, 2.5e-3, **_CELL_64, clip_norm=0.1),
    "stack-rnn": _richer(6_000, 1.5e-3, **_CELL_64, stack_depth=8, stack_width=8, clip_norm=0.1),
    "gru": _richer(4_000, 1e-2, hidden=64),
    "lru": _richer(2_000, 1e-2, **_LAYERS, state_size=32),
    "mamba": _richer(1_200, 3e-3, **_LAYERS, state_size=8),
    "transformer": _richer(1_600, 3e-3, **_LAYERS, heads=4, positions="rotary", b2=0.99),
}

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
        *_ablations("core", _FULL, _RECURRENT, hidden=(64, 128, 256), readout=(0, 1, 2)),
        *_ablations("stack", _FULL, _STACKS, stack_depth=(1, 8, 256), stack_width=(1, 2, 8)),
        *_ablations("positions", _FULL, _TRANSFORMERS, positions=_POSITIONS, layers=(2, 4, 8, 16)),
        *_ablations("context", _FULL, _TRANSFORMERS, context=(None, 16, 32, 64, 128)),
    ),
    ablation_seeds=5,
    prior_sequences=10_000,
    max_depth=9,
    max_switches=100,
    heatmap_sequences=500,
    probe_sequences=150,
    worst_length=64,
    passing_settings={"batch": 32, "steps": 250, "warmup": 25},
    passing_sequences=100,
    detector_settings={
        **_MUON,
        "model": "gru",
        "hidden": 64,
        "learning_rate": 5e-3,
        "batch": 32,
        "steps": 3_000,
        "warmup": 200,
    },
    detector_sequences=1_000,
    orders=(0, 1, 2, 4, 8, 16, 32),
    memoryless_settings={
        **_PAPER,
        "optimizer": "adam",
        "learning_rate": 1e-2,
        "steps": 2_000,
        "warmup": 100,
    },
    bound_order=12,
    richer_length=64,
    richer_sources=RICHER_SOURCES,
    richer_architectures=_RICHER,
)
"""The paper's setting, for a GPU."""


_SMALL: Mapping[str, Any] = {**_MUON, "batch": 32, "validation": 250, "report_every": 10_000}
_CELL: Mapping[str, Any] = {**_SMALL, "hidden": 48, "readout": 0, "learning_rate": 1e-2}
_STACK: Mapping[str, Any] = {**_CELL, "stack_depth": 8, "stack_width": 8}
_TRANSFORMER: Mapping[str, Any] = {**_SMALL, "batch": 8, "learning_rate": 5e-3}
_BRIEF: Mapping[str, Any] = {**_SMALL, **_steps(300), "learning_rate": 1e-2}
_BRIEFLY: Mapping[str, Any] = {
    "rnn": _BRIEF,
    "lstm": _BRIEF,
    "stack-lstm": {**_BRIEF, "hidden": 32, "readout": 0},
    "transformer": {**_TRANSFORMER, **_steps(300)},
}

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
        *_ablations("core", _BRIEFLY, ("rnn", "lstm"), hidden=(8, 32), readout=(0,)),
        *_ablations("core", _BRIEFLY, ("lstm",), hidden=(32,), readout=(1,)),
        *_ablations("stack", _BRIEFLY, ("stack-lstm",), stack_depth=(1, 8), stack_width=(1,)),
        *_ablations("positions", _BRIEFLY, _TRANSFORMERS, positions=_POSITIONS, layers=(1, 2)),
        *_ablations("context", _BRIEFLY, _TRANSFORMERS, context=(None, 4, 16), layers=(1,)),
    ),
    ablation_seeds=1,
    prior_sequences=2_000,
    max_depth=9,
    max_switches=64,
    heatmap_sequences=250,
    probe_sequences=100,
    worst_length=16,
    passing_settings=_steps(60),
    passing_sequences=100,
    detector_settings={**_CELL, "model": "gru", "hidden": 16, **_steps(200)},
    detector_sequences=200,
    orders=(0, 1, 2, 4, 8),
    memoryless_settings={**_SMALL, "batch": 16, **_steps(500), "learning_rate": 1e-2},
    bound_order=10,
    richer_length=16,
    richer_sources=("markov", "hmm"),
    richer_architectures={name: {**_CELL, **_steps(300)} for name in ("rnn", "gru")},
)
"""Small networks on short sequences: all studies in minutes on two cores."""

ZOO = FULL.replace(
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
