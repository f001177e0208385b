"""Networks on the source they were trained on."""

from collections.abc import Mapping
from typing import Any

import xarray as xr

from switchpoint._numbers import bits, join_and, percent, plus_minus
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.labels import (
    described,
    display_name,
    listed,
    names,
    slices,
    source_label,
    value_range,
)
from switchpoint.paper.scale import Scale
from switchpoint.zoo.manifest import SOURCES

_EXACT = ("kt", "oracle", "ptw", "lin", "optimum")


def _grids(scale: Scale) -> dict[str, base.Grid]:
    tests = {source: scale.test_set(source) for source in SOURCES}
    return {
        "networks": base.grid(
            lambda source, architecture: base.Measurement(
                base.main_run(scale, architecture, source), source, tests[source]
            ),
            source=SOURCES,
            architecture=scale.architectures,
        ),
        "exact": base.exact_grid("source", tests, _EXACT),
    }


def _analyse(context: StudyContext) -> xr.Dataset:
    exact = context.regret["exact"]
    optimum = exact.sel(exact="optimum", drop=True)
    networks = base.regret_and_excess(context.regret["networks"], optimum)
    return xr.Dataset({**networks, **base.exact_regrets(exact, optimum)})


def _plot(result: xr.Dataset) -> dict[str, Any]:
    shown = [(one, source_label(result, source)) for source, one in slices(result, "source")]
    return {
        "on-distribution": figures.seed_panels(shown, close=True),
        "on-distribution-excess": figures.seed_panels(shown, "excess"),
    }


def _captions(result: xr.Dataset) -> dict[str, base.Caption]:
    medians = described(
        result["excess_median"], "source", value_range, lambda name: source_label(result, name)
    )
    return {
        "on-distribution": base.Caption(
            alt="A panel for each source: the regret of every seed of every network trained on "
            "it, with dashed lines for the exact predictors.",
            observed="Every network on its training source. An arrow marks exact predictors "
            "outside the panel.",
            paper="The best seed of every network is near the optimum, the RNN's a little less so "
            "on PTW; on LIN every seed matches LIN; on Regular all reach the KT Oracle. For Random "
            "Uniform, where the paper has no optimum, networks beat LIN.",
        ),
        "on-distribution-excess": base.Caption(
            alt="A panel for each source: regret above the exact optimum, on a logarithmic scale.",
            observed=f"The same above the optimum. Median over seeds in bits: {join_and(medians)}.",
            paper="Not shown in the paper, which lacks the optimum of Random Uniform.",
        ),
    }


def _tables(results: Mapping[str, xr.Dataset]) -> list[base.Table]:
    result = results["on-distribution"]
    optimum = base.means_with_errors(result.sel(exact="optimum"), "exact_regret")
    rows = [["the optimum's regret", *optimum]]
    for architecture, row in slices(result, "architecture"):
        rows.append([architecture, *(_cell(one) for _, one in slices(row, "source"))])
    labels = [result.attrs["labels"][source] for source in names(result["source"])]
    return [base.Table("Excess over the exact optimum, bits", ["", *labels], rows), *_cost(results)]


def _cell(one: xr.Dataset) -> str:
    """The seeds of one architecture on one source, with their number where some are missing."""
    seeds, median = one["excess"], float(one["excess_median"])
    share = median / float(one["exact_regret"].sel(exact="optimum"))
    text = f"{median:.3f} ({share:.2%}), {float(seeds.min()):.3f} to {float(seeds.max()):.3f}"
    count = int(seeds.count())
    return text if count == seeds.size else f"{text}, {count} seed{'s' * (count > 1)}"


def _cost(results: Mapping[str, xr.Dataset]) -> list[base.Table]:
    """Members and minutes, by device, of the networks that no study before needs."""
    known: set[str] = set()
    rows = []
    for study in dict.fromkeys(["on-distribution", *results]):
        networks = results[study].attrs["provenance"].get("networks", {})
        by_device: dict[str, list[Any]] = {}
        for name, each in networks.items():
            if name not in known and "measuring_seconds" in each:
                by_device.setdefault(str(each["device"]), []).append(each)
        for device, runs in by_device.items():
            keys = ("members", "training_seconds", "measuring_seconds")
            members, *times = (sum(each[key] for each in runs) for key in keys)
            rows.append([study, str(members), device, *(f"{each / 60:.1f}" for each in times)])
        known |= set(networks)
    head = ["study", "members", "on", "training, min", "measuring, min"]
    title = "Wall time of the runs that a study is the first to need, added up"
    return [base.Table(title, head, rows)] if rows else []


def _optimum_is_lowest(result: xr.Dataset) -> base.Verdict:
    """No exact predictor without the switching points, and no network, does better."""
    holds, lines = True, []
    for source, exact in slices(result, "source"):
        rivals = exact.drop_sel(
            exact=list({"oracle", "optimum", source} & {*names(exact["exact"])})
        )
        gaps = rivals["exact_excess"]
        holds &= base.exceeds(gaps, rivals["exact_excess_error"])
        holds &= bool((exact["excess"] + base.ERRORS * exact["excess_error"]).min() > 0)
        lines.append(
            f"{result.attrs['labels'][source]}: {display_name(str(gaps.idxmin().item()))} loses "
            f"{bits(float(gaps.min()))} bits, the best network {bits(float(exact['excess'].min()))}"
        )
    return holds, "; ".join(lines)


def _lstm_is_near(result: xr.Dataset) -> base.Verdict:
    one = result.sel(source=["ptw", "lin"], architecture="lstm")
    optimum = one["exact_regret"].sel(exact="optimum")
    share, error = (one[name] / optimum for name in ("excess_mean", "excess_mean_error"))
    lines = [
        f"{result.attrs['labels'][name]}: {float(share.sel(source=name)):.3%} ± "
        f"{float(error.sel(source=name)):.3%} above the optimum"
        for name in names(one["source"])
    ]
    return bool((share + base.ERRORS * error < 0.1).all()), "; ".join(lines)


def _regular_is_learned(result: xr.Dataset) -> base.Verdict:
    """All networks are within a tenth of the oracle's regret, where KT needs much more."""
    one = result.sel(source="regular")
    oracle = float(one["exact_regret"].sel(exact="oracle"))
    shares = (one["excess_mean"] + base.ERRORS * one["excess_mean_error"]) / oracle
    lines = listed(one["excess_mean"] / oracle, percent)
    return bool((shares < 0.1).all()), "above KT Oracle: " + ", ".join(lines)


def _rnn_is_behind(result: xr.Dataset) -> base.Verdict:
    """The RNN's mean excess on PTW against that of every other network."""
    if not {"rnn"} < set(names(result["architecture"])):
        return None, "there is no RNN to compare with other networks"
    one = result.sel(source="ptw")
    rnn, others = one.sel(architecture="rnn"), one.drop_sel(architecture="rnn")
    gap = rnn["excess_mean"] - others["excess_mean"]

    def seeds(own: xr.Dataset) -> str:
        mean = plus_minus(float(own["excess_mean"]), float(own["excess_mean_error"]))
        return f"{mean} ({bits(float(own['excess_minimum']))})"

    text = "bits above the optimum, the mean over seeds and the best seed in brackets: "
    text += ", ".join(described(one, "architecture", seeds))
    return base.exceeds(gap, rnn["excess_mean_error"], others["excess_mean_error"]), text


STUDY = base.Study(
    name="on-distribution",
    title="Tested on the training source",
    paper="Figure 3, and Random Uniform in appendix C",
    question="Do networks reach the exact optimum of the source they were trained on?",
    scale_fields=("sequences",),
    grids=_grids,
    analyse=_analyse,
    plot=_plot,
    captions=_captions,
    tables=_tables,
    claims={
        "The exact optimum of a source has the lowest regret there.": _optimum_is_lowest,
        "The LSTM comes within 10% of the optimum's regret on PTW and LIN.": _lstm_is_near,
        "Every network learns where regular switches are, and comes near the KT Oracle.": (
            _regular_is_learned
        ),
        "On PTW the RNN has a slightly larger error than the other networks.": _rnn_is_behind,
    },
    seconds={"quick": 180, "full": 4000, "zoo": 25},
)
