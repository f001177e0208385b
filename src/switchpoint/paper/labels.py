"""Predictors and sources as people read them, the same in every figure and text."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import xarray as xr

from switchpoint._numbers import bits

Labelled = TypeVar("Labelled", xr.Dataset, xr.DataArray)

NAMES: Mapping[str, str] = {
    "rnn": "RNN",
    "lstm": "LSTM",
    "stack-rnn": "Stack-RNN",
    "stack-lstm": "Stack-LSTM",
    "gru": "GRU",
    "lru": "LRU",
    "mamba": "Mamba",
    "transformer": "Transformer",
    "kt": "KT",
    "oracle": "KT Oracle",
    "ptw": "PTW",
    "lin": "LIN",
    "regular": "Regular",
    "uniform": "Random Uniform",
    "optimum": "exact optimum",
}

_DEPTH = re.compile(r"(?<=PTW)_\d+")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉", "_")


def names(coordinate: xr.DataArray) -> list[str]:
    """The labels of a coordinate as strings."""
    return [str(name) for name in coordinate.values]


def slices(values: Labelled, dimension: str) -> Iterator[tuple[str, Labelled]]:
    """Each label of a dimension, and the values there."""
    for name, label in zip(names(values[dimension]), values[dimension].values, strict=True):
        yield name, values.sel({dimension: label})


def display_name(predictor: str) -> str:
    """The name of a predictor."""
    return NAMES.get(predictor, predictor)


def source_label(dataset: xr.Dataset, source: str) -> str:
    """The name of a source with its parameters at the scale of a result, such as PTW₈."""
    return with_subscripts(str(dataset.attrs["labels"].get(source, display_name(source))))


def with_subscripts(text: str) -> str:
    """The depth of PTW as a subscript: PTW_8 becomes PTW₈."""
    return _DEPTH.sub(lambda match: match.group().translate(_SUBSCRIPTS), text)


def described(
    values: Labelled,
    dimension: str,
    text: Callable[[Labelled], str],
    name: Callable[[str], str] = display_name,
) -> list[str]:
    """A text about the values at each label of a dimension, after the name of the label."""
    return [f"{name(label)} {text(one)}" for label, one in slices(values, dimension)]


def listed(values: xr.DataArray, text: Callable[[float], str] = bits) -> list[str]:
    """The values of networks or predictors as texts, each after its name."""
    (dimension,) = values.dims
    return described(values, str(dimension), lambda value: text(float(value)))


def value_range(values: xr.DataArray) -> str:
    """The lowest and the highest value over architectures, with their names."""
    finite = values.dropna("architecture")
    ends = finite.sortby(finite)[[0, -1]] if finite.size else finite
    return (
        " to ".join(
            f"{bits(float(value))} ({display_name(name)})"
            for name, value in slices(ends, "architecture")
        )
        or "unknown"
    )
