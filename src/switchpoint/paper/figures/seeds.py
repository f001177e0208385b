"""A column of dots for each architecture, one dot for each seed, among exact predictors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator
from numpy.typing import ArrayLike

from switchpoint._numbers import percent
from switchpoint.figures.style import GREY, INK, darker, hue, line_style, marker_style
from switchpoint.paper.figures.annotations import Label, labels_right, panels, plain_numbers
from switchpoint.paper.figures.labels import display_name

Panel = tuple[xr.Dataset, xr.Dataset | None, str]
"""A result, what was measured on this machine beside it, and the title."""

_EXACT = ("kt", "oracle", "ptw", "lin", "optimum")
_SPREAD = 0.44  # the share of a column over which the dots are spread
_BESIDE = 0.4  # of a column: where the network stands that was measured on this machine
_LEAST_SPAN = 5e-4  # of the optimum's regret: what a panel shows at least


def regret_panels(shown: Sequence[Panel], close: bool = False) -> Figure:
    """The regret of every seed, among lines of the exact predictors.

    With `close`, a panel shows the seeds and the optimum alone, and says how little it spans.
    """
    figure, used = panels(len(shown), 2, 3.1, 0.4)
    _key(figure, shown)
    labels = {}
    for axes, (one, local, title) in zip(used, shown, strict=True):
        _columns(axes, one, local, "regret")
        axes.set_title(title)
        axes.set_ylabel("regret (bits)")
        values = {
            name: float(one["exact_regret"].sel(exact=name))
            for name in _EXACT
            if name in one["exact"]
        }
        labels[axes] = _exact_lines(axes, values, _highest(one, local, "regret"), close)
    labels_right(figure, labels)
    return figure


def excess_panels(shown: Sequence[Panel]) -> Figure:
    """The regret above the exact optimum on a logarithmic scale, which shows how close it is."""
    figure, used = panels(len(shown), 2, 3.1, 0.4)
    _key(figure, shown)
    labels: dict[Axes, list[Label]] = {axes: [] for axes in used}
    for axes, (one, local, title) in zip(used, shown, strict=True):
        axes.set_yscale("log", nonpositive="mask")
        _columns(axes, one, local, "excess")
        axes.set_title(title)
        axes.set_ylabel("excess regret (bits)")
        plain_numbers(axes.yaxis)
        above = one["exact_excess"].values
        low, high = float(np.nanmin(one["excess"].values)), _highest(one, local, "excess")
        floor = max(low, 1e-3 * high, 1e-6)
        ceiling = max(high, *above[np.isfinite(above)])
        axes.set_ylim(floor / 1.5, 1.5 * ceiling)
        if ceiling < 100 * floor:  # one number to a decade would be too few
            axes.yaxis.set_major_locator(LogLocator(base=10, subs=[1, 2, 5]))
        for name in _EXACT:
            value = float(one["exact_excess"].sel(exact=name)) if name in one["exact"] else 0.0
            if value > axes.get_ylim()[0]:
                axes.axhline(value, linewidth=1.3, zorder=1.5, **line_style(name))
                labels[axes].append((value, f"{display_name(name)} {value:.2f}", hue(name)))
    labels_right(figure, labels)
    return figure


def one_network(local: xr.Dataset, name: str) -> xr.DataArray:
    """A variable of the one network of each kind that was measured on this machine."""
    values = local[name]
    return values.mean("seed") if "seed" in values.dims else values


def draw_local(
    axes: Axes, places: ArrayLike, local: xr.Dataset | None, predictor: str, name: str = "excess"
) -> None:
    """Draw the local measurement of a predictor over the record, where there is one.

    A diamond at each place with a bar of two standard errors: the variable `name` of the best
    network. On a logarithmic axis, which must be set before, a bar that reaches below zero is
    drawn to the edge, also where the diamond itself is below zero.
    """
    if local is None or predictor not in local["architecture"]:
        return
    local = local.sel(architecture=predictor)
    log = axes.get_yscale() == "log"
    colour = darker(hue(predictor))
    bars: dict[str, Any] = {"ecolor": colour, "elinewidth": 1.1, "capsize": 2, "zorder": 5}
    style = _diamond(colour) | {"markeredgewidth": 1.3} | bars
    marks = (one_network(local, each).values for each in (name, f"{name}_error"))
    rows = np.broadcast_arrays(places, *marks)
    for place, value, error in zip(*(np.ravel(row) for row in rows), strict=True):
        top = value + 2 * error
        at, marker = (value, "D") if value > 0 or not log else (top, "")
        if not np.isfinite(value) or (log and at <= 0):
            continue
        down = min(at - value + 2 * error, (1 - 1e-6) * at) if log else 2 * error
        axes.errorbar([place], [at], [[down], [top - at]], **style | {"marker": marker})


def above_record(
    result: xr.Dataset, local: xr.Dataset | None, name: str, exact: str
) -> xr.Dataset | None:
    """A local result whose regret is its difference `name` to an exact predictor, above the record.

    The regret of a few sequences depends on which they are, the difference hardly does.
    """
    if local is None:
        return None
    regret = local[name] + float(result["exact_regret"].sel(exact=exact))
    return local.assign(regret=regret, regret_error=local[f"{name}_error"])


def local_key() -> Line2D:
    """The entry of a legend for the marks of `draw_local`."""
    return Line2D([], [], label="zoo, measured here", **_diamond(INK))


def _diamond(colour: str) -> dict[str, Any]:
    face = {"markerfacecolor": "white", "markeredgecolor": colour, "markersize": 5}
    return {"marker": "D", "linestyle": "", **face}


def _columns(axes: Axes, one: xr.Dataset, local: xr.Dataset | None, kind: str) -> None:
    architectures = [str(name) for name in one["architecture"].values]
    for place, architecture in enumerate(architectures):
        column = one.sel(architecture=architecture)
        seeds = column[kind].values[np.isfinite(column[kind].values)]
        spread = np.linspace(-0.5, 0.5, len(seeds)) if len(seeds) > 1 else np.zeros(len(seeds))
        dots: dict[str, Any] = {"markersize": 4.5, "markeredgewidth": 0, "alpha": 0.75, "zorder": 3}
        style = {"color": hue(architecture), **dots}
        axes.plot(place + _SPREAD * spread, seeds, marker_style(architecture), **style)
        ends = [place - 0.34, place + 0.34]
        median = [float(column[f"{kind}_median"])] * 2
        axes.plot(ends, median, linewidth=1.6, color=INK, zorder=4, solid_capstyle="butt")
        lowest = float(column[f"{kind}_minimum"])
        axes.plot([place], [lowest], "v", markersize=4.5, color=INK, zorder=4)
        draw_local(axes, place + _BESIDE, local, architecture, kind)
    axes.set_xlim(-0.6, len(architectures) - 0.4)
    axes.set_xticks(
        range(len(architectures)),
        [display_name(name) for name in architectures],
        rotation=25,
        ha="right",
        rotation_mode="anchor",
    )
    axes.grid(False, axis="x")


def _highest(one: xr.Dataset, local: xr.Dataset | None, kind: str) -> float:
    """The highest mark that a panel must reach.

    That is the highest recorded seed, or the near end of a local bar that lies wholly above it:
    noise does not stretch the axis, and a network that is worse here is seen.
    """
    marks = [float(np.nanmax(one[kind].values))]
    if local is not None:
        near = one_network(local, kind) - 2 * one_network(local, f"{kind}_error")
        marks.append(float(near.max()))
    return max(marks)


def _exact_lines(axes: Axes, values: dict[str, float], top: float, close: bool) -> list[Label]:
    """Dashed lines of exact predictors; returns their labels, with an arrow for those above."""
    known = {name: value for name, value in values.items() if np.isfinite(value)}
    merged: dict[str, float] = {}  # the optimum first: equal ones share its line
    for name in sorted(known, key=lambda name: name != "optimum"):
        if not any(_equal(known[name], value) for value in merged.values()):
            merged[name] = known[name]
    floor = min(merged.values(), default=0.0)
    optimum = known.get("optimum", floor)
    if close:
        floor = min(optimum, top)
        upper = floor + max(1.25 * (top - floor), _LEAST_SPAN * optimum)
        note = f"axis spans {percent(1.12 * (upper - floor) / optimum)} of the optimum"
        axes.set_xlabel(note, fontsize=8, color=GREY)
    else:
        reach = floor + max(1.8 * (top - floor), 0.6 * optimum)
        near = [value for value in merged.values() if value <= reach]
        upper = max([top, *near, floor + 0.1 * optimum])
    margin = 0.06 * (upper - floor) or 0.1
    axes.set_ylim(floor - margin, upper + margin)
    labels = []
    for name, value in merged.items():
        if floor - margin <= value <= upper + margin:
            axes.axhline(value, linewidth=1.3, zorder=1.5, **line_style(name))
        also = [display_name(o) for o in known if o != name and _equal(known[o], value)]
        title = display_name(name).removeprefix("exact ")
        arrow = " ↑" if value > upper + margin else " ↓" if value < floor - margin else ""
        # On lines of their own: long labels would take width from the panel.
        labels += [(value, f"= {other}", hue(name)) for other in also]
        labels.append((value, f"{title} {value:.2f}{arrow}", hue(name)))
    return labels


def _equal(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-4 * abs(other)


def _key(figure: Figure, shown: Sequence[Panel]) -> None:
    local = any(beside is not None for _, beside, _ in shown)
    handles = [
        Line2D([], [], marker="o", linestyle="", color=GREY, markersize=5),
        Line2D([], [], marker="v", linestyle="", color=INK, markersize=5),
        Line2D([], [], color=INK, linewidth=1.6),
        Line2D([], [], color=GREY, linestyle=(0, (5, 2))),
    ]
    labels = ["one seed, recorded" if local else "one seed", "minimum", "median", "exact predictor"]
    if local:
        handles.append(local_key())
        labels.append(str(handles[-1].get_label()))
    figure.legend(handles, labels, loc="outside upper left", ncols=len(handles))
