"""`switchpoint sample`: sequences from a source."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np
import typer

from switchpoint import __version__, _checks
from switchpoint._files import atomic_write
from switchpoint._text import printable
from switchpoint.cli import check_cost, output
from switchpoint.cli import config_options as options
from switchpoint.cli.reader import SAMPLE_COLUMNS
from switchpoint.sources import Source


@options.with_options(*options.PRIOR, *options.SEGMENT)
def sample(
    prior: str = typer.Option("ptw", help=f"{options.PRIOR_HELP}."),
    length: int = options.LENGTH,
    batch: int = typer.Option(
        1,
        help="The number of sequences. If batch x length x alphabet is above "
        f"{check_cost.PIECE:,}, they are drawn in batches, each with its own key.",
    ),
    seed: int = options.SEED,
    out: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="Write symbols, true probabilities and switches to this file (.npz or .csv). By "
        "default, print the symbols.",
    ),
    **given: Any,
) -> None:
    """Draw sequences from a source, with their true probabilities and switching points.

    For example:

        switchpoint sample --prior ptw --length 256 --batch 10 --out draws.npz
    """
    output.check_output(out, "out", (".npz", ".csv"))
    _checks.positive_int("batch", batch)
    _checks.positive_int("length", length)
    _checks.seed(seed)
    segment = options.segment_model(given)
    npz = out is not None and out.suffix.lower() == ".npz"
    check_cost.check_sample(batch, length, segment.alphabet, in_memory=npz)
    source = Source(options.make_prior(prior, length, given), segment)
    pieces = _draw(source, seed, batch, length)
    if out is None:
        separator = "" if segment.alphabet <= 10 else " "
        for piece in pieces:
            for row in piece["symbols"].tolist():
                print(separator.join(map(str, row)))
        return
    about = {"prior": repr(source.prior), "segment": repr(segment), "seed": seed}
    with atomic_write(out) as file:
        if npz:
            drawn = list(pieces)
            arrays: Any = {
                name: np.concatenate([each[name] for each in drawn]) for name in drawn[0]
            }
            arrays["description"] = np.asarray(json.dumps({**about, "version": __version__}))
            np.savez_compressed(file, **arrays)
        else:
            _write_csv(file, pieces)
    what = f"{batch} x {length} symbols from {source.prior!r}, {segment!r}, seed {seed}"
    output.console().print(f"{printable(str(out))}: {what}", soft_wrap=True)


def _draw(source: Source, seed: int, batch: int, length: int) -> Iterator[dict[str, np.ndarray]]:
    """All sequences in one piece, or in pieces of equal size if they are too many for that.

    Piece i is drawn whole with the key fold_in(key(seed), i); the last is cut after the draw.
    """
    key, rows = jax.random.key(seed), check_cost.piece_size(batch, length, source.segment.alphabet)
    for index, start in enumerate(range(0, batch, rows)):
        draw = source.sample(key if rows == batch else jax.random.fold_in(key, index), rows, length)
        arrays = {"symbols": draw.symbols, "probs": draw.probs, "switches": draw.switches}
        yield {name: np.asarray(each)[: batch - start] for name, each in arrays.items()}


def _write_csv(file: BinaryIO, pieces: Iterable[dict[str, np.ndarray]]) -> None:
    """Write a table with a line for each symbol."""
    import pandas as pd

    first = 0
    for piece in pieces:
        rows, length, alphabet = piece["probs"].shape
        columns = (
            np.repeat(np.arange(first, first + rows, dtype=np.int32), length),
            np.tile(np.arange(length, dtype=np.int32), rows),
            piece["symbols"].ravel(),
            piece["switches"].ravel().astype(np.int8),
        )
        probs = {f"p{k}": piece["probs"][..., k].ravel() for k in range(alphabet)}
        table = pd.DataFrame(dict(zip(SAMPLE_COLUMNS, columns, strict=True)) | probs)
        table.to_csv(file, mode="wb", index=False, header=first == 0, lineterminator="\n")
        first += rows
