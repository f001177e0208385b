"""The symbols in a file, whatever its kind."""

import zipfile
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import Int

from switchpoint.cli.files import STDIN, read_text
from switchpoint.cli.symbols import checked_symbols, pick_row, text_numbers
from switchpoint.cli.tables import table_numbers


def read_symbols(
    path: Path, alphabet: int, column: str | None = None, row: int | None = None
) -> Int[np.ndarray, " time"]:
    """The sequence in a text, a column of a table, an .npy or an .npz file."""
    suffix = path.suffix.lower()
    origin = "standard input" if path == STDIN else str(path)
    if suffix in (".npy", ".npz"):
        if column is not None:
            raise ValueError(f"column is for tables, got {column!r} for {origin}")
        return checked_symbols(_array_row(_load(path), row, origin), alphabet, origin)
    text = read_text(path)
    if column is not None or suffix in (".csv", ".tsv"):
        numbers = table_numbers(text, origin, tabs=suffix == ".tsv", column=column, row=row)
    else:
        pick_row(1, row, origin)
        numbers = text_numbers(text, alphabet)
    return checked_symbols(numbers, alphabet, origin)


def _load(path: Path) -> np.ndarray:
    """The array in an .npy file, or the one called `symbols` in an .npz file."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            if "symbols" not in loaded:
                raise ValueError(f"it has no array `symbols`, but {', '.join(loaded) or 'none'}")
            return loaded["symbols"]
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error})") from error
    except (ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as NumPy arrays ({error})") from error


def _array_row(array: np.ndarray, row: int | None, origin: str) -> np.ndarray:
    if array.ndim not in (1, 2):
        raise ValueError(f"{origin} must hold one or two dimensions, got shape {array.shape}")
    rows = np.atleast_2d(array)
    if rows.size == 0:
        return rows.reshape(-1)
    return rows[pick_row(len(rows), row, origin)]
