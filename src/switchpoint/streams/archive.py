"""Archives of `switchpoint compress`: a header, the code of the symbols, and a checksum.

The magic bytes and the number of the format, the header as JSON, deflated with `_PHRASES` as its
dictionary, the code, and the CRC-32 of all that.
"""

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from switchpoint._formats import FORMAT, NEWEST, check_format
from switchpoint._text import LARGEST
from switchpoint.streams.coding import GRIDS

_MAGIC = b"\x89SPZ"
_CHECKSUM = struct.Struct("<I")
_FIELDS = {"predictor": dict, "grid": str, "symbols": dict, "length": int, "digest": str}
_MOST_SYMBOLS = 8 * LARGEST
_LONGEST_HEADER = 2**26

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
