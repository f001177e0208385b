"""The regret of any predictors on any source, as a labelled dataset."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float

from switchpoint import _checks
from switchpoint.evaluation.measure import CHUNK, Member, measure
from switchpoint.predictor import Predictor
from switchpoint.sources import Source

Entry: TypeAlias = Member | Sequence[Member]
"""A member alone, or the members of one ensemble."""


def evaluate(
    predictors: Mapping[str, Entry],
    source: Source,
    length: int,
    sequences: int,
    seed: int = 0,
    chunk: int = CHUNK,
    keep: Literal["totals", "all"] = "totals",
    progress: Callable[[int, int], None] | None = None,
) -> xr.Dataset:
    """The regret in bits of predictors on the same sequences of `source`.

    A value of `predictors` is a `Predictor`; a function that makes one from a `Draw`; the
    class `KTOracle`, which knows the switches of each draw; or a list of any of these, the
    members of one ensemble. Where predictors have different numbers of members, NaN fills up.

    Sequences are drawn and predicted `chunk` at a time; for the same seed and chunk the
    first n are the same whatever their number. The dataset has, with the dimensions
    predictor, member, sequence and time:

    - `regret` and `code_length` (predictor, member, sequence): sums over each sequence;
    - `regret_by_time` and `regret_by_time_error` (predictor, member, time): the mean over
      sequences, and its standard error;
    - the coordinate `members` (predictor): how many members each predictor has;
    - with `keep="all"`, `regret_by_symbol` (predictor, member, sequence, time).

    `progress` is called with the number of sequences done and their total.
    """
    if keep not in ("totals", "all"):
        raise ValueError(f"keep must be 'totals' or 'all', got {keep!r}")
    ensembles = [_members(name, entry) for name, entry in predictors.items()]
    if not ensembles:
        raise ValueError("predictors must hold at least one predictor, got none")
    places = [(i, j) for i, ensemble in enumerate(ensembles) for j in range(len(ensemble))]
    named = [(name, each) for name, own in zip(predictors, ensembles, strict=True) for each in own]
    length = _checks.positive_int("length", length)
    sequences = _checks.positive_int("sequences", sequences)
    shape = (len(ensembles), max(map(len, ensembles)))
    totals = np.full((*shape, sequences), np.nan)
    codes = np.full_like(totals, np.nan)
    switches = np.zeros(sequences, np.int32)
    moments = [Moments(length) for _ in places]
    every = None
    if keep == "all":
        every = np.full((*shape, sequences, length), np.nan, jnp.zeros(()).dtype)

    measured = measure(named, source, length, sequences, seed, chunk, progress)
    for indices, rows, draw, *found in measured:
        switches[rows] = np.asarray(draw.switches).sum(-1)[: rows.stop - rows.start]
        for index, bits, code in zip(indices, *found, strict=True):
            place = (*places[index], rows)
            moments[index].add(bits)
            totals[place] = bits.sum(-1, dtype=np.float64)
            codes[place] = code.sum(-1, dtype=np.float64)
            if every is not None:
                every[place] = bits

    by_time = np.full((2, *shape, length), np.nan)
    for place, moment in zip(places, moments, strict=True):
        by_time[(slice(None), *place)] = moment.mean, moment.error
    counts = np.array([len(ensemble) for ensemble in ensembles], np.int32)
    variables: dict[str, Any] = {
        "regret": _variable("regret of a sequence", totals, "sequence"),
        "code_length": _variable("code length of a sequence", codes, "sequence"),
        "regret_by_time": _variable("mean regret of a symbol", by_time[0], "time"),
        "regret_by_time_error": _variable("its standard error", by_time[1], "time"),
    }
    if every is not None:
        variables["regret_by_symbol"] = _variable("regret", every, "sequence", "time")
    return xr.Dataset(
        variables,
        coords={
            "predictor": list(predictors),
            "members": ("predictor", counts, {"long_name": "number of members"}),
            "member": np.arange(shape[1], dtype=np.int32),
            "sequence": np.arange(sequences, dtype=np.int32),
            "time": np.arange(length, dtype=np.int32),
            "switches": ("sequence", switches, {"long_name": "number of switching points"}),
        },
        attrs=_attributes(source, length, seed, chunk),
    )


class Moments:
    """The mean of rows that come a few at a time, and its standard error, in float64."""

    def __init__(self, width: int) -> None:
        self._count = 0
        self._sum = np.zeros(width)
        self._squares = np.zeros(width)

    def add(self, rows: Float[np.ndarray, "rows width"]) -> None:
        """Take in more rows: Chan's update, which does not cancel."""
        rows = rows.astype(np.float64)
        mean = rows.mean(0)
        with np.errstate(invalid="ignore"):  # an infinite regret has no deviation
            self._squares += ((rows - mean) ** 2).sum(0)
            if self._count:
                share = self._count * len(rows) / (self._count + len(rows))
                self._squares += (mean - self.mean) ** 2 * share
        self._sum += rows.sum(0)
        self._count += len(rows)

    @property
    def mean(self) -> Float[np.ndarray, " width"]:
        """The mean of all rows."""
        return self._sum / self._count

    @property
    def error(self) -> Float[np.ndarray, " width"]:
        """The standard error of the mean; NaN if there is only one row."""
        if self._count < 2:
            return np.full_like(self._sum, np.nan)
        return np.sqrt(self._squares / (self._count - 1) / self._count)


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


def _attributes(source: Source, length: int, seed: int, chunk: int) -> dict[str, Any]:
    from switchpoint import __version__  # known once all of the package is

    return {
        "prior": repr(source.prior),
        "segment": repr(source.segment),
        "length": length,
        "seed": seed,
        "chunk": chunk,
        "version": __version__,
        "jax": jax.__version__,
    }
