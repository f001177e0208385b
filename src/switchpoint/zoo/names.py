"""The names of the zoo's networks: an architecture, and the source it was trained on."""

import difflib

MODELS = ("rnn", "lstm", "stack-rnn", "stack-lstm", "transformer")
"""The architectures of the paper."""

SOURCES = ("ptw", "lin", "regular", "uniform")
"""The sources of the paper, by the names of their priors."""


def name_of(model: str, prior: str) -> str:
    """What the network of an architecture trained on a prior is called."""
    return f"{model}-{prior}"


NAMES = tuple(name_of(model, prior) for model in MODELS for prior in SOURCES)
"""All networks that the zoo may hold, in the order of its tables."""


def near_names(name: str) -> str:
    """A question for the names that `name` may have been meant for; empty where none is near."""
    near = difflib.get_close_matches(name, NAMES, n=3)
    return f"did you mean {' or '.join(near)}?" if near else ""


def nearest(name: str) -> str:
    """The same, or all names where none is near."""
    return near_names(name) or f"its names are {', '.join(NAMES)}"
