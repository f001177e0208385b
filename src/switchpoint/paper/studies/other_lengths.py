"""Networks trained on each length, and networks trained on one length tested on all."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.lines import Line2D

from switchpoint._numbers import bits, join_and
from switchpoint.figures.style import GREY, hue, marker_style, styled
from switchpoint.paper.base import (
    Caption,
    Grid,
    Measurement,
    Run,
    Study,
    Table,
    config,
    grid,
    main_run,
    names,
    over_seeds,
    with_error,
)
from switchpoint.paper.context import StudyContext
from switchpoint.paper.figures.annotations import labels_right
from switchpoint.paper.figures.labels import display_name
from switchpoint.paper.scale import Scale, TestSet
from switchpoint.paper.studies._lengths import end_label, length_axes, mark_length

_DASHES = {"own": "solid", "transferred": (0, (4, 2))}


def _run(scale: Scale, architecture: str, length: int) -> Run:
    """One architecture on PTW sequences of any length."""
    if length == scale.length:
        return main_run(scale, architecture)
    settings = {"model": architecture, **scale.architectures[architecture]}
    own = config(scale, settings, length=length, prior="ptw")
    return Run(f"{architecture}-length-{length}", own)


def _grids(scale: Scale) -> dict[str, Grid]:
    tests = {n: TestSet("ptw", n, scale.other_sequences) for n in scale.other_lengths}

    def trained(own: bool) -> Grid:
        return grid(
            lambda architecture, length: Measurement(
                _run(scale, architecture, length if own else scale.base_length),
                "ptw",
                tests[length],
            ),
            architecture=scale.other_architectures,
            length=tests,
        )

    return {
        "own": trained(own=True),
        "transferred": trained(own=False),
        "optimum": grid(lambda length: Measurement(None, "optimum", tests[length]), length=tests),
    }


def _analyse(context: StudyContext) -> xr.Dataset:
    optimum = context.regret["optimum"]
    variables = with_error(optimum, "optimum_regret")
    for name in ("own", "transferred"):
        excess = context.regret[name] - optimum
        variables |= over_seeds(excess.transpose("length", "architecture", ...), name)
    result = xr.Dataset(variables)
    return result.assign_attrs(base_length=context.scale.base_length)


def _plot(result: xr.Dataset, local: xr.Dataset | None = None) -> dict[str, Any]:
    """Figure 6 of the paper."""
    del local
    base = int(result.attrs["base_length"])
    means = np.concatenate([result["own_mean"].values, result["transferred_mean"].values])
    with styled():
        title = "Trained on the length of the test, or on another"
        figure, axes = length_axes(result, title, means)
        labels = []
        for architecture in names(result["architecture"]):
            one = result.sel(architecture=architecture)
            for kind, dashes in _DASHES.items():
                axes.errorbar(
                    one["length"].values,
                    one[f"{kind}_mean"].values,
                    yerr=np.nan_to_num(one[f"{kind}_deviation"].values),
                    color=hue(architecture),
                    linestyle=dashes,
                    marker=marker_style(architecture),
                    markersize=4.5,
                    elinewidth=0.7,
                    capsize=2,
                )
            labels.append(end_label(one["transferred_mean"].values, architecture))
        mark_length(axes, base)
        handles = [
            Line2D([], [], color=GREY, label="trained on the length of the test"),
            Line2D([], [], color=GREY, linestyle=(0, (4, 2)), label=f"trained on {base}"),
        ]
        axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        figure.draw_without_rendering()
        labels_right(axes, labels)
    return {"other-lengths": figure}


def _captions(result: xr.Dataset) -> dict[str, Caption]:
    base, lengths = result.attrs["base_length"], result["length"].values
    last = result.isel(length=-1)
    ends = [
        f"{display_name(name)} {bits(float(last['own_mean'].sel(architecture=name)))} against "
        f"{bits(float(last['transferred_mean'].sel(architecture=name)))}"
        for name in names(last["architecture"])
    ]
    return {
        "other-lengths": Caption(
            alt="Curves of excess regret against length: solid for networks trained on that "
            f"length, dashed for networks trained on {base}.",
            observed="Mean over seeds, with bars of their standard deviation. At length "
            f"{lengths[-1]}, excess in bits when trained on it against trained on {base}: "
            f"{join_and(ends)}.",
            paper="Networks trained on 32 are worse on every other length (a U-shaped curve), "
            "since the prior changes with the depth of PTW.",
        )
    }


def _tables(results: Mapping[str, xr.Dataset]) -> list[Table]:
    result = results["other-lengths"]
    base = result.attrs["base_length"]
    rows = []
    for kind, trained in (("own", "the same length"), ("transferred", f"{base} alone")):
        for architecture in names(result["architecture"]):
            one = result.sel(architecture=architecture)
            pairs = zip(one[f"{kind}_mean"].values, one[f"{kind}_mean_error"].values, strict=True)
            cells = [f"{mean:.4f} ± {error:.4f}" for mean, error in pairs]
            rows.append([trained, architecture, *cells])
    head = ["trained on", "", *(str(length) for length in result["length"].values)]
    return [Table("Mean excess by training length, bits", head, rows)]


STUDY = Study(
    name="other-lengths",
    title="Trained on each length, or on one",
    paper="Figure 6",
    question="Is the loss on other lengths due to the length, or to training on another one?",
    scale_fields=("other_lengths", "base_length", "other_sequences"),
    grids=_grids,
    analyse=_analyse,
    plot=_plot,
    captions=_captions,
    tables=_tables,
    allow_partial=True,
    seconds={"quick": 28, "full": 3000, "zoo": 0},
)
