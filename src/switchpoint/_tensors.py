"""Named arrays in a safetensors file, with what they are and a checksum of it all."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array
from safetensors import safe_open
from safetensors.numpy import save

from switchpoint._files import replacing

_MARK = "switchpoint"


class DamagedError(ValueError):
    """The file is not whole, or not one of ours; the message says why."""


def write_tensors(
    path: Path, about: Mapping[str, Any], arrays: Mapping[str, Array | np.ndarray], name: str
) -> None:
    """Write arrays, and `about` as JSON, whole or not at all; `name` is the file's in messages."""
    host = {key: _on_host(array) for key, array in arrays.items()}
    card = json.dumps({**about, "sha256": _digest(about, host)})
    with replacing(path, name) as file:
        file.write(save(host, {_MARK: card}))


def read_tensors(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `write_tensors` wrote, where `about["kind"]` was `kind`, proved whole."""
    return _read(path, kind, lambda file, name: file.get_tensor(name), prove=True)


def read_header(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """`about` and the shapes of the arrays, from the header alone.

    The checksum covers the arrays too, so that nothing here is proved whole.
    """
    return _read(
        path, kind, lambda file, name: tuple(file.get_slice(name).get_shape()), prove=False
    )


def check_leaves(leaves: Sequence[np.ndarray], expected: Sequence[jax.ShapeDtypeStruct]) -> None:
    """Raise a `DamagedError` where arrays have not the number, the shapes or the types expected."""
    if len(leaves) != len(expected):
        raise DamagedError(f"it must have {len(expected)} arrays, got {len(leaves)}")
    for index, (leaf, like) in enumerate(zip(leaves, expected, strict=True)):
        if (leaf.shape, leaf.dtype) != (like.shape, like.dtype):
            raise DamagedError(
                f"its array {index} must be {like.dtype} of shape {like.shape}, "
                f"got {leaf.dtype} of shape {leaf.shape}"
            )


def _read(
    path: Path, kind: str, read: Callable[[Any, str], Any], prove: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`about`, and what `read` takes from the open file for each array."""
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {name: read(file, name) for name in file.keys()}  # noqa: SIM118
    except MemoryError:
        raise
    except Exception as error:  # of many kinds, for a header may name types that do not exist
        raise DamagedError(f"it is truncated or no safetensors file ({error})") from error
    try:
        about = json.loads(metadata[_MARK])
        digest = about.pop("sha256")
        found = about["kind"]
        damaged = prove and _digest(about, arrays) != digest
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedError("it was not written by switchpoint") from error
    if found != kind:
        raise DamagedError(f"it is a {found}, not a {kind}")
    if damaged:
        raise DamagedError("its content does not match its checksum")
    return about, arrays


def _on_host(array: Array | np.ndarray) -> np.ndarray:
    """The array as safetensors needs it: little-endian, one row after the other."""
    host = np.asarray(array)
    return np.asarray(host, host.dtype.newbyteorder("<"), order="C")


def _digest(about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """The SHA-256 of everything that the file says."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
