"""Networks in files: safetensors, with a card that says what they are and how they came about."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from switchpoint._tensors import DamagedError, read_tensors, write_tensors
from switchpoint.neural.cards import check_network
from switchpoint.neural.names import network_from_name
from switchpoint.neural.network import Network

MODEL_FILE = "model.safetensors"
"""The file in a run's directory that has its networks."""

_KIND = "network"


def save_networks(
    path: str | PathLike[str], networks: Sequence[Network], card: Mapping[str, Any]
) -> None:
    """Write networks of one architecture to `path`, whole or not at all.

    The card says at least `model`, `alphabet`, `length` and `options`, from which the
    architecture is made again, and `members`: one mapping for each network.
    """
    leaves = [_named_leaves(network) for network in networks]
    arrays = {name: np.stack([np.asarray(each[name]) for each in leaves]) for name in leaves[0]}
    write_tensors(Path(path), {**card, "kind": _KIND}, arrays, "path")


def load(path: str | PathLike[str], member: int | None = None, prior: str | None = None) -> Network:
    """A network from a file or from the directory of a run.

    Where there are several members: the one with the index `member`, or the best of all, or the
    best of those that were trained on `prior` (see `best_member`).
    """
    card, networks = _read(path)
    if member is None:
        return networks[best_member(card, prior)]
    if prior is not None:
        raise ValueError(f"member and prior exclude each other, got {member} and {prior!r}")
    if not 0 <= member < len(networks):
        raise ValueError(f"member must be from 0 to {len(networks) - 1}, got {member}")
    return networks[member]


def load_members(path: str | PathLike[str]) -> list[Network]:
    """All networks of a file or of the directory of a run."""
    return _read(path)[1]


def read_card(path: str | PathLike[str]) -> dict[str, Any]:
    """What a file of networks says about itself: architecture, sources, members, versions."""
    return _read(path)[0]


def best_member(card: Mapping[str, Any], prior: str | None = None) -> int:
    """The index of the member whose excess over the optimum was lowest when training ended.

    Of those that were trained on `prior`, or of all: then the lowest may owe that to an easy
    prior. Members that were frozen or not measured come last.
    """
    members = card["members"]
    wanted = [i for i, each in enumerate(members) if prior in (None, each.get("prior"))]
    if not wanted:
        known = ", ".join(dict.fromkeys(str(each.get("prior")) for each in members))
        raise ValueError(f"prior must be one of {known}, got {prior!r}")

    def rank(index: int) -> tuple[bool, float]:
        each = members[index]
        excess = each.get("excess")
        unfit = excess is None or each.get("frozen", False)
        return unfit, 0.0 if excess is None else excess

    return min(wanted, key=rank)


def _read(path: str | PathLike[str]) -> tuple[dict[str, Any], list[Network]]:
    file = Path(path)
    if file.is_dir():
        file = file / MODEL_FILE
        if not file.exists():
            raise ValueError(f"{path} holds no trained network ({MODEL_FILE}); has the run ended?")
    if not file.exists():
        raise ValueError(f"there is no file or directory {path} to load a network from")
    try:
        card, arrays = read_tensors(file, _KIND)
        check_network(card, arrays)
        return card, _networks(card, arrays)
    except DamagedError as error:
        raise ValueError(f"{file} is no network of switchpoint: {error}") from error


def _networks(card: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> list[Network]:
    try:
        model, options, members = card["model"], dict(card["options"]), list(card["members"])
        shapes = eqx.filter_eval_shape(
            lambda key: network_from_name(model, card["alphabet"], card["length"], key, **options),
            jax.random.key(0),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"its card describes no network we know ({error})") from error
    expected = _named_leaves(shapes)
    if set(expected) != set(arrays):
        odd = sorted(set(expected) ^ set(arrays))
        raise DamagedError(f"its arrays are not those of a {model}: {', '.join(odd[:3])}")
    for name, leaf in expected.items():
        if arrays[name].shape != (len(members), *leaf.shape):
            raise DamagedError(
                f"its array {name} must have shape {(len(members), *leaf.shape)}, "
                f"got {arrays[name].shape}"
            )
    structure = jax.tree.structure(shapes)
    return [
        jax.tree.unflatten(
            structure,
            # Weights may be kept in fewer bits than they are computed with.
            [jnp.asarray(arrays[name][index], leaf.dtype) for name, leaf in expected.items()],
        )
        for index in range(len(members))
    ]


def _named_leaves(network: Network) -> dict[str, Any]:
    """The leaves by their paths, such as `cell.weight`, in the order of the tree."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(network)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in pairs}
