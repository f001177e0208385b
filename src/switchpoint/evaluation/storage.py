"""Evaluations in files: one netCDF file each, that any netCDF reader opens."""

import io
import json
from os import PathLike
from pathlib import Path

import xarray as xr

from switchpoint._files import replacing

_MARK = "switchpoint_evaluation"
_LARGEST_VARIABLE = 2**31 - 4  # bytes: a limit of the classic netCDF format


def save(dataset: xr.Dataset, path: str | PathLike[str]) -> None:
    """Write an evaluation to `path`, whole or not at all."""
    for name, variable in dataset.variables.items():
        if variable.nbytes > _LARGEST_VARIABLE:
            raise ValueError(
                f"{name} must be at most {_LARGEST_VARIABLE} bytes to be saved, "
                f"got {variable.nbytes}"
            )
    marked = dataset.copy(deep=False)
    # As one text, since the format has no whole numbers above 2^31.
    marked.attrs = {_MARK: json.dumps(dataset.attrs)}
    data = marked.to_netcdf(engine="scipy", format="NETCDF3_64BIT")
    with replacing(Path(path), "path") as file:
        file.write(data)


def load(path: str | PathLike[str]) -> xr.Dataset:
    """The evaluation that `save` wrote to `path`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error})") from error
    try:
        dataset = xr.load_dataset(io.BytesIO(data), engine="scipy")
        dataset.attrs = json.loads(dataset.attrs[_MARK])
    except Exception as error:  # the reader has no error of its own for a damaged file
        raise ValueError(f"{path} is not a whole evaluation file of switchpoint") from error
    return dataset
