"""Excess on the validation sequences while the networks of the main studies were trained."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.ticker import EngFormatter, MaxNLocator

from switchpoint._numbers import bits, join_and
from switchpoint.figures import style
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.labels import described, display_name, names, slices, source_label
from switchpoint.zoo.manifest import SOURCES

_SPIKE = 0.5  # bits by which the excess must rise between two records to be called a spike
_FLOOR = 1e-3  # the least excess that is drawn, in bits


def _analyse(context: StudyContext) -> xr.Dataset:
    """The excess of every member at every record; the steps differ between them."""
    scale = context.scale
    seeds = range(scale.first_seed, scale.first_seed + scale.seeds)
    logs = {
        name: [(run, context.networks.log(run)) for run in base.main_runs(scale, name)]
        for name in scale.architectures
    }
    count = max(len(records) for every in logs.values() for _, records in every)
    steps = np.full((len(logs), len(SOURCES), count), np.nan)
    excess = np.full((len(logs), len(SOURCES), len(seeds), count), np.nan)
    for index, every in enumerate(logs.values()):
        for run, records in every:
            values = np.array([record.excess for record in records])
            for member in run.config.members():
                place = index, SOURCES.index(member.prior), seeds.index(member.seed)
                steps[place[:2]][: len(values)] = [record.step for record in records]
                excess[place][: len(values)] = values[:, member.index]
    return xr.Dataset(
        {
            "step": (("architecture", "source", "record"), steps),
            "excess": (("architecture", "source", "seed", "record"), excess, {"units": "bits"}),
        },
        coords={"architecture": list(logs), "source": list(SOURCES), "seed": list(seeds)},
    )


def _plot(result: xr.Dataset) -> dict[str, Any]:
    """A row of panels for each architecture, one for each source, with a line for each seed."""
    architectures, sources = names(result["architecture"]), names(result["source"])
    count = len(architectures) * len(sources)
    figure, used = figures.panels(count, len(sources), 1.5, 0.5, sharey="col")
    for axes, (architecture, source) in zip(
        used, itertools.product(architectures, sources), strict=True
    ):
        one = result.sel(architecture=architecture, source=source)
        # Some estimates near the optimum are negative, and have no place on this axis.
        excess = one["excess"].clip(min=_FLOOR).transpose("record", "seed")
        colour = style.hue(architecture)
        axes.plot(one["step"], excess, color=colour, linewidth=0.8, alpha=0.8)
        axes.set_yscale("log")
        figures.plain_numbers(axes.yaxis)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(3))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        if source == sources[0]:
            axes.set_ylabel(display_name(architecture))
        if architecture == architectures[0]:
            axes.set_title(source_label(result, source), fontsize="small")
    figure.supxlabel("step", fontsize="medium")
    figure.supylabel("excess regret (bits)", fontsize="medium")
    return {"training-curves": figure}


def _spikes(curves: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray, int]:
    """The largest rise of each seed between two records, its last excess, the number of spikes."""
    curves = curves.dropna("record", how="all")
    rises = curves.diff("record").max("record")
    return rises, curves.isel(record=-1), int((rises > _SPIKE).sum())


def _validation(result: xr.Dataset) -> str:
    """The number of validation sequences of the runs."""
    counts = {run["validation"] for run in result.attrs["plan"]["runs"].values()}
    return " or ".join(str(count) for count in sorted(counts))


def _captions(result: xr.Dataset) -> dict[str, base.Caption]:

    def text(curves: xr.DataArray) -> str:
        _, end, spiked = _spikes(curves)
        return f"{spiked} (median {bits(float(end.median()))})"

    parts = described(result["excess"].sel(source="ptw"), "architecture", text)
    return {
        "training-curves": base.Caption(
            alt="A panel for each architecture and source: excess regret against the training "
            "step, one line for each seed, on a logarithmic scale.",
            observed="Excess on validation sequences; estimates below "
            f"{_FLOOR} bits are drawn there. Seeds with a spike of over {_SPIKE} bits on "
            f"{source_label(result, 'ptw')}, and the final excess: {join_and(parts)}.",
            paper="Not shown in the paper.",
            size=f"{result.sizes['seed']} seeds, {_validation(result)} validation sequences each",
        )
    }


def _tables(results: Mapping[str, xr.Dataset]) -> list[base.Table]:
    """The loss spikes of each architecture and source."""
    result = results["training-curves"]
    rows = []
    for architecture, each in slices(result["excess"], "architecture"):
        for source, curves in slices(each, "source"):
            rises, end, spiked = _spikes(curves)
            if spiked:
                worst = {"seed": rises.idxmax()}
                rows.append(
                    [
                        f"{architecture}, {result.attrs['labels'][source]}",
                        f"{spiked} of {rises.size}",
                        f"{float(rises.max()):+.2f} (ends at {bits(float(end.sel(worst)))})",
                        *(bits(float(value)) for value in (end.median(), end.max())),
                    ]
                )
    head = ["", "seeds with spikes", "largest rise", "median at the end", "highest at the end"]
    return [base.Table(f"Loss spikes: rises of more than {_SPIKE} bits, validation", head, rows)]


STUDY = base.Study(
    name="training-curves",
    title="Excess while training",
    paper="nothing like it",
    question="How do networks approach the optimum while they are trained?",
    networks=base.main_runs,
    needs_logs=True,
    analyse=_analyse,
    plot=_plot,
    captions=_captions,
    tables=_tables,
    seconds={"quick": 1, "full": 1, "zoo": 0},
)
