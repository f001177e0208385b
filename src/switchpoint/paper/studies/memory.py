"""Networks with too little memory, against the exact lower bound of their memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from switchpoint._numbers import bits
from switchpoint.figures import style
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.labels import described, names, slices, source_label
from switchpoint.paper.markov_bound import markov_bound
from switchpoint.paper.scale import Scale
from switchpoint.zoo.manifest import SOURCES


def _run(scale: Scale, order: int) -> base.Run:
    """Networks that see the last `order` symbols, on all sources."""
    model: dict[str, Any] = (
        {"model": "markov", "order": order} if order else {"model": "memoryless"}
    )
    settings = model | scale.memoryless_settings
    own = base.config(scale, settings, prior=SOURCES, period=scale.period)
    return base.Run(f"markov-{order}" if order else "memoryless", own)


def _grids(scale: Scale) -> dict[str, base.Grid]:
    tests = {source: scale.test_set(source) for source in SOURCES}
    return {
        "networks": base.grid(
            lambda source, order: base.Measurement(_run(scale, order), source, tests[source]),
            source=SOURCES,
            order=scale.orders,
        ),
        "optimum": base.exact_grid("source", tests),
    }


def _analyse(context: StudyContext) -> xr.Dataset:
    scale, optimum = context.scale, context.regret["optimum"]
    orders = range(scale.bound_order + 1)
    bounds = [
        [markov_bound(scale.source(name), scale.length, order).sum() for order in orders]
        for name in SOURCES
    ]
    return xr.Dataset(
        {
            **base.regret_and_excess(context.regret["networks"], optimum),
            **base.with_error(optimum, "optimum_regret"),
            "bound": (("source", "bound_order"), np.array(bounds), {"units": "bits"}),
        },
        coords={"bound_order": list(orders)},
    )


def _plot(result: xr.Dataset) -> dict[str, Any]:
    """Theorem 4.2 in numbers, a panel for each source."""
    figure, used = figures.panels_along(result, "source", 2, 2.9, 0.4)
    for axes, source, one in used:
        _panel(axes, one)
        axes.set_title(source_label(result, source))
    figures.legend_of(used[0][0], ncols=3)
    return {"memory": figure}


def _panel(axes: Axes, one: xr.Dataset) -> None:
    orders, bounds = one["order"].values, one["bound_order"].values
    seeds, errors = (one[name].transpose("seed", "order") for name in ("regret", "regret_error"))
    for column, error in zip(seeds.values, errors.values, strict=True):
        bars: dict[str, Any] = {"elinewidth": 0.8, "capsize": 2, "alpha": 0.6}
        axes.errorbar(orders, column, 2 * error, fmt=".", color=style.BLUE, **bars)
    axes.plot(orders, one["regret_mean"], "s-", color=style.BLUE, markersize=4.5, label="trained")
    dashes: dict[str, Any] = {"marker": "_", "markersize": 8, "linestyle": (0, (2, 1.5))}
    axes.plot(bounds, one["bound"], color=style.ORANGE, label="exact lower bound", **dashes)
    optimum, label = float(one["optimum_regret"]), "exact optimum, full memory"
    axes.axhline(optimum, linewidth=1.3, label=label, **style.line_style("optimum"))
    # Even steps for 0, 1, 2, 4, 8: logarithmic, and linear below 1.
    axes.set_xscale("symlog", base=2, linthresh=1)
    shown = np.unique(np.concatenate([orders, bounds[bounds <= 1]]))
    axes.xaxis.set_major_locator(FixedLocator([float(order) for order in shown]))
    axes.xaxis.set_minor_locator(NullLocator())
    figures.plain_numbers(axes.xaxis)
    axes.set_xlim(-0.3, 1.3 * max(int(orders[-1]), int(bounds[-1]), 1))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("symbols seen, k")
    axes.set_ylabel("regret (bits)")


def _captions(result: xr.Dataset) -> dict[str, base.Caption]:
    order = int(result["order"].values[-1])

    def ends(one: xr.Dataset) -> str:
        first, last = (bits(float(one["regret_mean"][index])) for index in (0, -1))
        bound, optimum = bits(float(one["bound"][0])), bits(float(one["optimum_regret"]))
        return f"{first} (bound {bound}) → {last}, optimum {optimum}"

    parts = described(result, "source", ends, lambda name: source_label(result, name))
    return {
        "memory": base.Caption(
            alt="A panel for each source: regret against the number of last symbols that a "
            "predictor sees, trained and exact lower bound, with the optimum of full memory.",
            observed="Small dots are seeds with two standard errors of the sample, squares their "
            "means; the bound is exact, for a predictor that also knows the position. "
            f"Trained without memory → with the last {order} symbols, and the optimum, "
            f"in bits: {'; '.join(parts)}.",
            paper="Theorem 4.2: a memoryless predictor cannot approach the Bayes mixture, however "
            "large it is. The paper proves it and shows no numbers.",
        )
    }


def _tables(results: Mapping[str, xr.Dataset]) -> list[base.Table]:
    result = results["memory"]
    rows = []
    for order, one in slices(result, "order"):
        cells = base.means_with_errors(one, "regret_mean")
        if int(order) in result["bound_order"].values:
            bounds = result["bound"].sel(bound_order=int(order)).values
            pairs = zip(cells, bounds, strict=True)
            cells = [f"{cell} (bound {bound:.2f})" for cell, bound in pairs]
        rows.append([order, *cells])
    rows.append(["all", *(f"{float(value):.2f}" for value in result["optimum_regret"].values)])
    labels = [result.attrs["labels"][name] for name in names(result["source"])]
    return [base.Table("Mean regret by memory, bits", ["last symbols", *labels], rows)]


def _memory_is_needed(result: xr.Dataset) -> base.Verdict:
    """Memoryless prediction is far from the optimum, and no network beats its exact bound."""
    measured, bound = xr.align(result, result["bound"].rename(bound_order="order"))
    # The bound is an expectation, from which sampled regrets deviate by their errors.
    above = measured["regret"] + base.ERRORS * measured["regret_error"] > bound
    none = result.sel(order=0)
    far = base.exceeds(none["excess_mean"], none["excess_mean_error"])
    lines = described(
        none["excess_mean"], "source", "{:.1f}".format, lambda name: result.attrs["labels"][name]
    )
    text = "bits above the optimum without memory: " + ", ".join(lines)
    return bool(above.all()) and far, text


STUDY = base.Study(
    name="memory",
    title="Too little memory",
    paper="Theorem 4.2",
    question="What does it cost to remember nothing, or only the last few symbols?",
    scale_fields=("sequences", "orders", "bound_order"),
    grids=_grids,
    analyse=_analyse,
    plot=_plot,
    captions=_captions,
    tables=_tables,
    claims={"Without memory the optimum is out of reach.": _memory_is_needed},
    seconds={"quick": 40, "full": 300, "zoo": 0},
)
