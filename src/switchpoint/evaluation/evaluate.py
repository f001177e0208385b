"""The regret of any predictors on any source, as a labelled dataset."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int

from switchpoint import _checks
from switchpoint.evaluation.chunks import CHUNK, chunks
from switchpoint.evaluation.members import Entry, Run, runs_of
from switchpoint.evaluation.metrics import code_length, regret
from switchpoint.evaluation.moments import Moments
from switchpoint.sources import Draw, Source


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
    class `KTOracle`, which is told the switches of each draw; or a list of any of these, the
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
    length = _checks.positive_int("length", length)
    sequences = _checks.positive_int("sequences", sequences)
    chunk = _checks.positive_int("chunk", chunk)
    seed = _checks.seed(seed)
    if keep not in ("totals", "all"):
        raise ValueError(f"keep must be 'totals' or 'all', got {keep!r}")
    runs = runs_of(predictors)
    places = (len(predictors), 1 + max(run.member_index for run in runs))
    totals = np.full((*places, sequences), np.nan)
    codes = np.full_like(totals, np.nan)
    switches = np.zeros(sequences, np.int32)
    moments = [Moments(length) for _ in runs]
    every = None
    if keep == "all":
        every = np.full((*places, sequences, length), np.nan, jnp.zeros(()).dtype)

    for part in chunks(source, length, sequences, seed, chunk):
        rows = slice(part.start, part.start + part.wanted)
        switches[rows] = np.asarray(part.draw.switches).sum(-1)[: part.wanted]
        ready = [run.predictor(part.draw, source) for run in runs]
        for run, predictor, moment in zip(runs, ready, moments, strict=True):
            place = (run.predictor_index, run.member_index, rows)
            bits, code = _bits(part.draw, predictor.log_probs(part.draw.symbols))
            wanted = np.asarray(bits)[: part.wanted]
            moment.add(wanted)
            totals[place] = wanted.sum(-1, dtype=np.float64)
            codes[place] = np.asarray(code)[: part.wanted].sum(-1, dtype=np.float64)
            if every is not None:
                every[place] = wanted
        if progress is not None:
            progress(rows.stop, sequences)

    by_time = np.full((2, *places, length), np.nan)
    for run, moment in zip(runs, moments, strict=True):
        by_time[:, run.predictor_index, run.member_index] = moment.mean, moment.error
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
            "members": ("predictor", _member_counts(runs), {"long_name": "number of members"}),
            "member": np.arange(places[1], dtype=np.int32),
            "sequence": np.arange(sequences, dtype=np.int32),
            "time": np.arange(length, dtype=np.int32),
            "switches": ("sequence", switches, {"long_name": "number of switching points"}),
        },
        attrs=_attributes(source, length, seed, chunk),
    )


@eqx.filter_jit
def _bits(
    draw: Draw, log_probs: Float[Array, "batch time alphabet"]
) -> tuple[Float[Array, "batch time"], Float[Array, "batch time"]]:
    return regret(draw, log_probs), code_length(draw.symbols, log_probs)


def _member_counts(runs: Sequence[Run]) -> Int[np.ndarray, " predictor"]:
    return np.bincount([run.predictor_index for run in runs]).astype(np.int32)


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
