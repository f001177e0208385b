"""Networks on sequences twice as long as those they were trained on: whether they keep time."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from switchpoint._random import key_for
from switchpoint.exact import bayes_optimal
from switchpoint.figures import style
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.labels import display_name, names, slices
from switchpoint.paper.studies.trajectories import CANDIDATES, ends, follow
from switchpoint.predictor import Predictor
from switchpoint.sources import Draw

_BETTER_WORSE = LinearSegmentedColormap.from_list(
    "better worse", [style.BLUE, "#FFFFFF", style.ORANGE]
)
_PERCENT_INSIDE = 99.5  # of the values that the colour scale of the heat map covers


def _twice_the_length(context: StudyContext) -> xr.Dataset:
    """Networks on sequences twice as long as those they were trained on.

    One sequence without a switch, and for many the difference to the optimum, ordered by the
    number of switches. And the probability of a one after zeros alone, which shows where a
    predictor expects a switch: PTW does so at multiples of powers of two.
    """
    scale = context.scale
    length = 2 * scale.length
    source = scale.source("ptw", length)
    optimum = bayes_optimal(source)
    networks = {name: context.best(name, "ptw") for name in scale.architectures}
    draw = source.sample(key_for(0, "example"), CANDIDATES, length)
    row = _without_switch(draw)
    only = jax.tree.map(lambda leaf: leaf[row : row + 1], draw)
    predictors = {"optimum": optimum, **networks}
    one = follow(only, 0, predictors).drop_vars("switches")
    # One after another: the memory that one predictor takes is free again for the next.
    losses = {
        name: context.evaluate({name: each}, source, length, scale.heatmap_sequences)[0]
        for name, each in predictors.items()
    }
    zeros = np.zeros((1, length), np.int32)
    exact = _of_one(bayes_optimal(scale.source("ptw")), zeros[:, : scale.length])
    exact = np.concatenate([exact, _of_one(optimum, zeros)[scale.length :]])
    counts = losses["optimum"]["switches"].values
    order = np.argsort(counts, kind="stable")
    differences = [(losses[name] - losses["optimum"]).values[order] for name in networks]
    result = one.assign(
        difference=(
            ("architecture", "sequence", "time"),
            np.stack(differences).astype(np.float32),
            {"units": "bits"},
        ),
        switch_count=("sequence", counts[order]),
        after_zeros=(
            ("architecture", "time"),
            np.stack([_of_one(each, zeros) for each in networks.values()]),
            {"units": "1"},
        ),
        exact_after_zeros=("time", exact, {"units": "1"}),
    )
    result = result.assign_coords(architecture=list(networks), sequence=np.arange(len(order)))
    return result.assign_attrs(test_length=length)


def _of_one(predictor: Predictor, zeros: np.ndarray) -> np.ndarray:
    """The probability of a one after each number of zeros."""
    return np.exp(np.asarray(predictor.log_probs(zeros), np.float64)[0, :, 1])


def _without_switch(draw: Draw) -> int:
    """A sequence with no switch, whose symbols are neither all alike nor evenly mixed."""
    switches = np.asarray(draw.switches).sum(-1)
    bias = np.asarray(draw.probs)[:, 0, 1]
    return int(np.argmin(np.abs(bias - 0.25) + switches))


def _plot(result: xr.Dataset) -> dict[str, Any]:
    """Two figures of appendix C, and where switches are expected."""
    return {
        "length-512-sequence": _sequence(result),
        "length-512-map": _map(result),
        "length-512-clock": _clock(result),
    }


def _sequence(result: xr.Dataset) -> Figure:
    networks = [name for name in names(result["predictor"]) if name != "optimum"]
    times = result["time"].values
    heights = [1.3] * len(networks) + [2.2]
    figure, (*rows, last) = figures.panels(
        len(heights), 1, 1.3, 1.3, sharex=True, height_ratios=heights
    )
    for axes, network in zip(rows, networks, strict=True):
        figures.draw_symbols(axes, result["symbols"].values, result["probability"].values)
        for predictor, width in (("optimum", 1.5), (network, 1.0)):
            prediction = result["prediction"].sel(predictor=predictor)
            look = style.line_style(predictor) | {"linewidth": width}
            axes.step(times, prediction, where="mid", **look)
        colour = style.darker(style.hue(network))
        axes.set_title(display_name(network), color=colour, fontsize=10, pad=2)
    for predictor in (*networks, "optimum"):
        losses = result["cumulative_regret"].sel(predictor=predictor)
        last.plot(times, losses, label=display_name(predictor), **style.line_style(predictor))
    for axes in (*rows, last):
        _mark_end(axes, result)
    rows[len(rows) // 2].set_ylabel("P(symbol is 1)")
    last.set_ylabel("cumulative\nregret (bits)")
    last.set_ylim(bottom=0)
    figures.position_axis(last, len(times))
    figures.legend_of(last, ncols=6, columnspacing=1.2, handlelength=1.6)
    return figure


def _mark_end(axes: Axes, result: xr.Dataset) -> None:
    """A dotted line where the training sequences ended."""
    end = result.attrs["length"] - 0.5
    axes.axvline(end, color=style.GREY, linestyle=(0, (1, 1.5)), linewidth=1.2)


def _clock(result: xr.Dataset) -> Figure:
    """A panel for each network, with the exact predictor behind it."""
    times = result["time"]
    exact: Any = style.line_style("ptw") | {"linewidth": 1.1, "label": "PTW"}
    figure, used = figures.panels_along(
        result["after_zeros"], "architecture", 1, 1.25, 1.0, sharex=True, sharey=True
    )
    for axes, network, drawn in used:
        axes.step(times, result["exact_after_zeros"], where="mid", **exact)
        look = style.line_style(network) | {"linewidth": 1.3}
        axes.step(times, drawn, where="mid", **look)
        _mark_end(axes, result)
        figures.name_panel(axes, network)
    first, last = used[0][0], used[-1][0]
    first.set_yscale("log")
    figures.plain_numbers(first.yaxis, 1)
    figure.supylabel("P(symbol is 1) after zeros alone", fontsize=10)
    figures.position_axis(last, len(times))
    figures.legend_of(first, handlelength=2.4)
    return figure


def _timekeeping(result: xr.Dataset, network: str) -> tuple[float, float]:
    """The correlation of log probabilities after zeros with the exact ones, before and after.

    In the second half of the training length, and beyond it.
    """
    own = np.log(result["after_zeros"].sel(architecture=network).values)
    exact = np.log(result["exact_after_zeros"].values)
    end = result.attrs["length"]
    both = np.stack([own, exact])
    before, after = both[:, end // 2 : end], both[:, end:]
    return float(np.corrcoef(before)[0, 1]), float(np.corrcoef(after)[0, 1])


def _map(result: xr.Dataset) -> Figure:
    limit = float(np.nanpercentile(np.abs(result["difference"].values), _PERCENT_INSIDE)) or 1.0
    counts, length = result["switch_count"].values, result.sizes["time"]
    figure, used = figures.panels_along(
        result["difference"], "architecture", 2, 2.9, 0.3, sharex=True, sharey=True
    )
    for axes, architecture, difference in used:
        image = axes.imshow(
            difference.values,
            cmap=_BETTER_WORSE,
            norm=Normalize(-limit, limit),
            aspect="auto",
            extent=(-0.5, length - 0.5, len(counts), 0),
        )
        axes.set_title(display_name(architecture))
        _count_ticks(axes, counts)
        # Above the map: a line in it would hide what happens there.
        end = [result.attrs["length"]]
        axes.plot(end, [0], "v", color=style.INK, markersize=5, clip_on=False)
        axes.grid(False)
        figures.position_axis(axes, length)
        axes.xaxis.set_tick_params(labelbottom=True)
    figure.supylabel("sequences, by number of switches", fontsize=10)
    look: dict[str, Any] = {"extend": "both", "shrink": 0.6, "aspect": 35, "pad": 0.02}
    panels = [axes for axes, *_ in used]
    figure.colorbar(image, ax=panels, label="regret above PTW (bits)", **look)
    return figure


def _count_ticks(axes: Axes, counts: np.ndarray) -> None:
    """A tick where each number of switches begins, unless it would touch the one before."""
    ticks: dict[int, str] = {}
    for number, start in zip(*np.unique(counts, return_index=True), strict=True):
        if not ticks or start - max(ticks) > 0.07 * len(counts):
            ticks[int(start)] = str(number)
        axes.axhline(start, color=style.INK, linewidth=0.3, alpha=0.5)
    axes.set_yticks(list(ticks), list(ticks.values()))


def _captions(result: xr.Dataset) -> dict[str, base.Caption]:
    trained, tested = result.attrs["length"], result.attrs["test_length"]
    counts = result["switch_count"].values
    return {
        "length-512-sequence": base.Caption(
            alt=f"One sequence of {tested} symbols without switches: predictions of every network "
            "against the exact optimum, and cumulative regret below.",
            observed=f"Networks trained on {trained} symbols predict {tested}; the dotted line is "
            f"the training length. Cumulative regret at the end, in bits: {ends(result)}.",
            paper="The LSTM stays close, paying most where switches were likely in training (at "
            "128 and 384 of 512); the Transformer has trouble from 256 on.",
            size="one sequence",
        ),
        "length-512-map": base.Caption(
            alt=f"Heat maps, one for each network: {len(counts)} sequences by {tested} positions, "
            "coloured by regret above PTW of matching depth.",
            observed="Each row is a sequence, ordered by number of switches; "
            f"{int((counts == 0).sum())} have none. Orange: the network is worse than PTW; blue: "
            f"better. The mark on top is position {trained}, the first beyond the training length.",
            paper="Without a switch, all networks but the Transformer do better than PTW at 256, "
            "since they expect a switch there less; with one, they do worse.",
        ),
        "length-512-clock": _clock_caption(result),
    }


def _clock_caption(result: xr.Dataset) -> base.Caption:
    end = result.attrs["length"]
    after = {name: _timekeeping(result, name)[1] for name in names(result["architecture"])}
    order = [f"the {display_name(name)}" for name in sorted(after, key=lambda name: -after[name])]
    agreement = f" Beyond {end - 1}, {order[0]} agrees with it best, {order[-1]} least."
    exact = float(result["exact_after_zeros"].sel(time=end))
    return base.Caption(
        alt="A panel for each network: the probability that it gives to a one after zeros alone, "
        f"against the position, up to {result.attrs['test_length']}; behind it that of PTW.",
        observed="Where a one is probable after zeros alone, a switch is expected: for PTW, at "
        f"multiples of powers of two. PTW is that of the training length up to {end - 1}, and of "
        f"twice the length from there on; at {end} it gives a one the probability {exact:.2g}."
        f"{agreement * (len(order) > 1)}",
        size="one sequence, of zeros",
    )


def _tables(results: Mapping[str, xr.Dataset]) -> list[base.Table]:
    """Switches that networks expect beyond the training length, and their cost."""
    result = results["length-512"]
    end = result.attrs["length"]
    soon = slice(end, end + end // 8)
    lost = result["difference"].mean("sequence")
    rows = []
    for network, one in slices(lost, "architecture"):
        probability = float(result["after_zeros"].sel(architecture=network, time=end))
        numbers = *_timekeeping(result, network), one.sum(), one.isel(time=soon).sum()
        texts = [f"{float(each):.2f}" for each in numbers]
        rows.append([display_name(network), f"{probability:.2g}", *texts])
    head = [
        "",
        f"P(1) at {end}, after zeros",
        f"correlation with PTW, {end // 2} to {end - 1}",
        f"from {end} on",
        "mean regret above PTW, bits",
        f"of it at {soon.start} to {soon.stop - 1}",
    ]
    title = "Expected switches beyond the training length, and what they cost"
    return [base.Table(title, head, rows)]


STUDY = base.Study(
    name="length-512",
    title="Sequences of twice the length",
    paper="sequences of length 512 in appendix C",
    question="What do networks expect at the position where their training sequences ended?",
    scale_fields=("heatmap_sequences",),
    networks=base.main_runs,
    analyse=_twice_the_length,
    plot=_plot,
    captions=_captions,
    tables=_tables,
    recorded=False,  # it has numbers of every sequence
    seconds={"quick": 6, "full": 60, "zoo": 30},
)
