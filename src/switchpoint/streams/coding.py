"""Lossless coding of symbols by the predictions of a stream, which other machines can decode.

A symbol k is coded by the integers c(k) and c(k + 1) out of 2^b, where

    c(k) = floor(P(x < k) * (2^b - alphabet) + offset) + k,    c(0) = 0,  c(alphabet) = 2^b,

so that every symbol has a share of at least one. The decoder computes the same probabilities from
the symbols before, in double precision; on another machine exponentials, logarithms and sums may
differ in their last digits. They must never change one of the two integers: the encoder takes, for
each block of symbols, an offset for which all sums in front of `floor` keep a margin from the next
integer, and codes which one it took. The margin is a 16th of a symbol's share of the block, so that
the first offset usually has it. Differences between the probabilities of the two machines below
margin / 2^b, the tolerance of the grid, change nothing.

The integers are coded by asymmetric numeral systems (the ANS coder of `constriction`), which are
decoded in the order of the symbols and encoded in reverse. Its range coder, with shares out of
2^24, loses 1.1e-4 bits per symbol; this one next to nothing.
"""

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt

from switchpoint._progress import Progress


@dataclass(frozen=True)
class Grid:
    """To what probabilities are rounded."""

    precision: int
    """The number b of bits."""
    block: int
    """How many symbols share an offset."""

    @property
    def margin(self) -> float:
        """The distance from an integer that the encoder keeps."""
        return 1 / (16 * self.block)

    @property
    def tolerance(self) -> float:
        """By how much the probabilities of two machines may differ."""
        return self.margin / 2**self.precision


EXACT = Grid(24, 2**18)
"""For exact predictors, whose probabilities may be extreme and hardly depend on the machine."""

NETWORK = Grid(18, 2**14)
"""For networks, which amplify rounding errors."""

GRIDS: Mapping[str, Grid] = {"exact": EXACT, "network": NETWORK}
"""The grids by the names that archives have for them."""

_TOTAL = 2**24  # fixed by constriction
_REPORT = 2**12  # symbols between two reports of progress
_OFFSETS = 8
_OFFSET_CUTS = [0, *(_TOTAL - _TOTAL // 8**i for i in range(1, _OFFSETS)), _TOTAL]


def encode(
    stream: Any,
    symbols: Int[np.ndarray, " time"],
    grid: Grid = EXACT,
    progress: Progress | None = None,
) -> bytes:
    """The code of `symbols` by the predictions of a new `stream`, which observes all of them.

    It has about -log2 P(x_0..x_(n-1)) bits, the code length of the stream, and takes n predictions
    and O(n) memory.

        >>> import numpy as np
        >>> import switchpoint as sp
        >>> from switchpoint.streams.coding import decode, encode
        >>> code = encode(sp.Stream(sp.KT()), np.array([1] * 90))
        >>> len(code), int(decode(sp.Stream(sp.KT()), code, 90).sum())
        (4, 90)
    """
    coder, model = _ans_coder(), _Model()
    total = 2**grid.precision
    lows, highs, chosen = array("I"), array("I"), []
    for begin in range(0, len(symbols), grid.block):
        block = symbols[begin : begin + grid.block]
        sums = np.empty((2, len(block)))
        for i, symbol in enumerate(block.tolist()):
            scaled = _scaled_sums(stream.predict(), total)
            sums[:, i] = scaled[symbol], scaled[symbol + 1]
            stream.update(symbol)
            if progress is not None and i % _REPORT == 0:
                progress.update("compressing", (begin + i) / len(symbols))
        index, (low, high) = _best_offset(sums, block, len(scaled) - 1, grid)
        chosen.append(index)
        lows.frombytes(low.tobytes())
        highs.frombytes(high.tobytes())
    for i in range(len(symbols) - 1, -1, -1):
        # To the coder a symbol is its own share, between the shares of all below and all above.
        cuts = sorted({0, lows[i], highs[i], _TOTAL})
        coder.encode_reverse(cuts.index(lows[i]), model(cuts))
        if i % grid.block == 0:
            coder.encode_reverse(chosen.pop(), model(_OFFSET_CUTS))
    return bytes(coder.get_compressed().astype("<u4").tobytes().rstrip(b"\0"))


def decode(
    stream: Any,
    code: bytes,
    count: int,
    grid: Grid = EXACT,
    progress: Progress | None = None,
) -> Int[np.ndarray, " time"]:
    """The `count` symbols that `encode` turned into `code`, with an equal new stream.

    Any code has symbols, so a wrong stream or a damaged code is only seen by a checksum of them.
    """
    words = np.frombuffer(code + bytes(-len(code) % 4), "<u4").astype(np.uint32)
    coder, model = _ans_coder(words), _Model()
    symbols, offset, total = np.empty(count, np.int32), 0.0, 2**grid.precision
    for i in range(count):
        if progress is not None and i % _REPORT == 0:
            progress.update("decompressing", i / count)
        if i % grid.block == 0:
            offset = _offset(coder.decode(model(_OFFSET_CUTS)))
        cuts = _cuts(_scaled_sums(stream.predict(), total), offset, total)
        symbols[i] = symbol = coder.decode(model(cuts))
        stream.update(symbol)
    return symbols


def _scaled_sums(log_probs: np.ndarray, total: int) -> Sequence[float] | np.ndarray:
    """P(x < k) for k = 0..alphabet, times total - alphabet."""
    scale = float(total - len(log_probs))
    if len(log_probs) == 2:  # several times as fast without NumPy
        first, second = map(math.exp, log_probs.tolist())
        return [0.0, scale * (first / (first + second)), scale]
    sums = np.zeros(len(log_probs) + 1)
    np.exp(log_probs).cumsum(out=sums[1:])
    return sums * (scale / sums[-1])


def _cuts(
    sums: Sequence[float] | np.ndarray, offset: float, total: int
) -> Sequence[int] | np.ndarray:
    """The integers c(0), ..., c(alphabet), in units of the coder."""
    unit = _TOTAL // total
    if len(sums) == 3:
        return [0, unit * (math.floor(sums[1] + offset) + 1), _TOTAL]
    cuts = unit * (np.floor(np.asarray(sums) + offset).astype(np.int64) + np.arange(len(sums)))
    cuts[0], cuts[-1] = 0, _TOTAL
    return cuts


def _best_offset(
    sums: Float[np.ndarray, "2 block"],
    symbols: Int[np.ndarray, " block"],
    alphabet: int,
    grid: Grid,
) -> tuple[int, UInt[np.ndarray, "2 block"]]:
    """The first offset that keeps the margin, or else the best, and c(k), c(k + 1) with it."""
    ends = np.stack([symbols, symbols + 1])
    fixed = (ends == 0) | (ends == alphabet)

    def margin(index: int) -> float:
        shares = (sums + _offset(index)) % 1.0
        return float(np.where(fixed, 0.5, np.minimum(shares, 1 - shares)).min())

    index = next((i for i in range(_OFFSETS) if margin(i) >= grid.margin), None)
    index = max(range(_OFFSETS), key=margin) if index is None else index
    total = 2**grid.precision
    cuts = np.where(fixed, np.where(ends == 0, 0, total), np.floor(sums + _offset(index)) + ends)
    return index, (_TOTAL // total * cuts).astype(np.uint32)


def _offset(index: int) -> float:
    """Irrational, since predictions are often simple fractions."""
    return (math.sqrt(2) + index * math.sqrt(3)) % 1.0


class _Model:
    """Makes the model in which symbol k has the share cuts[k]..cuts[k + 1] of 2^24."""

    def __init__(self) -> None:
        self._categorical = _constriction().stream.model.Categorical

    def __call__(self, cuts: Sequence[int] | np.ndarray) -> Any:
        # constriction gives every symbol one unit, and the others in proportion to these weights,
        # which sum to their number: nothing is rounded.
        if isinstance(cuts, np.ndarray):
            weights = cuts[1:] - cuts[:-1] - 1.0
        else:
            weights = np.array([high - low - 1.0 for low, high in pairwise(cuts)])
        return self._categorical(weights, perfect=False)


def _ans_coder(*code: UInt[np.ndarray, " words"]) -> Any:
    return _constriction().stream.stack.AnsCoder(*code)


def _constriction() -> Any:
    try:
        import constriction
    except ImportError as error:
        raise ValueError(
            "compression needs the package constriction: pip install 'switchpoint[compress]'"
        ) from error
    return constriction
