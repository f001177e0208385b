"""The configuration of a training run, valid and complete from the moment it exists."""

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from jaxtyping import PRNGKeyArray

from switchpoint import _checks
from switchpoint.neural.network import Network
from switchpoint.neural.registry import MODEL_OPTIONS, check_options, network_from_name
from switchpoint.priors import ATTRIBUTES, PARAMETER_OWNERS, PRIOR_NAMES, Prior, prior_from_name
from switchpoint.segments import Segment, make_segment
from switchpoint.sources import Source
from switchpoint.training.fields import (
    MEASUREMENT,
    MEMBERS,
    NETWORK,
    OPTIMISATION,
    SOURCE,
    about,
    law,
    network_option,
    one_of,
    sample_size,
    seed_number,
    several,
    text,
)
from switchpoint.training.members import Member
from switchpoint.training.recipes import RECIPES

FROM_RECIPE: Any = None
"""The default of a field that the model's recipe fills."""

_LATER = {"width": 64, "heads": 8}  # fields that came later, and what networks had before


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Which networks are trained on what, and how.

    A `ValueError` names what is wrong. What is left out has the paper's value or that of the
    model's recipe (`switchpoint.training.recipes`), and can be read here afterwards; only
    what the model or the source does not take stays None. `prior` and `learning_rate` may be
    given as one value or a list. The help text of every field is in its metadata.
    """

    given: ClassVar[Mapping[str, Any]] = {}
    """The settings that it was made with; of each object its own, and no part of what it is."""

    model: str = field(
        default="lstm",
        metadata=about(NETWORK, text, f"The architecture: {', '.join(MODEL_OPTIONS)}."),
    )
    hidden: int | None = field(
        default=None,
        metadata=network_option("rnn, lstm, stack-rnn, stack-lstm: units of the cell."),
    )
    readout: int | None = field(
        default=None,
        metadata=network_option(
            "rnn, lstm, stack-rnn, stack-lstm: dense layers of 128 after the cell."
        ),
    )
    stack_depth: int | None = field(
        default=None, metadata=network_option("stack-rnn, stack-lstm: entries of the stack.")
    )
    stack_width: int | None = field(
        default=None, metadata=network_option("stack-rnn, stack-lstm: numbers in an entry.")
    )
    layers: int | None = field(
        default=None, metadata=network_option("transformer: how many layers.")
    )
    positions: str | None = field(
        default=None,
        metadata=network_option("transformer: how it tells places apart: sincos, alibi, relative."),
    )
    context: int | None = field(
        default=None,
        metadata=network_option(
            "transformer: how many of the last tokens it sees; all if not given."
        ),
    )
    width: int | None = field(
        default=None,
        metadata=network_option("transformer: numbers in a token, which the heads divide."),
    )
    heads: int | None = field(
        default=None, metadata=network_option("transformer: heads of attention in a layer.")
    )
    order: int | None = field(
        default=None, metadata=network_option("markov: how many of the last symbols it sees.")
    )

    prior: tuple[str, ...] = field(
        default=("ptw",),
        metadata=about(
            SOURCE,
            several(one_of(*PRIOR_NAMES)),
            f"The law of segment lengths: {', '.join(PRIOR_NAMES)}.",
        ),
    )
    depth: int | None = field(
        default=None,
        metadata=about(
            SOURCE,
            _checks.positive_int,
            "ptw: the depth of its tree; the smallest that fits the length if not given.",
        ),
    )
    split: float | None = field(
        default=None,
        metadata=about(
            SOURCE,
            _checks.positive_float,
            "ptw: the probability that a node splits; 0.5 if not given.",
        ),
    )
    period: int | None = field(
        default=None,
        metadata=about(SOURCE, _checks.positive_int, "regular: the length of every segment."),
    )
    longest: int | None = field(
        default=None,
        metadata=about(
            SOURCE,
            _checks.positive_int,
            "uniform: the longest segment; the length of the sequence if not given.",
        ),
    )
    hazard: float | None = field(
        default=None,
        metadata=about(
            SOURCE,
            _checks.positive_float,
            "geometric: the probability that a segment ends after a symbol.",
        ),
    )
    pmf: tuple[float, ...] | None = field(
        default=None,
        metadata=about(SOURCE, law, "renewal: the numbers P(L=1), P(L=2), and so on."),
    )
    alphabet: int = field(
        default=2, metadata=about(SOURCE, _checks.positive_int, "How many symbols there are.")
    )
    alpha: float | None = field(
        default=None,
        metadata=about(
            SOURCE,
            _checks.positive_float,
            "Alphabet of 2: P(1) of a segment is from Beta(alpha, beta); 0.5 if not given.",
        ),
    )
    beta: float | None = field(
        default=None,
        metadata=about(
            SOURCE, _checks.positive_float, "Alphabet of 2: see alpha; 0.5 if not given."
        ),
    )
    concentration: float | None = field(
        default=None,
        metadata=about(
            SOURCE,
            _checks.positive_float,
            "Larger alphabets: a segment's distribution is from a symmetric Dirichlet law with "
            "this parameter; 0.5 if not given.",
        ),
    )
    length: int = field(
        default=256,
        metadata=about(SOURCE, _checks.positive_int, "Symbols in a sequence."),
    )

    seeds: int = field(
        default=1,
        metadata=about(
            MEMBERS, _checks.positive_int, "How many seeds, for each prior and learning rate."
        ),
    )
    first_seed: int = field(
        default=0, metadata=about(MEMBERS, seed_number, "The first seed; the others follow it.")
    )
    learning_rate: tuple[float, ...] = field(
        default=FROM_RECIPE,
        metadata=about(MEMBERS, several(_checks.positive_float), "The rate after the warm-up."),
    )

    steps: int = field(
        default=FROM_RECIPE,
        metadata=about(OPTIMISATION, _checks.positive_int, "Optimiser steps."),
    )
    batch: int = field(
        default=FROM_RECIPE,
        metadata=about(OPTIMISATION, _checks.positive_int, "Fresh sequences in a step."),
    )
    schedule: str = field(
        default="cosine",
        metadata=about(
            OPTIMISATION,
            one_of("cosine", "constant"),
            "The learning rate after the warm-up: cosine (down to 0) or constant.",
        ),
    )
    warmup: int = field(
        default=FROM_RECIPE,
        metadata=about(
            OPTIMISATION,
            _checks.whole_number,
            "Steps in which the learning rate rises from 0.",
        ),
    )
    clip: float = field(
        default=FROM_RECIPE,
        metadata=about(
            OPTIMISATION, _checks.positive_float, "Gradients are clipped to this global norm."
        ),
    )
    optimiser: str = field(
        default=FROM_RECIPE,
        metadata=about(
            OPTIMISATION,
            one_of("adam", "muon"),
            "adam, or muon: matrices by Muon, all else by Adam.",
        ),
    )
    b2: float = field(
        default=FROM_RECIPE,
        metadata=about(
            OPTIMISATION,
            partial(_checks.probability, below_one=True),
            "Adam's b2, the decay of its mean of squared gradients.",
        ),
    )
    chunk: int | None = field(
        default=None,
        metadata=about(
            OPTIMISATION,
            _checks.positive_int,
            "Cut gradients after so many symbols, and carry the state on; never if not given.",
        ),
    )
    shortest: int | None = field(
        default=None,
        metadata=about(
            OPTIMISATION,
            _checks.positive_int,
            "Draw each step's length from this up to the full one; always full if not given.",
        ),
    )

    report_every: int = field(
        default=500,
        metadata=about(MEASUREMENT, _checks.positive_int, "Steps between reports."),
    )
    validation: int = field(
        default=500,
        metadata=about(
            MEASUREMENT, sample_size, "Sequences that the excess regret is measured on."
        ),
    )

    if not TYPE_CHECKING:  # to a type checker, the usual one, with all fields and their types

        def __init__(self, **settings: Any) -> None:
            for name in settings:
                check_field_name(name)
            for each in fields(self):
                value = settings.get(each.name, each.default)
                if value is not None or each.default is not None:
                    value = each.metadata["check"](each.name, value)
                self._set(**{each.name: value})
            self._set(given=dict(settings))
            self._complete()

    def members(self) -> tuple[Member, ...]:
        """Every prior with every learning rate with every seed, in this order."""
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        combinations = (
            (prior, seed, rate)
            for prior in self.prior
            for rate in self.learning_rate
            for seed in seeds
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
        """Every field, in the types that JSON has.

        A field that earlier versions did not have is there only if it differs from what they
        did, so that their files still say the same as this.
        """
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if name not in _LATER or value not in (None, _LATER[name])
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainConfig":
        """The configuration with these fields; the inverse of `to_dict`."""
        return cls(**values)

    def differences(self, other: "TrainConfig") -> dict[str, tuple[Any, Any]]:
        """The fields that differ, each with the value here and the other's."""
        pairs = {
            each.name: (getattr(self, each.name), getattr(other, each.name))
            for each in fields(self)
        }
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def _complete(self) -> None:
        self._set(**check_options(self.model, self.length, self._given_options()))
        self._check_parameters()
        for name in self.prior:
            self._set(**_parameters_of(name, self._prior(name)))
        self._set(**_parameters_of_segment(self._segment()))
        self._follow_recipe()
        self._check_relations()

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)  # the way into a frozen dataclass

    def _given_options(self) -> dict[str, Any]:
        every = dict.fromkeys(name for options in MODEL_OPTIONS.values() for name in options)
        return {name: getattr(self, name) for name in every}

    def _check_parameters(self) -> None:
        for parameter, owner in PARAMETER_OWNERS.items():
            value = getattr(self, parameter)
            if value is not None and owner not in self.prior:
                raise ValueError(
                    f"{parameter} is a parameter of prior {owner!r}, got {value} for "
                    f"{' and '.join(map(repr, self.prior))}"
                )

    def _prior(self, name: str) -> Prior:
        own = [parameter for parameter, owner in PARAMETER_OWNERS.items() if owner == name]
        return prior_from_name(name, self.length, **{each: getattr(self, each) for each in own})

    def _segment(self) -> Segment:
        return make_segment(self.alphabet, self.alpha, self.beta, self.concentration)

    def _follow_recipe(self) -> None:
        recipe = asdict(RECIPES[self.model])
        steps = recipe["steps"] if self.steps is FROM_RECIPE else self.steps
        # A run much shorter than the recipe's must not spend itself on warming up.
        recipe["warmup"] = min(recipe["warmup"], steps // 10)
        recipe["learning_rate"] = (recipe["learning_rate"],)
        for name, value in recipe.items():
            if getattr(self, name) is FROM_RECIPE:
                self._set(**{name: value})

    def _check_relations(self) -> None:
        _checks.seed(self.first_seed + self.seeds - 1)
        if self.warmup >= self.steps:
            raise ValueError(
                f"warmup must be less than the {self.steps} steps of the run, got {self.warmup}"
            )
        if self.chunk is not None and self.length % self.chunk:
            raise ValueError(f"chunk must divide the length {self.length}, got {self.chunk}")
        if self.shortest is not None and self.shortest > self.length:
            raise ValueError(
                f"shortest must be at most the length {self.length}, got {self.shortest}"
            )


def check_field_name(name: str) -> None:
    """Raise a `ValueError` with the nearest valid name where `TrainConfig` has no such field."""
    known = [each.name for each in fields(TrainConfig)]
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"the fields are {', '.join(known)}"
    raise ValueError(f"unknown field {name!r}; {advice}")


def _parameters_of(name: str, prior: Prior) -> dict[str, Any]:
    """The parameters of a prior; a pmf stays as it was given, before it was normalised."""
    return {
        parameter: getattr(prior, ATTRIBUTES.get(parameter, parameter))
        for parameter, owner in PARAMETER_OWNERS.items()
        if owner == name and parameter != "pmf"
    }


def _parameters_of_segment(segment: Segment) -> dict[str, float]:
    names = ("alpha", "beta") if segment.alphabet == 2 else ("concentration",)
    return {name: getattr(segment, name) for name in names}
