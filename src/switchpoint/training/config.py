"""The configuration of a training run, valid and complete from the moment it exists."""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from jaxtyping import PRNGKeyArray

from switchpoint import _checks
from switchpoint._formats import FORMAT, rename, upgrade
from switchpoint._text import name_of, read_text
from switchpoint.neural.network import Network
from switchpoint.neural.registry import MODEL_OPTIONS, check_options, network_from_name
from switchpoint.priors import ATTRIBUTES, PARAMETER_OWNERS, PRIOR_NAMES, Prior, prior_from_name
from switchpoint.segments import Segment, make_segment
from switchpoint.sources import Source
from switchpoint.training.fields import (
    DATA,
    MODEL,
    OPTIMIZER,
    RUN,
    list_of,
    non_negative,
    one_of,
    optional,
    sample_size,
    seed_number,
    setting,
    text,
)
from switchpoint.training.recipes import RECIPES

FROM_RECIPE: Any = object()
"""The default of a field that the model's recipe fills."""

RENAMED = {
    "clip": "clip_norm",
    "optimiser": "optimizer",
    "chunk": "tbptt_length",
    "shortest": "min_length",
}
"""The names that fields have now, by their former names, which are read everywhere."""

_positive_int, _positive_float = _checks.positive_int, _checks.positive_float
_every_option = dict.fromkeys(name for options in MODEL_OPTIONS.values() for name in options)


@dataclass(frozen=True)
class Member:
    """A network of the ensemble, by what sets it apart from the others."""

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


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Which networks are trained on what, and how.

    A `ValueError` names what is wrong. A setting that is left out has the paper's value or that
    of the model's recipe (`switchpoint.training.recipes`), and can be read here afterwards; one
    that does not apply to the model or the source is None. `prior` and `learning_rate` take one
    value or a list. The help text of every field is in its metadata.
    """

    given: ClassVar[Mapping[str, Any]] = {}
    """The settings that an object was made with; set on each object, and not compared."""

    model: str = setting(MODEL, text, f"The architecture: {', '.join(MODEL_OPTIONS)}.", "lstm")
    hidden: int | None = optional(MODEL, "rnn, lstm, stack-rnn, stack-lstm: units of the cell.")
    readout: int | None = optional(
        MODEL, "rnn, lstm, stack-rnn, stack-lstm: dense layers of 128 after the cell."
    )
    stack_depth: int | None = optional(MODEL, "stack-rnn, stack-lstm: entries of the stack.")
    stack_width: int | None = optional(MODEL, "stack-rnn, stack-lstm: numbers in an entry.")
    layers: int | None = optional(MODEL, "transformer: how many layers.")
    positions: str | None = optional(
        MODEL, "transformer: the encoding of positions: sincos, alibi, relative."
    )
    context: int | None = optional(
        MODEL, "transformer: how many of the last tokens it sees; all if not given."
    )
    width: int | None = optional(MODEL, "transformer: numbers in a token, divided by the heads.")
    heads: int | None = optional(MODEL, "transformer: heads of attention in a layer.")
    order: int | None = optional(MODEL, "markov: how many of the last symbols it sees.")

    prior: tuple[str, ...] = setting(
        DATA,
        list_of(one_of(*PRIOR_NAMES)),
        f"The prior of segment lengths: {', '.join(PRIOR_NAMES)}.",
        ("ptw",),
    )
    depth: int | None = optional(
        DATA,
        "ptw: the depth of its tree; the smallest that fits the length if not given.",
        _positive_int,
    )
    split: float | None = optional(
        DATA, "ptw: the probability that a node splits; 0.5 if not given.", _positive_float
    )
    period: int | None = optional(DATA, "regular: the length of every segment.", _positive_int)
    longest: int | None = optional(
        DATA,
        "uniform: the longest segment; the length of the sequence if not given.",
        _positive_int,
    )
    hazard: float | None = optional(
        DATA, "geometric: the probability that a segment ends after a symbol.", _positive_float
    )
    pmf: tuple[float, ...] | None = optional(
        DATA, "renewal: the numbers P(L=1), P(L=2), and so on."
    )
    alphabet: int = setting(DATA, _positive_int, "How many symbols there are.", 2)
    alpha: float | None = optional(
        DATA,
        "Alphabet of 2: P(1) of a segment is from Beta(alpha, beta); 0.5 if not given.",
        _positive_float,
    )
    beta: float | None = optional(
        DATA, "Alphabet of 2: see alpha; 0.5 if not given.", _positive_float
    )
    concentration: float | None = optional(
        DATA,
        "Larger alphabets: a segment's distribution is from a symmetric Dirichlet with this "
        "parameter; 0.5 if not given.",
        _positive_float,
    )
    length: int = setting(DATA, _positive_int, "Symbols in a sequence.", 256)

    seeds: int = setting(
        OPTIMIZER, _positive_int, "How many seeds, for each prior and learning rate.", 1
    )
    first_seed: int = setting(OPTIMIZER, seed_number, "The first seed; the others follow it.", 0)
    learning_rate: tuple[float, ...] = setting(
        OPTIMIZER,
        list_of(_positive_float),
        "The peak learning rate, after the warm-up.",
        FROM_RECIPE,
    )
    steps: int = setting(OPTIMIZER, _positive_int, "Optimizer steps.", FROM_RECIPE)
    batch: int = setting(OPTIMIZER, _positive_int, "Fresh sequences in a step.", FROM_RECIPE)
    schedule: str = setting(
        OPTIMIZER,
        one_of("cosine", "constant"),
        "The learning rate after the warm-up: cosine (down to 0) or constant.",
        "cosine",
    )
    warmup: int = setting(
        OPTIMIZER,
        _checks.whole_number,
        "Steps in which the learning rate rises from 0.",
        FROM_RECIPE,
    )
    clip_norm: float = setting(
        OPTIMIZER, _positive_float, "Gradients are clipped to this global norm.", FROM_RECIPE
    )
    optimizer: str = setting(
        OPTIMIZER,
        one_of("adam", "muon"),
        "adam, or muon: matrices by Muon, all else by Adam.",
        FROM_RECIPE,
    )
    b2: float = setting(
        OPTIMIZER,
        partial(_checks.probability, below_one=True),
        "Adam's b2, the decay of its mean of squared gradients.",
        FROM_RECIPE,
    )
    matrix_decay: float = setting(
        OPTIMIZER,
        non_negative,
        "Decoupled weight decay of the matrices that Muon trains, times the learning rate.",
        FROM_RECIPE,
    )
    tbptt_length: int | None = optional(
        OPTIMIZER,
        "Truncate backpropagation after so many symbols, and carry the state on; never if not "
        "given.",
        _positive_int,
    )
    min_length: int | None = optional(
        OPTIMIZER,
        "Draw each step's length from this up to the full one; always full if not given.",
        _positive_int,
    )

    report_every: int = setting(RUN, _positive_int, "Steps between reports.", 500)
    validation: int = setting(
        RUN, sample_size, "Sequences that the excess regret is measured on.", 500
    )

    if not TYPE_CHECKING:  # to a type checker, the usual one, with all fields and their types

        def __init__(self, **settings: Any) -> None:
            settings = rename(settings, RENAMED)
            for name in settings:
                check_field_name(name)
            for each in fields(self):
                value = settings.get(each.name, each.default)
                if value is not FROM_RECIPE:
                    value = each.metadata["check"](each.name, value)
                self._set(**{each.name: value})
            self._set(given=settings)
            self._complete()

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
        if prior not in self.prior:
            raise ValueError(f"prior must be one of {', '.join(self.prior)}, got {prior!r}")
        return Source(self._prior(prior), self._segment())

    def network(self, key: PRNGKeyArray) -> Network:
        """A new network, as every member starts from one."""
        return network_from_name(self.model, self.alphabet, self.length, key, **self.options())

    def options(self) -> dict[str, Any]:
        """The network's options, by name."""
        return {name: getattr(self, name) for name in MODEL_OPTIONS.get(self.model, {})}

    def to_dict(self) -> dict[str, Any]:
        """Every field in the types that JSON has, and the format's number."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        lists = {name: list(value) for name, value in values.items() if isinstance(value, tuple)}
        return {**values, **lists, FORMAT: len(_STEPS)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainConfig":
        """The configuration that `to_dict` wrote, in this version or an earlier one."""
        settings = upgrade_config(values)
        del settings[FORMAT]
        return cls(**settings)

    def differences(self, other: "TrainConfig") -> dict[str, tuple[Any, Any]]:
        """The fields that differ, each with the value here and the other's."""
        names = [each.name for each in fields(self)]
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)  # the dataclass is frozen

    def _complete(self) -> None:
        """Fill in what is unset, and check what depends on several fields."""
        given = {name: getattr(self, name) for name in _every_option}
        self._set(**check_options(self.model, self.length, given))
        for name, owner in PARAMETER_OWNERS.items():
            value = getattr(self, name)
            if value is not None and owner not in self.prior:
                raise ValueError(
                    f"{name} is a parameter of prior {owner!r}, got {value} for "
                    f"{' and '.join(map(repr, self.prior))}"
                )
        for prior in self.prior:
            made = self._prior(prior)
            own = [name for name, owner in PARAMETER_OWNERS.items() if owner == prior]
            parameters = {name: ATTRIBUTES.get(name, name) for name in own if name != "pmf"}
            self._set(**{name: getattr(made, each) for name, each in parameters.items()})
        if self.pmf is not None:  # stays as it was given, before it was normalised
            self._set(pmf=tuple(float(number) for number in self.pmf))
        segment = self._segment()
        names = ("alpha", "beta") if segment.alphabet == 2 else ("concentration",)
        self._set(**{name: getattr(segment, name) for name in names})
        self._follow_recipe()
        self._check_relations()

    def _prior(self, name: str) -> Prior:
        own = [each for each, owner in PARAMETER_OWNERS.items() if owner == name]
        return prior_from_name(name, self.length, **{each: getattr(self, each) for each in own})

    def _segment(self) -> Segment:
        return make_segment(self.alphabet, self.alpha, self.beta, self.concentration)

    def _follow_recipe(self) -> None:
        recipe = asdict(RECIPES[self.model])
        steps = recipe["steps"] if self.steps is FROM_RECIPE else self.steps
        # A run much shorter than the recipe's must not spend itself on warming up.
        recipe["warmup"] = min(recipe["warmup"], steps // 10)
        recipe["learning_rate"] = (recipe["learning_rate"],)
        if self.optimizer == "adam":
            recipe["matrix_decay"] = 0.0
        for name, value in recipe.items():
            if getattr(self, name) is FROM_RECIPE:
                self._set(**{name: value})

    def _check_relations(self) -> None:
        _checks.seed(self.first_seed + self.seeds - 1)
        if self.warmup >= self.steps:
            raise ValueError(
                f"warmup must be less than the {self.steps} steps of the run, got {self.warmup}"
            )
        if self.matrix_decay and self.optimizer != "muon":
            raise ValueError(
                f"matrix_decay is for optimizer 'muon', got {self.matrix_decay} for "
                f"{self.optimizer!r}"
            )
        if self.tbptt_length is not None and self.length % self.tbptt_length:
            raise ValueError(
                f"tbptt_length must divide the length {self.length}, got {self.tbptt_length}"
            )
        if self.min_length is not None and self.min_length > self.length:
            raise ValueError(
                f"min_length must be at most the length {self.length}, got {self.min_length}"
            )


def upgrade_config(values: Mapping[str, Any]) -> dict[str, Any]:
    """What `to_dict` of this version or an earlier one wrote, as this version writes it."""
    return upgrade(values, "the configuration", _STEPS)


def _from_format_0(values: dict[str, Any]) -> dict[str, Any]:
    """Former names; and what runs had before there were fields for it."""
    of_transformer = values.get("model") == "transformer"
    before = {"width": 64, "heads": 8} if of_transformer else {"width": None, "heads": None}
    return {"matrix_decay": 0.0, **before, **rename(values, RENAMED)}


_STEPS = (_from_format_0,)


def check_field_name(name: str) -> None:
    """Raise a `ValueError` with the nearest valid name where `TrainConfig` has no such field."""
    known = [each.name for each in fields(TrainConfig)]
    if name in known or name in RENAMED:
        return
    near = difflib.get_close_matches(name, known, n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"the fields are {', '.join(known)}"
    raise ValueError(f"unknown field {name!r}; {advice}")


def read_toml(path: Path | str, **overrides: Any) -> TrainConfig:
    """The configuration in a TOML file of settings; `overrides` win over the file.

    A `ValueError` names the file, and the line of the setting that is wrong.
    """
    content = read_text(Path(path))
    try:
        values = tomllib.loads(content)
    except RecursionError as error:
        raise ValueError(f"{name_of(path)} is nested too deeply to be read") from error
    except ValueError as error:
        raise ValueError(f"{name_of(path)} is not TOML: {error}") from error
    for name, value in values.items():
        try:
            if isinstance(value, dict):
                raise ValueError(f"table {name!r} is not allowed: settings stand outside of tables")
            check_field_name(name)
        except ValueError as error:
            raise ValueError(f"{place_of(path, content, name)}: {error}") from error
    written = {RENAMED.get(name, name): name for name in values}
    overrides = rename(overrides, RENAMED)
    try:
        return TrainConfig(**{**rename(values, RENAMED), **overrides})
    except ValueError as error:
        # The message begins with the name of the setting, which tells where its value came from.
        name = str(error).split(" ", 1)[0]
        if name in written and name not in overrides:
            raise ValueError(f"{place_of(path, content, written[name])}: {error}") from error
        raise


def place_of(path: Path | str, content: str, name: str) -> str:
    """The file, and the line on which it sets `name` or opens a table of that name."""
    begins = re.compile(rf"\s*\[*\s*[\"']?{re.escape(name)}\b")
    for number, line in enumerate(content.splitlines(), start=1):
        if begins.match(line):
            return f"{name_of(path)}, line {number}"
    return name_of(path)
