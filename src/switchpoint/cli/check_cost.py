"""The memory and the time that a command needs, checked before the work begins."""

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from switchpoint.evaluation.measure import CHUNK
from switchpoint.neural import Network
from switchpoint.predictor import Predictor
from switchpoint.priors import PTW, Prior

MAX_BITS = 20_000
"""The longest binary sequence for priors whose posterior takes O(n^2) work: all but PTW."""
MAX_DRAWN = 2**26
"""The maximum number of probabilities that a command draws."""
NETWORK_BLOCK = 512
"""The number of symbols of a long sequence that a network predicts at a time."""
MAX_ALPHABET = 2**16

_SYMBOLS_PER_BIT = 25  # that many more symbols in the alphabet double the work, as measured
_UNKNOWN_MEMORY = 2**33
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
# Bytes per item, as measured.
_PER_DRAWN, _PER_PREDICTED, _PER_EVALUATED, _PER_ATTENDED = 25, 100, 40, 64


def max_quadratic(alphabet: int) -> int:
    """The longest sequence for which the exact posterior of any prior takes only minutes."""
    return int(MAX_BITS / math.sqrt((_SYMBOLS_PER_BIT + alphabet) / (_SYMBOLS_PER_BIT + 2)))


def check_sample(batch: int, length: int, alphabet: int) -> None:
    """Raise a `ValueError` where a draw takes too much memory."""
    what = f"{batch} x {length} symbols of an alphabet of {alphabet}"
    if batch * length * alphabet > MAX_DRAWN:
        raise ValueError(
            f"{what} are too many to draw at once: at most {MAX_DRAWN // alphabet}; draw them in "
            "parts, each with another --seed"
        )
    _check_memory(what, batch * length * alphabet * _PER_DRAWN)


def check_exact(prior: Prior, length: int, alphabet: int) -> None:
    """Raise a `ValueError` where the exact predictor takes too long or too much memory."""
    if not isinstance(prior, PTW) and length > max_quadratic(alphabet):
        raise ValueError(
            f"{length} symbols are too many for {prior!r}, whose work grows with the square (at "
            f"most {max_quadratic(alphabet)} of an alphabet of {alphabet}); ptw has no such limit"
        )
    needed = length * _PER_PREDICTED * (alphabet + length.bit_length())
    _check_memory(f"{length} symbols of an alphabet of {alphabet}", needed)


def check_network(network: Predictor[Any], length: int) -> None:
    """Raise a `ValueError` where the memory of a network would become too large."""
    if isinstance(network, Network) and length > NETWORK_BLOCK:
        shapes = [
            eqx.filter_eval_shape(lambda network, n=n: network.memory(1, n), network)
            for n in (1, length)
        ]
        least, most = (
            sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(each))
            for each in shapes
        )
        attended = _PER_ATTENDED * NETWORK_BLOCK * length if most > least else 0
        _check_memory(f"{length} symbols for this network", 4 * most + attended)


def check_evaluation(predictors: int, length: int, alphabet: int, sequences: int) -> None:
    """Raise a `ValueError` where an evaluation takes too much memory."""
    needed = CHUNK * length * alphabet * _PER_EVALUATED + 16 * predictors * sequences
    what = f"{sequences} sequences of {length} symbols for {predictors} predictors"
    _check_memory(what, needed)


def memory_limit() -> int:
    """The memory that a command may take: half of that of the machine or its container."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a Unix
        return _UNKNOWN_MEMORY
    with suppress(OSError, ValueError):
        memory = min(memory, int(_CGROUP_LIMIT.read_text()))
    return memory // 2


def _check_memory(what: str, needed: int) -> None:
    limit = memory_limit()
    if needed > limit:
        raise ValueError(
            f"{what} would take about {needed / 2**30:.3g} GiB of memory; the limit is half of "
            f"this machine's memory ({limit / 2**30:.3g} GiB)"
        )
