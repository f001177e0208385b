"""The regret of any predictors on any source or sequences, as a labelled dataset."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float

from switchpoint import _checks
from switchpoint._progress import Progress
from switchpoint.evaluation.measure import CHUNK, Member, chunks, data_chunks, measure
from switchpoint.evaluation.metrics import Part, mean_and_error, moments
from switchpoint.exact import ExactPredictor
from switchpoint.neural import Network
from switchpoint.predictor import Predictor
from switchpoint.segments.values import checked_values
from switchpoint.sources import AbstractSource, Draw, Source

Entry: TypeAlias = Member | Sequence[Member]
"""A member alone, or the members of one ensemble."""


def evaluate(
    predictors: Mapping[str, Entry],
    source: AbstractSource | Draw | Any,
    length: int | None = None,
    sequences: int | None = None,
    seed: int = 0,
    chunk: int = CHUNK,
    keep: Literal["totals", "all"] = "totals",
    progress: Progress | None = None,
) -> xr.Dataset:
    """Measure the regret in bits of predictors on the same sequences of `source`.

    The regret of a sequence is sum_t KL(p_t || q_t), with the true distribution p_t of symbol t and
    its prediction q_t; without an alphabet it is realised, sum_t log2 p(x_t) / q(x_t). A value of
    `predictors` is a `Predictor`; a function that makes one from a `Draw`; the class `KTOracle`,
    which knows the switches of each draw; or a list of any of these, the members of one ensemble.
    Predictors with fewer members than others are padded with NaN.

    Sequences are drawn and predicted `chunk` at a time, which bounds memory; for the same seed and
    chunk the first n are the same for any number of them. Networks of the same structure run in
    one program where that is faster. The dataset has, with the dimensions predictor, member,
    sequence and time:

    - `regret` and `code_length` (predictor, member, sequence): sums over each sequence;
    - `regret_by_time` and `regret_by_time_error` (predictor, member, time): the mean over
      sequences, and its standard error;
    - the coordinate `members` (predictor): how many members each predictor has;
    - with `keep="all"`, `regret_by_symbol` (predictor, member, sequence, time).

    In place of a source there may be sequences of your own, without `length`, `sequences` and
    `seed`: a `Draw`, or an array (time,) or (sequences, time), with the columns last if there are
    several. An array has no true probabilities, hence no regret but the `code_length`,
    -log2 q(x_t | x_<t), which is 0 where an observation is missing (NaN), with
    `code_length_by_time`, its error and `code_length_by_symbol` like those of the regret.

    `progress` is an object whose method `update(text, done)` receives the share that is done.

    >>> import switchpoint as sp
    >>> source = sp.Source(sp.Geometric(0.1))
    >>> predictors = {"kt": sp.KT(), "optimum": sp.bayes_optimal(source), "oracle": sp.KTOracle}
    >>> result = sp.evaluate(predictors, source, length=16, sequences=20)
    >>> result["regret"].dims, result["regret"].shape
    (('predictor', 'member', 'sequence'), (3, 1, 20))
    """
    _checks.one_of("keep", keep, ("totals", "all"))
    if not isinstance(predictors, Mapping):
        raise ValueError(
            "predictors must be a dictionary of predictors by name, such as "
            f"{{'kt': switchpoint.KT()}}, got {_checks.shown(predictors)}"
        )
    ensembles = [_members(name, entry) for name, entry in predictors.items()]
    if not ensembles:
        raise ValueError("predictors must hold at least one predictor, got none")
    counts = np.array(list(map(len, ensembles)), np.int32)
    places = [(i, j) for i, count in enumerate(counts) for j in range(count)]
    names = list(predictors)
    named = [(names[i], ensembles[i][j]) for i, j in places]
    chunk = _checks.positive_int("chunk", chunk)
    if isinstance(source, AbstractSource):
        if length is None or sequences is None:
            raise ValueError(
                f"length and sequences are required for a source, got {length!r} and {sequences!r}"
            )
        length = _checks.positive_int("length", length)
        sequences = _checks.positive_int("sequences", sequences)
        tests = chunks(source, length, sequences, _checks.seed(seed), chunk)
        fields = ("prior", "segment") if isinstance(source, Source) else ()
        law = {name: repr(getattr(source, name)) for name in fields}
        segment, law = source.oracle_segment, law or {"source": repr(source)}
        attributes = _attributes(length, chunk, **law, seed=seed)
    else:
        if length is not None or sequences is not None:
            raise ValueError(
                "length and sequences are for a source, and given sequences have their own, got "
                f"{length!r} and {sequences!r}"
            )
        data = _flat_draw(source) if isinstance(source, Draw) else _given(named, source)
        sequences, length = (data.switches if isinstance(data, Draw) else data).shape[:2]
        tests = data_chunks(data, chunk)
        segment, attributes = None, _attributes(length, chunk)
    main = "regret" if isinstance(source, AbstractSource | Draw) else "code_length"
    shape = (len(ensembles), int(counts.max()))
    totals = {name: np.full((*shape, sequences), np.nan) for name in (main, "code_length")}
    switches = np.zeros(sequences, np.int32)
    parts: list[list[Part]] = [[] for _ in places]
    every = None
    if keep == "all":
        every = np.full((*shape, sequences, length), np.nan, jnp.zeros(()).dtype)

    def report(done: int) -> None:
        if progress is not None:
            progress.update(f"{done:,} of {sequences:,} sequences", done / sequences)

    for indices, rows, test, *measured in measure(named, tests, segment, report):
        if isinstance(test, Draw):
            switches[rows] = np.asarray(test.switches).sum(-1)[: rows.stop - rows.start]
        for index, bits, code in zip(indices, *measured, strict=True):
            place = (*places[index], rows)
            parts[index].append(moments(bits))
            totals[main][place] = bits.sum(-1, dtype=np.float64)
            totals["code_length"][place] = code.sum(-1, dtype=np.float64)
            if every is not None:
                every[place] = bits

    by_time = np.full((2, *shape, length), np.nan)
    for place, own in zip(places, parts, strict=True):
        by_time[(slice(None), *place)] = mean_and_error(own)
    words = main.replace("_", " ")
    variables: dict[str, Any] = {
        name: _variable(f"{name.replace('_', ' ')} of a sequence", values, "sequence")
        for name, values in totals.items()
    }
    variables[f"{main}_by_time"] = _variable(f"mean {words} of a symbol", by_time[0], "time")
    variables[f"{main}_by_time_error"] = _variable("its standard error", by_time[1], "time")
    if every is not None:
        variables[f"{main}_by_symbol"] = _variable(words, every, "sequence", "time")
    coordinates: dict[str, Any] = {
        "predictor": names,
        "members": ("predictor", counts, {"long_name": "number of members"}),
        "member": np.arange(shape[1], dtype=np.int32),
        "sequence": np.arange(sequences, dtype=np.int32),
        "time": np.arange(length, dtype=np.int32),
    }
    if main == "regret":
        long_name = {"long_name": "number of switching points"}
        coordinates["switches"] = ("sequence", switches, long_name)
    return xr.Dataset(variables, coords=coordinates, attrs=attributes)


def regrets(
    members: Sequence[Member | None],
    source: AbstractSource,
    length: int,
    sequences: int,
    seed: int = 0,
    *,
    chunk: int = CHUNK,
    progress: Progress | None = None,
) -> Float[np.ndarray, "member sequence"]:
    """The regret in bits of every member on every test sequence: those that `evaluate` draws.

    The row of a member that is None is NaN. Other arguments are those of `evaluate`.

    >>> import switchpoint as sp
    >>> source = sp.Source(sp.Geometric(0.1))
    >>> members = [sp.KT(), sp.bayes_optimal(source)]
    >>> kt, optimum = sp.evaluation.regrets(members, source, length=16, sequences=20).mean(1)
    >>> bool(kt > optimum)
    True
    """
    present = {index: member for index, member in enumerate(members) if member is not None}
    totals = np.full((len(members), _checks.positive_int("sequences", sequences)), np.nan)
    if present:
        ensemble = {"members": list(present.values())}
        result = evaluate(ensemble, source, length, sequences, seed, chunk, progress=progress)
        totals[list(present)] = result["regret"].values[0]
    return totals


def _flat_draw(draw: Draw) -> Draw:
    """A draw whose sequences are along one axis."""
    axes = draw.switches.ndim - 1
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[axes:]), draw)


def _given(named: Sequence[tuple[str, Any]], values: Any) -> np.ndarray:
    """Given sequences as (sequences, time, *event), which every predictor takes."""
    fixed: list[Any] = [each for _, each in named if isinstance(each, Predictor)]
    if len({(getattr(each, "alphabet", None) is None, each.event_shape) for each in fixed}) > 1:
        raise ValueError(
            "predictors must all be for symbols, or all for values of the same number of columns"
        )
    event = fixed[0].event_shape if fixed else ()
    array = _checks.numbers(values, "sequences", len(event))
    array = array[None] if array.ndim == 1 + len(event) else array
    if array.ndim != 2 + len(event) or 0 in array.shape or array.shape[2:] != event:
        wanted = f"(sequences, time{''.join(f', {size}' for size in event)})"
        raise ValueError(f"sequences must have shape {wanted}, got {np.shape(values)}")
    for each in fixed:
        if isinstance(each, Network):
            each._checked(array)
        elif isinstance(each, ExactPredictor) or getattr(each, "alphabet", None) is None:
            checked_values(each.segment, array, "sequences")
        else:
            _checks.known_symbols(array, each.alphabet, "sequences")
    return array


def _members(name: str, entry: Entry) -> list[Any]:
    """The members of an ensemble, each of which is a predictor or makes one."""
    members = list(entry) if isinstance(entry, Sequence) else [entry]
    if not members:
        raise ValueError(f"predictor {name!r} must have at least one member, got none")
    for member in members:
        if not isinstance(member, Predictor) and not callable(member):
            raise ValueError(
                f"predictor {name!r} must be a Predictor, or make one of a Draw, got {member!r}"
            )
    return members


def _variable(name: str, values: np.ndarray, *dimensions: str) -> xr.Variable:
    attributes = {"long_name": name, "units": "bits"}
    return xr.Variable(("predictor", "member", *dimensions), values, attributes)


def _attributes(length: int, chunk: int, **drawn: Any) -> dict[str, Any]:
    from switchpoint import __version__  # defined once the package is imported

    versions = {"version": __version__, "jax": jax.__version__}
    return {**drawn, "length": length, "chunk": chunk, **versions}
