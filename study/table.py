"""The tables of docs/results.md, in Markdown, from the recorded results, or others.

    python study/table.py
    python study/table.py runs/full/results

Excess over the exact optimum of each architecture and source; what training took; networks on other
sources beside the exact predictor of their own; how the fit to PTW goes with robustness on Random
Uniform, among the seeds; networks trained on each length, or on one; too little memory; longer
sequences; sizes and kinds of networks.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import xarray as xr

from switchpoint.experiments.shipped import RECORDED, Shipped
from switchpoint.figures.ablations import compared_parts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="?", type=Path, default=RECORDED, help="a directory")
    results = Shipped(recorded=parser.parse_args().results)
    found = {path.stem: results.result(path.stem) for path in results.recorded.glob("*.nc")}
    for needs, table in _TABLES:
        if set(needs) <= set(found):
            print(*table(*(found[name] for name in needs)), "", sep="\n")


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


def effort_table(result: xr.Dataset) -> Iterator[str]:
    """Members, hardware and minutes of every piece of training, and of all."""
    pieces: dict[str, dict[str, Any]] = result.attrs["provenance"].get("networks", {})
    yield from _head(["piece", "members", "on", "training, min", "measuring, min"])
    total = [0.0, 0.0]
    for name, piece in pieces.items():
        minutes = [piece[f"{what}_seconds"] / 60 for what in ("training", "measuring")]
        total = [sum(pair) for pair in zip(total, minutes, strict=True)]
        count, device = piece["members"], piece["device"]
        yield _row([name, f"{count}", device, *(f"{each:.1f}" for each in minutes)])
    yield _row(["all", "", "", *(f"{each:.1f}" for each in total)])


def more_effort_table(main: xr.Dataset, *others: xr.Dataset) -> Iterator[str]:
    """Members and minutes of what was trained for other studies than the main ones."""
    known = main.attrs["provenance"]["networks"]
    yield from _head(["study", "members", "training, min", "measuring, min"])
    for result in others:
        pieces = result.attrs["provenance"]["networks"]
        own = [pieces[name] for name in pieces if name not in known]
        minutes = [
            sum(piece[f"{what}_seconds"] for piece in own) / 60
            for what in ("training", "measuring")
        ]
        count = sum(piece["members"] for piece in own)
        yield _row([result.attrs["study"], f"{count}", *(f"{each:.1f}" for each in minutes)])


def bias_table(result: xr.Dataset) -> Iterator[str]:
    """Away from home: mean regret beyond that of the exact predictor of the source of training."""
    labels = result.attrs["labels"]
    architectures = [str(name) for name in result["architecture"].values]
    yield from _head(["trained on, tested on", *architectures])
    for train in map(str, result["train_source"].values):
        for test in map(str, result["test_source"].values):
            if test != train:
                one = result.sel(train_source=train, test_source=test)
                beyond = one["regret_mean"] - one["exact_regret"].sel(exact=train)
                cells = [f"{float(beyond.sel(architecture=name)):+.3f}" for name in architectures]
                yield _row([f"{labels[train]}, {labels[test]}", *cells])


def lengths_table(result: xr.Dataset) -> Iterator[str]:
    """The mean over seeds of the excess over PTW, for each length, with its standard error."""
    lengths = [int(length) for length in result["length"].values]
    yield from _head(["", *map(str, lengths)])
    for architecture in map(str, result["architecture"].values):
        one = result.sel(architecture=architecture)
        cells = map(_with_error, one["excess_mean"].values, one["excess_mean_error"].values)
        yield _row([architecture, *cells])


def robustness_table(on: xr.Dataset, off: xr.Dataset) -> Iterator[str]:
    """Networks of PTW: their regret on Random Uniform, and how it goes with their fit to PTW."""
    yield from _head(["", "regret on Random Uniform", "correlation with the excess on PTW"])
    for architecture in map(str, on["architecture"].values):
        fit = on["excess"].sel(architecture=architecture, source="ptw")
        away = off["regret"].sel(
            architecture=architecture, train_source="ptw", test_source="uniform"
        )
        range_of = f"{float(away.min()):.2f} to {float(away.max()):.2f}"
        yield _row([architecture, range_of, f"{float(xr.corr(fit, away)):.2f}"])


def trained_lengths_table(result: xr.Dataset) -> Iterator[str]:
    """The mean excess of networks trained on the length of the test, and on one length alone."""
    base = result.attrs["base_length"]
    yield from _head(["trained on", "", *(str(length) for length in result["length"].values)])
    for kind, trained in (("own", "the same length"), ("transferred", f"{base} alone")):
        for architecture in map(str, result["architecture"].values):
            one = result.sel(architecture=architecture)
            pairs = zip(one[f"{kind}_mean"].values, one[f"{kind}_mean_error"].values, strict=True)
            cells = [_with_error(mean, error, 4) for mean, error in pairs]
            yield _row([trained, architecture, *cells])


def ablations_table(result: xr.Dataset) -> Iterator[str]:
    """Parameters and excess of what was run, where there is something to compare."""
    compared = compared_parts(result)
    yield from _head(["", "parameters", "mean", "lowest to highest"])
    for index in range(result.sizes["configuration"]):
        one = result.isel(configuration=index)
        if str(one["part"].values) in compared:
            seeds = one["excess"]
            range_of = f"{float(seeds.min()):.3f} to {float(seeds.max()):.3f}"
            mean = f"{float(one['excess_mean']):.3f}"
            name, count = str(one["configuration"].values), f"{int(one['parameters']):,}"
            yield _row([name, count, mean, range_of])


def memory_table(result: xr.Dataset) -> Iterator[str]:
    """The mean regret of networks that see the last symbols alone, and the exact lower bound."""
    sources = [str(source) for source in result["source"].values]
    yield from _head(["last symbols", *(result.attrs["labels"][source] for source in sources)])
    for order in map(int, result["order"].values):
        one = result.sel(order=order)
        cells = list(map(_with_error, one["regret_mean"].values, one["regret_mean_error"].values))
        if order in result["bound_order"].values:
            bound = result["bound"].sel(bound_order=order)
            cells = [
                f"{cell} (bound {float(bound.sel(source=source)):.2f})"
                for cell, source in zip(cells, sources, strict=True)
            ]
        yield _row([str(order), *cells])
    yield _row(["all", *(f"{float(value):.2f}" for value in result["optimum_regret"].values)])


_TABLES: tuple[tuple[tuple[str, ...], Callable[..., Iterator[str]]], ...] = (
    (("on-distribution",), excess_table),
    (("on-distribution",), effort_table),
    (("on-distribution", "other-lengths", "memory", "ablations"), more_effort_table),
    (("off-distribution",), bias_table),
    (("on-distribution", "off-distribution"), robustness_table),
    (("other-lengths",), trained_lengths_table),
    (("memory",), memory_table),
    (("longer-lengths",), lengths_table),
    (("ablations",), ablations_table),
)


def _with_error(bits: float, error: float, digits: int = 2) -> str:
    return f"{bits:.{digits}f} ± {error:.{digits}f}"


def _head(cells: list[str]) -> Iterator[str]:
    yield _row(cells)
    yield _row(["---"] * len(cells))


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
