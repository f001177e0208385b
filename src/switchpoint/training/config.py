"""The configuration of a training run, valid and complete from the moment it exists."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from jaxtyping import PRNGKeyArray
from pydantic import Field, create_model, model_validator

from switchpoint import _checks
from switchpoint._formats import FORMAT, NEWEST, check_format
from switchpoint._settings import (
    NaturalNumber,
    Numbers,
    OneOrMore,
    PositiveFloat,
    PositiveInt,
    SampleSize,
    Seed,
    SettingError,
    Settings,
    one_of,
    toml_settings,
)
from switchpoint.neural.network import Network
from switchpoint.neural.registry import (
    CUSTOM,
    MODEL_OPTIONS,
    MODELS,
    check_options,
    network_from_name,
)
from switchpoint.priors import PARAMETER_OWNERS, PRIOR_NAMES, Prior, prior_from_name
from switchpoint.segments import Segment, make_segment
from switchpoint.sources import Source

OPTIONS = tuple(dict.fromkeys(name for options in MODEL_OPTIONS.values() for name in options))
"""The options of all networks, each of which is a field."""

SEGMENT = ("alpha", "beta", "concentration")
"""The parameters of a segment model."""


@dataclass(frozen=True)
class Member:
    """A network of the ensemble.

    >>> from switchpoint.training import TrainConfig
    >>> [each.label for each in TrainConfig(prior=["ptw", "lin"], learning_rate=0.01).members()]
    ['ptw-seed0-lr0.01', 'lin-seed0-lr0.01']
    """

    index: int
    """Its place in the ensemble, from 0."""
    prior: str
    """The name of the prior whose sequences it learns from."""
    seed: int
    """The seed of its first weights and of its sequences."""
    learning_rate: float
    """The peak of its schedule."""
    settings: tuple[tuple[str, float], ...] = ()
    """Other settings that differ between the members of a sweep."""

    @property
    def label(self) -> str:
        """A name that is unique within the ensemble."""
        others = "".join(f"-{name}{value:g}" for name, value in self.settings)
        return f"{self.prior}-seed{self.seed}-lr{self.learning_rate:g}{others}"


def _setting(panel: str, help_text: str, default: Any = None) -> Any:
    """A field of a panel of `--help`; `default` may be a function of the fields before it."""
    kind = "default_factory" if callable(default) else "default"
    about: dict[str, Any] = {"panel": panel}
    return Field(description=help_text, json_schema_extra=about, **{kind: default})


def _recipe(name: str, help_text: str) -> Any:
    """A setting of the optimizer, by default that of the model's recipe."""
    return _setting(
        "Optimizer", help_text, lambda given: getattr(MODELS[given["model"]].recipe, name)
    )


def _option(name: str) -> tuple[Any, Any]:
    """The field of an option of networks: the models that have it, by default that of the model."""
    models: dict[str, list[str]] = {}
    for model in MODEL_OPTIONS:
        if name in MODEL_OPTIONS[model]:
            about = MODELS[model].options[name]
            models.setdefault(about.help, []).append(model)
    help_text = "; ".join(f"{', '.join(each)}: {text}" for text, each in models.items())
    default = _setting(
        "Model", f"{help_text}.", lambda given: MODEL_OPTIONS.get(given["model"], {}).get(name)
    )
    return about.type | None, default


_MODEL = (
    Annotated[str, one_of(*MODEL_OPTIONS, CUSTOM)],
    _setting("Model", f"The architecture: {', '.join(MODEL_OPTIONS)}.", "lstm"),
)
_FIELDS: Any = {"model": _MODEL, **{name: _option(name) for name in OPTIONS}}
_NetworkSettings: Any = create_model("_NetworkSettings", __base__=Settings, **_FIELDS)


class TrainConfig(_NetworkSettings):
    """The networks of a run, their data and their optimisation.

    Every prior, with every learning rate, with each of `seeds` seeds is a member: a network that
    minimises the log loss -ln q(x_1..x_n) / n over fresh sequences x of `length` n. A setting that
    is not given has the value of the paper or of the model's recipe (see `Network.models`); one
    that does not apply to the model or the source is None.
    `prior` and `learning_rate` take one value or a list. The description of each field is in
    `TrainConfig.model_fields`; an invalid setting is a `SettingError`, which has its name.

    >>> import switchpoint as sp
    >>> config = sp.TrainConfig(model="lstm", hidden=64, prior=["ptw", "lin"], length=64, seeds=3)
    >>> len(config.members()), config.learning_rate  # of one program; by the recipe of the model
    (6, (0.0025,))
    """

    if TYPE_CHECKING:  # a type checker does not know the options of networks
        model: str

        def __init__(self, **settings: Any) -> None: ...

    length: PositiveInt = _setting("Data", "The number of symbols in a sequence.", 256)
    prior: OneOrMore[Annotated[str, one_of(*PRIOR_NAMES)]] = _setting(
        "Data", f"The prior of segment lengths: {', '.join(PRIOR_NAMES)}.", ("ptw",)
    )
    depth: PositiveInt | None = _setting(
        "Data",
        "ptw: the depth of the tree; by default, the smallest that fits the length.",
        lambda given: (
            max(1, (given["length"] - 1).bit_length()) if "ptw" in given["prior"] else None
        ),
    )
    split: Annotated[float, Field(gt=0, lt=1)] | None = _setting(
        "Data",
        "ptw: the probability that a node splits; by default, 0.5.",
        lambda given: 0.5 if "ptw" in given["prior"] else None,
    )
    period: PositiveInt | None = _setting("Data", "regular: the length of every segment.")
    longest: PositiveInt | None = _setting(
        "Data",
        "uniform: the maximum segment length; by default, the length of the sequence.",
        lambda given: given["length"] if "uniform" in given["prior"] else None,
    )
    hazard: Annotated[float, Field(gt=0, le=1)] | None = _setting(
        "Data", "geometric: the probability that a segment ends after a symbol."
    )
    pmf: Numbers | None = _setting(
        "Data", "renewal: the probabilities of segment lengths 1, 2 and so on."
    )
    alphabet: PositiveInt = _setting("Data", "The number of symbols.", 2)
    alpha: PositiveFloat | None = _setting(
        "Data",
        "Alphabet of 2: each segment draws P(1) from Beta(alpha, beta); by default, 0.5.",
        lambda given: 0.5 if given["alphabet"] == 2 else None,
    )
    beta: PositiveFloat | None = _setting(
        "Data",
        "Alphabet of 2: see alpha; by default, 0.5.",
        lambda given: 0.5 if given["alphabet"] == 2 else None,
    )
    concentration: PositiveFloat | None = _setting(
        "Data",
        "Larger alphabets: each segment draws its probabilities from a symmetric Dirichlet "
        "distribution with this parameter; by default, 0.5.",
        lambda given: None if given["alphabet"] == 2 else 0.5,
    )

    seeds: PositiveInt = _setting(
        "Optimizer", "The number of seeds for each prior and learning rate.", 1
    )
    first_seed: Seed = _setting("Optimizer", "The first seed; the others follow.", 0)
    learning_rate: OneOrMore[PositiveFloat] = _setting(
        "Optimizer",
        "The peak learning rate, after the warm-up.",
        lambda given: (MODELS[given["model"]].recipe.learning_rate,),
    )
    steps: PositiveInt = _recipe("steps", "The number of optimizer steps.")
    batch: PositiveInt = _recipe(
        "batch", "The number of sequences in a step, which draws new ones."
    )
    schedule: Literal["cosine", "constant"] = _setting(
        "Optimizer",
        "The learning rate after the warm-up: cosine (down to 0) or constant.",
        "cosine",
    )
    # A run much shorter than the recipe's must not spend itself on warming up.
    warmup: NaturalNumber = _setting(
        "Optimizer",
        "The number of steps in which the learning rate rises from 0.",
        lambda given: min(MODELS[given["model"]].recipe.warmup, given["steps"] // 10),
    )
    clip_norm: PositiveFloat = _recipe("clip_norm", "Gradients are clipped to this global norm.")
    optimizer: Literal["adam", "muon"] = _recipe(
        "optimizer", "adam, or muon, which trains matrices by Muon and everything else by Adam."
    )
    b2: Annotated[float, Field(gt=0, lt=1)] = _recipe(
        "b2", "Adam's b2, the decay of its mean of squared gradients."
    )
    matrix_decay: Annotated[float, Field(ge=0)] = _setting(
        "Optimizer",
        "Decoupled weight decay of the matrices that Muon trains, times the learning rate.",
        lambda given: MODELS[given["model"]].recipe.matrix_decay * (given["optimizer"] == "muon"),
    )
    tbptt_length: PositiveInt | None = _setting(
        "Optimizer",
        "Truncate backpropagation after this many symbols and carry the state on; by default, "
        "never.",
    )
    min_length: PositiveInt | None = _setting(
        "Optimizer",
        "Draw the length of each step from this to the full one; by default, it is always full.",
    )

    report_every: PositiveInt = _setting("Run", "The number of steps between reports.", 500)
    validation: SampleSize = _setting(
        "Run", "The number of sequences on which the excess regret is measured.", 500
    )

    def members(self) -> tuple[Member, ...]:
        """Every prior with every learning rate with every seed, in this order."""
        combinations = (
            (prior, seed, rate)
            for prior in self.prior
            for rate in self.learning_rate
            for seed in range(self.first_seed, self.first_seed + self.seeds)
        )
        return tuple(Member(index, *each) for index, each in enumerate(combinations))

    def source(self, prior: str) -> Source:
        """The source with this one of the configuration's priors."""
        return Source(self._prior(_checks.one_of("prior", prior, self.prior)), self._segment())

    def network(self, key: PRNGKeyArray) -> Network:
        """A new network, as every member starts from one."""
        return network_from_name(self.model, self.alphabet, self.length, key, **self.options())

    def options(self) -> dict[str, Any]:
        """The network's options, by name."""
        return {name: getattr(self, name) for name in MODEL_OPTIONS.get(self.model, {})}

    def to_dict(self) -> dict[str, Any]:
        """Every field in the types that JSON has, and the format's number."""
        return {**self.model_dump(mode="json"), FORMAT: NEWEST}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainConfig":
        """The configuration that `to_dict` wrote."""
        check_format(values, "the configuration")
        return cls(**{name: value for name, value in values.items() if name != FORMAT})

    def differences(self, other: "TrainConfig") -> dict[str, tuple[Any, Any]]:
        """The fields that differ, each with the value here and the other's."""
        pairs = {
            name: (getattr(self, name), getattr(other, name)) for name in type(self).model_fields
        }
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def _prior(self, name: str) -> Prior:
        parameters = [each for each, owner in PARAMETER_OWNERS.items() if owner == name]
        return prior_from_name(
            name, self.length, **{each: getattr(self, each) for each in parameters}
        )

    def _segment(self) -> Segment:
        return make_segment(self.alphabet, self.alpha, self.beta, self.concentration)

    @model_validator(mode="after")
    def _check(self) -> "TrainConfig":
        self._check_network()
        self._check_source()
        self._check_training()
        return self

    def _check_network(self) -> None:
        options = {name: getattr(self, name) for name in OPTIONS}
        foreign = [name for name in OPTIONS if name not in MODEL_OPTIONS.get(self.model, {})]
        with self._blaming(*foreign, "stack_depth", "width", "heads", otherwise="model"):
            check_options(self.model, self.length, options)

    def _check_source(self) -> None:
        for name, owner in PARAMETER_OWNERS.items():
            value = getattr(self, name)
            if value is not None and owner not in self.prior:
                names = " and ".join(map(repr, self.prior))
                raise SettingError(
                    name, f"{name} is a parameter of prior {owner!r}, got {value} for {names}"
                )
        for prior in self.prior:
            parameters = [name for name, owner in PARAMETER_OWNERS.items() if owner == prior]
            with self._blaming(*parameters, "length", otherwise="prior"):
                self._prior(prior)
        with self._blaming(*SEGMENT, otherwise="alphabet"):
            self._segment()

    def _check_training(self) -> None:
        seeds, rest = self.first_seed + self.seeds, self.length % (self.tbptt_length or 1)
        for name, holds, requirement in (
            ("seeds", seeds <= 2**32, "must end below 2^32"),
            ("warmup", self.warmup < self.steps, f"must be below the {self.steps} steps"),
            (
                "matrix_decay",
                not self.matrix_decay or self.optimizer == "muon",
                "is for optimizer 'muon'",
            ),
            ("tbptt_length", rest == 0, f"must divide the length {self.length}"),
            ("min_length", (self.min_length or 1) <= self.length, f"must be at most {self.length}"),
        ):
            if not holds:
                raise SettingError(name, f"{name} {requirement}, got {getattr(self, name)}")

    @contextmanager
    def _blaming(self, *names: str, otherwise: str) -> Iterator[None]:
        """Let an error be that of the first of these fields that was given."""
        try:
            yield
        except ValueError as error:
            name = next((name for name in names if name in self.model_fields_set), otherwise)
            raise SettingError(name, str(error)) from error


def read_toml(path: Path | str, **overrides: Any) -> TrainConfig:
    """The configuration in a TOML file of settings; `overrides` win over the file.

    A `ValueError` names the file, and the line of the setting that is wrong.
    """
    with toml_settings(path, overrides) as settings:
        return TrainConfig(**{**settings, **overrides})
