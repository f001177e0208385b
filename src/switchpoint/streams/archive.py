"""Lossless compression to archives: a header, the code of the symbols, and a checksum.

The magic bytes and the number of the format, the header as JSON, deflated with `_PHRASES` as its
dictionary, the code, and the CRC-32 of all that.
"""

import base64
import bz2
import hashlib
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Int

from switchpoint import _checks
from switchpoint._formats import FORMAT, NEWEST, check_format
from switchpoint._progress import Progress
from switchpoint._text import LARGEST
from switchpoint.exact import bayes_optimal
from switchpoint.predictor import Predictor
from switchpoint.priors import PTW
from switchpoint.segments import make_segment
from switchpoint.sources import Source
from switchpoint.spec import OtherFileError, describe_file, describe_predictor, make_predictor
from switchpoint.streams.coding import GRIDS, decode, encode
from switchpoint.streams.stream import Stream

_MAGIC = b"\x89SPZ"
_CHECKSUM = struct.Struct("<I")
_FIELDS = {"predictor": dict, "grid": str, "symbols": dict, "length": int, "digest": str}
_MOST_SYMBOLS = 8 * LARGEST
_LONGEST_HEADER = 2**26
_DIGEST = 16  # hexadecimal digits

# What headers of format 1 usually contain; it can only change with the format.
_PHRASES = (
    b'{"class":"Renewal","pmf":[0.{"predictor":{"type":"file","name":"lstm-ptw","member":0,"sha256":"'
    b'"},"grid":"network","symbols":{"kind":"bits"},"length":"segment":{"class":"Categorical","size":256,'
    b'"concentration":0.5},"max_hypotheses":null},"grid":"exact","symbols":{"kind":"bytes"},"length":'
    b'["A","C","G","T"],"before":"","between":["","\\n"],"after":"\\n","which":"QlpoOTFBWSZTW'
    b'{"predictor":{"type":"exact","class":"KT","segment":{"class":"Bernoulli","alpha":0.5,"beta":0.5}},'
    b'"grid":"exact",{"predictor":{"type":"exact","class":"ForwardPredictor","prior":{"class":"LIN"},"segment":{"class":'
    b'{"predictor":{"type":"exact","class":"ForwardPredictor","prior":{"class":"RandomUniform","max_length":'
    b'{"predictor":{"type":"exact","class":"ForwardPredictor","prior":{"class":"RegularPeriodic","period":'
    b'{"predictor":{"type":"exact","class":"ForwardPredictor","prior":{"class":"Geometric","hazard":0.0'
    b'},"segment":{"class":"Bernoulli","alpha":0.5,"beta":0.5},"max_hypotheses":100},"grid":"exact",'
    b'"symbols":{"predictor":{"type":"exact","class":"PTWPredictor","prior":{"class":"PTW","depth":1'
    b',"split":0.5},"segment":{"class":"Bernoulli","alpha":0.5,"beta":0.5}},'
    b'"grid":"exact","symbols":{"kind":"text","names":[],"before":"","between":[""],"after":"\\n"},'
    b'"length":10,"digest":"'
)


@dataclass(frozen=True)
class Archive:
    """The content of an archive."""

    predictor: Mapping[str, Any]
    """The description of the predictor (see `switchpoint.spec`)."""
    grid: str
    """The name of the grid to which probabilities are rounded."""
    symbols: Mapping[str, Any]
    """The kind of the symbols, and how they become the content of a file again."""
    length: int
    """The number of symbols."""
    digest: str
    """The beginning of the SHA-256 of the content."""
    code: bytes
    """The symbols, as `switchpoint.streams.coding` codes them."""

    def pack(self) -> bytes:
        """The archive as bytes."""
        header = {name: getattr(self, name) for name in _FIELDS}
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zdict=_PHRASES)
        data = _MAGIC + bytes([NEWEST]) + deflate.compress(text) + deflate.flush() + self.code
        return data + _CHECKSUM.pack(zlib.crc32(data))


def unpack(data: bytes, name: str) -> Archive:
    """The archive that `pack` turned into bytes; `name` is what messages call the file."""
    if not data.startswith(_MAGIC):
        raise ValueError(f"{name} is not an archive of switchpoint compress")
    content, checksum = data[: -_CHECKSUM.size], data[-_CHECKSUM.size :]
    if len(content) <= len(_MAGIC) or _CHECKSUM.pack(zlib.crc32(content)) != checksum:
        raise ValueError(f"{name} is truncated or damaged: it does not match its checksum")
    check_format({FORMAT: content[len(_MAGIC)]}, name)
    try:
        inflate = zlib.decompressobj(-15, zdict=_PHRASES)
        header = json.loads(inflate.decompress(content[len(_MAGIC) + 1 :], _LONGEST_HEADER))
        fields = {key: header[key] for key in _FIELDS}
    except (ValueError, KeyError, TypeError, RecursionError, zlib.error) as error:
        raise ValueError(f"{name} is damaged: its header is unreadable") from error
    invalid = [key for key, kind in _FIELDS.items() if type(fields[key]) is not kind]
    if not invalid:
        invalid = ["length"] if not 0 <= fields["length"] <= _MOST_SYMBOLS else []
        invalid += ["grid"] if fields["grid"] not in GRIDS else []
    if invalid:
        raise ValueError(f"{name} is damaged: its header has no valid {invalid[0]}")
    return Archive(**fields, code=inflate.unused_data)


def compress(data: Any, predictor: Predictor[Any] | str | None = None) -> bytes:
    """The archive of bytes, or of an array of symbols, coded by the predictions of a predictor.

    The code has about -log2 P(x_0..x_(n-1)) bits, the code length of the predictor, by default PTW
    over as many symbols as occur. Of bytes the symbols are the bytes, or their bits for a predictor
    of the alphabet 2. This is for sequences whose statistics switch, such as states or bits; for
    text, programs and other files use xz or zstd, which find repetitions: 1 MB of source text takes
    600 kB here and 268 kB by gzip. The order of the operations is that of `Stream`; needs the
    package constriction.

        >>> import numpy as np
        >>> import switchpoint as sp
        >>> archive = sp.compress(np.repeat([0, 1, 0], 1000))
        >>> len(archive), int(sp.decompress(archive).sum())
        (58, 1000)

    - `data`: bytes, or an array (time,) of symbols 0, 1, ...
    - `predictor`: an exact one, or the name or the file of a network, which `decompress` needs.
    """
    described: Mapping[str, Any] | None = None
    if isinstance(predictor, str):
        described = describe_file(predictor, None)
        predictor = make_predictor(described)
    if isinstance(data, bytes | bytearray | memoryview):
        content, bits = bytes(data), predictor is not None and predictor.alphabet == 2
        symbols = np.frombuffer(content, np.uint8)
        symbols = np.unpackbits(symbols) if bits else symbols
        about: dict[str, Any] = {"kind": "bits" if bits else "bytes"}
        alphabet = 2 if bits else 256
    else:
        symbols = np.asarray(data)
        if symbols.ndim != 1 or symbols.dtype.kind not in "biu" or (symbols < 0).any():
            raise ValueError(
                "data must be bytes or an array (time,) of symbols 0, 1, ..., got "
                f"{_checks.shown(data)}"
            )
        content, about = symbols.astype("<i4").tobytes(), {"kind": "array"}
        alphabet = max(2, int(symbols.max(initial=0)) + 1)
    if predictor is None:
        prior = PTW(max(1, (len(symbols) - 1).bit_length()))
        predictor = bayes_optimal(Source(prior, make_segment(alphabet)))
    if (predictor.alphabet or 0) < alphabet and len(symbols):
        raise ValueError(
            f"predictor must be of at least {alphabet} symbols, got {predictor.alphabet}"
        )
    if described is None:
        described, _ = describe_predictor(predictor)
        if described["type"] != "exact":
            raise ValueError(
                "predictor must be exact, or the name or the file of a network, got "
                f"{_checks.shown(predictor)}"
            )
    archive, _ = make_archive(symbols.astype(np.int32), content, about, described, predictor)
    return archive


def decompress(archive: bytes, *, model: str | None = None) -> Any:
    """The bytes, or the array of symbols, of an archive of `compress` or of the command.

    An archive that is damaged, or that this machine decodes to other symbols, is refused. `model`
    is the file of the network of the archive, if it was moved.

    >>> import switchpoint as sp
    >>> sp.decompress(sp.compress(b"aaaaaabbbbbb"))
    b'aaaaaabbbbbb'
    """
    header = unpack(bytes(archive), "the archive")
    symbols, content = read_archive(header, "the archive", model)
    return symbols if header.symbols["kind"] == "array" else content


def make_archive(
    symbols: Int[np.ndarray, " time"],
    content: bytes,
    about: Mapping[str, Any],
    described: Mapping[str, Any],
    predictor: Predictor[Any],
    progress: Progress | None = None,
) -> tuple[bytes, Stream]:
    """An archive of symbols, from which `about` makes the content, and the stream that coded it."""
    grid, stream = "network" if described["type"] == "file" else "exact", Stream(predictor)
    code = encode(stream, symbols, GRIDS[grid], progress)
    digest = hashlib.sha256(content).hexdigest()[:_DIGEST]
    return Archive(described, grid, about, len(symbols), digest, code).pack(), stream


def read_archive(
    archive: Archive, name: str, model: str | None = None, progress: Progress | None = None
) -> tuple[Int[np.ndarray, " time"], bytes]:
    """The symbols of an archive, which messages call `name`, and its content."""
    try:
        if model is not None and archive.predictor["type"] != "file":
            raise ValueError(f"the archive was made without a network, got --model {model}")
        stream = Stream(make_predictor(archive.predictor, model=model))
    except OtherFileError as error:
        raise ValueError(
            f"the archive does not fit: {error}; say where its network is with --model"
        ) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{name} is damaged: its predictor is unknown ({error!r})") from error
    symbols = decode(stream, archive.code, archive.length, GRIDS[archive.grid], progress)
    try:
        content = to_content(symbols, archive.symbols)
    except (KeyError, TypeError, IndexError, ValueError, OSError) as error:
        raise ValueError(
            f"{name} is damaged: its symbols do not form a file ({error!r})"
        ) from error
    if hashlib.sha256(content).hexdigest()[:_DIGEST] != archive.digest:
        raise ValueError(
            f"{name} is intact, but its symbols do not match its checksum: this machine or version "
            "predicts them differently; decompress it where it was compressed"
        )
    return symbols, content


def to_content(symbols: Int[np.ndarray, " time"], about: Mapping[str, Any]) -> bytes:
    """The bytes with these symbols."""
    if about["kind"] == "array":
        return symbols.astype("<i4").tobytes()
    if about["kind"] == "bytes":
        return symbols.astype(np.uint8).tobytes()
    if about["kind"] == "bits":
        return np.packbits(symbols.astype(np.uint8)).tobytes()
    names = about["names"]
    tokens = [names[each] if names else str(each) for each in symbols.tolist()]
    return _join(tokens, about).encode()


def _join(tokens: Sequence[str], layout: Mapping[str, Any]) -> str:
    gaps = layout["between"]
    if isinstance(gaps, str):
        unpack = bz2.BZ2Decompressor().decompress
        gaps = unpack(base64.b64decode(gaps), max_length=LARGEST).decode().split("\0")
    elif len(gaps) == 1:
        gaps = gaps * (len(tokens) - 1)
    pairs = zip([layout["before"], *gaps], tokens, strict=True)
    return "".join([*chain.from_iterable(pairs), layout["after"]])
