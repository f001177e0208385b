"""`switchpoint sample`: sequences from a source."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
import typer
from rich.console import Console

from switchpoint import __version__, _checks
from switchpoint._files import atomic_write
from switchpoint._text import printable
from switchpoint.cli import options
from switchpoint.cli.check_cost import PIECE, check_sample, rows_at_once
from switchpoint.cli.config_options import PRIOR, SEGMENT, prior_of, segment_model, with_options
from switchpoint.cli.files import check_output
from switchpoint.cli.sequence_io import SAMPLE_COLUMNS
from switchpoint.sources import Source


class _Piece(NamedTuple):
    """Some of the sequences, on the host."""

    start: int
    """The number of the first of them."""
    symbols: np.ndarray
    probs: np.ndarray
    switches: np.ndarray


@with_options(*PRIOR, *SEGMENT)
def sample(
    prior: options.PriorName = "ptw",
    length: Annotated[int, typer.Option(help="How many symbols each sequence has.")] = 256,
    batch: Annotated[
        int,
        typer.Option(
            help="How many sequences. Where batch x length x alphabet is above "
            f"{PIECE:,}, they are drawn in pieces, each with a key of its own."
        ),
    ] = 1,
    seed: Annotated[int, typer.Option(help="The same seed gives the same sequences.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write symbols, true probabilities and switches there (.npz or .csv). "
            "Without it the symbols are printed.",
        ),
    ] = None,
    **given: Any,
) -> None:
    """Draw sequences whose statistics switch, and what no predictor is told of them.

    For example:

        switchpoint sample --prior ptw --length 256 --batch 10 --out draws.npz
    """
    check_output(out, "out", (".npz", ".csv"))
    _checks.positive_int("batch", batch)
    _checks.positive_int("length", length)
    _checks.seed(seed)
    segment = segment_model(given)
    alphabet = segment.alphabet
    whole = out is not None and out.suffix.lower() == ".npz"
    check_sample(batch, length, alphabet, kept=whole)
    law = prior_of(prior, length, given)
    pieces = _drawn(Source(law, segment), seed, batch, length)
    if out is None:
        separator = "" if alphabet <= 10 else " "
        for draw in pieces:
            for row in draw.symbols.tolist():
                print(separator.join(map(str, row)))
        return
    if whole:
        description = {
            "prior": repr(law),
            "segment": repr(segment),
            "seed": seed,
            "version": __version__,
        }
        _write_npz(out, list(pieces), json.dumps(description))
    else:
        with atomic_write(out) as file:
            file.writelines(line.encode() for line in _csv_lines(pieces, alphabet))
    Console(file=sys.stdout, highlight=False, soft_wrap=True).print(
        f"{printable(str(out))}: {batch} x {length} symbols from {law!r}, {segment!r}, seed {seed}",
        markup=False,
    )


def _drawn(source: Source, seed: int, batch: int, length: int) -> Iterator[_Piece]:
    """All sequences in one piece, or in pieces of one size where they are too many for that.

    Piece i is drawn whole with the key fold_in(key(seed), i), and the last is cut after the draw.
    """
    key, rows = jax.random.key(seed), rows_at_once(batch, length, source.segment.alphabet)
    for index, start in enumerate(range(0, batch, rows)):
        own = key if rows == batch else jax.random.fold_in(key, index)
        draw, count = source.sample(own, rows, length), min(rows, batch - start)
        yield _Piece(
            start,
            *(np.asarray(leaf)[:count] for leaf in (draw.symbols, draw.probs, draw.switches)),
        )


def _write_npz(path: Path, pieces: Sequence[_Piece], description: str) -> None:
    with atomic_write(path) as file:
        np.savez_compressed(
            file,
            symbols=np.concatenate([piece.symbols for piece in pieces]),
            probs=np.concatenate([piece.probs for piece in pieces]),
            switches=np.concatenate([piece.switches for piece in pieces]),
            description=np.asarray(description),
        )


def _csv_lines(pieces: Iterable[_Piece], alphabet: int) -> Iterator[str]:
    yield ",".join([*SAMPLE_COLUMNS, *(f"p{k}" for k in range(alphabet))]) + "\n"
    for piece in pieces:
        for (row, time), symbol in np.ndenumerate(piece.symbols):
            # str of a NumPy float is the shortest text that reads back as the same float.
            here = ",".join(map(str, piece.probs[row, time]))
            switch = int(piece.switches[row, time])
            yield f"{piece.start + row},{time},{symbol},{switch},{here}\n"
