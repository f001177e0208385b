"""Predictions on single sequences: of each source, and beyond the training length."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from switchpoint._numbers import bits, join_and
from switchpoint._random import key_for
from switchpoint.evaluation import regret
from switchpoint.exact import KTOracle, bayes_optimal
from switchpoint.figures.annotations import draw_symbols, panels, position_axis
from switchpoint.figures.labels import display_name, source_label
from switchpoint.figures.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    WIDTH,
    colour_of,
    darker,
    legend_above,
    line_of,
    new_figure,
    styled,
)
from switchpoint.predictor import Predictor
from switchpoint.sources import Draw, Source
from switchpoint.studies.base import Caption, Study, main_runs, names
from switchpoint.studies.context import StudyContext
from switchpoint.zoo.manifest import SOURCES

_CANDIDATES = 250  # sequences of which one is shown; as many as `evaluate` compiles for
_STROKES = {"optimum": 1.6, "oracle": 1.1}
_MAX_SWITCHES = 6  # a caption lists no more positions
_BETTER_WORSE = LinearSegmentedColormap.from_list("better worse", [BLUE, "#FFFFFF", ORANGE])
_PERCENT_INSIDE = 99.5  # of the values that the colour scale of the heat map covers


def _follow(draws: Draw, row: int, predictors: Mapping[str, Predictor]) -> xr.Dataset:
    """One of the sequences, with each predictor's probabilities and regret."""
    logs = {name: each.log_probs(draws.symbols)[row] for name, each in predictors.items()}
    draw: Draw = jax.tree.map(lambda leaf: leaf[row], draws)
    losses = np.stack([np.asarray(regret(draw, log)) for log in logs.values()]).astype(np.float64)
    probabilities = np.exp([np.asarray(log, np.float64)[:, 1] for log in logs.values()])
    both = ("predictor", "time")
    return xr.Dataset(
        {
            "symbols": ("time", np.asarray(draw.symbols, np.int32)),
            "probability": ("time", np.asarray(draw.probs[:, 1], np.float64)),
            "switches": ("time", np.asarray(draw.switches).astype(np.int32)),
            "prediction": (both, probabilities, {"units": "1"}),
            "regret": (both, losses, {"units": "bits"}),
            "cumulative_regret": (both, losses.cumsum(-1), {"units": "bits"}),
        },
        coords={
            "predictor": list(predictors),
            "time": np.arange(draw.symbols.shape[-1], dtype=np.int32),
        },
    )


def _trajectories(context: StudyContext) -> xr.Dataset:
    """One sequence of each source, with the optimum, the oracle and a network."""
    rows = []
    for name in SOURCES:
        source = context.scale.source(name)
        draw = source.sample(key_for(0, "example"), _CANDIDATES, context.scale.length)
        predictors = {
            "optimum": bayes_optimal(source),
            "oracle": KTOracle(draw.switches, source.segment),
            "lstm": context.best("lstm", name),
        }
        rows.append(_follow(draw, _typical(draw, source), predictors))
    return xr.concat(rows, xr.Variable("source", list(SOURCES)))


def _typical(draw: Draw, source: Source) -> int:
    """The first sequence with the expected number of switches, or nearly."""
    expected = source.prior.switch_probability(draw.symbols.shape[-1]).sum()
    counts = np.asarray(draw.switches).sum(-1)
    return int(np.argmin(np.abs(counts - expected)))


def _plot_trajectories(result: xr.Dataset, local: xr.Dataset | None = None) -> dict[str, Any]:
    """One figure for each source, as Figure 1 of the paper."""
    del local
    return {
        f"trajectory-{source}": _trajectory(result.sel(source=source), source)
        for source in names(result["source"])
    }


def _trajectory(one: xr.Dataset, source: str) -> Figure:
    with styled():
        figure = new_figure(WIDTH, 5.6)
        top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=[2.2, 1.2, 1.4])
        label = source_label(one, source)
        figure.suptitle(f"One sequence from {label}", x=0.01, ha="left")
        draw_symbols(top, one["symbols"].values, one["probability"].values)
        for predictor in names(one["predictor"]):
            drawn = one.sel(predictor=predictor)
            # Networks carry their training source in brackets, as in the paper.
            trained = "" if predictor in ("optimum", "oracle") else f" [{label}]"
            style = {
                **line_of(predictor),
                "linewidth": _STROKES.get(predictor, 1.8),
                "zorder": 3 if predictor in _STROKES else 2.5,  # dashes over solid lines
                "label": display_name(predictor) + trained,
            }
            top.step(one["time"], drawn["prediction"], where="mid", **style)
            middle.step(one["time"], drawn["regret"], where="mid", **style)
            bottom.step(one["time"], drawn["cumulative_regret"], where="post", **style)
        for axes in (top, middle, bottom):
            for switch in np.flatnonzero(one["switches"].values):
                axes.axvline(switch - 0.5, color="#C8C8C8", linewidth=0.9, zorder=0.9)
        top.set_ylabel("P(symbol is 1)")
        middle.set_ylabel("regret (bits)")
        middle.set_ylim(bottom=0)
        bottom.set_ylabel("cumulative\nregret (bits)")
        bottom.set_ylim(bottom=0)
        legend_above(top, columns=4)
        position_axis(bottom, one.sizes["time"])
    return figure


def _ends(result: xr.Dataset) -> str:
    """The cumulative regret of each predictor at the end."""
    last = result["cumulative_regret"].isel(time=-1)
    pairs = zip(names(last["predictor"]), last.values, strict=True)
    return join_and([f"{display_name(name)} {bits(float(value))}" for name, value in pairs])


_PAPER = {
    "ptw": "The LSTM and PTW adapt quickly after switches, and almost alike (Figure 1).",
    "lin": "An example draw, on which LIN and the network predict almost alike (appendix B).",
    "regular": "An example draw with its regular switches (appendix B).",
    "uniform": "An example draw; the paper has no exact optimum for this source (appendix B).",
}


def _trajectory_captions(result: xr.Dataset) -> dict[str, Caption]:
    captions = {}
    for source in names(result["source"]):
        one = result.sel(source=source)
        switches = [str(at) for at in np.flatnonzero(one["switches"].values)]
        many = len(switches) > _MAX_SWITCHES
        where = f" (the first at {switches[0]})" if many else f" (at {join_and(switches)})"
        count = f"{len(switches) or 'no'} switch{'' if len(switches) == 1 else 'es'}"
        captions[f"trajectory-{source}"] = Caption(
            alt=f"A sequence from {source_label(one, source)}: symbols, true bias and predictions; "
            "regret of every symbol; cumulative regret.",
            observed=f"{one.sizes['time']} symbols with {count}{where if switches else ''}. "
            f"Cumulative regret at the end, in bits: {_ends(one)}.",
            paper=_PAPER.get(source, "Not in the paper."),
        )
    return captions


TRAJECTORY = Study(
    name="trajectory",
    title="One sequence of each source",
    paper="Figure 1, and single trajectories of appendix B",
    question="What do exact predictors and a network predict on one sequence, symbol by symbol?",
    networks=lambda scale: main_runs(scale, "lstm"),
    analyse=_trajectories,
    plot=_plot_trajectories,
    captions=_trajectory_captions,
    seconds={"quick": 55, "full": 400, "zoo": 20},
)


def _twice_the_length(context: StudyContext) -> xr.Dataset:
    """Networks on sequences twice as long as those they were trained on.

    One sequence without a switch, and for many the difference to the optimum, ordered by the
    number of switches.
    """
    scale = context.scale
    length = 2 * scale.length
    source = scale.source("ptw", length)
    optimum = bayes_optimal(source)
    networks = {name: context.best(name, "ptw") for name in scale.architectures}
    draw = source.sample(key_for(0, "example"), _CANDIDATES, length)
    row = _without_switch(draw)
    only = jax.tree.map(lambda leaf: leaf[row : row + 1], draw)
    predictors = {"optimum": optimum, **networks}
    one = _follow(only, 0, predictors).drop_vars("switches")
    losses = context.evaluate(predictors, source, length, scale.heatmap_sequences)
    difference = losses.sel(predictor=list(networks)) - losses.sel(predictor="optimum", drop=True)
    counts = losses["switches"].values
    order = np.argsort(counts, kind="stable")
    difference = difference.isel(sequence=order)
    result = one.assign(
        difference=(
            ("architecture", "sequence", "time"),
            difference.values.astype(np.float32),
            {"units": "bits"},
        ),
        switch_count=("sequence", counts[order]),
    )
    result = result.assign_coords(architecture=list(networks), sequence=np.arange(len(order)))
    return result.assign_attrs(test_length=length)


def _without_switch(draw: Draw) -> int:
    """A sequence with no switch, whose symbols are neither all alike nor evenly mixed."""
    switches = np.asarray(draw.switches).sum(-1)
    bias = np.asarray(draw.probs)[:, 0, 1]
    return int(np.argmin(np.abs(bias - 0.25) + switches))


def _plot_longer(result: xr.Dataset, local: xr.Dataset | None = None) -> dict[str, Any]:
    """Two figures of appendix C."""
    del local
    return {"length-512-sequence": _sequence(result), "length-512-map": _map(result)}


def _sequence(result: xr.Dataset) -> Figure:
    networks = [name for name in names(result["predictor"]) if name != "optimum"]
    times = result["time"].values
    with styled():
        figure = new_figure(WIDTH, 1.3 * len(networks) + 2.6)
        heights = [1.3] * len(networks) + [2.2]
        *rows, last = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
        for axes, network in zip(rows, networks, strict=True):
            draw_symbols(axes, result["symbols"].values, result["probability"].values)
            for predictor, width in (("optimum", 1.5), (network, 1.0)):
                style = {**line_of(predictor), "linewidth": width}
                axes.step(
                    times, result["prediction"].sel(predictor=predictor), where="mid", **style
                )
            title = display_name(network)
            axes.set_title(title, color=darker(colour_of(network)), fontsize=10, pad=2)
        for predictor in (*networks, "optimum"):
            losses = result["cumulative_regret"].sel(predictor=predictor)
            last.plot(times, losses, label=display_name(predictor), **line_of(predictor))
        for axes in (*rows, last):
            end = result.attrs["length"] - 0.5  # of the training sequences
            axes.axvline(end, color=GREY, linestyle=(0, (1, 1.5)), linewidth=1.2)
        rows[len(rows) // 2].set_ylabel("P(symbol is 1)")
        last.set_ylabel("cumulative\nregret (bits)")
        last.set_ylim(bottom=0)
        position_axis(last, len(times))
        handles, labels = last.get_legend_handles_labels()
        style = {"ncols": 6, "columnspacing": 1.2, "handlelength": 1.6}
        figure.legend(handles, labels, loc="outside upper right", **style)
    return figure


def _map(result: xr.Dataset) -> Figure:
    architectures = names(result["architecture"])
    limit = float(np.nanpercentile(np.abs(result["difference"].values), _PERCENT_INSIDE)) or 1.0
    counts, length = result["switch_count"].values, result.sizes["time"]
    with styled():
        figure, used = panels(len(architectures), 2, 2.9, 0.3, sharex=True, sharey=True)
        for axes, architecture in zip(used, architectures, strict=True):
            image = axes.imshow(
                result["difference"].sel(architecture=architecture).values,
                cmap=_BETTER_WORSE,
                norm=Normalize(-limit, limit),
                aspect="auto",
                extent=(-0.5, length - 0.5, len(counts), 0),
            )
            axes.set_title(display_name(architecture))
            _count_ticks(axes, counts)
            # Above the map: a line in it would hide what happens there.
            axes.plot([result.attrs["length"]], [0], "v", color=INK, markersize=5, clip_on=False)
            axes.grid(False)
            position_axis(axes, length)
            axes.xaxis.set_tick_params(labelbottom=True)
        figure.supylabel("sequences, by number of switches", fontsize=10)
        style = {"extend": "both", "shrink": 0.6, "aspect": 35, "pad": 0.02}
        figure.colorbar(image, ax=used, label="regret above PTW (bits)", **style)
    return figure


def _count_ticks(axes: Axes, counts: np.ndarray) -> None:
    """A tick where each number of switches begins, unless it would touch the one before."""
    numbers, starts = np.unique(counts, return_index=True)
    ticks: list[tuple[int, str]] = []
    for number, start in zip(numbers, starts, strict=True):
        if not ticks or start - ticks[-1][0] > 0.07 * len(counts):
            ticks.append((int(start), str(number)))
        axes.axhline(start, color=INK, linewidth=0.3, alpha=0.5)
    axes.set_yticks([start for start, _ in ticks], [text for _, text in ticks])


def _longer_captions(result: xr.Dataset) -> dict[str, Caption]:
    trained, tested = result.attrs["length"], result.attrs["test_length"]
    counts = result["switch_count"].values
    return {
        "length-512-sequence": Caption(
            alt=f"One sequence of {tested} symbols without switches: predictions of every network "
            "against the exact optimum, and cumulative regret below.",
            observed=f"Networks trained on {trained} symbols predict {tested}; the dotted line is "
            f"the training length. Cumulative regret at the end, in bits: {_ends(result)}.",
            paper="The LSTM stays close, paying most where switches were likely in training (at "
            "128 and 384 of 512); the Transformer has trouble from 256 on.",
        ),
        "length-512-map": Caption(
            alt=f"Heat maps, one for each network: {len(counts)} sequences by {tested} positions, "
            "coloured by regret above PTW of matching depth.",
            observed=f"Each row is one of {len(counts)} sequences, ordered by number of switches; "
            f"{int((counts == 0).sum())} have none. Orange: the network is worse than PTW; blue: "
            f"better. The mark on top is position {trained}, the first beyond the training length.",
            paper="Without a switch, all networks but the Transformer do better than PTW at 256, "
            "since they expect a switch there less; with one, they do worse.",
        ),
    }


LENGTH_512 = Study(
    name="length-512",
    title="Sequences of twice the length",
    paper="sequences of length 512 in appendix C",
    question="What do networks expect at the position where their training sequences ended?",
    scale_fields=("heatmap_sequences",),
    networks=main_runs,
    analyse=_twice_the_length,
    plot=_plot_longer,
    captions=_longer_captions,
    recorded=False,  # it has numbers of every sequence
    seconds={"quick": 6, "full": 60, "zoo": 30},
)
