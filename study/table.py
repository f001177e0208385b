"""The tables of docs/results.md, in Markdown, from the results of the study on the own source.

    python study/table.py runs/full/results/on-distribution.nc

The first has the excess over the exact optimum of each architecture and source, the second what
training took.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xarray as xr

from switchpoint import evaluation


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("result", type=Path, help="on-distribution.nc")
    result = evaluation.load(parser.parse_args().result)
    print(*excess_table(result), "", *effort_table(result.attrs["provenance"]), sep="\n")


def excess_table(result: xr.Dataset) -> Iterator[str]:
    """The median over seeds, in bits and as a share of the optimum, and the range of all seeds."""
    sources = [str(source) for source in result["source"].values]
    labels = result.attrs["labels"]
    optimum = result["exact_regret"].sel(exact="optimum")
    error = result["exact_regret_error"].sel(exact="optimum")
    yield from _head(["", *(labels[source] for source in sources)])
    yield _row(["the optimum's regret", *map(_with_error, optimum.values, error.values)])
    for architecture in map(str, result["architecture"].values):
        one = result.sel(architecture=architecture)
        yield _row([architecture, *(_cell(one.sel(source=source)) for source in sources)])


def _cell(one: xr.Dataset) -> str:
    """What the seeds of one architecture did on one source, and how many where not all were run."""
    seeds, median = one["excess"], float(one["excess_median"])
    share = median / float(one["exact_regret"].sel(exact="optimum"))
    text = f"{median:.3f} ({share:.2%}), {float(seeds.min()):.3f} to {float(seeds.max()):.3f}"
    count = int(seeds.notnull().sum())
    return text if count == seeds.size else f"{text}, {count} seed{'s' if count > 1 else ''}"


def effort_table(provenance: dict[str, Any]) -> Iterator[str]:
    """Members, hardware and minutes of every piece of training, and of all."""
    pieces: dict[str, dict[str, Any]] = provenance.get("networks", {})
    yield from _head(["piece", "members", "on", "training, min", "measuring, min"])
    total = [0.0, 0.0]
    for name, piece in pieces.items():
        minutes = [piece[f"{what}_seconds"] / 60 for what in ("training", "measuring")]
        total = [sum(pair) for pair in zip(total, minutes, strict=True)]
        count, device = piece["members"], piece["device"]
        yield _row([name, f"{count}", device, *(f"{each:.1f}" for each in minutes)])
    yield _row(["all", "", "", *(f"{each:.1f}" for each in total)])


def _with_error(bits: float, error: float) -> str:
    return f"{bits:.2f} ± {error:.2f}"


def _head(cells: list[str]) -> Iterator[str]:
    yield _row(cells)
    yield _row(["---"] * len(cells))


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
