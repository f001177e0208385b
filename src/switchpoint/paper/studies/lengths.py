"""Networks on sequences of other lengths than those they were trained on: two studies."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from switchpoint._numbers import bits, join_and, plus_minus
from switchpoint.figures import style
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.labels import described, display_name, names, slices
from switchpoint.paper.scale import Scale, TestSet

_WIDE_RANGE = 30.0
_DASHES: dict[str, Any] = {"own": "solid", "transferred": (0, (4, 2))}


def _tests(lengths: Iterable[int], sequences: int) -> tuple[dict[int, TestSet], base.Grid]:
    """The test set of each length, and the measurements of the optimum on them."""
    tests = {length: TestSet("ptw", length, sequences) for length in lengths}
    return tests, base.exact_grid("length", tests)


def _draw(
    result: xr.Dataset,
    title: str,
    kinds: Sequence[str],
    trained: int,
    draw: Callable[[Axes, str, xr.Dataset], None],
    handles: Sequence[Line2D] = (),
) -> Figure:
    """Excess against length, logarithmic where a linear axis would hide small values.

    `draw` receives the axes, a network and its results; the mean of the last of the `kinds` is
    labelled at the last length that has one. The training length is marked.
    """
    figure, (axes,) = figures.panels(1, 1, 4.4, title=title)
    figures.powers_axis(axes, result["length"].values)
    axes.set_xlabel("length of the test sequences")
    axes.set_ylabel("regret above PTW of matching depth (bits)")
    means = np.concatenate([result[f"{kind}_mean"].values.ravel() for kind in kinds])
    positive = means[means > 0]
    wide = positive.size and positive.max() > _WIDE_RANGE * positive.min()
    if wide:
        axes.set_yscale("log", nonpositive="clip")
        figures.plain_numbers(axes.yaxis)
        axes.set_ylim(positive.min() / 1.6, positive.max() * 1.6)
    labels = []
    for architecture, one in slices(result, "architecture"):
        draw(axes, architecture, one)
        middle = one[f"{kinds[-1]}_mean"].dropna("length")
        end = float(middle[-1]) if middle.size else 0.0
        labels.append((end, display_name(architecture), style.hue(architecture)))
    if not wide:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.axvline(trained, color=style.GREY, linestyle=(0, (1, 2)), linewidth=1.2, zorder=1)
    axes.annotate(
        f"trained on {trained}",
        xy=(trained, 1.0),
        xycoords=axes.get_xaxis_transform(),
        xytext=(3, -3),
        textcoords="offset points",
        va="top",
        fontsize=8.5,
        color=style.GREY,
    )
    if handles:
        axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    figures.labels_right(figure, {axes: labels})
    return figure


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


def _plot_longer(result: xr.Dataset) -> dict[str, Any]:
    """Figure 5 of the paper."""

    def draw(axes: Axes, architecture: str, one: xr.Dataset) -> None:
        look = {"marker": style.marker_style(architecture), "markersize": 4.5}
        middle, seeds = one["excess_mean"], one["excess"]
        ends = np.stack([middle - seeds.min("seed"), seeds.max("seed") - middle])
        figures.band(axes, one["length"].values, middle.values, ends, architecture, **look)

    title = "Trained on one length, tested on longer sequences"
    figure = _draw(result, title, ["excess"], int(result.attrs["length"]), draw)
    return {"longer-lengths": figure}


def _longer_captions(result: xr.Dataset) -> dict[str, base.Caption]:
    lengths = result["length"].values
    ends = described(
        result["excess_mean"],
        "architecture",
        lambda means: f"{bits(float(means[0]))} → {bits(float(means[-1]))}",
    )
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
        [name, *base.means_with_errors(one, "excess_mean")]
        for name, one in slices(result, "architecture")
    ]
    head = ["", *names(result["length"])]
    return [base.Table("Mean excess over PTW of matching depth, bits", head, rows)]


def _longer_is_worse(result: xr.Dataset) -> base.Verdict:
    """The excess over PTW at the longest length, against that at the training length."""
    ends = result.sortby("length").isel(length=[0, -1])
    mean, error = ends["excess_mean"], ends["excess_mean_error"]
    lines = described(mean, "architecture", lambda one: " to ".join(f"{float(x):.2f}" for x in one))
    shortest, longest = ends["length"].values
    text = f"bits of excess from length {shortest} to {longest}: {', '.join(lines)}"
    return base.exceeds(mean[1] - mean[0], error[1], error[0]), text


def _lstms_are_best(result: xr.Dataset) -> base.Verdict:
    """Both LSTMs against every other network, at every longer length."""
    architectures, lstms = names(result["architecture"]), ["lstm", "stack-lstm"]
    longer = result.sel(length=result["length"] > result.attrs["length"])
    if not set(lstms) < set(architectures) or not longer.sizes["length"]:
        return None, "there are no longer sequences, or no LSTM, Stack-LSTM and other networks"
    rivals = longer.drop_sel(architecture=lstms).rename(architecture="rival")
    best = longer.sel(architecture=lstms)
    gap = rivals["excess_mean"] - best["excess_mean"]

    def order(one: xr.Dataset) -> str:
        return ", ".join(
            described(
                one.sortby(one["excess_mean"]),
                "architecture",
                lambda each: plus_minus(
                    float(each["excess_mean"]), float(each["excess_mean_error"])
                ),
            )
        )

    lines = described(longer, "length", order, "{}:".format)
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


def _plot_other(result: xr.Dataset) -> dict[str, Any]:
    """Figure 6 of the paper."""

    def draw(axes: Axes, architecture: str, one: xr.Dataset) -> None:
        look: dict[str, Any] = {"color": style.hue(architecture), "elinewidth": 0.7, "capsize": 2}
        look |= {"marker": style.marker_style(architecture), "markersize": 4.5}
        for kind, dashes in _DASHES.items():
            figures.error_bars(axes, one["length"].values, one, kind, linestyle=dashes, **look)

    title, length = "Trained on the length of the test, or on another", result.attrs["base_length"]
    texts = {"own": "trained on the length of the test", "transferred": f"trained on {length}"}
    handles = [
        Line2D([], [], color=style.GREY, linestyle=dashes, label=texts[kind])
        for kind, dashes in _DASHES.items()
    ]
    return {"other-lengths": _draw(result, title, list(_DASHES), int(length), draw, handles)}


def _other_captions(result: xr.Dataset) -> dict[str, base.Caption]:
    base_length, lengths = result.attrs["base_length"], result["length"].values
    ends = described(
        result.isel(length=-1),
        "architecture",
        lambda one: (
            f"{bits(float(one['own_mean']))} against {bits(float(one['transferred_mean']))}"
        ),
    )
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
    texts = {"own": "the same length", "transferred": f"{result.attrs['base_length']} alone"}
    rows = [
        [texts[kind], name, *base.means_with_errors(one, f"{kind}_mean", 4)]
        for kind in _DASHES
        for name, one in slices(result, "architecture")
    ]
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
