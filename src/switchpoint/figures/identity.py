"""What each predictor and source is called and looks like, the same in every figure."""

import re
from collections.abc import Mapping
from typing import Any

import xarray as xr

from switchpoint.figures.style import BLUE, GREEN, GREY, INK, ORANGE, SKY, WINE, YELLOW

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
"""The names that people read."""

# The two cells have a hue each, of which the stack takes the lighter one.
_COLOURS = {
    "rnn": ORANGE,
    "lstm": BLUE,
    "stack-rnn": YELLOW,
    "stack-lstm": SKY,
    "transformer": GREEN,
    "kt": GREY,
    "oracle": "#AA4499",
    "ptw": WINE,
    "lin": "#8C8A1E",
    "optimum": INK,
}
_MARKERS = {"rnn": "o", "lstm": "s", "stack-rnn": "^", "stack-lstm": "D", "transformer": "P"}
_DASHES = {
    "kt": (0, (1.2, 1.8)),
    "oracle": (0, (6, 1.6, 1.2, 1.6)),
    "ptw": (0, (6, 2)),
    "lin": (0, (3, 1.6)),
    "optimum": (0, (9, 1.5)),
}
_DEPTH = re.compile(r"(?<=PTW)_\d+")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉", "_")


def name_of(predictor: str) -> str:
    """The name of a predictor that people read."""
    return NAMES.get(predictor, predictor)


def source_name(dataset: xr.Dataset, source: str) -> str:
    """The name of a source with its parameters, as the study says it: such as PTW₈."""
    return with_subscripts(str(dataset.attrs["labels"].get(source, name_of(source))))


def with_subscripts(text: str) -> str:
    """A text in which the depth of PTW stands below the line: PTW_8 becomes PTW₈."""
    return _DEPTH.sub(lambda found: found.group().translate(_SUBSCRIPTS), text)


def colour_of(predictor: str) -> str:
    """The one colour of a predictor."""
    return _COLOURS.get(predictor, GREY)


def marker_of(architecture: str) -> str:
    """The one marker of an architecture, so that colour is not the only sign."""
    return _MARKERS.get(architecture, "o")


def line_of(predictor: str) -> dict[str, Any]:
    """How a predictor's line looks: networks solid, exact predictors dashed."""
    style: Any = _DASHES.get(predictor, "solid")
    return {"color": colour_of(predictor), "linestyle": style}
