"""Networks on longer sequences than those they were trained on."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from switchpoint._numbers import bits, join_and, plus_minus
from switchpoint.figures.style import marker_style, styled
from switchpoint.paper.base import (
    Caption,
    Grid,
    Measurement,
    Study,
    Table,
    Verdict,
    grid,
    main_run,
    names,
    over_seeds,
    with_error,
)
from switchpoint.paper.context import StudyContext
from switchpoint.paper.figures.annotations import band, labels_right
from switchpoint.paper.figures.labels import display_name
from switchpoint.paper.figures.seeds import draw_local, local_key
from switchpoint.paper.scale import Scale, TestSet
from switchpoint.paper.studies._lengths import end_label, length_axes, mark_length

_ERRORS = 3.0  # standard errors that a difference must exceed to count


def _grids(scale: Scale) -> dict[str, Grid]:
    tests = {n: TestSet("ptw", n, scale.longer_sequences) for n in scale.longer_lengths}
    return {
        "networks": grid(
            lambda length, architecture: Measurement(
                main_run(scale, architecture), "ptw", tests[length]
            ),
            length=tests,
            architecture=scale.architectures,
        ),
        "optimum": grid(lambda length: Measurement(None, "optimum", tests[length]), length=tests),
    }


def _analyse(context: StudyContext) -> xr.Dataset:
    optimum = context.regret["optimum"]
    excess = over_seeds(context.regret["networks"] - optimum, "excess")
    return xr.Dataset({**with_error(optimum, "optimum_regret"), **excess})


def _plot(result: xr.Dataset, local: xr.Dataset | None = None) -> dict[str, Any]:
    """Figure 5 of the paper."""
    title = "Trained on one length, tested on longer sequences"
    architectures = names(result["architecture"])
    with styled():
        figure, axes = length_axes(result, title, result["excess_mean"].values)
        labels = []
        for index, architecture in enumerate(architectures):
            one = result.sel(architecture=architecture)
            style = {"marker": marker_style(architecture), "markersize": 4.5}
            middle, seeds = one["excess_mean"].values, one["excess"]
            ends = [middle - seeds.min("seed").values, seeds.max("seed").values - middle]
            band(axes, one["length"].values, middle, np.stack(ends), architecture, **style)
            labels.append(end_label(middle, architecture))
            if local is not None:
                beside = 1.03 ** (index - (len(architectures) - 1) / 2)
                draw_local(axes, local["length"].values * beside, local, architecture)
        mark_length(axes, int(result.attrs["length"]))
        if local is not None:
            axes.legend(handles=[local_key()], loc="lower right")
        figure.draw_without_rendering()
        labels_right(axes, labels)
    return {"longer-lengths": figure}


def _captions(result: xr.Dataset) -> dict[str, Caption]:
    lengths = result["length"].values
    means = result["excess_mean"].transpose("architecture", "length").values
    ends = [
        f"{display_name(name)} {bits(float(row[0]))} → {bits(float(row[-1]))}"
        for name, row in zip(names(result["architecture"]), means, strict=True)
    ]
    return {
        "longer-lengths": Caption(
            alt="Curves of excess regret against the length of the test sequences, one for each "
            "network, with a band.",
            observed="Mean over seeds, and a band from the lowest to the highest. Excess in bits "
            f"at length {lengths[0]} → {lengths[-1]}: {join_and(ends)}.",
            paper="Every network gets worse beyond its training length; the LSTM and the "
            "Stack-LSTM generalise best, the Stack-RNN worst.",
        )
    }


def _tables(results: Mapping[str, xr.Dataset]) -> list[Table]:
    result = results["longer-lengths"]
    rows = []
    for architecture in names(result["architecture"]):
        one = result.sel(architecture=architecture)
        pairs = zip(one["excess_mean"].values, one["excess_mean_error"].values, strict=True)
        rows.append([architecture, *(f"{mean:.2f} ± {error:.2f}" for mean, error in pairs)])
    head = ["", *(str(length) for length in result["length"].values)]
    return [Table("Mean excess over PTW of matching depth, bits", head, rows)]


def _longer_is_worse(result: xr.Dataset) -> Verdict:
    """The excess over PTW at the longest length, against that at the training length."""
    shortest, longest = int(result["length"].min()), int(result["length"].max())
    first, last = (result.sel(length=n) for n in (shortest, longest))
    gap = last["excess_mean"] - first["excess_mean"]
    error = np.hypot(last["excess_mean_error"], first["excess_mean_error"])
    lines = [
        f"{display_name(name)} {float(first['excess_mean'].sel(architecture=name)):.2f} to "
        f"{float(last['excess_mean'].sel(architecture=name)):.2f}"
        for name in names(result["architecture"])
    ]
    text = f"bits of excess from length {shortest} to {longest}: {', '.join(lines)}"
    return bool((gap > _ERRORS * error).all()), text


def _lstms_are_best(result: xr.Dataset) -> Verdict:
    """Both LSTMs against every other network, at every longer length."""
    architectures, lstms = names(result["architecture"]), ["lstm", "stack-lstm"]
    longer = result.sel(length=result["length"] > result.attrs["length"])
    if not set(lstms) < set(architectures) or not longer.sizes["length"]:
        return None, "there are no longer sequences, or no LSTM, Stack-LSTM and other networks"
    rivals = longer.drop_sel(architecture=lstms).rename(architecture="rival")
    best = longer.sel(architecture=lstms)
    gap = rivals["excess_mean"] - best["excess_mean"]
    error = np.hypot(rivals["excess_mean_error"], best["excess_mean_error"])
    lines = []
    for length in longer["length"].values:
        one = longer.sel(length=length)
        one = one.sortby(one["excess_mean"])
        pairs = zip(one["excess_mean"].values, one["excess_mean_error"].values, strict=True)
        rows = zip(names(one["architecture"]), pairs, strict=True)
        lines.append(
            f"{length}: {', '.join(f'{display_name(n)} {plus_minus(*pair)}' for n, pair in rows)}"
        )
    text = f"bits above PTW by length, from the lowest: {'; '.join(lines)}"
    return bool((gap > _ERRORS * error).all()), text


STUDY = Study(
    name="longer-lengths",
    title="Longer sequences than in training",
    paper="Figure 5",
    question="How well do networks predict beyond the length they were trained on?",
    scale_fields=("longer_lengths", "longer_sequences"),
    grids=_grids,
    analyse=_analyse,
    plot=_plot,
    captions=_captions,
    tables=_tables,
    claims={
        "The excess over PTW grows with length beyond the training length.": _longer_is_worse,
        "On longer sequences the LSTM and the Stack-LSTM lose least.": _lstms_are_best,
    },
    seconds={"quick": 22, "full": 400, "zoo": 40},
)
