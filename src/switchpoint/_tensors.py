"""Named arrays in safetensors files, with JSON metadata and a checksum of both."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array
from safetensors import safe_open
from safetensors.numpy import save

from switchpoint._files import atomic_write

_MARK = "switchpoint"


class DamagedError(ValueError):
    """The file is damaged or not written by switchpoint; the message says why."""


def write_tensors(
    path: Path, about: Mapping[str, Any], arrays: Mapping[str, Array | np.ndarray], name: str
) -> None:
    """Write arrays and `about`, as JSON, atomically; `name` is the argument in messages."""
    with atomic_write(path, name) as file:
        file.write(tensors_to_bytes(about, arrays))


def tensors_to_bytes(about: Mapping[str, Any], arrays: Mapping[str, Array | np.ndarray]) -> bytes:
    """The content of the file that `write_tensors` writes."""
    host = {key: _on_host(array) for key, array in arrays.items()}
    card = json.dumps({**about, "sha256": _digest(about, host)})
    return save(host, {_MARK: card})


def read_tensors(source: Path | bytes, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The `about` of this `kind` and the arrays of a file, verified by the checksum."""
    if isinstance(source, bytes):
        with tempfile.TemporaryDirectory() as directory:  # safetensors reads metadata of files
            path = Path(directory) / "content"
            path.write_bytes(source)
            return read_tensors(path, kind)
    return _read(source, kind, lambda file, name: file.get_tensor(name), verify=True)


def read_header(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """`about` and the shapes of the arrays, from the header alone.

    Not verified, since the checksum covers the arrays too.
    """
    return _read(
        path, kind, lambda file, name: tuple(file.get_slice(name).get_shape()), verify=False
    )


def check_leaves(leaves: Sequence[np.ndarray], expected: Sequence[jax.ShapeDtypeStruct]) -> None:
    """Raise a `DamagedError` unless arrays have the expected number, shapes and types."""
    if len(leaves) != len(expected):
        raise DamagedError(f"it must have {len(expected)} arrays, got {len(leaves)}")
    for index, (leaf, like) in enumerate(zip(leaves, expected, strict=True)):
        if (leaf.shape, leaf.dtype) != (like.shape, like.dtype):
            raise DamagedError(
                f"its array {index} must be {like.dtype} of shape {like.shape}, "
                f"got {leaf.dtype} of shape {leaf.shape}"
            )


def _read(
    path: Path, kind: str, read: Callable[[Any, str], Any], verify: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`about`, and `read(file, name)` for each array of the open file."""
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {name: read(file, name) for name in file.keys()}  # noqa: SIM118
    except MemoryError:
        raise
    except Exception as error:  # of many kinds: a header may name types that do not exist
        raise DamagedError(f"it is truncated or not a safetensors file ({error})") from error
    try:
        about = json.loads(metadata[_MARK])
        digest = about.pop("sha256")
        found = about["kind"]
        damaged = verify and _digest(about, arrays) != digest
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedError("it was not written by switchpoint") from error
    if found != kind:
        raise DamagedError(f"it is a {found}, not a {kind}")
    if damaged:
        raise DamagedError("its content does not match its checksum")
    return about, arrays


def _on_host(array: Array | np.ndarray) -> np.ndarray:
    """The array as safetensors needs it: little-endian and in row-major order."""
    host = np.asarray(array)
    return np.asarray(host, host.dtype.newbyteorder("<"), order="C")


def _digest(about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """The SHA-256 of the metadata and of all arrays."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
