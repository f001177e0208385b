"""Recurrent networks trained further from states that earlier sequences left behind."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Bool, Float, Int
from matplotlib.figure import Figure

from switchpoint._numbers import bits, join_and
from switchpoint._random import key_for
from switchpoint.evaluation import regret
from switchpoint.exact import bayes_optimal
from switchpoint.figures import style
from switchpoint.neural import Network
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.labels import display_name, names
from switchpoint.paper.scale import Scale
from switchpoint.training import TrainConfig
from switchpoint.training.optimizer import lr_schedule, make_optimizer

WAYS: Mapping[str, str] = {
    "before": "before",
    "control": "new states",
    "marked": "passed states, start token",
    "passed": "passed states",
    "long": "parts of long sequences",
}
"""How a network is trained further, on blocks of the training length, one after another.

Blocks begin with the state that the block before them ended with, except in `control`, and with
the start token in `control` and `marked`. They are parts of long sequences of PTW in `long`, and
sequences of the training source by themselves in all others.
"""

_RATE = 0.1  # of the learning rate that a network was trained with
_RECURRENT = ("rnn", "lstm", "stack-rnn", "stack-lstm")
_COLOURS = (style.INK, style.SKY, style.GREEN, style.ORANGE, style.BLUE)


def _passing_states(context: StudyContext) -> xr.Dataset:
    """The best network of each recurrent architecture on PTW, before and after some more steps.

    All ways of further training take as many steps, on as many blocks, by the recipe of the
    architecture with a tenth of its learning rate. The loss is that of the symbols of a block, and
    gradients end at its beginning. States are passed on for as many blocks as
    there are in a sequence of one of the tested lengths, which come in equal numbers. In `long` it
    is a sequence of the PTW of this length. Its Bayes optimum does not know the length, and loses
    at most the logarithm of the number of lengths to PTW.
    """
    scale = context.scale
    architectures, lengths = _architectures(scale), sorted(scale.longer_lengths)
    networks: list[list[Network[Any]]] = []
    for number, architecture in enumerate(architectures):
        before = context.best(architecture, "ptw")
        config = base.config(
            scale,
            {"model": architecture, **scale.architectures[architecture], **scale.passing_settings},
            prior="ptw",
        )
        networks.append([before])
        for way in list(WAYS)[1:]:
            text = f"training {architecture} further, {WAYS[way]}"
            context.progress.update(text, number / len(architectures))
            networks[-1].append(_trained_further(before, way, scale, config))
    results = []
    for length in lengths:
        context.progress.update(f"testing on {length} symbols", 1.0)
        results.append(_tested(networks, scale, length))
    return xr.concat(results, "n").assign_coords(
        n=lengths, architecture=architectures, way=list(WAYS)
    )


def _architectures(scale: Scale) -> list[str]:
    return [name for name in _RECURRENT if name in scale.architectures]


def _trained_further(
    network: Network[Any], way: str, scale: Scale, config: TrainConfig
) -> Network[Any]:
    """The network after the steps of a way."""
    carry = network, make_optimizer(config).init(network), network.memory(config.batch, 0)
    last = np.zeros(config.batch, np.int32)
    for step, (values, begins) in enumerate(_blocks(way, scale, config)):
        new = begins | (way == "control")
        first = np.where(new | (way == "marked"), network.start_token(), last)
        tokens = np.concatenate([first[:, None], values[:, :-1]], axis=1)
        carry = _step(config, carry, tokens, values, new, step)
        last = values[:, -1]
    return carry[0]


@functools.partial(jax.jit, static_argnums=0)
def _step(
    config: TrainConfig,
    carry: tuple[Network[Any], Any, Any],
    tokens: Int[Array, "batch time"],
    values: Int[Array, "batch time"],
    new: Bool[Array, " batch"],
    step: Int[Array, ""],
) -> tuple[Network[Any], Any, Any]:
    """The network, its optimizer and its states after a block, which begins with `new` states."""
    network, state, memory = carry
    memory = jax.tree.map(
        lambda first, old: jnp.where(new.reshape(-1, *[1] * (old.ndim - 1)), first, old),
        network.memory(config.batch, 0),
        memory,
    )

    def log_loss(network: Network[Any]) -> tuple[Float[Array, ""], Any]:
        after, outputs = network.read(memory, tokens)
        return -network.observed(outputs, values).mean(), after

    gradient, memory = jax.grad(log_loss, has_aux=True)(network)
    direction, state = make_optimizer(config).update(gradient, state, network)
    size = _RATE * config.learning_rate[0] * lr_schedule(config, step)
    network = jax.tree.map(lambda leaf, each: leaf - size * each, network, direction)
    return network, state, memory


def _blocks(
    way: str, scale: Scale, config: TrainConfig
) -> Iterator[tuple[Int[np.ndarray, "batch time"], Bool[np.ndarray, " batch"]]]:
    """The blocks of every step, and which of them begin a sequence.

    A row has sequences of all lengths in random order, again and again.
    """
    counts = [max(1, length // scale.length) for length in scale.longer_lengths]
    rounds, batch = -(-config.steps // sum(counts)), config.batch
    pools = []
    for count in counts:
        parts = 1 if way == "long" else count
        length = scale.length * count // parts
        key = key_for(scale.first_seed, f"passing {count}")
        draw = scale.source("ptw", length).sample(key, rounds * batch * parts, length)
        pools.append(np.asarray(draw.symbols, np.int32).reshape(rounds, batch, count, -1))
    random = np.random.default_rng(scale.first_seed)
    rows, begins = [], []
    for row in range(batch):
        order = [(r, k) for r in range(rounds) for k in random.permutation(len(counts))]
        rows.append(np.concatenate([pools[k][r, row] for r, k in order]))
        begins.append(np.concatenate([np.arange(counts[k]) == 0 for _, k in order]))
    yield from zip(
        np.stack(rows, 1)[: config.steps], np.stack(begins, 1)[: config.steps], strict=True
    )


def _tested(networks: list[list[Network[Any]]], scale: Scale, length: int) -> xr.Dataset:
    """The excess over PTW on sequences of one length: networks, and PTW restarted in each block.

    And how well networks know their position: after zeros alone, the correlation of the log
    probabilities of a one with those of PTW, in the second half of the length.
    """
    drawn_from = scale.source("ptw", length)
    key = key_for(scale.seed, f"passing test {length}")
    draw = drawn_from.sample(key, scale.passing_sequences, length)
    symbols, zeros = np.asarray(draw.symbols, np.int32), np.zeros(length, np.int32)
    optimum, block = bayes_optimal(drawn_from), bayes_optimal(scale.source("ptw"))
    known = optimum.log_probs(symbols)
    ones = optimum.log_probs(zeros)[length // 2 :, 1]
    restarted = block.log_probs(symbols.reshape(-1, scale.length)).reshape(known.shape)

    def lost(logs: Any) -> Float[np.ndarray, " sequence"]:
        return np.asarray((regret(draw, logs) - regret(draw, known)).sum(-1), float)

    def correlation(network: Network[Any]) -> float:
        return float(np.corrcoef(network.log_probs(zeros)[length // 2 :, 1], ones)[0, 1])

    axes = ("architecture", "way")
    excess = np.array([[lost(each.log_probs(symbols)) for each in ways] for ways in networks])
    position = [[correlation(each) for each in ways] for ways in networks]
    return xr.Dataset(
        {
            **base.with_error(xr.DataArray(excess, dims=(*axes, "sequence")), "excess"),
            **base.with_error(xr.DataArray(lost(restarted), dims="sequence"), "restarted"),
            "position": (axes, position, {"units": "1"}),
        }
    )


def _plot(result: xr.Dataset) -> dict[str, Figure]:
    """A panel for each network: the excess against the length, before and after."""
    networks = names(result["architecture"])
    figure, panels = figures.panels(len(networks), 2, 2.7, 0.7, sharex=True, sharey=True)
    exact = {**style.line_style("ptw"), "label": "PTW, restarted in each block"}
    for axes, network in zip(panels, networks, strict=True):
        axes.plot(result["n"], result["restarted"], **exact)
        for way, colour, marker in zip(WAYS, _COLOURS, "osD^P", strict=True):
            one = result.sel(architecture=network, way=way)
            look = {"color": colour, "marker": marker, "markersize": 4, "label": WAYS[way]}
            axes.errorbar(result["n"], one["excess"], yerr=one["excess_error"], **look)
        axes.set_yscale("symlog", linthresh=1.0)
        figures.plain_numbers(axes.yaxis)
        figures.powers_axis(axes, result["n"].values)
        axes.set_title(display_name(network))
    for axes in panels[-2:]:
        axes.set_xlabel("length of the test sequences")
    figure.supylabel("regret above PTW of matching depth (bits)", fontsize=10)
    figures.legend_of(panels[0], ncols=3, columnspacing=1.2)
    return {"passing-states": figure}


def _captions(result: xr.Dataset) -> dict[str, base.Caption]:
    longest = result.isel(n=-1)
    texts = [f"{WAYS[way]} {bits(float(longest['excess'].sel(way=way).mean()))}" for way in WAYS]
    return {
        "passing-states": base.Caption(
            alt="A panel for each recurrent network: excess regret against the length of the test "
            "sequences, before and after training further in four ways.",
            observed=f"At length {int(longest['n'])}, in bits and in the mean over networks: "
            f"{join_and(texts)}.",
            paper="Not in the paper.",
        )
    }


def _tables(results: Mapping[str, xr.Dataset]) -> list[base.Table]:
    """The excess, and how closely networks follow their position, before and after."""
    result = results["passing-states"]
    excess, position = [], []
    for network in names(result["architecture"]):
        for way, label in WAYS.items():
            one = result.sel(architecture=network, way=way)
            head = f"{display_name(network)}, {label}"
            excess.append([head, *base.means_with_errors(one, "excess")])
            position.append([head, *(f"{value:.2f}" for value in one["position"].values)])
    excess.append(["PTW, restarted in each block", *base.means_with_errors(result, "restarted")])
    lengths = [int(n) for n in result["n"].values]
    return [
        base.Table("Excess over PTW, bits", ["", *map(str, lengths)], excess),
        base.Table(
            "Correlation with PTW of the log probability of a one after zeros alone",
            ["", *(f"{n // 2} to {n - 1}" for n in lengths)],
            position,
        ),
    ]


STUDY = base.Study(
    name="passing-states",
    title="Training further from passed states",
    paper="nothing of the paper",
    question="Do networks keep their position in longer sequences, once they are trained from "
    "states that earlier sequences left?",
    scale_fields=("longer_lengths", "first_seed", "passing_settings", "passing_sequences"),
    networks=lambda scale: [base.main_run(scale, each) for each in _architectures(scale)],
    analyse=_passing_states,
    plot=_plot,
    captions=_captions,
    tables=_tables,
    on_request=True,
    seconds={"quick": 60, "full": 1800, "zoo": 1800},
)
