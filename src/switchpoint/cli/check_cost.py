"""What a command costs in memory and time, checked before the work begins."""

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
"""The longest sequence of bits for priors whose exact posterior takes work in n^2: all but PTW."""

_LETTERS_PER_BIT = 25
"""Larger alphabets take more work: so many letters as much again as bits do, as measured."""

MAX_DRAWN = 10**10
"""How many probabilities a command may draw. About an hour."""

PIECE = 2**26
"""How many probabilities are drawn at once."""

MAX_ALPHABET = 2**16
MAX_DEPTH = 1000
_UNKNOWN_MEMORY = 2**33
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
# Bytes of memory, as measured.
_PER_DRAWN = 20
_PER_PREDICTED = 100
_PER_EVALUATED = 40
_PER_ATTENDED = 64
NETWORK_BLOCK = 512
"""How many symbols of a long sequence a network predicts at a time."""


def check_alphabet(alphabet: int) -> None:
    """Raise a `ValueError` where an alphabet is too large."""
    if alphabet > MAX_ALPHABET:
        raise ValueError(f"alphabet must be at most {MAX_ALPHABET}, got {alphabet}")


def max_quadratic(alphabet: int) -> int:
    """The longest sequence for which the exact posterior of any prior is a matter of minutes."""
    return int(MAX_BITS / math.sqrt((_LETTERS_PER_BIT + alphabet) / (_LETTERS_PER_BIT + 2)))


def check_depth(depth: int | None) -> None:
    """Raise a `ValueError` where a tree is too deep: 2^depth must be a number to work with."""
    if depth is not None and depth > MAX_DEPTH:
        raise ValueError(f"depth must be at most {MAX_DEPTH}, got {depth}")


def rows_at_once(batch: int, length: int, alphabet: int) -> int:
    """How many sequences are drawn at once: all of them, where they are a piece at most."""
    return min(batch, max(1, PIECE // (length * alphabet)))


def check_sample(batch: int, length: int, alphabet: int, *, kept: bool) -> None:
    """Raise a `ValueError` where drawing takes too much; `kept` where all of it is held."""
    check_alphabet(alphabet)
    what = f"{batch} x {length} symbols of an alphabet of {alphabet}"
    drawn = batch * length * alphabet
    if drawn > MAX_DRAWN:
        most = MAX_DRAWN // alphabet
        raise ValueError(f"{what} are too many to draw: at most {most} symbols of that alphabet")
    piece = rows_at_once(batch, length, alphabet) * length * alphabet
    held = 2 * batch * length * (4 * alphabet + 5) if kept else 0
    _check_memory(f"{what}{' in one .npz' if kept else ''}", piece * _PER_DRAWN + held)


def check_exact(prior: Prior, length: int, alphabet: int) -> None:
    """Raise a `ValueError` where the exact predictor takes too long or too much memory."""
    if not isinstance(prior, PTW) and length > max_quadratic(alphabet):
        raise ValueError(
            f"{length} symbols are too many for {prior!r}, whose work grows with the square (at "
            f"most {max_quadratic(alphabet)} of an alphabet of {alphabet}); ptw has no such limit"
        )
    _check_memory(
        f"{length} symbols of an alphabet of {alphabet}",
        length * _PER_PREDICTED * (alphabet + length.bit_length()),
    )


def check_network(network: Predictor[Any], length: int) -> None:
    """Raise a `ValueError` where a network would have to remember too much."""
    if isinstance(network, Network) and length > NETWORK_BLOCK:
        one, all_ = (_memory_bytes(network, room) for room in (1, length))
        attended = _PER_ATTENDED * NETWORK_BLOCK * length if all_ > one else 0
        _check_memory(f"{length} symbols for this network", 4 * all_ + attended)


def check_evaluation(predictors: int, length: int, alphabet: int, sequences: int) -> None:
    """Raise a `ValueError` where so many predictors on so many sequences take too much memory."""
    check_alphabet(alphabet)
    _check_memory(
        f"{sequences} sequences of {length} symbols for {predictors} predictors",
        CHUNK * length * alphabet * _PER_EVALUATED + 16 * predictors * sequences,
    )


def memory_limit() -> int:
    """How much memory a command may take: half of what there is."""
    try:
        there_is = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a Unix
        return _UNKNOWN_MEMORY
    with suppress(OSError, ValueError):  # a container may have less
        there_is = min(there_is, int(_CGROUP_LIMIT.read_text()))
    return there_is // 2


def _check_memory(what: str, needed: int) -> None:
    limit = memory_limit()
    if needed > limit:
        raise ValueError(
            f"{what} would take about {needed / 2**30:.3g} GiB of memory, more than half of what "
            f"this machine has ({limit / 2**30:.3g} GiB)"
        )


def _memory_bytes(network: Network, room: int) -> int:
    shapes = eqx.filter_eval_shape(lambda network: network.memory(1, room), network)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
