"""Predictors and sources as people read them, the same in every figure and text."""

import re
from collections.abc import Callable, Iterator, Mapping

import xarray as xr

from switchpoint._numbers import bits

NAMES: Mapping[str, str] = {
    "rnn": "RNN",
    "lstm": "LSTM",
    "stack-rnn": "Stack-RNN",
    "stack-lstm": "Stack-LSTM",
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


def slices(dataset: xr.Dataset, dimension: str) -> Iterator[tuple[str, xr.Dataset]]:
    """Each label of a dimension, and the dataset there."""
    for name in names(dataset[dimension]):
        yield name, dataset.sel({dimension: name})


def display_name(predictor: str) -> str:
    """The name of a predictor."""
    return NAMES.get(predictor, predictor)


def source_label(dataset: xr.Dataset, source: str) -> str:
    """The name of a source with its parameters at the scale of a result, such as PTW₈."""
    return with_subscripts(str(dataset.attrs["labels"].get(source, display_name(source))))


def with_subscripts(text: str) -> str:
    """The depth of PTW as a subscript: PTW_8 becomes PTW₈."""
    return _DEPTH.sub(lambda match: match.group().translate(_SUBSCRIPTS), text)


def listed(values: xr.DataArray, text: Callable[[float], str] = bits) -> list[str]:
    """The values of networks or predictors as texts, each after its name."""
    (labels,) = values.indexes.values()
    pairs = zip(labels, values.values, strict=True)
    return [f"{display_name(str(name))} {text(float(value))}" for name, value in pairs]
