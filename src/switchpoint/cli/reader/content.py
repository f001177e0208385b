"""Contents of files: their bytes, uncompressed, as text or as an array."""

import bz2
import gzip
import io
import lzma
import re
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from switchpoint import _text
from switchpoint._text import locating, name_of, printable, read_bytes
from switchpoint.cli.reader.cells import first_names

WORKBOOK = b"xl/workbook.xml"
"""A file in the archive that a workbook of Excel is."""

_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".xlsx", ".parquet", ".pq")
_COMPRESSED: Mapping[bytes, tuple[str, Any]] = {
    b"\x1f\x8b": ("gzip", gzip.open),
    b"BZh": ("bzip2", bz2.open),
    b"\xfd7zXZ": ("xz", lzma.open),
}


@dataclass(frozen=True)
class Content:
    """The bytes of a file, uncompressed, and the suffix that shows their format."""

    data: bytes
    suffix: str
    notes: tuple[str, ...] = ()

    @property
    def is_json(self) -> bool:
        """Whether it is JSON by its suffix, or else by its first character."""
        if self.suffix in (".csv", ".tsv"):
            return False
        return self.suffix in (".json", ".jsonl") or self.data.lstrip()[:1] in (b"[", b"{")

    @property
    def is_table(self) -> bool:
        """Whether it is a table in any case; other texts may be lists of symbols."""
        return self.suffix in _TABLES or self.is_json or self.data.startswith((b"PAR1", b"PK"))

    @property
    def is_array(self) -> bool:
        """Whether it is a NumPy file."""
        return self.suffix in (".npy", ".npz")

    def text(self) -> tuple[str, tuple[str, ...]]:
        """The text, and a note of its encoding if that is not UTF-8."""
        encoding = "utf-8"
        if self.data.startswith((b"\xff\xfe", b"\xfe\xff")):
            encoding = "utf-16"
        elif 0 in self.data[:2]:
            encoding = "utf-16-be" if self.data[0] == 0 else "utf-16-le"
        try:
            text = self.data.decode(encoding)
        except UnicodeDecodeError as error:
            if encoding != "utf-8" or re.search(rb"[\x00-\x08\x0e-\x1f\x7f]", self.data):
                problem = f"byte {error.start} is not {encoding[:6].upper().rstrip('-')}"
                raise ValueError(f"the file is not text ({problem})") from error
            return self.data.decode("cp1252", "replace"), ("Windows-1252",)
        return text.removeprefix("\ufeff"), () if encoding == "utf-8" else ("UTF-16",)

    def array(self) -> np.ndarray:
        """The array of one or two dimensions in a NumPy file."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # headers written by Python 2
                array = np.lib.format.read_array(io.BytesIO(self.data), allow_pickle=False)
        except Exception as error:  # damaged files fail in many ways, some of which suggest pickle
            raise ValueError(
                "the file is damaged, or not a NumPy file of numbers or text"
            ) from error
        if array.dtype.kind not in "biufUS" or array.itemsize == 0:
            kind = printable(str(array.dtype))
            raise ValueError(f"the array must be of numbers or text, got {kind}")
        if array.ndim not in (1, 2):
            raise ValueError(f"the array must have one or two dimensions, got shape {array.shape}")
        return array


def read_content(path: Path) -> Content:
    """The content of a file; at most `_text.LARGEST` bytes of it, packed and unpacked.

    Of an .npz file it is the array `symbols`.
    """
    data, suffix, name = read_bytes(path), path.suffix.lower(), name_of(path)
    if data.startswith(b"PK") and WORKBOOK not in data:
        notes, array = ((), "symbols") if suffix == ".npz" else (("zip",), None)
        with locating(name):
            member, data = _unzip(data, array)
        return Content(data, Path(member).suffix.lower(), notes)
    for start, (method, opener) in _COMPRESSED.items():
        if data.startswith(start):
            try:
                data = opener(io.BytesIO(data)).read(_text.LARGEST + 1)
            except Exception as error:  # damaged archives fail in many ways
                raise ValueError(f"{name}: the {method} archive is damaged") from error
            if suffix in (".gz", ".bz2", ".xz"):
                suffix = Path(path.stem).suffix.lower()
            return Content(_text.check_size(data, name), suffix, (method,))
    return Content(data, suffix)


def _unzip(data: bytes, array: str | None) -> tuple[str, bytes]:
    """The only file in a zip archive, or the file of this array, and its name."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = {each.filename: each for each in archive.infolist() if not each.is_dir()}
            chosen = [name for name in names if array in (None, name.removesuffix(".npy"))]
            if len(chosen) != 1:
                kind = f"no array `{array}`, but" if array else f"{len(names)} files, not one:"
                raise ValueError(f"it has {kind} {first_names(names)}")
            # The only methods that NumPy writes, and that unpack in bounded memory.
            if names[chosen[0]].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError("its compression is neither stored nor deflated")
            with archive.open(chosen[0]) as file:
                unpacked = file.read(_text.LARGEST + 1)
    except Exception as error:  # damaged archives fail in many ways
        reason = printable(str(error)) or type(error).__name__
        raise ValueError(f"the archive cannot be read: {reason}") from error
    return chosen[0], _text.check_size(unpacked, chosen[0])
