"""A network that emits the posterior over switching points at once, beside the exact one."""

import functools
import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from matplotlib.figure import Figure
from scipy.special import expit, logit

from switchpoint._numbers import join_and, percent, plus_minus
from switchpoint._random import key_for
from switchpoint.evaluation.metrics import BITS_PER_NAT
from switchpoint.exact import bayes_optimal
from switchpoint.figures import style
from switchpoint.neural.dense import Dense, Perceptron
from switchpoint.neural.networks.gru import GRUCell
from switchpoint.neural.networks.recurrent import recurrence
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.labels import names
from switchpoint.priors import Geometric
from switchpoint.segments import NormalGamma
from switchpoint.sources import Source
from switchpoint.training import TrainConfig
from switchpoint.training.optimizer import lr_schedule, make_optimizer

CONTROLS: Mapping[str, str] = {
    "filter": "exact, from the values up to t",
    "hazard": "the hazard alone",
}
"""Exact probabilities of a switch at t from less than all values."""

BAR = 0.02
"""The share of the exact log loss that a network should come within."""

_SEEDS = 3  # at most
_SEGMENTS = 4  # expected in a sequence of the training length
_LONGER = 8  # times the training length
_LAYERS = 2
_RECORDS = 20  # of the excess during training
_VALIDATION = 250
_LEAST = 1e-7  # of an exact probability in single precision


class _Direction(eqx.Module):
    """A layer of gated recurrent units that reads a sequence from its beginning."""

    input: Dense
    cell: GRUCell

    def __init__(self, inputs: int, hidden: int, key: PRNGKeyArray) -> None:
        key_input, key_cell = jax.random.split(key)
        self.cell = GRUCell(hidden, key_cell)
        self.input = Dense(inputs, self.cell.input_width, key_input)

    def __call__(self, x: Float[Array, "time batch inputs"]) -> Float[Array, "time batch hidden"]:
        return recurrence(self.cell, self.cell.start(x.shape[1]), self.input(x))[1]


class Detector(eqx.Module):
    """The logit of P(a segment begins at t | x_0..x_(n-1)) for every t.

    Two layers of gated recurrent units, each with one that reads forward and one that reads
    backward, and a readout with one dense layer. It costs O(n hidden^2), and the exact recursion
    O(n^2).
    """

    layers: tuple[tuple[_Direction, _Direction], ...]
    output: Perceptron

    def __init__(self, hidden: int, key: PRNGKeyArray) -> None:
        *keys, key_output = jax.random.split(key, 2 * _LAYERS + 1)
        widths = [2] + [2 * hidden] * (_LAYERS - 1)
        self.layers = tuple(
            (_Direction(width, hidden, one), _Direction(width, hidden, two))
            for width, one, two in zip(widths, keys[::2], keys[1::2], strict=True)
        )
        self.output = Perceptron(2 * hidden, 1, 1, key_output)

    @jax.jit
    def logits(self, values: Float[Array, "batch time"]) -> Float[Array, "batch time"]:
        """The logits for all t; those for t = 0, where a segment always begins, mean nothing."""
        rows = values.T
        x = jnp.stack([jnp.arcsinh(rows), rows / jnp.sqrt(1 + rows**2)], axis=-1)
        for forward, backward in self.layers:
            before, after = forward(x), backward(x[::-1])[::-1]
            x = jnp.concatenate([before, after], axis=-1)
        # What begins at t lies between x_<t, which `before` ends with, and x_>=t in `after`.
        before = jnp.pad(before[:-1], ((1, 0), (0, 0), (0, 0)))
        return self.output(jnp.concatenate([before, after], axis=-1))[..., 0].T


class _Test(NamedTuple):
    """Sequences, and the logits of a switch at each position from all values, and from x_<=t."""

    values: Float[np.ndarray, "sequence time"]
    switches: Bool[np.ndarray, "sequence time"]
    exact: Float[np.ndarray, "sequence time"]
    filtered: Float[np.ndarray, "sequence time"]


def source(length: int) -> Source:
    """Segments of unknown level and unknown noise, four in a sequence that is long enough."""
    return Source(Geometric(min(0.5, _SEGMENTS / length)), NormalGamma())


def _amortised(context: StudyContext) -> xr.Dataset:
    """Networks trained on sequences and their switches alone, against the exact posterior.

    With p_t = P(a segment begins at t | x_0..x_(n-1)), the log loss of probabilities q_t, expected
    given the sequence, exceeds that of p_t by sum_t KL(p_t || q_t) over t >= 1: the excess.
    Networks are trained at one length, and tested there and at eight times that length.
    """
    scale = context.scale
    config = TrainConfig(**scale.detector_settings, length=scale.length // 2)
    trained_on, length = source(config.length), config.length
    validation = _draw(trained_on, _VALIDATION, length, scale.seed, "validation")
    least = _loss(validation.exact, validation)
    records = np.unique(np.linspace(0, config.steps, _RECORDS + 1).astype(int))
    seeds = min(_SEEDS, scale.seeds)
    networks, curves = [], np.zeros((seeds, len(records) - 1))
    for seed in range(seeds):
        key = key_for(scale.first_seed + seed, "training")
        network = Detector(config.options()["hidden"], key_for(scale.first_seed + seed, "weights"))
        state = make_optimizer(config).init(network)
        for record, (begin, end) in enumerate(itertools.pairwise(records)):
            network, state = _steps(config, trained_on, key, begin, end, (network, state))
            loss = _loss(network.logits(validation.values), validation)
            curves[seed, record] = (loss - least).mean()
            context.progress.update("training", (seed + end / config.steps) / seeds)
        networks.append(network)
    count = scale.detector_sequences
    own = _draw(trained_on, count, length, scale.seed, "test")
    longer = _draw(trained_on, max(2, count // _LONGER), _LONGER * length, scale.seed, "test")
    result = xr.concat([_tested(networks, each, trained_on) for each in (own, longer)], "n")
    counts = own.switches.sum(1)  # of those with some, the sequence that is most uncertain
    shown = int(np.where((counts >= 3) & (counts <= 5), _loss(own.exact, own), -1.0).argmax())
    emitted = [np.asarray(each.logits(own.values))[shown] for each in networks]
    return result.assign_coords(n=[length, _LONGER * length], step=records[1:]).assign(
        curve=(("seed", "step"), curves, {"units": "bits"}),
        validation_loss=least.mean(),
        values=("time", own.values[shown].astype(np.float32), {"units": "1"}),
        switches=("time", own.switches[shown].astype(np.int32)),
        exact=("time", expit(own.exact[shown]), {"units": "1"}),
        emitted=(("seed", "time"), expit(emitted), {"units": "1"}),
    )


def _draw(drawn_from: Source, sequences: int, length: int, seed: int, purpose: str) -> _Test:
    draw = drawn_from.sample(key_for(seed, f"switches {purpose} {length}"), sequences, length)
    posterior = bayes_optimal(drawn_from).posterior(draw.values)
    exact, filtered = (
        logit(np.clip(np.asarray(each, float), _LEAST, 1 - _LEAST))
        for each in (posterior.switch_smoothed, posterior.switch_filtered)
    )
    return _Test(np.asarray(draw.values), np.asarray(draw.switches), exact, filtered)


@functools.partial(jax.jit, static_argnums=0)
def _steps(
    config: TrainConfig,
    drawn_from: Source,
    key: PRNGKeyArray,
    begin: Int[Array, ""],
    end: Int[Array, ""],
    carry: tuple[Detector, Any],
) -> tuple[Detector, Any]:
    """The network and its optimizer after steps `begin` to `end`, each on newly drawn sequences."""
    (rate,) = config.learning_rate
    optimizer = make_optimizer(config)

    def log_loss(network: Detector, values: Array, switches: Array) -> Float[Array, ""]:
        logits = network.logits(values)[:, 1:]
        return (jax.nn.softplus(logits) - switches[:, 1:] * logits).sum(1).mean()

    def step(number: Any, carry: tuple[Detector, Any]) -> tuple[Detector, Any]:
        network, state = carry
        draw = drawn_from.sample(jax.random.fold_in(key, number), config.batch, config.length)
        gradient = jax.grad(log_loss)(network, draw.values, draw.switches)
        direction, state = optimizer.update(gradient, state, network)
        size = rate * lr_schedule(config, number)
        return jax.tree.map(lambda leaf, each: leaf - size * each, network, direction), state

    return lax.fori_loop(begin, end, step, carry)


def _tested(networks: list[Detector], test: _Test, drawn_from: Source) -> xr.Dataset:
    """The excess of every network and control, and the exact log loss."""
    logits = {f"network {seed}": each.logits(test.values) for seed, each in enumerate(networks)}
    hazard = logit(float(drawn_from.prior.hazard_after(0, 1)))
    logits |= {"filter": test.filtered, "hazard": np.full_like(test.exact, hazard)}
    loss = xr.DataArray(_loss(test.exact, test), dims="sequence")
    losses = np.stack([_loss(each, test) for each in logits.values()])
    excess = xr.DataArray(losses, {"detector": list(logits)}, ("detector", "sequence")) - loss
    return xr.Dataset({**base.with_error(excess, "excess"), **base.with_error(loss, "loss")})


def _loss(logits: Any, test: _Test) -> Float[np.ndarray, " sequence"]:
    """The log loss in bits that is expected of these logits given the sequence."""
    likely, exact = np.asarray(logits, float)[:, 1:], test.exact[:, 1:]
    return (np.logaddexp(0.0, likely) - expit(exact) * likely).sum(1) * BITS_PER_NAT


def _plot(result: xr.Dataset) -> dict[str, Figure]:
    """One sequence, its posterior, exact and of the networks, and the excess during training."""
    figure, (values, chances, curves) = figures.panels(3, 1, 2.2, 0.4)
    times = np.arange(result.sizes["time"])
    values.plot(times, np.arcsinh(result["values"]), ".", color=style.INK, markersize=4)
    values.set_ylabel("arsinh(x_t)")
    exact = {"color": style.SKY, "linewidth": 4.0, "label": "exact posterior"}
    chances.step(times, result["exact"], where="mid", **exact)
    for seed, emitted in enumerate(result["emitted"].values):
        own = {"color": style.INK, "linewidth": 0.8, "label": "_" * seed + "networks"}
        chances.step(times[1:], emitted[1:], where="mid", **own)
    chances.set_ylabel("P(switch at t | x)")
    chances.set_ylim(0, 1)
    for axes in (values, chances):
        for at in np.flatnonzero(result["switches"].values):
            axes.axvline(at - 0.5, color=style.ORANGE, linewidth=1.0, linestyle=(0, (2, 2)))
        figures.position_axis(axes, len(times))
    for curve in result["curve"].values / float(result["validation_loss"]):
        curves.plot(result["step"], 100 * curve, "o-", color=style.INK, markersize=3)
    curves.axhline(100 * BAR, color=style.GREY, linestyle=(0, (1, 1.5)))
    curves.set_ylim(bottom=0)
    curves.set_xlabel("training step")
    curves.set_ylabel("excess (% of log loss)")
    figures.legend_of(chances, ncols=2)
    return {"amortised": figure}


def _captions(result: xr.Dataset) -> dict[str, base.Caption]:
    own = result.isel(n=0)
    shares = [percent(e / float(own["loss"])) for e in own["excess"].values[: result.sizes["seed"]]]
    return {
        "amortised": base.Caption(
            alt="Three panels: the values of one sequence; the probability of a switch at each "
            "position, exact and of the networks; and the excess log loss against the training "
            "step. Dashed lines are switches.",
            observed="The networks see all values at once, and emit a probability for each "
            f"position. On the test sequences their excess is {join_and(shares)} of "
            f"the exact log loss of {float(own['loss']):.2f} bits; the dotted line is "
            f"{percent(BAR)}. The last panel is of validation sequences.",
            paper="Not in the paper.",
        )
    }


def _tables(results: Mapping[str, xr.Dataset]) -> list[base.Table]:
    """The excess of every network and control at both lengths."""
    result = results["amortised"]
    rows = []
    for name in names(result["detector"]):
        one = result.sel(detector=name)
        cells = [
            f"{plus_minus(excess, error)} ({100 * excess / loss:.2g}%)"
            for excess, error, loss in zip(
                *(one[each].values for each in ("excess", "excess_error", "loss")), strict=True
            )
        ]
        rows.append([CONTROLS.get(name, name), *cells])
    exact = map(plus_minus, result["loss"].values, result["loss_error"].values)
    head = ["", *(f"{n} values" for n in names(result["n"]))]
    title = "Excess log loss over the exact posterior, bits"
    return [base.Table(title, head, [["log loss of the exact posterior", *exact], *rows])]


STUDY = base.Study(
    name="amortised",
    title="Amortised detection",
    paper="nothing of the paper",
    question="Can a network emit the exact posterior over switching points in one pass?",
    scale_fields=("seeds", "first_seed", "detector_settings", "detector_sequences"),
    analyse=_amortised,
    plot=_plot,
    captions=_captions,
    tables=_tables,
    on_request=True,
    seconds={"quick": 20, "full": 900, "zoo": 900},
)
