"""Networks on sources beyond Bernoulli segments, beside the exact optimum of each source."""

import itertools
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.special
import xarray as xr
from matplotlib.figure import Figure

from switchpoint.evaluation import evaluate, regrets
from switchpoint.exact import bayes_optimal
from switchpoint.figures import style
from switchpoint.neural.density import ValueSpec
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.labels import display_name, listed, names, slices
from switchpoint.paper.scale import Scale
from switchpoint.priors import LIN, PTW, Geometric, RegularPeriodic
from switchpoint.segments import HMM, Bernoulli, Categorical, Gaussian, MarkovChain, Mixture
from switchpoint.sources import Source
from switchpoint.training import TrainConfig
from switchpoint.training.custom import custom_config

_RING = 6  # hidden states, half of which emit mostly ones
_CLEAR = 0.9  # the probability of the usual symbol of a state
_RECENT = 4
_PERCENT = "{:.1f}%".format
_HAZARD = 1 / 32
_SPREAD = 3.0  # of the levels of Gaussian segments, in standard deviations of the noise


class Task(NamedTuple):
    """A source to learn, and exact predictors of other sources beside its own."""

    title: str
    source: Source
    rivals: Mapping[str, Source]
    values: ValueSpec | None = None
    """The scale of real values; None for symbols."""


@lru_cache(maxsize=8)
def tasks(length: int) -> dict[str, Task]:
    """The sources by name, for sequences of `length`.

    The hidden states of all HMMs are on a ring of six, the first three of which emit 1 with
    probability 0.1 and the others with 0.9. In the HMM without switches the state moves on by one
    with probability 0.95. Concepts are three such HMMs, whose state stays, moves by one or moves
    by two with this probability, so symbols alone or their frequency say nothing about them.
    """
    tree, often = PTW((length - 1).bit_length()), Geometric(_HAZARD)
    once = RegularPeriodic(length)  # without switches
    ring = _ring(0.05, 0.95, 0.0)
    concepts = Mixture(_ring(0.95, 0.05, 0.0), ring, _ring(0.0, 0.05, 0.95))
    static = HMM(ring.initial_probs, np.eye(_RING), ring.emission_probs)
    categorical, markov, gaussian = Categorical(4), MarkovChain(2), Gaussian(mean_scale=_SPREAD)

    def wrong_priors(segment: Any) -> dict[str, Source]:
        return {"exact: no switches": Source(once, segment), "exact: LIN": Source(LIN(), segment)}

    return {
        "categorical": Task(
            "Categorical(4), PTW", Source(tree, categorical), wrong_priors(categorical)
        ),
        "markov": Task(
            "Markov chain, PTW",
            Source(tree, markov),
            {**wrong_priors(markov), "exact: i.i.d.": Source(tree, Bernoulli())},
        ),
        "gaussian": Task(
            "Gaussian, PTW",
            Source(tree, gaussian),
            wrong_priors(gaussian),
            ValueSpec((0.0,), (float(np.hypot(_SPREAD, 1.0)),)),
        ),
        "concepts": Task(
            "HMM concepts, geometric",
            Source(often, concepts),
            {
                "exact: no switches": Source(once, concepts),
                "exact: Markov chain": Source(often, MarkovChain(2, 2)),
            },
        ),
        "hmm": Task(
            "HMM, no switches",
            Source(once, ring),
            {
                "exact: static state": Source(once, static),
                "exact: i.i.d.": Source(once, HMM([1.0], [[1.0]], [[0.5, 0.5]])),
                f"exact: last {_RECENT} symbols": Source(once, _last_symbols(ring, _RECENT)),
            },
        ),
    }


def _ring(*moves: float) -> HMM:
    """A ring of hidden states, which move on by 0, 1 and so on with these probabilities."""
    identity = np.eye(_RING)
    transition = sum(chance * np.roll(identity, by, 1) for by, chance in enumerate(moves))
    ones = np.where(np.arange(_RING) < _RING // 2, 1 - _CLEAR, _CLEAR)
    return HMM(np.full(_RING, 1 / _RING), transition, np.stack([1 - ones, ones], axis=1))


def _last_symbols(hmm: HMM, order: int) -> HMM:
    """A Markov chain of the last `order` symbols: P(c -> c_2..c_n x) = P(x | c) under an HMM."""
    contexts = list(itertools.product(range(hmm.alphabet), repeat=order))
    places = {context: place for place, context in enumerate(contexts)}
    initial = np.array([_chance(hmm, context) for context in contexts])
    transition = np.zeros((len(contexts), len(contexts)))
    for context, place in places.items():
        for x in range(hmm.alphabet):
            chance = _chance(hmm, (*context, x)) / initial[place]
            transition[place, places[(*context[1:], x)]] = chance
    return HMM(initial, transition, np.eye(hmm.alphabet)[[context[-1] for context in contexts]])


def _chance(hmm: HMM, symbols: tuple[int, ...]) -> float:
    """P(symbols), by the forward algorithm."""
    belief = np.asarray(hmm.initial_probs)
    for x in symbols:
        belief = (belief * np.asarray(hmm.emission_probs)[:, x]) @ np.asarray(hmm.transition_probs)
    return float(belief.sum())


def _run(scale: Scale, architecture: str, source: str) -> base.Run:
    """The networks of one architecture on a source, and on all others of the same alphabet."""
    alphabets = {
        name: task.source.segment.alphabet if task.values is None else None
        for name, task in tasks(scale.richer_length).items()
    }
    alike = [each for each in scale.richer_sources if alphabets[each] == alphabets[source]]
    settings = {"model": architecture, **scale.richer_architectures[architecture]}
    seeds = {"seeds": scale.ablation_seeds, "first_seed": scale.first_seed}
    text = json.dumps({**settings, **seeds, "length": scale.richer_length})
    return _named_run(f"{architecture}-on-{'-'.join(alike)}", text, tuple(alike))


@lru_cache(maxsize=200)
def _named_run(name: str, settings: str, sources: tuple[str, ...]) -> base.Run:
    config = TrainConfig(**json.loads(settings))
    alike = {source: tasks(config.length)[source] for source in sources}
    by_name = {source: task.source for source, task in alike.items()}
    return base.Run(name, custom_config(config, by_name, None, alike[sources[0]].values))


def _runs(scale: Scale) -> list[base.Run]:
    runs = [
        _run(scale, architecture, source)
        for architecture in scale.richer_architectures
        for source in scale.richer_sources
    ]
    return list({run.name: run for run in runs}.values())


def _analyse(context: StudyContext) -> xr.Dataset:
    """The excess of all networks and rivals on test sequences of each source."""
    sources = list(context.scale.richer_sources)
    parts = [_measured(context, source) for source in sources]
    rivals = list(dict.fromkeys(name for part in parts for name in names(part["rival"])))
    whole = xr.concat(
        [part.reindex(rival=rivals) for part in parts], xr.Variable("source", sources)
    )
    return xr.Dataset(
        {
            **base.with_error(whole["optimum"], "optimum_regret"),
            **base.over_seeds(whole["networks"], "excess"),
            **base.with_error(whole["rivals"], "rival_excess"),
            "validation_excess": whole["validation"].assign_attrs(units="bits"),
        }
    )


def _measured(context: StudyContext, name: str) -> xr.Dataset:
    """The regret of the optimum of one source, and the excess of all others."""
    scale, task = context.scale, tasks(context.scale.richer_length)[name]
    done = scale.richer_sources.index(name) / len(scale.richer_sources)
    context.progress.update(f"evaluating on {task.title}", done)
    test = (task.source, scale.richer_length, scale.other_sequences, scale.seed)
    sources = {"optimum": task.source, **task.rivals}
    exact = evaluate({key: bayes_optimal(each) for key, each in sources.items()}, *test)
    exact = exact[["regret", "code_length"]].isel(member=0, drop=True).reset_coords(drop=True)
    own, regret = exact.sel(predictor="optimum", drop=True), exact["regret"]
    optimum, segment = own["regret"], task.source.segment
    uncertain = optimum
    if isinstance(segment, HMM):  # of which everything but the hidden state is known
        noise = scipy.special.entr(segment.emission_probs).sum(-1) @ segment.initial_probs
        uncertain = own["code_length"] - scale.richer_length * noise / np.log(2)
    runs = [_run(scale, each, name) for each in scale.richer_architectures]
    members = [context.networks.members(run, name) for run in runs]
    bits = regrets([member for each in members for member in each.values()], *test)
    axes = {"architecture": list(scale.richer_architectures), "seed": list(members[0])}
    bits = bits.reshape(len(runs), len(members[0]), -1)
    logs = [_validation(context, run, name) for run in runs]
    networks = xr.DataArray(bits, axes, (*axes, "sequence"))
    return xr.Dataset(
        {
            "optimum": uncertain,
            "networks": networks - optimum,
            "rivals": (regret.drop_sel(predictor="optimum") - optimum).rename(predictor="rival"),
            "validation": (("architecture", "record", "seed"), np.array(logs)),
        }
    )


def _validation(context: StudyContext, run: base.Run, source: str) -> list[list[float]]:
    """The excess (record, seed) on the validation sequences of a source during training."""
    at = [member.index for member in run.config.members() if member.prior == source]
    return [[record.excess[index] for index in at] for record in context.networks.log(run)]


def _predictors(result: xr.Dataset) -> xr.Dataset:
    """The mean excess (predictor, source) of networks and rivals, with its error and in percent."""
    parts = [
        result[[name, f"{name}_error"]].rename(
            {label: "predictor", name: "excess", f"{name}_error": "excess_error"}
        )
        for label, name in (("architecture", "excess_mean"), ("rival", "rival_excess"))
    ]
    whole = xr.concat(parts, "predictor").transpose("predictor", "source")
    return whole.assign(percent=100 * whole["excess"] / result["optimum_regret"])


def _titles(result: xr.Dataset) -> list[str]:
    known = tasks(result.attrs["plan"]["scale"]["richer_length"])
    return [known[source].title for source in names(result["source"])]


def _plot(result: xr.Dataset) -> dict[str, Figure]:
    """The excess in percent of every network and rival, and in bits of every seed."""
    return {"richer-sources": _heat_map(result), "richer-sources-seeds": _seeds(result)}


def _heat_map(result: xr.Dataset) -> Figure:
    table = _predictors(result)["percent"]
    rows = [display_name(name) for name in names(table["predictor"])]
    columns = [title.replace(", ", "\n") for title in _titles(result)]
    figure, (axes,) = figures.panels(1, 1, 0.33 * len(rows), 0.9)
    title, norm = "excess in percent of the optimum's regret", figures.log_norm(table.values)
    image = figures.squares(axes, table.values, norm, title, rows, columns)
    axes.axhline(result.sizes["architecture"] - 0.5, color="white", linewidth=4)
    bar = figure.colorbar(image, ax=axes, label="percent", pad=0.02)
    figures.plain_numbers(bar.ax.yaxis)
    return figure


def _seeds(result: xr.Dataset) -> Figure:
    """A panel for each source: the excess in bits of every seed, with the means of all."""
    whole = _predictors(result)
    labels = [display_name(name) for name in names(whole["predictor"])]
    rows = -np.arange(len(labels))
    height = 0.22 * len(rows) + 0.8
    figure, panels = figures.panels(result.sizes["source"], 2, height, sharey=True)
    for axes, source, title in zip(panels, names(result["source"]), _titles(result), strict=True):
        seeds = result["excess"].sel(source=source).transpose("architecture", "seed")
        axes.plot(seeds, rows[: len(seeds)], "o", color=style.SKY, alpha=0.7)
        axes.plot(whole["excess"].sel(source=source), rows, "|", color=style.INK, markersize=10)
        axes.set_title(title)
        axes.set_xscale("log")
        figures.plain_numbers(axes.xaxis, 1, 2, 5)
        axes.set_yticks(rows, labels)
        axes.set_xlabel("excess regret (bits)")
    return figure


def _captions(result: xr.Dataset) -> dict[str, base.Caption]:
    percent = _predictors(result)["percent"].isel(predictor=slice(result.sizes["architecture"]))
    ends = []
    for source, title in zip(names(result["source"]), _titles(result), strict=True):
        order = listed(percent.sel(source=source).sortby(percent.sel(source=source)), _PERCENT)
        ends.append(f"{title}: {order[0]} to {order[-1]}")
    return {
        "richer-sources": base.Caption(
            alt="A table in colours: the excess in percent of every network (above) and of exact "
            "predictors of other sources (below) on every source.",
            observed=f"Mean excess in percent of the optimum's regret, by source. {'; '.join(ends)}"
            ". On the HMM without switches, the regret is against predictions that know the "
            "hidden state.",
            paper="Not in the paper, which has Bernoulli segments and calls richer ones "
            "speculative.",
        ),
        "richer-sources-seeds": base.Caption(
            alt="A panel for each source: the excess in bits of every seed of every architecture, "
            "and of exact predictors of other sources below.",
            observed="Every dot is one seed, and every stroke a mean.",
            paper="Not in the paper.",
        ),
    }


def _tables(results: Mapping[str, xr.Dataset]) -> list[base.Table]:
    """The excess in bits and in percent, and the end of training."""
    result = results["richer-sources"]
    head = ["", *_titles(result)]
    rows = [["regret of the optimum", *base.means_with_errors(result, "optimum_regret")]]
    for name, one in slices(_predictors(result), "predictor"):
        pairs = zip(base.means_with_errors(one, "excess"), one["percent"].values, strict=True)
        texts = [f"{bits} ({_PERCENT(p)})" if np.isfinite(p) else "" for bits, p in pairs]
        rows.append([display_name(name), *texts])
    excess = base.Table("Excess over the exact optimum, bits and percent of its regret", head, rows)
    rows = []
    for each, one in slices(result, "architecture"):
        ends = one["validation_excess"].mean("seed").transpose("source", "record").values
        cells = [" → ".join(f"{value:.2f}" for value in curve[-2:]) for curve in ends]
        recipe = result.attrs["plan"]["scale"]["richer_architectures"][each]
        seen = recipe["steps"] * recipe["batch"]
        rows.append([display_name(each), f"{seen:,}", *cells])
    title = "Excess on validation sequences at three quarters and at the end of training, bits"
    return [excess, base.Table(title, ["", "sequences", *_titles(result)], rows)]


STUDY = base.Study(
    name="richer-sources",
    title="Richer sources",
    paper="nothing of the paper",
    question="Are networks near the optimum on sources beyond Bernoulli segments?",
    scale_fields=(
        *("richer_length", "richer_sources", "richer_architectures"),
        *("ablation_seeds", "other_sequences"),
    ),
    networks=_runs,
    analyse=_analyse,
    plot=_plot,
    captions=_captions,
    tables=_tables,
    seconds={"quick": 40, "full": 3200, "zoo": 3200},
)
