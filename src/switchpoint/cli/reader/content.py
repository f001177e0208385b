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
from switchpoint._text import name_of, printable, read_bytes
from switchpoint.cli.reader.cells import first_names

WORKBOOK = b"xl/workbook.xml"
"""A file in the archive that a workbook of Excel is."""

_SUFFIXES = {
    "parquet": (".parquet", ".pq"),
    "array": (".npy", ".npz"),
    "excel": (".xlsx", ".xls", ".ods"),
    "json": (".json", ".jsonl"),
    "csv": (".csv", ".tsv"),
}
_MAGIC = {b"PAR1": "parquet", b"\x93NUMPY": "array", b"PK": "excel"}


@dataclass(frozen=True)
class Content:
    """The bytes of a file, uncompressed, and the suffix that shows their format."""

    data: bytes
    suffix: str
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """One of parquet, array, excel, json, csv, or text, which may be a list of symbols."""
        kinds = [kind for magic, kind in _MAGIC.items() if self.data.startswith(magic)]
        kinds += [kind for kind, suffixes in _SUFFIXES.items() if self.suffix in suffixes]
        is_json = self.data.lstrip()[:1] in (b"[", b"{")
        return next(iter(kinds), "json" if is_json else "text")

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


def _open_member(archive: io.BytesIO) -> Any:
    """The only file in a zip archive, or the array `symbols` if there are several."""
    names = [each.filename for each in zipfile.ZipFile(archive).infolist() if not each.is_dir()]
    chosen = [name for name in names if name == "symbols.npy"] or names
    if len(chosen) != 1:
        raise ValueError(f"it holds {len(names)} files, not one: {first_names(names)}")
    return zipfile.ZipFile(archive).open(chosen[0])


_OPENERS: Mapping[bytes, tuple[str, Any]] = {
    b"\x1f\x8b": ("gzip", gzip.open),
    b"BZh": ("bzip2", bz2.open),
    b"\xfd7zXZ": ("xz", lzma.open),
    b"PK": ("zip", _open_member),
}


def read_content(path: Path) -> Content:
    """The content of a file; at most `_text.LARGEST` bytes of it, packed and unpacked."""
    data, suffix, name = read_bytes(path), path.suffix.lower(), name_of(path)
    openers = (each for magic, each in _OPENERS.items() if data.startswith(magic))
    method, opener = next(openers, ("", None))
    if opener is None or WORKBOOK in data:
        return Content(data, suffix)
    try:
        with opener(io.BytesIO(data)) as file:
            data = file.read(_text.LARGEST + 1)
    except Exception as error:  # damaged archives fail in many ways
        reason = printable(str(error)) or type(error).__name__
        raise ValueError(f"{name}: the {method} archive cannot be read: {reason}") from error
    if method == "zip":
        suffix = Path(file.name).suffix.lower()
    elif suffix in (".gz", ".bz2", ".xz"):
        suffix = Path(path.stem).suffix.lower()
    notes = () if path.suffix.lower() == ".npz" else (method,)
    return Content(_text.check_size(data, name), suffix, notes)
