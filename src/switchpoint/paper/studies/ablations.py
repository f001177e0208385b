"""The regret on PTW of networks of several sizes and kinds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from switchpoint._numbers import bits, join_and
from switchpoint.figures import style
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.labels import display_name, names, slices
from switchpoint.paper.scale import MODEL_OPTIONS, Scale

_NUMBERS = ("hidden", "readout", "stack_depth", "stack_width", "layers", "context")
_NONE = -1  # where a model has no such option
_POSITIONS = {
    "sincos": (style.ORANGE, "o"),
    "alibi": (style.BLUE, "s"),
    "relative": (style.GREEN, "P"),
}


def _runs(scale: Scale) -> dict[str, tuple[str, base.Run]]:
    """The part and the run of each configuration, such as `lstm hidden 64 readout 0`.

    The main run of a network takes the place of one that trains the same networks on PTW.
    """
    runs = {}
    for table in scale.ablations:
        settings = {name: value for name, value in table.items() if name != "part"}
        options = {name: value for name, value in settings.items() if name in MODEL_OPTIONS}
        name = " ".join([settings["model"], *(f"{k} {v}" for k, v in options.items())])
        config = base.config(scale, settings, seeds=scale.ablation_seeds, prior="ptw")
        run = base.Run("ablation-" + name.replace(" ", "-"), config)
        if config.model in scale.architectures and scale.ablation_seeds <= scale.seeds:
            main = base.main_run(scale, config.model)
            run = main if main.plan("ptw") == run.plan("ptw") else run
        runs[name] = table["part"], run
    return runs


def _grids(scale: Scale) -> dict[str, base.Grid]:
    runs, test, seeds = _runs(scale), scale.test_set("ptw"), scale.ablation_seeds
    return {
        "networks": base.grid(
            lambda configuration: base.Measurement(runs[configuration][1], "ptw", test, seeds),
            configuration=runs,
        ),
        "optimum": base.grid(lambda: base.Measurement(None, "optimum", test)),
    }


def _analyse(context: StudyContext) -> xr.Dataset:
    regret, optimum = context.regret["networks"], context.regret["optimum"]
    parts, runs = zip(*_runs(context.scale).values(), strict=True)
    options = [run.config.options() for run in runs]
    shapes = [jax.eval_shape(run.config.network, jax.random.key(0)) for run in runs]
    columns: dict[str, Any] = {
        "part": list(parts),
        "model": [run.config.model for run in runs],
        "positions": [each.get("positions", "-") for each in options],
        "parameters": [sum(leaf.size for leaf in jax.tree.leaves(shape)) for shape in shapes],
    }
    for name in _NUMBERS:
        values = [_NONE if each.get(name) is None else each[name] for each in options]
        columns[name] = np.array(values, np.int32)
    return xr.Dataset(
        {
            **{name: ("configuration", values) for name, values in columns.items()},
            **base.regret_and_excess(regret, optimum),
            **base.with_error(optimum, "optimum_regret"),
        }
    )


def _part(result: xr.Dataset, *parts: str) -> xr.Dataset:
    """The configurations that belong to these parts of the study."""
    return result.isel(configuration=np.isin(names(result["part"]), parts))


def _groups(result: xr.Dataset, column: str) -> Iterator[tuple[str, xr.Dataset]]:
    """The configurations with the same value in a column, in their order."""
    values = np.array(names(result[column]), str)
    for value in dict.fromkeys(values.tolist()):
        yield value, result.isel(configuration=values == value)


def _compared(result: xr.Dataset) -> list[str]:
    """The parts with at least two configurations of one network to compare."""
    return [
        part
        for part, own in _groups(result, "part")
        if any(one.sizes["configuration"] > 1 for _, one in _groups(own, "model"))
    ]


def _plot(result: xr.Dataset) -> dict[str, Any]:
    compared = _compared(result)
    drawn = {"ablations-parameters": _parameters(result, "positions" in compared)}
    if "stack" in compared:
        drawn["ablations-stack"] = _stacks(_part(result, "stack"))
    if shown := [part for part in _PANELS if part in compared]:
        drawn["ablations-transformer"] = _transformer(result, shown)
    return drawn


def _parameters(result: xr.Dataset, attention: bool) -> Figure:
    """Regret against the number of parameters, of Transformers too if `attention`."""
    figure, row = figures.panels(1 + attention, 1 + attention, 4.0, sharey=True)
    row[0].set_title("recurrent networks")
    for model, one in _groups(_part(result, "core", "stack"), "model"):
        _dots(row[0], one, display_name(model), style.hue(model), style.marker_style(model))
    if attention:
        row[1].set_title("Transformers")
        for positions, one in _groups(_part(result, "positions"), "positions"):
            _dots(row[1], one, positions, *_POSITIONS[positions])
    optimum = float(result["optimum_regret"])
    for axes, side in zip(row, ("left", "right"), strict=False):
        axes.axhline(optimum, label="exact optimum", linewidth=1.3, **style.line_style("optimum"))
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        # Numbers between whole decades would touch each other where there are many decades.
        steps = [1, 2, 5] if high < 30 * low else [1]
        axes.xaxis.set_major_locator(LogLocator(base=10, subs=steps))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("number of parameters")
        columns = 3 if attention else 5
        figures.legend_of(axes, f"lower {side}", ncols=columns, columnspacing=1.2)
    row[0].set_ylabel("regret (bits)")
    low, high = optimum, float(result["regret"].max())
    row[0].set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))
    return figure


def _dots(axes: Axes, one: xr.Dataset, label: str, colour: str, marker: str) -> None:
    """A small dot for each seed, and a large one at the mean of each configuration."""
    parameters = one["parameters"].values
    for row in one["regret"].transpose("seed", "configuration").values:
        axes.plot(parameters, row, ".", color=colour, markersize=3.5, alpha=0.45)
    edge: dict[str, Any] = {"markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.4}
    axes.plot(parameters, one["regret_mean"].values, marker, color=colour, label=label, **edge)


def _stacks(stacks: xr.Dataset) -> Figure:
    """The excess by depth and width of the stack, a panel for each network."""
    norm = figures.log_norm(stacks["excess_mean"].values, least_ratio=4.0)
    models, sizes = list(_groups(stacks, "model")), ["stack_depth", "stack_width"]
    figure, row = figures.panels(len(models), len(models), 3.2, sharey=True)
    for axes, (model, one) in zip(row, models, strict=True):
        table = one.set_index(configuration=sizes)["excess_mean"].unstack().sortby(sizes)
        depths, widths = table["stack_depth"].values, table["stack_width"].values
        image = figures.squares(axes, table.values, norm, display_name(model), depths, widths)
        axes.set_xlabel("width of a stack cell")
    row[0].set_ylabel("depth of the stack")
    bar = figure.colorbar(image, ax=list(row), label="excess regret (bits)", pad=0.02)
    figures.plain_numbers(bar.ax.yaxis, 1, 2, 5)
    return figure


def _transformer(result: xr.Dataset, shown: Sequence[str]) -> Figure:
    figure, row = figures.panels(len(shown), len(shown), 3.6)
    labels = {}
    for axes, part in zip(row, shown, strict=True):
        title, panel = _PANELS[part]
        axes.set_title(title)
        labels[axes] = panel(axes, _part(result, part))
        low, high = axes.get_ylim()
        axes.set_ylim(min(0.0, low), 1.06 * high)
        if axes.get_legend_handles_labels()[0]:
            figures.legend_of(axes, "lower left", ncols=3)
    row[0].set_ylabel("excess regret (bits)")
    figures.labels_right(figure, labels)
    return figure


def _positions(axes: Axes, attention: xr.Dataset) -> list[figures.Label]:
    """Excess against the number of layers, for each position encoding."""
    axes.set_xlabel("layers")
    for place, (positions, one) in enumerate(_groups(attention, "positions")):
        # Moved a little, so that bars stand beside each other.
        _errors(axes, one, "layers", 1.04 ** (place - 1), positions, *_POSITIONS[positions])
    _powers_with_margin(axes, np.unique(attention["layers"].values))
    return []


def _contexts(axes: Axes, context: xr.Dataset) -> list[figures.Label]:
    """Excess against the context window; returns the label of the full context."""
    axes.set_xlabel("symbols seen")
    bounded = context["context"].values >= 0
    _errors(axes, context.isel(configuration=bounded), "context", 1, "_window", style.GREEN, "P")
    _powers_with_margin(axes, np.sort(context["context"].values[bounded]))
    values = [float(value) for value in context["excess_mean"].values[~bounded]]
    for value in values:
        axes.axhline(value, color=style.GREEN, linestyle=(0, (4, 2)), linewidth=1.2)
    return [(value, "full context", style.GREEN) for value in values]


_Panel = Callable[[Axes, xr.Dataset], list[figures.Label]]
_PANELS: Mapping[str, tuple[str, _Panel]] = {
    "positions": ("positions and layers", _positions),
    "context": ("context window", _contexts),
}


def _powers_with_margin(axes: Axes, at: np.ndarray) -> None:
    """An axis in powers of two around points, of which there may be only one."""
    figures.powers_axis(axes, at)
    axes.set_xlim(at[0] / 1.5, at[-1] * 1.5)


def _errors(
    axes: Axes, one: xr.Dataset, column: str, shift: float, label: str, colour: str, marker: str
) -> None:
    one = one.sortby(column)
    look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 5, "capsize": 2.5}
    at = one[column].values * shift
    figures.error_bars(axes, at, one, "excess", linewidth=1.3, label=label, **look)


def _captions(result: xr.Dataset) -> dict[str, base.Caption]:
    """Captions of the figures; parts with nothing to compare have none."""
    optimum = bits(float(result["optimum_regret"]))
    compared = _compared(result)
    shown = {part: title for part, (title, _) in _PANELS.items() if part in compared}
    best = [f"best {title}: {_best(result, part)}" for part, title in shown.items()]
    captions = {
        "ablations-parameters": base.Caption(
            alt="Regret against the number of parameters: recurrent networks"
            f"{' on the left, Transformers on the right' * ('positions' in compared)}.",
            observed="Small dots are seeds, large ones their means; the exact optimum pays "
            f"{optimum} bits. Best of the recurrent networks: {_best(result, 'core', 'stack')}; of "
            f"the Transformers: {_best(result, 'positions')}.",
            paper="The more parameters, the lower the regret; the best recurrent networks have "
            "256 units and 2 readout layers, the best Transformer 16 layers.",
        )
    }
    if "stack" in compared:
        captions["ablations-stack"] = base.Caption(
            alt="Excess regret for each depth of the stack (row) and width of its cells (column).",
            observed=f"Mean excess over seeds. Best: {_best(result, 'stack')}.",
            paper="A stack of depth 8 with cells of width 8 is best: larger than small, and "
            "smaller than the whole sequence.",
        )
    if shown:
        captions["ablations-transformer"] = base.Caption(
            alt=f"Excess regret of Transformers, one panel each: {join_and([*shown.values()])}.",
            observed=f"Mean and standard deviation over seeds; {'; '.join(best)}.",
            paper="All position encodings train well, relative ones with 16 layers best; the full "
            "context is better than any window.",
        )
    return captions


def _best(result: xr.Dataset, *parts: str) -> str:
    """The configuration of least mean regret in some parts of the study, with its excess."""
    means = _part(result, *parts)["excess_mean"].dropna("configuration")
    if not means.size:
        return "none was run"
    best = means.isel(means.argmin(...))
    return f"{best['configuration'].item()} ({bits(float(best))} bits of excess)"


def _tables(results: Mapping[str, xr.Dataset]) -> list[base.Table]:
    result = results["ablations"]
    rows = []
    for name, one in slices(_part(result, *_compared(result)), "configuration"):
        seeds, count = one["excess"], f"{int(one['parameters']):,}"
        spread = f"{float(seeds.min()):.3f} to {float(seeds.max()):.3f}"
        rows.append([name, count, f"{float(one['excess_mean']):.3f}", spread])
    head = ["", "parameters", "mean", "lowest to highest"]
    return [base.Table("Excess by configuration, bits", head, rows)]


STUDY = base.Study(
    name="ablations",
    title="Sizes and kinds of networks",
    paper="appendix A",
    question="Which size, stack, position encoding and context does a network need on PTW?",
    scale_fields=("sequences", "ablations", "ablation_seeds"),
    grids=_grids,
    analyse=_analyse,
    plot=_plot,
    captions=_captions,
    tables=_tables,
    seconds={"quick": 120, "full": 20_000, "zoo": 0},
)
