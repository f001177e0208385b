"""The regret of predictors on the same test sequences, many networks in one program."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from switchpoint import _checks
from switchpoint.evaluation.metrics import code_length, regret
from switchpoint.exact import KTOracle
from switchpoint.neural import Network
from switchpoint.predictor import Predictor
from switchpoint.sources import Draw, Source

CHUNK = 250
"""How many sequences are drawn at a time by default."""

Member: TypeAlias = Predictor[Any] | Callable[[Draw], Predictor[Any]] | type[KTOracle]
"""A predictor, a function that makes one from what was drawn, or the class `KTOracle`."""

_VALUES_AT_ONCE = 2**23  # of the predictions of the members that a GPU takes together


@dataclass(frozen=True)
class Chunk:
    """Some of the sequences of an evaluation."""

    draw: Draw
    """As many sequences as every other chunk has, so that one compilation serves all."""
    start: int
    """The number of the first sequence, from 0."""
    wanted: int
    """How many sequences of the draw count: all, except in the last chunk."""


def chunks(source: Source, length: int, sequences: int, seed: int, size: int) -> Iterator[Chunk]:
    """`sequences` sequences of `source`, `size` at a time.

    Chunk i is drawn whole with the key fold_in(key(seed), i), and the last is cut after the
    draw, so that the first n sequences do not depend on their number. Another size draws other
    sequences.
    """
    key = jax.random.key(seed)
    for index, start in enumerate(range(0, sequences, size)):
        draw = source.sample(jax.random.fold_in(key, index), size, length)
        if sequences < size:  # a chunk of long sequences can be much work
            draw = jax.tree.map(lambda leaf: leaf[:sequences], draw)
        yield Chunk(draw, start, min(size, sequences - start))


def over_members(
    function: Callable[..., Any], *arguments: Any, batch_size: int | None = None
) -> Any:
    """`function` of each member's arguments, which have a leading axis of members.

    A GPU takes all members at once, or `batch_size` of them. A CPU takes one after another,
    since one member's numbers fit in its caches and those of all members do not.
    """
    if jax.default_backend() == "cpu":
        return lax.map(lambda member: function(*member), arguments)
    if batch_size is None or batch_size >= len(jax.tree.leaves(arguments)[0]):
        return jax.vmap(function)(*arguments)
    return lax.map(lambda member: function(*member), arguments, batch_size=batch_size)


def over_networks(
    metric: Callable[[Float[Array, "batch time alphabet"]], Any], networks: Network, draw: Draw
) -> Any:
    """`metric` of the log probabilities that each network of a stack gives to a draw.

    The number of predictions that exist at a time is bounded.
    """
    return over_members(
        lambda network: metric(network.log_probs_unchecked(draw.symbols)),
        networks,
        batch_size=max(1, _VALUES_AT_ONCE // draw.probs.size),
    )


def regrets(
    members: Sequence[Member | None],
    source: Source,
    length: int,
    sequences: int,
    seed: int = 0,
    *,
    chunk: int = CHUNK,
    progress: Callable[[int, int], None] | None = None,
) -> Float[np.ndarray, "member sequence"]:
    """The regret in bits of every member on every test sequence: those that `evaluate` draws.

    Networks of the same structure are run in one program where that is faster. The row of a
    member that is None is NaN. `progress` is called with the number of sequences done and
    their total.
    """
    rows = [index for index, member in enumerate(members) if member is not None]
    known = [(f"number {index}", members[index]) for index in rows]
    totals = np.full((len(members), _checks.positive_int("sequences", sequences)), np.nan)
    for part in measure(known, source, length, sequences, seed, chunk, progress):
        for index, bits in zip(part.members, part.regret, strict=True):
            totals[rows[index], part.sequences] = bits.sum(-1, dtype=np.float64)
    return totals


@dataclass(frozen=True)
class Measured:
    """What some members cost on the sequences of one chunk, in bits per symbol."""

    members: Sequence[int]
    sequences: slice
    draw: Draw
    """It may have more sequences than are wanted."""
    regret: Float[np.ndarray, "member sequence time"]
    code_length: Float[np.ndarray, "member sequence time"]


def measure(
    members: Sequence[tuple[str, Any]],
    source: Source,
    length: int,
    sequences: int,
    seed: int,
    chunk: int,
    progress: Callable[[int, int], None] | None,
) -> Iterator[Measured]:
    """Every member, given with its name for messages, on every chunk."""
    length = _checks.positive_int("length", length)
    sequences = _checks.positive_int("sequences", sequences)
    chunk = _checks.positive_int("chunk", chunk)
    groups = _groups([member for _, member in members])
    for part in chunks(source, length, sequences, _checks.seed(seed), chunk):
        rows = slice(part.start, part.start + part.wanted)
        made = [_predictor(*each, part.draw, source) for each in members]
        for indices, networks in groups:
            if networks is None:
                log_probs = made[indices[0]].log_probs(part.draw.symbols)
                bits = jax.tree.map(lambda leaf: leaf[None], _bits(part.draw, log_probs))
            else:
                bits = _bits_of_networks(networks, part.draw)
            found = (np.asarray(leaf)[:, : part.wanted] for leaf in bits)
            yield Measured(indices, rows, part.draw, *found)
        if progress is not None:
            progress(rows.stop, sequences)


def _groups(members: Sequence[Member]) -> list[tuple[list[int], Network | None]]:
    """Members that run together, with their networks stacked.

    A small network leaves most of a GPU idle, and many keep it busy. A CPU is not faster with
    many, so there each member is a group by itself.
    """
    groups: dict[Any, list[int]] = {}
    for index, member in enumerate(members):
        key: Any = index
        if isinstance(member, Network) and jax.default_backend() != "cpu":
            leaves, structure = jax.tree.flatten(member)
            key = structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        groups.setdefault(key, []).append(index)
    return [
        (each, None)
        if len(each) == 1
        else (each, jax.tree.map(lambda *x: jnp.stack(x), *(members[index] for index in each)))
        for each in groups.values()
    ]


@eqx.filter_jit
def _bits(draw: Draw, log_probs: Float[Array, "batch time alphabet"]) -> tuple[Array, Array]:
    return regret(draw, log_probs), code_length(draw.symbols, log_probs)


@eqx.filter_jit
def _bits_of_networks(networks: Network, draw: Draw) -> tuple[Array, Array]:
    return over_networks(lambda log_probs: _bits(draw, log_probs), networks, draw)


def _predictor(name: str, member: Any, draw: Draw, source: Source) -> Predictor[Any]:
    """The predictor that a member is for these sequences."""
    if member is KTOracle:
        member = KTOracle(draw.switches, source.segment)
    elif not isinstance(member, Predictor):
        member = member(draw)
    if not isinstance(member, Predictor):
        raise ValueError(f"predictor {name!r} must make a Predictor, got {member!r}")
    if member.alphabet != source.segment.alphabet:
        raise ValueError(
            f"predictor {name!r} must have the alphabet of the source, "
            f"{source.segment.alphabet}, got {member.alphabet}"
        )
    return member
