"""A configuration with a source or a network of the user."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from pydantic import Field

from switchpoint._random import key_for
from switchpoint._settings import OneOrMore
from switchpoint.neural import Network, network_from_name
from switchpoint.neural.density import ValueSpec
from switchpoint.neural.networks.baselines import Memoryless
from switchpoint.neural.registry import CUSTOM, describe_network
from switchpoint.neural.storage import class_name, named_leaves, network_shapes
from switchpoint.priors import PARAMETER_OWNERS
from switchpoint.segments.distributions import Joint
from switchpoint.sources import AbstractSource
from switchpoint.training.config import OPTIONS, SEGMENT, TrainConfig
from switchpoint.training.optimizer import has_matrices

MakeNetwork = Callable[[PRNGKeyArray], Network]

_SCALE_SEQUENCES = 256  # from which the scale of values is estimated
_OF_SOURCES = ("prior", "alphabet", *SEGMENT, *PARAMETER_OWNERS)
_OF_NETWORKS = ("model", *OPTIONS)
_DESCRIBED = ("sources", "values", "network", "leaves", "start")


class CustomConfig(TrainConfig):
    """A configuration in which a user's source, or network, or both replace the named ones.

    The fields of a replaced source are None, and `prior` has the names of the sources. A network
    of a class in switchpoint has its model, options and recipe; any other is the model `custom`,
    with the recipe of that.
    """

    prior: OneOrMore[str]
    alphabet: int | None = None  # type: ignore[assignment]
    alpha: float | None = None
    beta: float | None = None
    concentration: float | None = None
    sources: Any = Field(None, exclude=True)
    """The sources by name, if they replace that of the settings."""
    start: Any = Field(None, exclude=True)
    """The network that all members start from, or a function that makes one."""
    values: Any = Field(None, exclude=True)
    """The scale of real values, for a named network on a source of them."""
    description: Any = Field(None, exclude=True)
    """The replaced parts, as files describe them."""

    def source(self, prior: str) -> Any:
        return super().source(prior) if self.sources is None else self.sources[prior]

    def network(self, key: PRNGKeyArray) -> Network:
        if self.start is not None:
            return self.start if isinstance(self.start, Network) else self.start(key)
        return network_from_name(
            self.model, self.alphabet, self.length, key, self.values, **self.options()
        )

    def to_dict(self) -> dict[str, Any]:
        """Every field, and a description of the user's source and network."""
        return {**super().to_dict(), **self.description}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """The configuration that `to_dict` wrote, whose source and network are descriptions."""
        described = {name: values[name] for name in _DESCRIBED if name in values}
        given = {name: each for name, each in values.items() if name not in described}
        replaced = {"sources": described.get("sources"), "description": described}
        return super().from_dict({**given, **replaced})

    def _check_source(self) -> None:
        if self.sources is None:
            super()._check_source()


def custom_config(
    config: TrainConfig,
    source: AbstractSource | Mapping[str, AbstractSource] | None,
    network: MakeNetwork | Network | None,
    values: ValueSpec | None = None,
) -> CustomConfig:
    """`config` with these in place of its source and its network.

    The scale of real values is estimated from the sources, unless `values` has it.
    """
    sources = None if source is None else _named_sources(source, config.length)
    replaced = {*(_OF_SOURCES if sources else ()), *(_OF_NETWORKS if network else ())}
    settings = {name: value for name, value in config.given.items() if name not in replaced}
    description: dict[str, Any] = {}
    if sources is None:
        settings |= {name: getattr(config, name) for name in ("prior", "alphabet", *SEGMENT)}
    else:
        (alphabet,) = {_alphabet(each) for each in sources.values()}
        settings |= {"prior": tuple(sources), "alphabet": alphabet}
        description["sources"] = {label: _identity(each) for label, each in sources.items()}
        if alphabet is None and network is None:
            values = values or _value_spec(sources, config.length)
            pairs = values._asdict().items()  # as JSON has them
            description["values"] = {n: list(v) if isinstance(v, tuple) else v for n, v in pairs}
    if network is not None:
        shapes = network_shapes(network)
        card = describe_network(shapes) or {"model": CUSTOM, "options": {}}
        settings |= {"model": card["model"], **card["options"]}
        if "values" in card:
            description["values"] = card["values"]
        leaves = {path: _shape(leaf) for path, leaf in named_leaves(shapes).items()}
        description |= {"network": class_name(shapes), "leaves": leaves}
        if isinstance(network, Network):
            description["start"] = _digest(network)
    custom = CustomConfig(
        **settings, sources=sources, start=network, values=values, description=description
    )
    if network is not None:
        _check_trainable(shapes, custom)
    return custom


def _named_sources(given: Any, length: int) -> dict[str, AbstractSource]:
    """The sources by their labels."""
    sources = dict(given) if isinstance(given, Mapping) else {CUSTOM: given}
    for label, source in sources.items():
        if not isinstance(label, str) or not isinstance(source, AbstractSource):
            raise ValueError(
                "source must be a switchpoint.Source(prior, segment), or a dictionary of them by "
                f"name, got {f'{label!r}: ' if source is not given else ''}{source!r}"
            )
        source.check_length(length)
    for common, values in (
        ("alphabet", {label: _alphabet(each) for label, each in sources.items()}),
        ("shape of values", {label: s.segment.event_shape for label, s in sources.items()}),
    ):
        if len(set(values.values())) != 1:
            raise ValueError(f"source must hold sources of one {common}, got {values}")
    return sources


def _alphabet(source: AbstractSource) -> int | None:
    return source.segment.alphabet if source.segment.finite else None


def _value_spec(sources: Mapping[str, AbstractSource], length: int) -> ValueSpec:
    """The location and the scale of the values of some sources."""
    samples = []
    for label, source in sources.items():
        next_one = source.segment.predictive(source.segment.initial())
        columns = next_one.marginals if isinstance(next_one, Joint) else [next_one]
        if any(column.support.whole for column in columns):
            raise ValueError(
                "networks predict densities of real values, and those of source "
                f"{label!r}, {source.segment!r}, are whole numbers"
            )
        drawn = source.sample(key_for(0, "scale"), _SCALE_SEQUENCES, length).values
        samples.append(np.asarray(drawn, np.float64).reshape(-1, len(columns)))
    low, middle, high = np.quantile(np.concatenate(samples), [0.25, 0.5, 0.75], axis=0)
    # Rounded, so that every machine has the same: the last digits of a draw may differ.
    location, scale = (
        tuple(float(f"{each:.3g}") for each in part) for part in (middle, (high - low) / 1.35)
    )
    return ValueSpec(location, scale, scalar=not source.segment.event_shape)


def _identity(source: AbstractSource) -> str:
    """The source in words, which must be the same for a run to be continued.

    Arrays are shown by their shapes alone, so a digest of their values is added.
    """
    text = " ".join(repr(source).split())
    arrays = [leaf for leaf in jax.tree.leaves(source) if isinstance(leaf, jax.Array | np.ndarray)]
    return f"{text}, arrays {_digest(arrays)}" if arrays else text


def _digest(tree: Any) -> str:
    """A short digest of the values of all arrays in a tree."""
    values = b"".join(np.asarray(array).tobytes() for array in jax.tree.leaves(tree))
    return hashlib.sha256(values).hexdigest()[:12]


def _check_trainable(shapes: Network, config: TrainConfig) -> None:
    """Raise a `ValueError` if a user's network is not fit for training."""
    name = class_name(shapes)
    if shapes.alphabet != config.alphabet:
        raise ValueError(
            f"network must have the alphabet of the source, {config.alphabet}, "
            f"got {name} with {shapes.alphabet}"
        )
    if isinstance(shapes, Memoryless) and shapes.length != config.length:
        raise ValueError(
            f"length must be {shapes.length}, that of the memoryless network, got {config.length}"
        )
    for path, leaf in named_leaves(shapes).items():
        if not jnp.issubdtype(getattr(leaf, "dtype", bool), jnp.floating):
            raise ValueError(
                f"every leaf of network must be an array of floating point numbers, got {leaf!r} "
                f"as {path} of {name}; declare what is not trained with eqx.field(static=True)"
            )
    if config.model == CUSTOM and config.optimizer == "muon" and not has_matrices(shapes):
        raise ValueError(
            f"optimizer 'muon' is for weight matrices that a network declares, and {name} has none "
            "of at least 16 x 16: name its matrices in muon_matrices, or take 'adam'"
        )


def _shape(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "dtype") else repr(leaf)
