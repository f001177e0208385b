"""`switchpoint sample`: sequences from a source."""

import json
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
from switchpoint.sources import Draw, Source


@options.with_options(*options.PRIOR, *options.SEGMENT)
def sample(
    prior: str = typer.Option("ptw", help=f"{options.PRIOR_HELP}."),
    length: int = options.LENGTH,
    batch: int = typer.Option(1, help="The number of sequences."),
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
    check_cost.check_sample(batch, length, segment.alphabet)
    source = Source(options.make_prior(prior, length, given), segment)
    draw = source.sample(jax.random.key(seed), batch, length)
    if out is None:
        separator = "" if segment.alphabet <= 10 else " "
        for row in np.asarray(draw.symbols).tolist():
            print(separator.join(map(str, row)))
        return
    about = {"prior": repr(source.prior), "segment": repr(segment), "seed": seed}
    with atomic_write(out) as file:
        if out.suffix.lower() == ".npz":
            arrays = {name: getattr(draw, name) for name in ("symbols", "probs", "switches")}
            about["version"] = __version__
            np.savez_compressed(file, **arrays, description=json.dumps(about))
        else:
            _write_csv(file, draw)
    what = f"{batch} x {length} symbols from {source.prior!r}, {segment!r}, seed {seed}"
    output.console().print(f"{printable(str(out))}: {what}", soft_wrap=True)


def _write_csv(file: BinaryIO, draw: Draw) -> None:
    """Write a table with a line for each symbol."""
    import pandas as pd

    batch, length, alphabet = draw.probs.shape
    columns = (
        np.repeat(np.arange(batch), length),
        np.tile(np.arange(length), batch),
        np.ravel(draw.symbols),
        np.ravel(draw.switches).astype(np.int8),
    )
    probs = {f"p{k}": np.ravel(draw.probs[..., k]) for k in range(alphabet)}
    table = pd.DataFrame(dict(zip(SAMPLE_COLUMNS, columns, strict=True)) | probs)
    table.to_csv(file, mode="wb", index=False, lineterminator="\n")
