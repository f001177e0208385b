"""`switchpoint sample`: sequences from a source."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import typer
from rich.console import Console

from switchpoint import __version__, _checks
from switchpoint._files import replacing
from switchpoint._text import printable
from switchpoint.cli import options
from switchpoint.cli.files import check_output
from switchpoint.cli.sequence_io import SAMPLE_COLUMNS
from switchpoint.segments import segment_of
from switchpoint.sources import Draw, Source


def sample(
    prior: options.PriorName = "ptw",
    length: Annotated[int, typer.Option(help="How many symbols each sequence has.")] = 256,
    batch: Annotated[int, typer.Option(help="How many sequences.")] = 1,
    seed: Annotated[int, typer.Option(help="The same seed gives the same sequences.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write symbols, true probabilities and switches there (.npz or .csv). "
            "Without it the symbols are printed.",
        ),
    ] = None,
    depth: options.Depth = None,
    split: options.Split = None,
    period: options.Period = None,
    longest: options.Longest = None,
    hazard: options.Hazard = None,
    pmf: options.Pmf = None,
    alphabet: options.Alphabet = 2,
    alpha: options.Alpha = None,
    beta: options.Beta = None,
    concentration: options.Concentration = None,
) -> None:
    """Draw sequences whose statistics switch, and what no predictor is told of them.

    For example:

        switchpoint sample --prior ptw --length 256 --batch 10 --out draws.npz
    """
    segment = segment_of(alphabet, alpha, beta, concentration)
    law = options.prior_of_options(
        prior,
        length,
        pmf,
        depth=depth,
        split=split,
        period=period,
        longest=longest,
        hazard=hazard,
    )
    _checks.positive_int("batch", batch)
    _checks.seed(seed)
    check_output(out, "out", (".npz", ".csv"))
    draw = Source(law, segment).sample(jax.random.key(seed), batch, length)
    if out is None:
        separator = "" if alphabet <= 10 else " "
        for row in np.asarray(draw.symbols).tolist():
            print(separator.join(map(str, row)))
        return
    if out.suffix.lower() == ".npz":
        description = {
            "prior": repr(law),
            "segment": repr(segment),
            "seed": seed,
            "version": __version__,
        }
        _write_npz(out, draw, json.dumps(description))
    else:
        with replacing(out) as file:
            file.writelines(line.encode() for line in _csv_lines(draw))
    Console(file=sys.stdout, highlight=False, soft_wrap=True).print(
        f"{printable(str(out))}: {batch} x {length} symbols from {law!r}, {segment!r}, seed {seed}",
        markup=False,
    )


def _write_npz(path: Path, draw: Draw, description: str) -> None:
    with replacing(path) as file:
        np.savez_compressed(
            file,
            symbols=np.asarray(draw.symbols),
            probs=np.asarray(draw.probs),
            switches=np.asarray(draw.switches),
            description=np.asarray(description),
        )


def _csv_lines(draw: Draw) -> Iterator[str]:
    probs, symbols = np.asarray(draw.probs), np.asarray(draw.symbols)
    switches = np.asarray(draw.switches).astype(int)
    names = [*SAMPLE_COLUMNS, *(f"p{k}" for k in range(probs.shape[-1]))]
    yield ",".join(names) + "\n"
    for (sequence, time), symbol in np.ndenumerate(symbols):
        # str of a NumPy float is the shortest text that reads back as the same float.
        here = ",".join(map(str, probs[sequence, time]))
        yield f"{sequence},{time},{symbol},{switches[sequence, time]},{here}\n"
