"""Number and positions of the sources' switching points: samples against the exact law."""

from typing import Any

import jax
import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from switchpoint._numbers import join_and, plus_minus
from switchpoint._random import key_for
from switchpoint.figures import style
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.labels import described, slices, source_label
from switchpoint.paper.scale import Scale
from switchpoint.priors import PTW, Prior, statistics
from switchpoint.zoo.manifest import SOURCES

_BATCHES = 10  # the paper's number, whose spread shows the error
_NEGLIGIBLE = 1e-4
_SMALLEST = 1e-4  # one of ten thousand sequences
_FEW = 64  # with more columns than this, points would touch


def _analyse(context: StudyContext) -> xr.Dataset:
    """The exact laws of number and place, and what samples say of them."""
    scale = context.scale
    priors = [scale.source(name).prior for name in SOURCES]
    samples = [_samples(prior, scale.prior_sequences, scale.length) for prior in priors]
    places = np.stack([each.mean(0) for each in samples])
    counts = np.stack([_frequencies(each, scale.length) for each in samples])
    by_place, by_count = ("source", "time"), ("source", "count")
    return xr.Dataset(
        {
            "switch_probability": (by_place, [p.switch_probability(scale.length) for p in priors]),
            "switch_frequency": (by_place, places),
            "switch_frequency_error": (by_place, _error(places, scale.prior_sequences)),
            "count_law": (by_count, [p.switch_count_pmf(scale.length) for p in priors]),
            "count_frequency": (by_count, counts),
            "count_frequency_error": (by_count, _error(counts, scale.prior_sequences)),
            **_ptw_counts(scale),
        },
        coords={
            "source": list(SOURCES),
            "time": np.arange(scale.length),
            "count": np.arange(scale.length),
            "depth": np.arange(scale.max_depth + 1),
            "switches": np.arange(scale.max_switches + 1),
        },
    )


def _ptw_counts(scale: Scale) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """The number of switching points under PTW of every depth, in theory and in batches."""
    depths, most = range(scale.max_depth + 1), scale.max_switches
    sequences = scale.prior_sequences // _BATCHES * _BATCHES
    laws = np.stack([statistics.ptw_switch_count_pmf(depth, most=most) for depth in depths])
    batches = np.zeros((_BATCHES, len(depths), most + 1))
    batches[:, 0, 0] = 1  # a sequence of one symbol has no switch
    for depth in depths[1:]:
        samples = _samples(PTW(depth), sequences, 2**depth)
        for batch, rows in zip(batches, np.split(samples, _BATCHES), strict=True):
            batch[depth] = _frequencies(rows, most + 1)
    deviation = batches.std(0, ddof=1)
    both = ("depth", "switches")
    return {
        "ptw_count_law": (both, laws),
        "ptw_count_limit": (("switches",), statistics.ptw_switch_count_limit(most)),
        "ptw_count_sampled": (both, batches.mean(0)),
        "ptw_count_sampled_deviation": (both, deviation),
        "ptw_count_sampled_error": (both, deviation / _BATCHES**0.5),
    }


def _samples(prior: Prior, sequences: int, length: int) -> np.ndarray:
    key: jax.Array = key_for(0, "partitions")
    return np.asarray(prior.sample_switches(key, sequences, length))


def _frequencies(switches: np.ndarray, most: int) -> np.ndarray:
    """Relative frequencies of 0, 1, ... switching points, of fewer than `most`."""
    counts = np.bincount(switches.sum(-1), minlength=most)[:most]
    return counts / len(switches)


def _error(frequency: np.ndarray, sequences: int) -> np.ndarray:
    return np.sqrt(frequency * (1 - frequency) / sequences)


def _plot(result: xr.Dataset) -> dict[str, Any]:
    """Positions of PTW's switches, the law of their number, and all sources against theory."""
    return {
        "priors-ptw-positions": _positions(result),
        "priors-ptw-counts": _counts_by_depth(result),
        "priors-switches": _all_sources(result),
    }


def _positions(result: xr.Dataset) -> Figure:
    title = f"Switches of {source_label(result, 'ptw')}"
    figure, (axes,) = figures.panels(1, 1, 3.2, title=title)
    _columns(axes, result.sel(source="ptw"), "switch_frequency", "switch_probability")
    axes.set_xlabel("position t")
    axes.set_ylabel("P(switch at t)")
    axes.legend(loc="upper right")
    return figure


def _counts_by_depth(result: xr.Dataset) -> Figure:
    """P_d[k] for each depth, exact at the left and sampled at the right."""
    shades = colormaps["viridis"](np.linspace(0.0, 0.92, result.sizes["depth"]))
    at = result["switches"].values + 1  # from 1, since a logarithmic axis has no 0
    figure, (left, right) = figures.panels(2, 2, 4.4, sharex=True, sharey=True)
    left.set_title("exact law")
    right.set_title("sampled, with deviation between batches")
    for (depth, one), shade in zip(slices(result, "depth"), shades, strict=True):
        look = {"color": shade, "linewidth": 1.2, "markersize": 3.2}
        # A logarithmic axis cannot show what is impossible.
        law, sampled = (
            one[f"ptw_count_{name}"].where(lambda x: x > 0) for name in ("law", "sampled")
        )
        left.plot(at, law, "o-", label=depth, **look)
        width = one["ptw_count_sampled_deviation"]
        # Down to the edge of the picture at most, where a bar would reach below 0.
        down = width.clip(max=sampled - _SMALLEST).clip(min=0).fillna(0)
        right.errorbar(at, sampled, yerr=[down, width], fmt="o-", elinewidth=0.6, **look)
    for axes in (left, right):
        limit = result["ptw_count_limit"]
        axes.plot(at, limit, color=style.INK, linestyle=(0, (4, 2)), linewidth=1.4, label="∞")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        figures.plain_numbers(axes.yaxis)
        axes.set_xlabel("number of switches + 1")
    ticks = [2**power for power in range(int(np.log2(at[-1])) + 1)]
    left.set_xticks(ticks, list(map(str, ticks)))
    left.set_xlim(0.9, at[-1] * 1.1)
    left.set_ylim(_SMALLEST, 1.5)
    left.set_ylabel("probability")
    figures.legend_of(left, "right center", title="depth d")
    return figure


def _all_sources(result: xr.Dataset) -> Figure:
    figure, used = figures.panels(2 * result.sizes["source"], 2, 2.1, 0.5)
    pairs = zip(used[::2], used[1::2], slices(result, "source"), strict=True)
    for numbers, places, (source, one) in pairs:
        likely = np.flatnonzero(np.maximum(one["count_law"], one["count_frequency"]) > _NEGLIGIBLE)
        shown = one.isel(count=slice(int(likely.max(initial=0)) + 2))
        _columns(numbers, shown, "count_frequency", "count_law")
        _columns(places, one, "switch_frequency", "switch_probability")
        numbers.set_title(source_label(result, source))
        numbers.set_ylabel("probability")
        places.set_ylabel("P(switch at t)")
    used[-2].set_xlabel("number of switches")
    used[-1].set_xlabel("position t")
    figures.legend_of(used[0], ncols=2)
    return figure


def _columns(axes: Axes, one: xr.Dataset, sampled: str, exact: str) -> None:
    """Columns with error bars for what was sampled, and the exact law over them."""
    at, law = one[one[exact].dims[0]].values, one[exact].values
    few = len(at) <= _FEW
    bars: dict[str, Any] = {"width": 0.8 if few else 1.0, "color": style.SKY, "linewidth": 0}
    if few:
        bars["yerr"] = one[f"{sampled}_error"].values
        bars["error_kw"] = {"ecolor": style.BLUE, "elinewidth": 0.9, "capsize": 1.5}
    axes.bar(at, one[sampled].values, label="sampled", **bars)
    look: dict[str, Any] = {"color": style.ORANGE, "label": "exact law"}
    if few:
        axes.plot(at, law, "o", markersize=3.5, **look)
    else:
        axes.step(at, law, where="mid", linewidth=0.8, **look)
    axes.set_xlim(at[0] - 0.8, at[-1] + 0.8)
    axes.set_ylim(bottom=0)
    dyadic = exact == "switch_probability" and len(at) % 8 == 0  # where PTW switches most
    ticks = MultipleLocator(len(at) // 8) if dyadic else MaxNLocator(integer=True, nbins=8)
    axes.xaxis.set_major_locator(ticks)
    axes.grid(False, axis="x")


def _captions(result: xr.Dataset) -> dict[str, base.Caption]:
    """Captions of where and how often the sources switch."""
    ptw = source_label(result, "ptw")
    places = result.sel(source="ptw")
    top = int(np.argmax(places["switch_probability"].values))
    middle = places.isel(time=top)
    deepest = result.isel(depth=-1)
    kink = min(int(deepest["depth"]), deepest.sizes["switches"] - 1)
    numbers = described(result, "source", _most_likely, lambda name: source_label(result, name))
    return {
        "priors-ptw-positions": base.Caption(
            alt=f"Probability of a switch of {ptw} at every position, exact and sampled.",
            observed=f"Most likely is a switch at {top}: exact "
            f"{float(middle['switch_probability']):.3f}, sampled "
            f"{_pair(middle, 'switch_frequency')}.",
            paper="Half of all sequences switch in the middle, a quarter at each quarter, and so "
            "on, halving.",
        ),
        "priors-ptw-counts": base.Caption(
            alt="Probability of each number of switches under PTW, one curve for each depth: exact "
            "on the left, sampled on the right; a dashed line is the limit of infinite depth.",
            observed=f"At depth {int(deepest['depth'])}: no switch, exact "
            f"{float(deepest['ptw_count_law'][0]):.4f} and sampled "
            f"{_pair(deepest.isel(switches=0), 'ptw_count_sampled')}; {kink} switches, exact "
            f"{float(deepest['ptw_count_law'][kink]):.4f} and sampled "
            f"{_pair(deepest.isel(switches=kink), 'ptw_count_sampled')}.",
            paper="Theory and samples agree; for fewer switches than the depth the law is that of "
            "infinite depth, and the kink where they are equal is real.",
        ),
        "priors-switches": base.Caption(
            alt="For each source the number of switches and their positions: columns are sampled, "
            "marks are the exact law.",
            observed=f"Most likely number of switches, exact against sampled: {join_and(numbers)}.",
            paper="Histograms of samples alone; here the exact law lies over them.",
        ),
    }


def _most_likely(one: xr.Dataset) -> str:
    best = int(np.argmax(one["count_law"].values))
    at = one.isel(count=best)
    number = int(at["count"])
    return f"{number} ({float(at['count_law']):.3f} against {_pair(at, 'count_frequency')})"


def _pair(one: xr.Dataset, name: str) -> str:
    return plus_minus(float(one[name]), float(one[f"{name}_error"]))


STUDY = base.Study(
    name="priors",
    title="Switching points of the sources",
    paper="switching-point statistics of appendix B",
    question="How many switching points are there, and where, by the exact law and in samples?",
    scale_fields=("prior_sequences", "max_depth", "max_switches"),
    analyse=_analyse,
    plot=_plot,
    captions=_captions,
    seconds={"quick": 12, "full": 30, "zoo": 10},
)
