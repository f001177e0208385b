"""The regret of predictors on the same test sequences, many networks in one program."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from switchpoint import _checks
from switchpoint.evaluation.metrics import BITS_PER_NAT, code_length, regret
from switchpoint.exact import KTOracle
from switchpoint.neural import Network
from switchpoint.predictor import Predictor
from switchpoint.segments import Segment
from switchpoint.sources import AbstractSource, Draw

CHUNK = 250
"""How many sequences are drawn at a time by default."""

Member: TypeAlias = Predictor[Any] | Callable[[Draw], Predictor[Any]] | type[KTOracle]
"""A predictor, a function that makes one from what was drawn, or the class `KTOracle`."""

_MIN_SYMBOLS = 2**13  # of the sequences that a core takes


def chunks(
    source: AbstractSource, length: int, sequences: int, seed: int, size: int
) -> Iterator[tuple[slice, Draw]]:
    """`sequences` sequences of `source`, `size` at a time: their rows, and the draw.

    Chunk i is drawn with the key fold_in(key(seed), i), so that the first n sequences do not
    depend on their number. Another size draws other sequences. All draws have the same size, so
    that one compilation serves all: the last may have more sequences than are wanted.
    """
    key = jax.random.key(seed)
    for index, start in enumerate(range(0, sequences, size)):
        draw = source.sample(jax.random.fold_in(key, index), size, length)
        if not isinstance(draw, Draw) or draw.switches.shape != (size, length):
            shape = draw.switches.shape if isinstance(draw, Draw) else None
            raise ValueError(
                f"{type(source).__name__}.sample must return a Draw of shape {(size, length)}, got "
                f"{_checks.shown(draw) if shape is None else shape}"
            )
        if sequences < size:  # a whole chunk of long sequences is much work
            draw = jax.tree.map(lambda leaf: leaf[:sequences], draw)
        yield slice(start, min(start + size, sequences)), draw


def data_chunks(data: Draw | np.ndarray, size: int) -> Iterator[tuple[slice, Any]]:
    """Given sequences, at most `size` at a time: their rows, and the sequences.

    All chunks have the same size, so that one compilation serves all: the last one is filled up
    with the first sequences.
    """
    count = len(jax.tree.leaves(data)[0])
    size = min(size, count)
    for start in range(0, count, size):
        rows = np.arange(start, start + size) % count
        part = jax.tree.map(lambda leaf, rows=rows: leaf[rows], data)
        yield slice(start, min(start + size, count)), part


def over_members(
    function: Callable[..., Any], *arguments: Any, batch_size: int | None = None
) -> Any:
    """`function` of each member's arguments, which have a leading axis of members.

    A GPU takes all members together, or `batch_size` of them. A CPU takes one after another,
    since one member's numbers fit in its caches and those of all members do not.
    """
    if jax.default_backend() == "cpu":
        return lax.map(lambda member: function(*member), arguments)
    if batch_size is None or batch_size >= len(jax.tree.leaves(arguments)[0]):
        return jax.vmap(function)(*arguments)
    return lax.map(lambda member: function(*member), arguments, batch_size=batch_size)


def predictions(predictor: Any, draw: Draw) -> Float[Array, "batch time *alphabet"]:
    """The log probabilities of all symbols; where there is no alphabet, the log densities."""
    if draw.symbol_probs is None:
        return predictor.log_density(draw.values)
    return predictor.log_probs(draw.symbols)


def over_networks(
    metric: Callable[[Float[Array, "batch time *alphabet"]], Any],
    networks: Network,
    draw: Draw,
    values_at_once: int = 2**23,
) -> Any:
    """`metric` of the predictions that each network of a stack makes for a draw.

    A GPU takes as many networks together as make `values_at_once` predictions.
    """

    def measure_one(network: Network) -> Any:
        if draw.symbol_probs is None:
            return metric(network.log_density_unchecked(draw.values))
        return metric(network.log_probs_unchecked(draw.symbols))

    size = draw.switches.size if draw.symbol_probs is None else draw.probs.size
    return over_members(measure_one, networks, batch_size=max(1, values_at_once // size))


Bits: TypeAlias = Float[np.ndarray, "member sequence time"]


def measure(
    members: Sequence[tuple[str, Any]],
    tests: Iterable[tuple[slice, Draw | np.ndarray]],
    segment: Segment | None,
    report: Callable[[int], object] = lambda _: None,
) -> Iterator[tuple[Sequence[int], slice, Draw | np.ndarray, Bits, Bits]]:
    """Measure every member, given with its name for messages, on every chunk of sequences.

    `segment` is that of the source, if there is one. Yields the indices of some members, the
    sequences of the chunk, the chunk itself, and the regret and the code length in bits of each of
    these members on every symbol. Without a `Draw` the code length takes the place of the regret.
    `report` receives the number of sequences that all members are done with.
    """
    groups = _groups([member for _, member in members])
    for rows, test in tests:
        predictors = [_predictor(*each, test, segment) for each in members]
        for indices, networks in groups:
            if networks is not None and isinstance(test, Draw):
                bits = _bits_of_networks(networks, test)
            else:
                parts = [_bits(test, _predictions(*predictors[index], test)) for index in indices]
                bits = jax.tree.map(lambda *parts: jnp.stack(parts), *parts)
            regret_bits, code_bits = (np.asarray(x)[:, : rows.stop - rows.start] for x in bits)
            yield indices, rows, test, regret_bits, code_bits
        report(rows.stop)


def _predictions(
    name: str, predictor: Any, test: Draw | np.ndarray
) -> Float[Array, "sequence time *alphabet"]:
    """The predictions for a chunk, whose shape must fit it."""
    shape = (test.switches if isinstance(test, Draw) else test).shape[:2]
    values = test.values if isinstance(test, Draw) else test
    alphabet = getattr(predictor, "alphabet", None)
    if alphabet is None:
        log_probs, expected = predictor.log_density(values), shape
    else:
        symbols, expected = jnp.asarray(values, jnp.int32), (*shape, alphabet)
        cores = _useful_cores(predictor, symbols)
        if cores > 1:
            log_probs = _log_probs_on_cores(cores, predictor, symbols)
        else:
            log_probs = predictor.log_probs(symbols)
    if jnp.shape(log_probs) != expected:
        raise ValueError(
            f"predictor {name!r} must predict an array of shape {expected} for these sequences, "
            f"got {jnp.shape(log_probs)}"
        )
    return log_probs


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


def _useful_cores(predictor: Predictor[Any], symbols: Int[Array, "batch time"]) -> int:
    """How many of the cores that JAX sees as devices should predict these symbols."""
    if not isinstance(predictor, Network) or jax.default_backend() != "cpu":
        return 1
    return min(len(jax.devices()), symbols.size // _MIN_SYMBOLS)


def _log_probs_on_cores(
    cores: int, network: Predictor[Any], symbols: Int[Array, "batch time"]
) -> Float[Array, "batch time alphabet"]:
    """The log probabilities of valid symbols, an equal share of the sequences on each core.

    XLA alone divides the work of each operation among cores, and most are too small for that.
    """
    mesh = Mesh(np.asarray(jax.devices()[:cores]), ("sequence",))
    padded = jnp.pad(symbols, ((0, -len(symbols) % cores), (0, 0)))
    everywhere = jax.device_put(network, NamedSharding(mesh, PartitionSpec()))
    divided = jax.device_put(padded, NamedSharding(mesh, PartitionSpec("sequence")))
    log_probs = _log_probs_on(mesh, everywhere, divided)
    return jax.device_put(log_probs, jax.devices()[0])[: len(symbols)]


@partial(jax.jit, static_argnums=0)
def _log_probs_on(mesh: Mesh, network: Network, symbols: Int[Array, "batch time"]) -> Array:
    return jax.shard_map(
        Network.log_probs_unchecked,
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec("sequence")),
        out_specs=PartitionSpec("sequence"),
        check_vma=False,
    )(network, symbols)


@eqx.filter_jit
def _bits(
    test: Draw | np.ndarray | Array, log_probs: Float[Array, "batch time *alphabet"]
) -> tuple[Array, Array]:
    """The regret and the code length of every symbol; 0 where a value is missing."""
    values = test.values if isinstance(test, Draw) else test
    finite = log_probs.ndim > 2
    code = code_length(values.astype(jnp.int32), log_probs) if finite else -log_probs * BITS_PER_NAT
    return (regret(test, log_probs) if isinstance(test, Draw) else code), code


@eqx.filter_jit
def _bits_of_networks(networks: Network, draw: Draw) -> tuple[Array, Array]:
    return over_networks(lambda log_probs: _bits(draw, log_probs), networks, draw)


def _predictor(
    name: str, member: Any, test: Draw | np.ndarray, segment: Segment | None
) -> tuple[str, Predictor[Any]]:
    """The predictor that a member is for these sequences, after its name."""
    if not isinstance(member, Predictor):
        if not isinstance(test, Draw):
            raise ValueError(
                f"predictor {name!r} is made from a Draw, which has the switching points, and the "
                "given sequences do not: give a Predictor, or a Draw in their place"
            )
        if member is KTOracle:
            if segment is None:
                raise ValueError(
                    f"predictor {name!r}, the class KTOracle, needs the segment of a source: give "
                    "lambda draw: switchpoint.KTOracle(draw.switches, segment)"
                )
            member = KTOracle(test.switches, segment)
        else:
            member = member(test)
    if not isinstance(member, Predictor):
        raise ValueError(f"predictor {name!r} must make a Predictor, got {member!r}")
    if isinstance(test, Draw):
        # What is for real values has none.
        alphabet = getattr(member, "alphabet", None)
        expected = None if test.symbol_probs is None else test.probs.shape[-1]
        if alphabet != expected:
            raise ValueError(
                f"predictor {name!r} must have the alphabet of the source, {expected}, "
                f"got {alphabet}"
            )
    return name, member
