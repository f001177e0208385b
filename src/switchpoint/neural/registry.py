"""Networks by the names that commands, configurations and files use."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import PRNGKeyArray

from switchpoint import _checks
from switchpoint.neural import networks as _networks  # noqa: F401, its classes are found below
from switchpoint.neural.density import DensityNetwork, ValueSpec
from switchpoint.neural.model import Model, adam_recipe
from switchpoint.neural.network import Network

CUSTOM = "custom"
"""The name of a network that the user's own code makes."""


def _classes(parent: type[Network] = Network) -> dict[str, type[Network]]:
    """The classes that declare `models`, by the names of these; the first of a name."""
    classes = dict.fromkeys(vars(parent).get("models", {}), parent)
    for child in parent.__subclasses__():
        classes = {**_classes(child), **classes}
    return classes


_CLASSES: Mapping[str, Any] = dict(sorted(_classes().items()))

MODELS: dict[str, Model] = {
    **{name: kind.models[name] for name, kind in _CLASSES.items()},
    # Muon trains only matrices that a network declares, and those of users may declare none.
    CUSTOM: Model({}, adam_recipe(1.5e-3, 10_000)),
}
"""The declaration of each network, and of networks of users."""

MODEL_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    name: {option: about.default for option, about in MODELS[name].options.items()}
    for name in _CLASSES
}
"""The options of each network with their defaults, the paper's choices."""


def network_from_name(
    name: str,
    alphabet: int | None,
    length: int,
    key: PRNGKeyArray,
    values: ValueSpec | None = None,
    **options: Any,
) -> Network:
    """A new network called `name`, to be trained on sequences of `length`.

    Options have the defaults of `MODEL_OPTIONS`. With `values` it is for real values, and the
    alphabet is None.

    >>> import jax
    >>> import switchpoint as sp
    >>> sp.neural.network_from_name("lstm", 2, 64, jax.random.key(0), hidden=8, readout=1).hidden
    8
    """
    options = check_options(name, length, options)
    if name == CUSTOM:
        raise ValueError(
            "model 'custom' is a network of your own: pass the function of a key that makes it, "
            "as in switchpoint.train(config, network=make_network)"
        )
    make, model = _CLASSES[name], MODELS[name]
    arguments = {**model.fixed, **options, "key": key}
    if values is not None:
        if not model.takes_values:
            known = ", ".join(each for each in _CLASSES if MODELS[each].takes_values)
            raise ValueError(f"model must be one of {known} for real values, got {name!r}")
        return DensityNetwork(values, make(values.outputs, inputs=values.inputs, **arguments))
    if model.takes_length:
        arguments["length"] = length
    return make(_checks.positive_int("alphabet", alphabet), **arguments)


def check_options(name: str, length: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of the network called `name`, with defaults for those that are None.

    Their values are left to the network's class, which checks each of them.
    """
    model = MODELS[_checks.one_of("model", name, MODELS)]
    given = {key: value for key, value in options.items() if value is not None}
    for key in given:
        if key not in model.options:
            takes = f"takes {', '.join(model.options)}" if model.options else "takes no option"
            raise ValueError(f"{key} is not an option of model {name!r}, which {takes}")
    complete = {**MODEL_OPTIONS.get(name, {}), **given}
    if model.check is not None:
        model.check(length, complete)
    return complete


def describe_network(network: Network) -> dict[str, Any] | None:
    """The arguments of `network_from_name` that make such a network, as a card has them.

    None for a network of a class that has no name here.
    """
    values, body = None, network
    if isinstance(network, DensityNetwork):
        values, body = network.spec, network.body
    for name, kind in _CLASSES.items():
        fixed = MODELS[name].fixed.items()
        if type(body) is kind and all(getattr(body, key) == value for key, value in fixed):
            options = {option: getattr(body, option) for option in MODEL_OPTIONS[name]}
            length = getattr(body, "length", options.get("stack_depth", 1))
            card = {"model": name, "alphabet": network.alphabet, "length": length}
            card["options"] = options
            return card if values is None else {**card, "values": values._asdict()}
    return None
