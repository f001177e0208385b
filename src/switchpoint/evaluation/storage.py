"""Evaluations in files: one netCDF file each, that any netCDF reader opens, with a checksum."""

import hashlib
import io
import json
import re
from os import PathLike
from pathlib import Path

import xarray as xr

from switchpoint._files import atomic_write
from switchpoint._formats import FORMAT, NEWEST, check_format

_MARK = "switchpoint_evaluation_2"  # the attributes of the dataset
_CHECKSUM = "switchpoint_sha256"
_BLANK = b"0" * 64
# The name of the attribute, its padding, type and length, and the value.
_SEAL = re.compile(_CHECKSUM.encode() + rb".{10}([0-9a-f]{64})", re.DOTALL)
_LARGEST_VARIABLE = 2**31 - 4  # bytes: a limit of the classic netCDF format


def save(dataset: xr.Dataset, path: str | PathLike[str]) -> None:
    """Write an evaluation to `path`, whole or not at all.

    The attribute `switchpoint_sha256` is the SHA-256 of the file with 64 zeros in its place.

    >>> import tempfile
    >>> import switchpoint as sp
    >>> result = sp.evaluate({"kt": sp.KT()}, [0, 1, 1, 1])
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     sp.evaluation.save(result, f"{directory}/kt.nc")
    ...     sp.evaluation.load(f"{directory}/kt.nc").identical(result)
    True
    """
    for name, variable in dataset.variables.items():
        if variable.nbytes > _LARGEST_VARIABLE:
            raise ValueError(
                f"{name} must be at most {_LARGEST_VARIABLE} bytes to be saved, "
                f"got {variable.nbytes}"
            )
    marked = dataset.copy(deep=False)
    # As one text, since the format has no whole numbers above 2^31.
    attributes = json.dumps(dataset.attrs)
    marked.attrs = {_CHECKSUM: _BLANK.decode(), FORMAT: NEWEST, _MARK: attributes}
    data = bytes(marked.to_netcdf(engine="scipy", format="NETCDF3_64BIT"))
    with atomic_write(Path(path), "path") as file:
        file.write(_with_seal(data, hashlib.sha256(data).hexdigest().encode()))


def load(path: str | PathLike[str]) -> xr.Dataset:
    """The evaluation that `save` wrote to `path`, in this version or an earlier one.

    A `ValueError` names a file that is damaged: one that is not what was written, to the last bit.

    See `save` for an example.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error})") from error
    seal = _SEAL.search(data)
    if seal is None:
        raise ValueError(f"{path} is not a whole evaluation file of switchpoint")
    if hashlib.sha256(_with_seal(data, _BLANK)).hexdigest().encode() != seal[1]:
        raise ValueError(f"{path} is damaged: its content does not match its checksum")
    try:
        dataset = xr.load_dataset(io.BytesIO(data), engine="scipy")
        number = int(dataset.attrs[FORMAT])
        dataset.attrs = dict(json.loads(dataset.attrs[_MARK]))
    except Exception as error:  # the reader has no error of its own for a damaged file
        raise ValueError(f"{path} is not a whole evaluation file of switchpoint") from error
    check_format({FORMAT: number}, str(path))
    return dataset


def _with_seal(data: bytes, seal: bytes) -> bytes:
    """A file's bytes with another value of its checksum, which is the first in its header."""
    match = _SEAL.search(data)
    assert match is not None
    return data[: match.start(1)] + seal + data[match.end(1) :]
