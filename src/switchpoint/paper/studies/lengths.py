"""Networks on sequences of other lengths than those they were trained on: two studies."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from switchpoint._numbers import bits, join_and, plus_minus
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.figures.labels import display_name, names, slices
from switchpoint.paper.scale import Scale, TestSet

_WIDE_RANGE = 30.0
_DASHES: dict[str, Any] = {"own": "solid", "transferred": (0, (4, 2))}


def _tests(lengths: Iterable[int], sequences: int) -> tuple[dict[int, TestSet], base.Grid]:
    """The test set of each length, and the measurements of the optimum on them."""
    tests = {length: TestSet("ptw", length, sequences) for length in lengths}
    return tests, base.grid(
        lambda length: base.Measurement(None, "optimum", tests[length]), length=tests
    )


def _length_axes(result: xr.Dataset, title: str, means: np.ndarray) -> tuple[Figure, Axes]:
    """Axes of excess against length, logarithmic where a linear axis would hide small values."""
    figure, (axes,) = figures.panels(1, 1, 4.4, title=title)
    figures.powers_axis(axes, result["length"].values)
    axes.set_xlabel("length of the test sequences")
    axes.set_ylabel("regret above PTW of matching depth (bits)")
    positive = means[np.isfinite(means) & (means > 0)]
    if positive.size and positive.max() > _WIDE_RANGE * positive.min():
        axes.set_yscale("log", nonpositive="clip")
        figures.plain_numbers(axes.yaxis)
        axes.set_ylim(positive.min() / 1.6, positive.max() * 1.6)
    return figure, axes


def _mark_length(axes: Axes, length: int) -> None:
    """Mark the training length, and include 0 in a linear axis."""
    if axes.get_yscale() == "linear":
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.axvline(length, color=figures.GREY, linestyle=(0, (1, 2)), linewidth=1.2, zorder=1)
    axes.annotate(
        f"trained on {length}",
        xy=(length, 1.0),
        xycoords=axes.get_xaxis_transform(),
        xytext=(3, -3),
        textcoords="offset points",
        va="top",
        fontsize=8.5,
        color=figures.GREY,
    )


def _end_label(middle: np.ndarray, architecture: str) -> figures.Label:
    """The label at the last length that has a result."""
    finite = middle[np.isfinite(middle)]
    end = float(finite[-1]) if finite.size else 0.0
    return end, display_name(architecture), figures.hue(architecture)


def _longer_grids(scale: Scale) -> dict[str, base.Grid]:
    tests, optimum = _tests(scale.longer_lengths, scale.longer_sequences)
    networks = base.grid(
        lambda length, architecture: base.Measurement(
            base.main_run(scale, architecture), "ptw", tests[length]
        ),
        length=tests,
        architecture=scale.architectures,
    )
    return {"networks": networks, "optimum": optimum}


def _analyse_longer(context: StudyContext) -> xr.Dataset:
    optimum = context.regret["optimum"]
    excess = base.over_seeds(context.regret["networks"] - optimum, "excess")
    return xr.Dataset({**base.with_error(optimum, "optimum_regret"), **excess})


def _plot_longer(result: xr.Dataset, local: xr.Dataset | None = None) -> dict[str, Any]:
    """Figure 5 of the paper."""
    title = "Trained on one length, tested on longer sequences"
    architectures = names(result["architecture"])
    figure, axes = _length_axes(result, title, result["excess_mean"].values)
    labels = []
    for index, architecture in enumerate(architectures):
        one = result.sel(architecture=architecture)
        style = {"marker": figures.marker_style(architecture), "markersize": 4.5}
        middle, seeds = one["excess_mean"].values, one["excess"]
        ends = [middle - seeds.min("seed").values, seeds.max("seed").values - middle]
        figures.band(axes, one["length"].values, middle, np.stack(ends), architecture, **style)
        labels.append(_end_label(middle, architecture))
        if local is not None:
            beside = 1.03 ** (index - (len(architectures) - 1) / 2)
            figures.draw_local(axes, local["length"].values * beside, local, architecture)
    _mark_length(axes, int(result.attrs["length"]))
    if local is not None:
        axes.legend(handles=[figures.local_key()], loc="lower right")
    figures.labels_right(figure, {axes: labels})
    return {"longer-lengths": figure}


def _longer_captions(result: xr.Dataset) -> dict[str, base.Caption]:
    lengths = result["length"].values
    means = result["excess_mean"].transpose("architecture", "length").values
    ends = [
        f"{display_name(name)} {bits(float(row[0]))} → {bits(float(row[-1]))}"
        for name, row in zip(names(result["architecture"]), means, strict=True)
    ]
    return {
        "longer-lengths": base.Caption(
            alt="Curves of excess regret against the length of the test sequences, one for each "
            "network, with a band.",
            observed="Mean over seeds, and a band from the lowest to the highest. Excess in bits "
            f"at length {lengths[0]} → {lengths[-1]}: {join_and(ends)}.",
            paper="Every network gets worse beyond its training length; the LSTM and the "
            "Stack-LSTM generalise best, the Stack-RNN worst.",
        )
    }


def _longer_tables(results: Mapping[str, xr.Dataset]) -> list[base.Table]:
    result = results["longer-lengths"]
    rows = [
        [name, *base.means_with_errors(result.sel(architecture=name), "excess_mean")]
        for name in names(result["architecture"])
    ]
    head = ["", *names(result["length"])]
    return [base.Table("Mean excess over PTW of matching depth, bits", head, rows)]


def _longer_is_worse(result: xr.Dataset) -> base.Verdict:
    """The excess over PTW at the longest length, against that at the training length."""
    shortest, longest = int(result["length"].min()), int(result["length"].max())
    first, last = (result.sel(length=n) for n in (shortest, longest))
    gap = last["excess_mean"] - first["excess_mean"]
    lines = [
        f"{display_name(name)} {float(first['excess_mean'].sel(architecture=name)):.2f} to "
        f"{float(last['excess_mean'].sel(architecture=name)):.2f}"
        for name in names(result["architecture"])
    ]
    text = f"bits of excess from length {shortest} to {longest}: {', '.join(lines)}"
    return base.exceeds(gap, last["excess_mean_error"], first["excess_mean_error"]), text


def _lstms_are_best(result: xr.Dataset) -> base.Verdict:
    """Both LSTMs against every other network, at every longer length."""
    architectures, lstms = names(result["architecture"]), ["lstm", "stack-lstm"]
    longer = result.sel(length=result["length"] > result.attrs["length"])
    if not set(lstms) < set(architectures) or not longer.sizes["length"]:
        return None, "there are no longer sequences, or no LSTM, Stack-LSTM and other networks"
    rivals = longer.drop_sel(architecture=lstms).rename(architecture="rival")
    best = longer.sel(architecture=lstms)
    gap = rivals["excess_mean"] - best["excess_mean"]
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
    return base.exceeds(gap, rivals["excess_mean_error"], best["excess_mean_error"]), text


LONGER_LENGTHS = base.Study(
    name="longer-lengths",
    title="Longer sequences than in training",
    paper="Figure 5",
    question="How well do networks predict beyond the length they were trained on?",
    scale_fields=("longer_lengths", "longer_sequences"),
    grids=_longer_grids,
    analyse=_analyse_longer,
    plot=_plot_longer,
    captions=_longer_captions,
    tables=_longer_tables,
    claims={
        "The excess over PTW grows with length beyond the training length.": _longer_is_worse,
        "On longer sequences the LSTM and the Stack-LSTM lose least.": _lstms_are_best,
    },
    seconds={"quick": 22, "full": 400, "zoo": 40},
)


def _run(scale: Scale, architecture: str, length: int) -> base.Run:
    """One architecture on PTW sequences of any length."""
    if length == scale.length:
        return base.main_run(scale, architecture)
    settings = {"model": architecture, **scale.architectures[architecture]}
    own = base.config(scale, settings, length=length, prior="ptw")
    return base.Run(f"{architecture}-length-{length}", own)


def _other_grids(scale: Scale) -> dict[str, base.Grid]:
    tests, optimum = _tests(scale.other_lengths, scale.other_sequences)

    def trained(own: bool) -> base.Grid:
        return base.grid(
            lambda architecture, length: base.Measurement(
                _run(scale, architecture, length if own else scale.base_length),
                "ptw",
                tests[length],
            ),
            architecture=scale.other_architectures,
            length=tests,
        )

    return {"own": trained(own=True), "transferred": trained(own=False), "optimum": optimum}


def _analyse_other(context: StudyContext) -> xr.Dataset:
    optimum = context.regret["optimum"]
    variables = base.with_error(optimum, "optimum_regret")
    for name in _DASHES:
        excess = context.regret[name] - optimum
        variables |= base.over_seeds(excess.transpose("length", "architecture", ...), name)
    result = xr.Dataset(variables)
    return result.assign_attrs(base_length=context.scale.base_length)


def _plot_other(result: xr.Dataset, local: xr.Dataset | None = None) -> dict[str, Any]:
    """Figure 6 of the paper."""
    del local
    base_length = int(result.attrs["base_length"])
    means = np.concatenate([result[f"{kind}_mean"].values for kind in _DASHES])
    title = "Trained on the length of the test, or on another"
    figure, axes = _length_axes(result, title, means)
    labels = []
    for architecture, one in slices(result, "architecture"):
        style = {"color": figures.hue(architecture), "marker": figures.marker_style(architecture)}
        for kind, dashes in _DASHES.items():
            bars: dict[str, Any] = {"markersize": 4.5, "elinewidth": 0.7, "capsize": 2}
            figures.error_bars(
                axes, one["length"].values, one, kind, linestyle=dashes, **style, **bars
            )
        labels.append(_end_label(one["transferred_mean"].values, architecture))
    _mark_length(axes, base_length)
    texts = {"own": "trained on the length of the test", "transferred": f"trained on {base_length}"}
    handles = [
        Line2D([], [], color=figures.GREY, linestyle=dashes, label=texts[kind])
        for kind, dashes in _DASHES.items()
    ]
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    figures.labels_right(figure, {axes: labels})
    return {"other-lengths": figure}


def _other_captions(result: xr.Dataset) -> dict[str, base.Caption]:
    base_length, lengths = result.attrs["base_length"], result["length"].values
    last = result.isel(length=-1)
    ends = [
        f"{display_name(name)} {bits(float(last['own_mean'].sel(architecture=name)))} against "
        f"{bits(float(last['transferred_mean'].sel(architecture=name)))}"
        for name in names(last["architecture"])
    ]
    return {
        "other-lengths": base.Caption(
            alt="Curves of excess regret against length: solid for networks trained on that "
            f"length, dashed for networks trained on {base_length}.",
            observed="Mean over seeds, with bars of their standard deviation. At length "
            f"{lengths[-1]}, excess in bits when trained on it against trained on {base_length}: "
            f"{join_and(ends)}.",
            paper="Networks trained on 32 are worse on every other length (a U-shaped curve), "
            "since the prior changes with the depth of PTW.",
        )
    }


def _other_tables(results: Mapping[str, xr.Dataset]) -> list[base.Table]:
    result = results["other-lengths"]
    rows = []
    for kind, trained in (
        ("own", "the same length"),
        ("transferred", f"{result.attrs['base_length']} alone"),
    ):
        for name in names(result["architecture"]):
            cells = base.means_with_errors(result.sel(architecture=name), f"{kind}_mean", 4)
            rows.append([trained, name, *cells])
    head = ["trained on", "", *names(result["length"])]
    return [base.Table("Mean excess by training length, bits", head, rows)]


OTHER_LENGTHS = base.Study(
    name="other-lengths",
    title="Trained on each length, or on one",
    paper="Figure 6",
    question="Is the loss on other lengths due to the length, or to training on another one?",
    scale_fields=("other_lengths", "base_length", "other_sequences"),
    grids=_other_grids,
    analyse=_analyse_other,
    plot=_plot_other,
    captions=_other_captions,
    tables=_other_tables,
    seconds={"quick": 28, "full": 3000, "zoo": 0},
)
