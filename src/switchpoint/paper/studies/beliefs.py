"""What the memory of a network says of the exact posterior: linear probes, with controls."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np
import scipy.optimize
import scipy.special
import xarray as xr
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from switchpoint._random import key_for
from switchpoint.evaluation.metrics import standard_error
from switchpoint.exact import ExactPredictor, bayes_optimal
from switchpoint.figures import style
from switchpoint.neural import Network
from switchpoint.neural.registry import describe_network, network_from_name
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.labels import display_name, listed, names, slices

TARGETS: Mapping[str, str] = {
    "prediction": "logit of the optimal prediction",
    "run length": "expected log2 of the run length",
    "recent switch": "P(a switch in the last 8)",
    "tree position": "levels of the tree that end here",
}
"""Exact quantities, each a number after every symbol."""

CONTROLS: Mapping[str, str] = {
    "random": "random weights",
    "context": "position and last 8 symbols",
    "shuffled": "targets of another sequence",
}
"""Probes that show how much is explained without what the network has learned."""

_RECENT = 8
_CHUNK = 50  # sequences whose posteriors are in memory at once
_VALIDATION = 0.25  # of the fitted sequences, to choose the penalty
_PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # of standardised features
_SOFTMAX_PENALTIES = (1e-2, 3e-3, 1e-3, 3e-4)  # of whitened features
_LEAST_VARIANCE = 1e-3  # of a feature that is whitened
_STEPS = 60  # of a fit
_BINS = 16  # of positions
_FEW = 6  # switches in the sequence that is shown

Array = Float[np.ndarray, "..."]
"""Of (sequence, time, values)."""


def _beliefs(context: StudyContext) -> xr.Dataset:
    """Probes of the best network of each architecture on PTW, and of the controls.

    A probe is linear least squares from the state after x_t to exact quantities given x_<=t, with
    a ridge penalty that is chosen on validation sequences, and tested on others.
    """
    count, length = context.scale.probe_sequences, context.scale.length
    source = context.scale.source("ptw")
    draw = source.sample(key_for(context.scale.seed, "probes"), 2 * count, length)
    symbols = np.asarray(draw.symbols, np.int32)
    chunks = range(0, 2 * count, _CHUNK)
    exact = [_exact(bayes_optimal(source), symbols[first : first + _CHUNK]) for first in chunks]
    targets, ages = (np.concatenate(parts) for parts in zip(*exact, strict=True))
    switches = np.asarray(draw.switches)[count:]
    example = _example(ages[count:], switches)
    control = _tested(_position_and_context(symbols), targets, ages)
    results = []
    for number, name in enumerate(context.scale.architectures):
        context.progress.update(f"probing {name}", number / len(context.scale.architectures))
        network = context.best(name, "ptw")
        parts = _states(network, symbols)
        states = _joined(parts)
        trained = _tested(states, targets, ages)
        probes = {
            "trained": trained,
            "random": _tested(_joined(_states(_untrained(network), symbols)), targets, ages),
            "context": control,
            "shuffled": _tested(states, _shuffled(targets), _shuffled(ages)),
        }
        by_part = [
            _explained(_Probes(each).numbers(targets), targets)[0] for each in parts.values()
        ]
        results.append(
            xr.concat(
                [each.drop_vars("decoded") for each in probes.values()], _index("probe", probes)
            )
            .assign(
                r2_by_part=(("part", "target"), np.stack(by_part), {"units": "1"}),
                decoded_ages=trained["decoded"][example],
            )
            .assign_coords(part=list(parts))
        )
    labels = dict.fromkeys(part for each in results for part in names(each["part"]))
    result = xr.concat(
        [each.reindex(part=list(labels)) for each in results],
        _index("architecture", context.scale.architectures),
    )
    return result.assign(
        exact_ages=(("time", "octave"), ages[count:][example], {"units": "1"}),
        switches=("time", switches[example, :-1].astype(np.int32)),
    )


def _index(name: str, labels: Iterable[str]) -> xr.Variable:
    return xr.Variable(name, list(labels))


def _exact(
    bayes: ExactPredictor[Any], symbols: Int[np.ndarray, "sequence symbols"]
) -> tuple[Array, Array]:
    """The targets after x_0..x_(n-2), and P(the run length is 2^k..2^(k+1) - 1 | x_<=t).

    The last state predicts nothing that is there.
    """
    logs = np.asarray(bayes.log_probs(symbols), float)[:, 1:]
    runs = np.asarray(bayes.posterior(symbols).run_length_pmf(), float)[:, :-1]
    time = np.arange(runs.shape[1])
    octaves = np.log2(np.arange(1, runs.shape[2] + 1))
    whole = np.eye(int(octaves[-1]) + 1)[octaves.astype(int)]
    switched = np.where(np.arange(runs.shape[2]) < time[:, None], runs, 0.0)  # not from 0 on
    level = np.log2((time + 1) & -(time + 1))
    targets = [
        logs[..., 1] - logs[..., 0],
        runs @ octaves,
        switched[..., :_RECENT].sum(-1),
        np.broadcast_to(level, logs.shape[:2]),
    ]
    return np.stack(targets, -1), runs @ whole


def _states(network: Network, symbols: Int[np.ndarray, "sequence symbols"]) -> dict[str, Array]:
    """The state after each symbol but the last, by its parts: gates, stack or layers."""
    parts: dict[str, np.ndarray] = {}
    leaves = jax.tree_util.tree_leaves_with_path(network.states(symbols[:, :-1]))
    for path, leaf in leaves:
        array = np.asarray(leaf, np.float32)
        if network.models.keys() & {"transformer"}:
            parts |= {f"layer {i}": array[:, :, i] for i in range(array.shape[2])}
        else:
            name = jax.tree_util.keystr(path[-1:], simple=True) or "output"
            parts[name] = array.reshape(*array.shape[:2], -1)
    return parts


def _untrained(network: Network) -> Network:
    """A network of the same shape with the weights that training begins with."""
    card = describe_network(network)
    assert card is not None
    key = key_for(0, "untrained")
    return network_from_name(
        card["model"], card["alphabet"], card["length"], key, **card["options"]
    )


def _joined(states: Mapping[str, np.ndarray]) -> Array:
    return np.concatenate(list(states.values()), axis=-1)


def _position_and_context(symbols: Int[np.ndarray, "sequence symbols"]) -> Array:
    """Indicators of the position, and of the last 8 symbols."""
    count, time = symbols.shape[0], symbols.shape[1] - 1
    padded = np.pad(symbols, ((0, 0), (_RECENT - 1, 0)))
    codes = sum(padded[:, back : back + time] << back for back in range(_RECENT))
    positions = np.broadcast_to(np.eye(time, dtype=np.float32), (count, time, time))
    return np.concatenate([positions, np.eye(2**_RECENT, dtype=np.float32)[codes]], -1)


def _parts(values: Array) -> list[np.ndarray]:
    """The sequences to fit, to validate and to test on."""
    half = len(values) // 2
    return np.split(values, [half - max(1, int(_VALIDATION * half)), half])


def _rows(values: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same as a row for each symbol."""
    fit, validation, test = (each.reshape(-1, values.shape[-1]) for each in _parts(values))
    return fit, validation, test


def _shuffled(values: Array) -> Array:
    """Those of another sequence of the same part."""
    return np.concatenate([np.roll(part, 1, 0) for part in _parts(values)])


class _Probes:
    """Linear probes of features, which are centred and rotated so that fitting them is easy."""

    def __init__(self, features: Array) -> None:
        fit, *_ = split = _rows(features)
        mean, scale = fit.mean(0), fit.std(0) + 1e-6
        near = (fit - mean) / scale
        gram = np.asarray(near.T @ near, float) / len(near)
        variances, axes = np.linalg.eigh(gram)
        self._variances = np.maximum(variances, 0.0)
        self._split = [(each - mean) / scale @ axes.astype(np.float32) for each in split]

    def numbers(self, targets: Array) -> Array:
        """The targets of the test sequences by least squares with a ridge penalty."""
        (fit, validation, _), (inputs, checked, tested) = _rows(targets), self._split
        centre = fit.mean(0)
        moments = inputs.T @ (fit - centre).astype(np.float32) / len(inputs)
        shrunk = [(self._variances + penalty)[:, None].astype(np.float32) for penalty in _PENALTIES]
        candidates = np.stack([moments / each for each in shrunk])
        losses = [((checked @ each + centre - validation) ** 2).mean(0) for each in candidates]
        weights = np.take_along_axis(candidates, np.argmin(losses, 0)[None, None], 0)[0]
        return (tested @ weights + centre).reshape(-1, *targets.shape[1:])

    def distributions(self, targets: Array) -> Array:
        """The distributions of the test sequences by the softmax of a linear function.

        It has the least cross-entropy from the exact distributions, plus a ridge penalty.
        """
        scales = (1 / np.sqrt(self._variances + _LEAST_VARIANCE)).astype(np.float32)
        inputs, checked, tested = (
            np.pad(each * scales, ((0, 0), (0, 1)), constant_values=1.0) for each in self._split
        )
        fit, validation, _ = _rows(targets.astype(np.float32))
        weights = np.zeros((inputs.shape[1], fit.shape[1]))
        losses = {}
        for penalty in _SOFTMAX_PENALTIES:
            weights = scipy.optimize.minimize(
                _cross_entropy,
                weights.ravel(),
                (inputs, fit, penalty),
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": _STEPS},
            ).x.reshape(weights.shape)
            losses[_cross_entropy(weights, checked, validation, 0.0)[0]] = weights
        probs = scipy.special.softmax(tested @ losses[min(losses)], axis=1)
        return probs.reshape(-1, *targets.shape[1:])


def _cross_entropy(
    weights: np.ndarray, inputs: np.ndarray, wanted: np.ndarray, penalty: float
) -> tuple[float, np.ndarray]:
    """The mean cross-entropy in nats of softmax(inputs @ weights), with its gradient."""
    free = weights.reshape(inputs.shape[1], wanted.shape[1])
    logs = scipy.special.log_softmax(inputs @ free.astype(np.float32), axis=1)
    slope = inputs.T @ (np.exp(logs) - wanted) / len(inputs) + penalty * free
    loss = -(wanted * logs).sum() / len(inputs) + 0.5 * penalty * (free**2).sum()
    return float(loss), slope.ravel().astype(float)


def _explained(decoded: Array, targets: Array) -> tuple[np.ndarray, np.ndarray]:
    """R^2 of each target on the test sequences, and its standard error."""
    truth = targets[-len(decoded) :]
    squares = (truth - decoded) ** 2
    spread = (truth - _rows(targets)[0].mean(0)) ** 2
    whole = spread.mean((0, 1))
    share = squares.mean((0, 1)) / whole
    error = standard_error(squares.mean(1) - share * spread.mean(1), 0)
    return 1 - share, error / whole


def _explained_by_position(decoded: Array, truth: Array) -> Float[np.ndarray, " bin"]:
    """R^2 in bins of positions, beside the mean at each position: knowing it explains nothing."""
    count = min(_BINS, truth.shape[1] // 2)
    lost, spread = (decoded - truth) ** 2, (truth - truth.mean(0)) ** 2
    pairs = (np.array_split(each, count, axis=1) for each in (lost, spread))
    return np.array([1 - one.mean() / other.mean() for one, other in zip(*pairs, strict=True)])


def _tested(features: Array, targets: Array, ages: Array) -> xr.Dataset:
    """The accuracy of all probes of one set of features."""
    probes = _Probes(features)
    numbers, decoded = probes.numbers(targets), probes.distributions(ages)
    r2, error = _explained(numbers, targets)
    at = list(TARGETS).index("run length")
    truth = ages[-len(decoded) :]
    bits = (scipy.special.rel_entr(truth, decoded) / np.log(2)).sum(-1).mean(1)
    by_position = _explained_by_position(numbers[..., at], targets[-len(numbers) :, :, at])
    fields: dict[str, Any] = {
        "r2": ("target", r2, {"units": "1"}),
        "r2_error": ("target", error, {"units": "1"}),
        "r2_by_position": ("bin", by_position, {"units": "1"}),
        "age_bits": ((), bits.mean(), {"units": "bits"}),
        "age_bits_error": ((), standard_error(bits), {"units": "bits"}),
        "decoded": (("sequence", "time", "octave"), decoded, {"units": "1"}),
    }
    return xr.Dataset(fields, {"target": list(TARGETS)})


def _example(ages: Array, switches: np.ndarray) -> int:
    """Of sequences with few switches, the one with the most uncertain posterior."""
    uncertainty = scipy.special.entr(ages).sum(-1).mean(-1)
    counts = switches.sum(-1)
    return int(np.where((counts >= 2) & (counts <= _FEW), uncertainty, -1 / (1 + counts)).argmax())


def _plot(result: xr.Dataset) -> dict[str, Figure]:
    """The posterior decoded from each network, the accuracy of all probes, and where it arises."""
    return {
        "beliefs-posterior": _posterior(result),
        "beliefs": _accuracy(result),
        "beliefs-places": _places(result),
    }


def _posterior(result: xr.Dataset) -> Figure:
    """Heat maps of the run length against time: the exact posterior, and that of each network."""
    maps = {"exact posterior": result["exact_ages"]}
    decoded = slices(result["decoded_ages"], "architecture")
    maps |= {display_name(name): each for name, each in decoded}
    figure, column = figures.panels(len(maps), 1, 1.15, 0.9, sharex=True, sharey=True)
    times, octaves = result["exact_ages"].shape
    for axes, (title, probability) in zip(column, maps.items(), strict=True):
        image = axes.imshow(
            probability.values.T,
            cmap="Blues",
            vmin=0.0,
            vmax=1.0,
            aspect="auto",
            origin="lower",
            extent=(-0.5, times - 0.5, -0.5, octaves - 0.5),
            interpolation="nearest",
        )
        for at in np.flatnonzero(result["switches"].values):
            axes.axvline(at - 0.5, color=style.ORANGE, linewidth=1.0, linestyle=(0, (2, 2)))
        axes.set_yticks(range(0, octaves, 2), [str(2**k) for k in range(0, octaves, 2)])
        axes.grid(False)
        axes.set_title(title, fontsize=10, pad=2)
    figure.supylabel("run length up to x_t", fontsize=10)
    figures.position_axis(column[-1], times + 1)
    figure.colorbar(image, ax=column, label="probability", shrink=0.5, aspect=30, pad=0.02)
    return figure


def _accuracy(result: xr.Dataset) -> Figure:
    """A panel for each target: R^2 of every network, with those of the controls."""
    architectures = names(result["architecture"])
    rows = np.arange(len(architectures))[::-1]
    figure, panels = figures.panels(len(TARGETS), 2, 2.3, 0.5, sharex=True, sharey=True)
    looks = {"trained": ("o", style.BLUE, 7, "the network")}
    for (control, title), marker in zip(CONTROLS.items(), ("s", "d", "x"), strict=True):
        looks[control] = (marker, style.GREY, 5, title)
    for axes, (target, title) in zip(panels, TARGETS.items(), strict=True):
        for probe, (marker, colour, size, label) in looks.items():
            shown = np.maximum(result["r2"].sel(target=target, probe=probe), 0.0)
            look: dict[str, Any] = {"color": colour, "markersize": size, "clip_on": False}
            axes.plot(shown, rows, marker, label=label, **look)
        axes.set_title(title)
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.5, len(rows) - 0.5)
        axes.set_yticks(rows, [display_name(each) for each in architectures])
    for axes in panels[-2:]:
        axes.set_xlabel("R² on test sequences")
    figures.legend_of(panels[0], ncols=4, columnspacing=1.2, handletextpad=0.4)
    return figure


def _places(result: xr.Dataset) -> Figure:
    """R^2 by position for all networks, and by layer for one that has many."""
    layers = [part for part in names(result["part"]) if part.startswith("layer ")]
    deep = result["r2_by_part"].sel(part=layers)
    deep = deep.dropna("architecture", how="all")
    figure, (positions, *others) = figures.panels(1 + (deep.size > 0), 2, 2.9, 0.4, sharey=True)
    length = result.sizes["time"] + 1
    bins = (np.arange(result.sizes["bin"]) + 0.5) * length / result.sizes["bin"]
    for name, one in slices(result["r2_by_position"].sel(probe="trained"), "architecture"):
        heights = np.maximum(one, 0.0)
        positions.plot(bins, heights, label=display_name(name), **style.line_style(name))
    positions.set_title("expected log2 of the run length, by position")
    positions.set_ylabel("R² on test sequences")
    positions.set_ylim(0, 1.02)
    figures.position_axis(positions, length)
    colours = (style.BLUE, style.ORANGE, style.GREEN, style.SKY)
    for axes in others:
        for (target, title), colour in zip(TARGETS.items(), colours, strict=True):
            one = deep.sel(target=target)[0].dropna("part")
            axes.plot(range(one.size), np.maximum(one, 0.0), "o-", color=colour, label=title)
        axes.set_title(f"by layer of the {display_name(names(deep['architecture'])[0])}")
        axes.set_xlabel("layer; 0 is the embedding")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (positions, *others):
        axes.legend(fontsize=8)
    return figure


def _captions(result: xr.Dataset) -> dict[str, base.Caption]:
    trained = result["age_bits"].sel(probe="trained")
    order = [display_name(str(each)) for each in trained.sortby(trained)["architecture"].values]
    run_length = result["r2"].sel(target="run length")
    shares = ", ".join(listed(run_length.sel(probe="trained"), lambda value: f"{value:.2f}"))
    context = float(run_length.sel(probe="context")[0])
    return {
        "beliefs-posterior": base.Caption(
            alt="Heat maps, one below the other: the posterior over the run length against the "
            "position in one sequence, exact and as decoded from the state of each network. "
            "Dashed lines are switches.",
            observed="A linear function of the state, then a softmax, gives the run length in "
            "octaves. In the mean over test sequences the decoded posterior is nearest to the "
            f"exact one for the {order[0]} ({float(trained.min()):.2f} bits), and farthest for "
            f"the {order[-1]} ({float(trained.max()):.2f} bits).",
            size="one test sequence",
        ),
        "beliefs": base.Caption(
            alt="Four panels, one for each exact quantity: R² of linear probes of each network, "
            "with three controls.",
            observed="Expected log2 of the run length is read from the states with an R² of "
            f"{shares}; position and the last 8 symbols alone reach {context:.2f}. The control "
            "of shuffled targets shows how much is knowledge of the position alone.",
        ),
        "beliefs-places": base.Caption(
            alt="R² of the probes by the layer of the Transformer, and by position.",
            observed="By position, R² is beside the mean at the position, which explains nothing.",
        ),
    }


def _tables(results: Mapping[str, xr.Dataset]) -> list[base.Table]:
    """R^2 of every probe, and the bits that the decoded posterior loses."""
    result = results["beliefs"]
    rows = []
    for name, probes in slices(result, "architecture"):
        for probe, one in slices(probes, "probe"):
            label = display_name(name) if probe == "trained" else f"- {CONTROLS[probe]}"
            bits, error = float(one["age_bits"]), float(one["age_bits_error"])
            cells = base.means_with_errors(one, "r2", 3)
            rows.append([label, *cells, f"{bits:.2f} ± {error:.2f}"])
    head = ["", *TARGETS.values(), "posterior over run lengths, bits from exact"]
    return [base.Table("Linear probes of the states, R² on test sequences", head, rows)]


STUDY = base.Study(
    name="beliefs",
    title="Beliefs in the memory",
    paper="nothing of the paper",
    question="Does the memory of a network hold the exact posterior, in a form that is linear?",
    scale_fields=("probe_sequences",),
    networks=lambda scale: [base.main_run(scale, each) for each in scale.architectures],
    analyse=_beliefs,
    plot=_plot,
    captions=_captions,
    tables=_tables,
    on_request=True,
    seconds={"quick": 10, "full": 600, "zoo": 600},
)
