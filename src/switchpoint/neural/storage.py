"""Network files: safetensors, with a card that records what the networks are and their training."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from switchpoint._formats import FORMAT, NEWEST
from switchpoint._tensors import DamagedError, read_header, read_tensors, write_tensors
from switchpoint.neural.cards import check_card
from switchpoint.neural.density import ValueSpec
from switchpoint.neural.network import Network
from switchpoint.neural.registry import CUSTOM, network_from_name

MODEL_FILE = "model.safetensors"
"""The name of the network file in a run directory."""

_KIND = "network"
_FAULT = "is not a switchpoint network"

Like = Network | Callable[[PRNGKeyArray], Network] | None
"""A network, or a function of a key that makes one, to take the class and the shapes from."""


def save_networks(
    path: str | PathLike[str], networks: Sequence[Network], card: Mapping[str, Any]
) -> None:
    """Write networks of one architecture to `path`, atomically.

    The card has at least `model`, `alphabet`, `length` and `options`, which define the
    architecture, and `members`: one mapping for each network. In place of options, the model
    `custom` has `network`, the name of its class. Networks on real values have the alphabet None,
    and `values`, the fields of their `ValueSpec`.

    >>> import pathlib, tempfile
    >>> import switchpoint as sp
    >>> from switchpoint.neural import count_parameters, load_with_card, save_networks
    >>> card = {"model": "memoryless", "alphabet": 2, "length": 4, "options": {}, "members": [{}]}
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     file = pathlib.Path(directory, "network.safetensors")
    ...     save_networks(file, [sp.neural.Memoryless(2, length=4)], card)
    ...     card, networks = load_with_card(file)
    ...     networks[0].table.shape, count_parameters(file)
    ((4, 2), 8)
    """
    leaves = [named_leaves(network) for network in networks]
    arrays = {name: np.stack([np.asarray(each[name]) for each in leaves]) for name in leaves[0]}
    write_tensors(Path(path), {**card, "kind": _KIND, FORMAT: NEWEST}, arrays, "path")


def load(
    path: str | PathLike[str],
    member: int | None = None,
    prior: str | None = None,
    like: Like = None,
) -> Network:
    """A network from a file or a run directory.

    If there are several members: the one with index `member`, or the best of those trained on
    `prior`, or the best of all (see `best_member`). A custom network needs `like`: a function of
    a key that makes one, or any network of its class and shapes.

    See `switchpoint.load` for an example; that one also takes the names of the zoo.
    """
    card, networks = load_with_card(path, like)
    if member is None:
        return networks[best_member(card, prior)]
    if prior is not None:
        raise ValueError(f"member and prior exclude each other, got {member} and {prior!r}")
    if not 0 <= member < len(networks):
        raise ValueError(f"member must be from 0 to {len(networks) - 1}, got {member}")
    return networks[member]


def load_members(path: str | PathLike[str], like: Like = None) -> list[Network]:
    """All networks of a file or a run directory; see `load` for `like`.

    See `switchpoint.load_members` for an example.
    """
    return load_with_card(path, like)[1]


def load_with_card(
    path: str | PathLike[str], like: Like = None
) -> tuple[dict[str, Any], list[Network]]:
    """The card and all networks of a file or a run directory, verified by the checksum.

    See `save_networks` for an example.
    """
    file = _file(path)
    card, arrays = _verified(file)
    if like is None and card["model"] == CUSTOM:
        raise ValueError(
            f"{file} holds a custom network, {card.get('network')}, whose class switchpoint does "
            f"not know: load it in Python with switchpoint.load({str(path)!r}, like=make_network), "
            "where make_network is a function of a key that makes such a network"
        )
    with _named(file, _FAULT if like is None else "does not fit like"):
        shapes = shapes_of(card) if like is None else network_shapes(like)
        return card, networks_from(len(card["members"]), arrays, shapes)


def read_card(path: str | PathLike[str], verify: bool = False) -> dict[str, Any]:
    """The card of a network file: architecture, sources, members, versions.

    Only the header is read, however large the networks are. The checksum covers card and weights
    together, so it is not verified unless `verify` is given.

    >>> from switchpoint.neural import count_parameters, read_card
    >>> from switchpoint.zoo import path_of
    >>> read_card(path_of("rnn-ptw"))["model"], count_parameters(path_of("rnn-ptw")) > 10_000
    ('rnn', True)
    """
    return _verified(_file(path))[0] if verify else _header(path)[0]


def count_parameters(path: str | PathLike[str]) -> int:
    """The number of weights of each network in a file, from the header alone.

    See `read_card` for an example.
    """
    return sum(math.prod(shape[1:]) for shape in _header(path)[1].values())


def best_member(card: Mapping[str, Any], prior: str | None = None) -> int:
    """The index of the member with the lowest excess regret at the end of training.

    Of those trained on `prior`, or of all, in which case an easy prior has an advantage. Members
    that diverged or were not evaluated come last.

    >>> from switchpoint.neural import best_member
    >>> members = [{"prior": "ptw", "excess": 2.1}, {"prior": "ptw", "excess": 1.9}]
    >>> best_member({"members": members}, prior="ptw")
    1
    """
    members = card["members"]
    wanted = [i for i, each in enumerate(members) if prior in (None, each.get("prior"))]
    if not wanted:
        known = ", ".join(dict.fromkeys(str(each.get("prior")) for each in members))
        raise ValueError(f"prior must be one of {known}, got {prior!r}")

    def rank(index: int) -> tuple[bool, float]:
        excess = members[index].get("excess")
        unfit = excess is None or members[index].get("diverged", False)
        return unfit, 0.0 if excess is None else excess

    return min(wanted, key=rank)


def _file(path: str | PathLike[str]) -> Path:
    """The network file at a path."""
    file = Path(path)
    if file.is_dir():
        file = file / MODEL_FILE
        if not file.exists():
            raise ValueError(f"{path} holds no trained network ({MODEL_FILE}); has the run ended?")
    if not file.exists():
        raise ValueError(f"there is no file or directory {path} to load a network from")
    return file


def _verified(file: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The card and the tensors, verified by the checksum."""
    with _named(file):
        card, arrays = read_tensors(file, _KIND)
        check_card(card, [array.shape for array in arrays.values()], file)
        for name, array in arrays.items():
            if "options" in card and not jnp.issubdtype(array.dtype, jnp.floating):
                raise DamagedError(f"its tensor {name} must have floats, got {array.dtype}")
        return card, arrays


def _header(path: str | PathLike[str]) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """The card and the shapes of the tensors."""
    file = _file(path)
    with _named(file):
        card, shapes = read_header(file, _KIND)
        check_card(card, shapes.values(), file)
        return card, shapes


@contextlib.contextmanager
def _named(file: Path, fault: str = _FAULT) -> Iterator[None]:
    """Name the file in the message of a `DamagedError`."""
    try:
        yield
    except DamagedError as error:
        raise ValueError(f"{file} {fault}: {error}") from error


def network_shapes(make: Callable[[PRNGKeyArray], Network] | Network) -> Network:
    """A network with shapes in place of arrays: like this one, or as this function makes it."""
    if not isinstance(make, Network):
        if not callable(make):
            raise ValueError(f"a network is made by a function of a key, got {make!r}")
        make = eqx.filter_eval_shape(make, jax.random.key(0))
        if not isinstance(make, Network):
            raise ValueError(
                f"a function of a key must make a switchpoint.neural.Network, got {make!r}"
            )
    return make


def class_name(network: Network) -> str:
    """The class of a network with its module, such as `__main__.GRU`."""
    return f"{type(network).__module__}.{type(network).__qualname__}"


def shapes_of(card: Mapping[str, Any]) -> Network:
    """The shapes of the network that a card describes."""
    try:
        model, alphabet, length = card["model"], card["alphabet"], card["length"]
        options = dict(card["options"])
        values = None if alphabet is not None else ValueSpec.of(card["values"])
        return network_shapes(
            lambda key: network_from_name(model, alphabet, length, key, values, **options)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"its card describes no known network ({error})") from error


def networks_from(count: int, arrays: Mapping[str, np.ndarray], shapes: Network) -> list[Network]:
    """Networks of these shapes, from arrays that stack the leaves of all of them."""
    expected = named_leaves(shapes)
    if set(expected) != set(arrays):
        odd = sorted(set(expected) ^ set(arrays))
        raise DamagedError(
            f"its arrays are not those of {class_name(shapes)}: {', '.join(odd[:3])}"
        )
    for name, leaf in expected.items():
        if arrays[name].shape != (count, *leaf.shape):
            raise DamagedError(
                f"its array {name} must have shape {(count, *leaf.shape)}, got {arrays[name].shape}"
            )
    structure = jax.tree.structure(shapes)
    return [
        jax.tree.unflatten(
            structure,
            # Weights may be stored in fewer bits than they are computed with.
            [jnp.asarray(arrays[name][index], leaf.dtype) for name, leaf in expected.items()],
        )
        for index in range(count)
    ]


def named_leaves(network: Network) -> dict[str, Any]:
    """The leaves by their paths, such as `cell.weight`, in the order of the tree."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(network)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in pairs}
