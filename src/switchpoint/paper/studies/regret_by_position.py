"""Regret along the sequences of PTW: cumulative, and at every position."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from switchpoint._numbers import bits, join_and, plus_minus
from switchpoint.evaluation.measure import Member
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.figures.labels import display_name, names, slices, source_label

_EXACT = ("ptw", "lin", "oracle")


def _by_symbol(context: StudyContext, predictors: dict[str, Member]) -> xr.DataArray:
    scale = context.scale
    regret = context.evaluate(predictors, scale.source("ptw"), scale.length, scale.sequences)
    return regret.drop_vars(["switches", "sequence"], errors="ignore")


def _cumulative(context: StudyContext) -> xr.Dataset:
    source, length = context.scale.source("ptw"), context.scale.length
    predictors: dict[str, Member] = {
        "lstm": context.best("lstm", "ptw"),
        **{name: context.exact(name, source, length) for name in _EXACT},
    }
    bits = _by_symbol(context, predictors).cumsum("time")
    networks = bits.sel(predictor=["lstm"]).rename(predictor="architecture")
    excess = networks - bits.sel(predictor="ptw", drop=True)
    return xr.Dataset(
        {**base.with_error(bits, "cumulative_regret"), **base.with_error(excess, "excess")}
    )


def _plot_cumulative(result: xr.Dataset, local: xr.Dataset | None = None) -> dict[str, Any]:
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
        labels.append((float(middle[-1]), text, figures.hue(predictor)))
    if local is not None:
        exact = result["cumulative_regret"].sel(predictor="ptw", drop=True)
        some = _eighths(local.assign(excess=exact + local["excess"]))
        figures.draw_local(axes, some["time"].values, some, "lstm")
        axes.legend(handles=[figures.local_key()], loc="upper left")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("cumulative regret (bits)")
    figures.position_axis(axes, result.sizes["time"])
    figures.labels_right(figure, {axes: labels})
    return {"mean-regret": figure}


def _cumulative_captions(result: xr.Dataset) -> dict[str, base.Caption]:
    last = result.isel(time=-1)
    ends = []
    for name, one in slices(last, "predictor"):
        value = plus_minus(float(one["cumulative_regret"]), float(one["cumulative_regret_error"]))
        ends.append(f"{display_name(name)} {value}")
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


def _eighths(local: xr.Dataset) -> xr.Dataset:
    """A local measurement at the start of every eighth of the sequence but the first."""
    step = max(1, local.sizes["time"] // 8)
    return local.isel(time=slice(step, None, step))


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
    scale = context.scale
    networks: dict[str, Member] = {name: context.best(name, "ptw") for name in scale.architectures}
    optimum = context.exact("optimum", scale.source("ptw"), scale.length)
    bits = _by_symbol(context, {**networks, "optimum": optimum})
    own = bits.sel(predictor=list(networks)).rename(predictor="architecture")
    least = bits.sel(predictor="optimum", drop=True)
    return xr.Dataset(
        {
            **base.with_error(own, "regret"),
            **base.with_error(least, "optimum_regret"),
            **base.with_error(own - least, "difference"),
        }
    )


def _plot_by_position(result: xr.Dataset, local: xr.Dataset | None = None) -> dict[str, Any]:
    return {
        "regret-by-index": _regret(result),
        "regret-by-index-difference": _difference(result, local),
    }


def _regret(result: xr.Dataset) -> Figure:
    figure, (axes,) = figures.panels(1, 1, 4.0)
    times = result["time"].values
    for architecture, one in slices(result, "architecture"):
        regret, error = one["regret"].values, one["regret_error"].values
        label = display_name(architecture)
        figures.band(axes, times, regret, error, architecture, label=label, linewidth=1.0)
    label = display_name("optimum")
    axes.plot(
        times, result["optimum_regret"], linewidth=1.3, label=label, **figures.line_style("optimum")
    )
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=[1, 2, 5]))
    figures.plain_numbers(axes.yaxis)
    axes.set_ylabel("regret (bits per symbol)")
    figures.position_axis(axes, len(times))
    figures.legend_of(axes, ncols=6, columnspacing=1.2, handlelength=1.6)
    return figure


def _difference(result: xr.Dataset, local: xr.Dataset | None) -> Figure:
    """A panel for each network with one scale: five curves in one would hide each other."""
    architectures = names(result["architecture"])
    times = result["time"].values
    middle, error = result["difference"], result["difference_error"]
    figure, column = figures.panels(len(architectures), 1, 1.25, 0.7, sharex=True, sharey=True)
    for axes, architecture in zip(column, architectures, strict=True):
        own, width = (each.sel(architecture=architecture).values for each in (middle, error))
        figures.band(axes, times, own, 2 * width, architecture, linewidth=1.1)
        if local is not None:
            some = _eighths(local)
            figures.draw_local(axes, some["time"].values, some, architecture, "difference")
        axes.axhline(0, color=figures.GREY, linewidth=0.8)
        figures.name_panel(axes, architecture)
    low = min(float((middle - 2 * error).min()), 0.0)
    high = float((middle + 2 * error).max())
    column[0].set_ylim(low, high + 0.25 * (high - low))  # space for the names
    figure.supylabel("regret above optimum (bits)", fontsize=10)
    figures.position_axis(column[-1], len(times))
    if local is not None:
        figure.legend(handles=[figures.local_key()], loc="outside upper right")
    return figure


def _position_captions(result: xr.Dataset) -> dict[str, base.Caption]:
    source = source_label(result, "ptw")
    optimum = result["optimum_regret"].values
    difference = result["difference"]
    architectures = names(result["architecture"])
    rows = {name: difference.sel(architecture=name).values for name in architectures}
    largest = [
        f"{display_name(name)} {bits(float(np.nanmax(row)))} at {int(np.nanargmax(row))}"
        for name, row in rows.items()
        if np.isfinite(row).any()
    ]
    below = [display_name(name) for name, row in rows.items() if np.nanmin(row, initial=0.0) < 0]
    verb = "is" if len(below) == 1 else "are"
    under = f"At some positions {join_and(below)} {verb} below it." if below else ""
    return {
        "regret-by-index": base.Caption(
            alt=f"Mean regret at every position of sequences from {source}, one curve for each "
            "network.",
            observed=f"The exact optimum pays {bits(float(optimum[0]))} bits for the first symbol, "
            f"{bits(float(optimum[-1]))} for the last. It pays most where switches are likely.",
            paper="The networks match PTW almost perfectly at every position.",
            local=False,
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
