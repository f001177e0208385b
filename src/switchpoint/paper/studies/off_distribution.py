"""Networks on sources they were not trained on."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from switchpoint._numbers import bits
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.labels import (
    display_name,
    listed,
    names,
    slices,
    source_label,
    value_range,
)
from switchpoint.paper.scale import Scale
from switchpoint.zoo.manifest import SOURCES

_EXACT = ("kt", "oracle", "ptw", "lin", "regular", "uniform", "optimum")
_PAPER_PAIRS = (
    ("ptw", "uniform"),
    ("lin", "uniform"),
    ("ptw", "regular"),
    ("lin", "regular"),
    ("uniform", "ptw"),
    ("uniform", "lin"),
)


def _grids(scale: Scale) -> dict[str, base.Grid]:
    tests = {source: scale.transfer_test(source) for source in SOURCES}
    return {
        "networks": base.grid(
            lambda train_source, test_source, architecture: base.Measurement(
                base.main_run(scale, architecture, train_source), train_source, tests[test_source]
            ),
            train_source=SOURCES,
            test_source=SOURCES,
            architecture=scale.architectures,
        ),
        "exact": base.exact_grid("test_source", tests, _EXACT),
    }


def _analyse(context: StudyContext) -> xr.Dataset:
    regret, exact = context.regret["networks"], context.regret["exact"]
    optimum = exact.sel(exact="optimum", drop=True)
    own = xr.concat(
        [regret.sel(train_source=s, test_source=s, drop=True) for s in SOURCES],
        xr.Variable("test_source", list(SOURCES)),
    )
    penalty = base.with_error(regret.mean("seed") - own.mean("seed"), "penalty")
    networks = base.regret_and_excess(regret, optimum)
    return xr.Dataset({**networks, **penalty, **base.exact_regrets(exact, optimum)})


def _plot(result: xr.Dataset) -> dict[str, Any]:
    shown = []
    for train, test in _PAPER_PAIRS:
        if train in result["train_source"] and test in result["test_source"]:
            one = result.sel(train_source=train, test_source=test)
            shown.append((one, f"{source_label(one, train)} → {source_label(one, test)}"))
    return {
        "off-distribution": figures.seed_panels(shown),
        "off-distribution-matrix": _matrix(result),
    }


def _matrix(result: xr.Dataset) -> Figure:
    """Excess regret for each pair of training and test source, a panel for each predictor."""
    trains = names(result["train_source"])
    exact = result["exact_excess"].sel(exact=trains).rename(exact="train_source")
    tables = {
        display_name(name): one for name, one in slices(result["excess_mean"], "architecture")
    }
    tables |= {"exact optimum": exact}
    norm = figures.log_norm(np.concatenate([table.values.ravel() for table in tables.values()]))
    rows, columns = (
        [source_label(result, name).replace(" ", "\n", 1) for name in each]
        for each in (trains, names(result["test_source"]))
    )
    figure, used = figures.panels(len(tables), 3, 2.75, 0.9, sharex=True, sharey=True)
    slanted = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    for axes, (title, table) in zip(used, tables.items(), strict=True):
        values = table.transpose("train_source", "test_source").values
        image = figures.squares(axes, values, norm, title, rows, columns, **slanted)
    figure.supylabel("trained on", fontsize=10)
    figure.supxlabel("tested on", fontsize=10)
    bar = figure.colorbar(image, ax=used, label="excess regret (bits)", shrink=0.7, pad=0.02)
    figures.plain_numbers(bar.ax.yaxis)
    return figure


def _captions(result: xr.Dataset) -> dict[str, base.Caption]:
    medians = [
        _transfer(result.sel(test_source=test), train, test)
        for train, test in (("ptw", "uniform"), ("lin", "uniform"))
    ]
    same = result["train_source"].values[:, None] == result["test_source"].values[None, :]
    excess = result["excess_mean"].transpose("train_source", "test_source", "architecture").values
    return {
        "off-distribution": base.Caption(
            alt="A panel for each pair of sources: the regret of every seed trained on one, tested "
            "on the other, with dashed lines for the exact predictors.",
            observed="Trained on the source before the arrow, tested on the one after it. Median "
            f"regret over seeds in bits: {'; '.join(medians)}.",
            paper="On Random Uniform, networks trained on PTW are slightly more robust than PTW, "
            "the less so the better they had learned it; networks trained on LIN are all close "
            "to LIN.",
        ),
        "off-distribution-matrix": base.Caption(
            alt="A matrix for each network: excess regret for each training source (row) and test "
            "source (column).",
            observed="Mean excess over the optimum of the test source. On their training source "
            f"networks are {_ends(excess[same])} bits above it, on others {_ends(excess[~same])}. "
            "The panel of the exact optimum predicts each column with the true posterior of the "
            "row's source.",
            paper="Six of these pairs are in the paper (Figure 4 and appendix C).",
        ),
    }


def _transfer(one: xr.Dataset, train: str, test: str) -> str:
    """The networks' regret on a source, beside that of the exact predictor of their own source."""
    label, regret = source_label(one, train), one["exact_regret"]
    medians = value_range(one["regret_median"].sel(train_source=train))
    return (
        f"{label} → {source_label(one, test)} {medians}, while exact {label} pays "
        f"{bits(float(regret.sel(exact=train)))} and the optimum "
        f"{bits(float(regret.sel(exact='optimum')))}"
    )


def _ends(values: np.ndarray) -> str:
    return f"{bits(float(np.nanmin(values)))} to {bits(float(np.nanmax(values)))}"


def _tables(results: Mapping[str, xr.Dataset]) -> list[base.Table]:
    result = results["off-distribution"]
    labels, architectures = result.attrs["labels"], names(result["architecture"])
    rows = [
        [
            f"{labels[train]}, {labels[test]}",
            *(
                f"{float(each):+.3f}"
                for each in one["regret_mean"] - one["exact_regret"].sel(exact=train)
            ),
        ]
        for train, trained in slices(result, "train_source")
        for test, one in slices(trained, "test_source")
        if test != train
    ]
    title = "Mean regret beyond the exact predictor of the training source, bits"
    bias = base.Table(title, ["trained on, tested on", *architectures], rows)
    regret = result["regret"].sel(train_source="ptw", test_source="uniform")
    rows = [
        [name, f"{float(one.min()):.2f} to {float(one.max()):.2f}", f"{float(correlation):.2f}"]
        for (name, one), correlation in zip(
            slices(regret, "architecture"), _fit_and_robustness(result, "seed"), strict=True
        )
    ]
    head = ["", "regret on Random Uniform", "correlation with the excess on PTW"]
    return [bias, base.Table("Robustness and fit of networks trained on PTW", head, rows)]


def _fit_and_robustness(result: xr.Dataset, over: str | None = None) -> xr.DataArray:
    """The correlation of excess on PTW and regret on Random Uniform, of networks trained on PTW."""
    trained = result.sel(train_source="ptw")
    fit, regret = trained["excess"].sel(test_source="ptw"), trained["regret"]
    return xr.corr(fit, regret.sel(test_source="uniform"), over)


def _better_fit_is_less_robust(result: xr.Dataset) -> base.Verdict:
    """Fisher's z of the correlations, of which the mean over networks has a known error."""
    fit = result["excess"].sel(train_source="ptw", test_source="ptw")
    seeds = int(fit.count("seed").min())
    if seeds < 4:
        return None, f"a correlation takes at least 4 seeds, and there are {seeds}"
    correlations = _fit_and_robustness(result, "seed")
    z = float(np.arctanh(correlations).mean())
    error = 1 / (correlations.size * (seeds - 3)) ** 0.5
    lines = listed(correlations, "{:+.2f}".format)
    text = (
        f"correlation over {seeds} seeds of the excess on PTW with the regret on Random Uniform: "
        f"{', '.join(lines)}, and over all networks {float(_fit_and_robustness(result)):+.2f}; "
        f"Fisher's z is {z:+.2f} ± {error:.2f} on average"
    )
    return z < -base.ERRORS * error, text


def _elsewhere_is_worse(result: xr.Dataset) -> base.Verdict:
    """On each source, networks trained on it beat those trained on any other."""
    holds, lines = True, []
    for tested, one in slices(result, "test_source"):
        away = one.drop_sel(train_source=tested)
        holds &= base.exceeds(away["penalty"], away["penalty_error"])
        least = away.isel(away["penalty"].argmin(...))
        pair = f"{float(least['penalty']):.2f} ± {float(least['penalty_error']):.2f}"
        lines.append(f"on {result.attrs['labels'][tested]} by at least {pair} bits")
    return holds, "; ".join(lines)


STUDY = base.Study(
    name="off-distribution",
    title="Tested on other sources",
    paper="Figure 4 and appendix C",
    question="What do networks lose on sources they were not trained on?",
    scale_fields=("sequences", "off_sequences"),
    grids=_grids,
    analyse=_analyse,
    plot=_plot,
    captions=_captions,
    tables=_tables,
    claims={
        "Networks do worse on a source they were not trained on.": _elsewhere_is_worse,
        "The better a network fits PTW, the less robust it is on Random Uniform.": (
            _better_fit_is_less_robust
        ),
    },
    seconds={"quick": 18, "full": 600, "zoo": 25},
)
