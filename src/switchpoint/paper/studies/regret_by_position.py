"""Regret along the sequences of PTW: cumulative, and at every position."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from switchpoint._numbers import bits, join_and, plus_minus
from switchpoint.evaluation.measure import Member
from switchpoint.figures import style
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.labels import described, display_name, slices, source_label

_EXACT = ("ptw", "lin", "oracle")


def _by_symbol(context: StudyContext, networks: list[str], *exact: str) -> xr.DataArray:
    """The regret (predictor, sequence, time) of the best networks and of exact predictors."""
    source, length = context.scale.source("ptw"), context.scale.length
    predictors: dict[str, Member] = {name: context.best(name, "ptw") for name in networks}
    predictors |= {name: context.exact(name, source, length) for name in exact}
    regret = context.evaluate(predictors, source, length, context.scale.sequences)
    return regret.drop_vars(["switches", "sequence"], errors="ignore")


def _cumulative(context: StudyContext) -> xr.Dataset:
    regret = _by_symbol(context, ["lstm"], *_EXACT)
    return xr.Dataset(base.with_error(regret.cumsum("time"), "cumulative_regret"))


def _plot_cumulative(result: xr.Dataset) -> dict[str, Any]:
    """Figure 2 of the paper."""
    drawn_from = f"{result.attrs['sequences']:,} sequences from {source_label(result, 'ptw')}"
    title = f"Mean over {drawn_from}, with two standard errors"
    figure, (axes,) = figures.panels(1, 1, 4.2, title=title)
    labels = []
    for predictor, one in slices(result, "predictor"):
        middle, error = one["cumulative_regret"].values, one["cumulative_regret_error"].values
        # A dashed line over a solid one: where two agree, both are seen.
        order = 2.5 if predictor == "lstm" else 3
        figures.band(
            axes, one["time"].values, middle, 2 * error, predictor, zorder=order, linewidth=2
        )
        text = f"{display_name(predictor)} {middle[-1]:.2f}"
        labels.append((float(middle[-1]), text, style.hue(predictor)))
    axes.set_ylim(bottom=0)
    axes.set_ylabel("cumulative regret (bits)")
    figures.position_axis(axes, result.sizes["time"])
    figures.labels_right(figure, {axes: labels})
    return {"mean-regret": figure}


def _cumulative_captions(result: xr.Dataset) -> dict[str, base.Caption]:
    def end(one: xr.Dataset) -> str:
        return plus_minus(float(one["cumulative_regret"]), float(one["cumulative_regret_error"]))

    ends = described(result.isel(time=-1), "predictor", end)
    source = source_label(result, "ptw")
    return {
        "mean-regret": base.Caption(
            alt=f"Curves of mean cumulative regret over time on {source}, one for each predictor.",
            observed="Mean with a band of two standard errors. At the end, in bits: "
            f"{join_and(ends)}.",
            paper="The LSTM follows the optimal PTW so closely that the curves coincide; LIN is "
            "a good predictor, but not the best for this source.",
        )
    }


MEAN_REGRET = base.Study(
    name="mean-regret",
    title="Mean cumulative regret",
    paper="Figure 2",
    question="How does an LSTM's regret grow over a PTW sequence, beside exact predictors?",
    scale_fields=("sequences",),
    networks=lambda scale: [base.main_run(scale, "lstm")],
    analyse=_cumulative,
    plot=_plot_cumulative,
    captions=_cumulative_captions,
    seconds={"quick": 2, "full": 20, "zoo": 2},
)


def _by_position(context: StudyContext) -> xr.Dataset:
    networks = list(context.scale.architectures)
    bits = _by_symbol(context, networks, "optimum")
    own = bits.sel(predictor=networks).rename(predictor="architecture")
    least = bits.sel(predictor="optimum", drop=True)
    return xr.Dataset(
        {
            **base.with_error(own, "regret"),
            **base.with_error(least, "optimum_regret"),
            **base.with_error(own - least, "difference"),
        }
    )


def _plot_by_position(result: xr.Dataset) -> dict[str, Any]:
    return {"regret-by-index": _regret(result), "regret-by-index-difference": _difference(result)}


def _regret(result: xr.Dataset) -> Figure:
    figure, (axes,) = figures.panels(1, 1, 4.0)
    times = result["time"].values
    for architecture, one in slices(result, "architecture"):
        regret, error = one["regret"].values, one["regret_error"].values
        label = display_name(architecture)
        figures.band(axes, times, regret, error, architecture, label=label, linewidth=1.0)
    look = style.line_style("optimum") | {"label": display_name("optimum"), "linewidth": 1.3}
    axes.plot(times, result["optimum_regret"], **look)
    axes.set_yscale("log")
    figures.plain_numbers(axes.yaxis, 1, 2, 5)
    axes.set_ylabel("regret (bits per symbol)")
    figures.position_axis(axes, len(times))
    figures.legend_of(axes, ncols=6, columnspacing=1.2, handlelength=1.6)
    return figure


def _difference(result: xr.Dataset) -> Figure:
    """A panel for each network with one scale: five curves in one would hide each other."""
    times = result["time"].values
    figure, used = figures.panels_along(
        result, "architecture", 1, 1.25, 0.7, sharex=True, sharey=True
    )
    for axes, architecture, one in used:
        error = 2 * one["difference_error"].values
        figures.band(axes, times, one["difference"].values, error, architecture, linewidth=1.1)
        axes.axhline(0, color=style.GREY, linewidth=0.8)
        figures.name_panel(axes, architecture)
    middle, width = result["difference"], 2 * result["difference_error"]
    low, high = min(float((middle - width).min()), 0.0), float((middle + width).max())
    used[0][0].set_ylim(low, high + 0.25 * (high - low))  # space for the names
    figure.supylabel("regret above optimum (bits)", fontsize=10)
    figures.position_axis(used[-1][0], len(times))
    return figure


def _position_captions(result: xr.Dataset) -> dict[str, base.Caption]:
    source = source_label(result, "ptw")
    optimum = result["optimum_regret"].values
    known = result["difference"].dropna("architecture", how="all")
    largest = described(
        known,
        "architecture",
        lambda row: f"{bits(float(row.max()))} at {int(np.nanargmax(row.values))}",
    )
    lower = known.min("time") < 0
    below = [display_name(name) for name, each in slices(lower, "architecture") if each]
    verb = "is" if len(below) == 1 else "are"
    under = f"At some positions {join_and(below)} {verb} below it." if below else ""
    return {
        "regret-by-index": base.Caption(
            alt=f"Mean regret at every position of sequences from {source}, one curve for each "
            "network.",
            observed=f"The exact optimum pays {bits(float(optimum[0]))} bits for the first symbol, "
            f"{bits(float(optimum[-1]))} for the last. It pays most where switches are likely.",
            paper="The networks match PTW almost perfectly at every position.",
        ),
        "regret-by-index-difference": base.Caption(
            alt="A panel for each network: its mean regret minus the optimum's at every position.",
            observed="Network minus exact optimum on the same sequences, with two standard errors. "
            f"Largest, in bits, with its position: {join_and(largest)}. {under}",
            paper="A network can beat PTW at single positions, but never in the sum of all.",
        ),
    }


REGRET_BY_INDEX = base.Study(
    name="regret-by-index",
    title="Regret by position",
    paper="regret along the sequences of appendix B",
    question="At which positions of a PTW sequence do networks lose to the optimum?",
    scale_fields=("sequences",),
    networks=base.main_runs,
    analyse=_by_position,
    plot=_plot_by_position,
    captions=_position_captions,
    seconds={"quick": 3, "full": 60, "zoo": 15},
)
