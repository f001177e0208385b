"""Networks by the names that commands, configurations and files use."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import PRNGKeyArray

from switchpoint import _checks
from switchpoint.neural.baselines import Markov, Memoryless
from switchpoint.neural.blocks import HEADS, WIDTH, check_sizes
from switchpoint.neural.density import DensityNetwork, ValueSpec
from switchpoint.neural.network import Network
from switchpoint.neural.recurrent import Recurrent
from switchpoint.neural.transformer import Transformer

_RECURRENT = {"hidden": 256, "readout": 2}
_STACK = {**_RECURRENT, "stack_depth": 8, "stack_width": 8}
_SIZES = {"width": WIDTH, "heads": HEADS}

MODEL_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "rnn": _RECURRENT,
    "lstm": _RECURRENT,
    "stack-rnn": _STACK,
    "stack-lstm": _STACK,
    "transformer": {"layers": 16, "positions": "relative", "context": None, **_SIZES},
    "memoryless": {},
    "markov": {"order": 8},
}
"""The options of each network with their defaults, the paper's choices."""

CUSTOM = "custom"
"""The name of a network that the user's own code makes."""


def network_from_name(
    name: str,
    alphabet: int | None,
    length: int,
    key: PRNGKeyArray,
    values: ValueSpec | None = None,
    **options: Any,
) -> Network:
    """A new network called `name`, to be trained on sequences of `length`.

    Options default to the paper's values; see `MODEL_OPTIONS`. With `values` it is for real values,
    and the alphabet is None.
    """
    options = check_options(name, length, options)
    if values is not None:
        if name not in _ON_VALUES:
            known = ", ".join(_ON_VALUES)
            raise ValueError(f"model must be one of {known} for real values, got {name!r}")
        sizes = {**options, "inputs": values.inputs}
        return DensityNetwork(values, _body(name, values.outputs, key, sizes))
    alphabet = _checks.positive_int("alphabet", alphabet)
    match name:
        case "custom":
            raise ValueError(
                "model 'custom' is a network of your own: pass the function of a key that makes "
                "it, as in switchpoint.train(config, network=make_network)"
            )
        case "memoryless":
            return Memoryless(alphabet, length)
        case "markov":
            return Markov(alphabet, key=key, **options)
    return _body(name, alphabet, key, options)


_ON_VALUES = [name for name in MODEL_OPTIONS if name not in ("memoryless", "markov")]


def _body(name: str, outputs: int, key: PRNGKeyArray, options: dict[str, Any]) -> Network:
    if name == "transformer":
        return Transformer(outputs, key=key, **options)
    return Recurrent(outputs, "lstm" if name.endswith("lstm") else "rnn", key=key, **options)


def check_options(name: str, length: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of the network called `name`, with defaults for those that are None."""
    if name not in (*MODEL_OPTIONS, CUSTOM):
        raise ValueError(f"model must be one of {', '.join(MODEL_OPTIONS)}, got {name!r}")
    known = MODEL_OPTIONS.get(name, {})
    given = {key: value for key, value in options.items() if value is not None}
    for key in given:
        if key not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no option"
            raise ValueError(f"{key} is not an option of model {name!r}, which {takes}")
    complete = {**known, **given}
    for key in known:
        value = complete[key]
        if key == "readout":
            complete[key] = _checks.whole_number(key, value)
        elif key != "positions" and value is not None:
            complete[key] = _checks.positive_int(key, value)
    if complete.get("stack_depth", 0) > length:
        raise ValueError(
            f"stack_depth must be at most the length {length}, got {complete['stack_depth']}"
        )
    if name == "transformer":
        check_sizes(complete["width"], complete["heads"], complete["positions"])
    return complete


def describe_network(network: Network) -> dict[str, Any] | None:
    """The arguments of `network_from_name` that make such a network, as a card has them.

    None for a network of a class that has no name here.
    """
    values, body = None, network
    if isinstance(network, DensityNetwork):
        values, body = network.spec, network.body
    length = 1
    match body:
        case Recurrent():
            name = f"stack-{body.units}" if body.stack_depth else body.units
        case Transformer():
            name = "transformer"
        case Memoryless():
            name, length = "memoryless", body.length
        case Markov():
            name = "markov"
        case _:
            return None
    if type(body) not in (Recurrent, Transformer, Memoryless, Markov):
        return None
    options = {option: getattr(body, option) for option in MODEL_OPTIONS[name]}
    length = max(length, options.get("stack_depth", 0))
    card = {"model": name, "alphabet": network.alphabet, "length": length, "options": options}
    return card if values is None else {**card, "values": values._asdict()}
