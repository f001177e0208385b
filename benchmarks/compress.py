"""How long archives of sequences from the paper's sources are, beside gzip, xz and zstd.

    python benchmarks/compress.py                               # 8 files of 16,384 bits per source
    python benchmarks/compress.py --files 2 --length 4096

The expected code length of a source is its entropy: the mean code length of its own Bayes optimum
over sequences drawn from it, here over the same files and without pruning. Archives are whole files
with their headers, restored and compared. The general compressors get the bits as bytes of eight
and as a text of digits, and the shorter result counts; zstd only if `zstandard` is installed.
"""

import argparse
import gzip
import importlib
import lzma
import time
from collections.abc import Callable

import jax
import numpy as np

import switchpoint as sp
from switchpoint.spec import describe_predictor
from switchpoint.streams.archive import Archive
from switchpoint.streams.coding import decode, encode

HYPOTHESES = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--length", type=int, default=2**14)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    depth = max(1, (options.length - 1).bit_length())
    tools = compressors()
    names = ["expected", "archive", "excess", "code", "ptw", *tools]
    print(f"{options.files} files of {options.length} bits; bytes per file")
    print(f"{'':28}", *(f"{name:>10}" for name in names), "  us/bit")
    for prior in (sp.PTW(depth), sp.LIN(), sp.RegularPeriodic(20), sp.RandomUniform(256)):
        source = sp.Source(prior)
        draw = source.sample(jax.random.key(options.seed), options.files, options.length)
        rows = np.asarray(draw.symbols)
        logs = np.asarray(sp.bayes_optimal(source).log_density(rows), np.float64)
        expected = -logs.sum(-1).mean() / np.log(2) / 8
        own = sp.bayes_optimal(source, None if isinstance(prior, sp.PTW) else HYPOTHESES)
        begun = time.process_time()
        sizes, codes = np.array([compress(own, row) for row in rows]).mean(0)
        seconds = (time.process_time() - begun) / rows.size
        universal = sp.bayes_optimal(sp.Source(sp.PTW(40)))
        ptw = np.mean([compress(universal, row)[0] for row in rows])
        others = [np.mean([shortest(tool, row) for row in rows]) for tool in tools.values()]
        numbers = [f"{x:10,.1f}" for x in (expected, sizes)]
        numbers += [f"{100 * (sizes / expected - 1):9.2f}%"]
        numbers += [f"{x:10,.1f}" for x in (codes, ptw, *others)]
        print(f"{' '.join(repr(prior).split()):28}", *numbers, f"{1e6 * seconds:8.1f}", flush=True)


def compress(predictor: sp.Predictor, row: np.ndarray) -> tuple[int, int]:
    """The size of the archive of a row of bits and that of its code, in bytes."""
    code = encode(sp.Stream(predictor), row)
    restored = decode(sp.Stream(predictor), code, len(row))
    if not np.array_equal(restored, row):
        raise SystemExit("the archive does not hold the file")
    about = describe_predictor(predictor)[0]
    layout = {"kind": "text", "names": [], "before": "", "between": [""], "after": "\n"}
    return len(Archive(about, "exact", layout, len(row), "0123456789abcdef", code).pack()), len(
        code
    )


def compressors() -> dict[str, Callable[[bytes], bytes]]:
    tools: dict[str, Callable[[bytes], bytes]] = {
        "gzip -9": lambda data: gzip.compress(data, 9),
        "xz -9e": lambda data: lzma.compress(data, preset=9 | lzma.PRESET_EXTREME),
    }
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        return tools
    return {**tools, "zstd -22": zstandard.ZstdCompressor(level=22).compress}


def shortest(tool: Callable[[bytes], bytes], row: np.ndarray) -> int:
    """The size of the shorter of two files, in bytes."""
    texts = (np.packbits(row.astype(np.uint8)).tobytes(), "".join(map(str, row.tolist())).encode())
    return min(len(tool(text)) for text in texts)


if __name__ == "__main__":
    main()
