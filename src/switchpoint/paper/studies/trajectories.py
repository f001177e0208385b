"""Predictions on one sequence of each source, symbol by symbol."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from switchpoint._numbers import join_and
from switchpoint._random import key_for
from switchpoint.evaluation import regret
from switchpoint.exact import KTOracle, bayes_optimal
from switchpoint.figures import style
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.labels import display_name, listed, slices, source_label
from switchpoint.predictor import Predictor
from switchpoint.sources import Draw, Source
from switchpoint.zoo.manifest import SOURCES

CANDIDATES = 250
"""Sequences of which one is shown; as many as `evaluate` compiles for."""

_STROKES = {"optimum": 1.6, "oracle": 1.1}
_MAX_SWITCHES = 6  # a caption lists no more positions


def follow(draws: Draw, row: int, predictors: Mapping[str, Predictor]) -> xr.Dataset:
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
        draw = source.sample(key_for(0, "example"), CANDIDATES, context.scale.length)
        predictors = {
            "optimum": bayes_optimal(source),
            "oracle": KTOracle(draw.switches, source.segment),
            "lstm": context.best("lstm", name),
        }
        rows.append(follow(draw, _typical(draw, source), predictors))
    return xr.concat(rows, xr.Variable("source", list(SOURCES)))


def _typical(draw: Draw, source: Source) -> int:
    """The first sequence with the expected number of switches, or nearly."""
    expected = source.prior.switch_probability(draw.symbols.shape[-1]).sum()
    counts = np.asarray(draw.switches).sum(-1)
    return int(np.argmin(np.abs(counts - expected)))


def _plot(result: xr.Dataset) -> dict[str, Any]:
    """One figure for each source, as Figure 1 of the paper."""
    pairs = slices(result, "source")
    return {f"trajectory-{source}": _trajectory(one, source) for source, one in pairs}


def _trajectory(one: xr.Dataset, source: str) -> Figure:
    label = source_label(one, source)
    layout: dict[str, Any] = {
        "title": f"One sequence from {label}",
        "height_ratios": [2.2, 1.2, 1.4],
    }
    figure, (top, middle, bottom) = figures.panels(3, 1, 5.6 / 3, sharex=True, **layout)
    figures.draw_symbols(top, one["symbols"].values, one["probability"].values)
    for predictor, drawn in slices(one, "predictor"):
        # Networks carry their training source in brackets, as in the paper.
        trained = "" if predictor in ("optimum", "oracle") else f" [{label}]"
        look: Any = style.line_style(predictor) | {
            "linewidth": _STROKES.get(predictor, 1.8),
            "zorder": 3 if predictor in _STROKES else 2.5,  # dashes over solid lines
            "label": display_name(predictor) + trained,
        }
        top.step(one["time"], drawn["prediction"], where="mid", **look)
        middle.step(one["time"], drawn["regret"], where="mid", **look)
        bottom.step(one["time"], drawn["cumulative_regret"], where="post", **look)
    for axes in (top, middle, bottom):
        for switch in np.flatnonzero(one["switches"].values):
            axes.axvline(switch - 0.5, color="#C8C8C8", linewidth=0.9, zorder=0.9)
    top.set_ylabel("P(symbol is 1)")
    middle.set_ylabel("regret (bits)")
    middle.set_ylim(bottom=0)
    bottom.set_ylabel("cumulative\nregret (bits)")
    bottom.set_ylim(bottom=0)
    style.legend_above(top, columns=4)
    figures.position_axis(bottom, one.sizes["time"])
    return figure


def ends(result: xr.Dataset) -> str:
    """The cumulative regret of each predictor at the end."""
    return join_and(listed(result["cumulative_regret"].isel(time=-1)))


_PAPER = {
    "ptw": "The LSTM and PTW adapt quickly after switches, and almost alike (Figure 1).",
    "lin": "An example draw, on which LIN and the network predict almost alike (appendix B).",
    "regular": "An example draw with its regular switches (appendix B).",
    "uniform": "An example draw; the paper has no exact optimum for this source (appendix B).",
}


def _captions(result: xr.Dataset) -> dict[str, base.Caption]:
    captions = {}
    for source, one in slices(result, "source"):
        switches = [str(at) for at in np.flatnonzero(one["switches"].values)]
        many = len(switches) > _MAX_SWITCHES
        where = f" (the first at {switches[0]})" if many else f" (at {join_and(switches)})"
        count = f"{len(switches) or 'no'} switch{'' if len(switches) == 1 else 'es'}"
        captions[f"trajectory-{source}"] = base.Caption(
            alt=f"A sequence from {source_label(one, source)}: symbols, true bias and predictions; "
            "regret of every symbol; cumulative regret.",
            observed=f"{one.sizes['time']} symbols with {count}{where if switches else ''}. "
            f"Cumulative regret at the end, in bits: {ends(one)}.",
            paper=_PAPER.get(source, "Not in the paper."),
        )
    return captions


STUDY = base.Study(
    name="trajectory",
    title="One sequence of each source",
    paper="Figure 1, and single trajectories of appendix B",
    question="What do exact predictors and a network predict on one sequence, symbol by symbol?",
    networks=lambda scale: base.main_runs(scale, "lstm"),
    analyse=_trajectories,
    plot=_plot,
    captions=_captions,
    seconds={"quick": 55, "full": 400, "zoo": 20},
)
