"""The sequences on which predictors lose most, against the best partition in hindsight."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from switchpoint.exact import bayes_optimal
from switchpoint.exact.kt import KT
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.figures.labels import display_name, names
from switchpoint.predictor import Predictor
from switchpoint.priors import PTW, Prior

SEGMENTS = (1, 2, 4, 8)
"""Numbers of segments of the partition in hindsight, at most."""

_ENUMERATED = 12  # symbols, of which all sequences are tried
_RESTARTS = 8
_MOST_STEPS = 200
_EXACT = ("ptw", "lin", "kt")

Codes = Callable[[Int[np.ndarray, "sequence time"]], Float[np.ndarray, " sequence"]]
"""The code lengths of sequences under a predictor, in bits."""


class _Worst(NamedTuple):
    """The sequence of largest regret."""

    regret: float
    symbols: Int[np.ndarray, " time"]


def _worst_cases(context: StudyContext) -> xr.Dataset:
    """Sequences that maximise the regret of each predictor against m segments in hindsight.

    The regret of a predictor Q on x_<n against m segments is

        R_m(x) = -log2 Q(x) - min over partitions of at most m segments of sum_i l_i H(k_i / l_i),

    where segment i has l_i symbols and k_i ones, and H is the binary entropy: the code length of
    the partition if the biases were known. Sequences of 12 symbols are enumerated; longer ones are
    found by steepest ascent over single flips from several starts, so they are a lower bound.
    """
    scale = context.scale
    length, short = scale.worst_length, min(_ENUMERATED, scale.worst_length)
    ptw, lin = scale.source("ptw"), scale.source("lin")
    predictors: dict[str, Predictor[Any]] = {
        "ptw": bayes_optimal(ptw),
        "lin": bayes_optimal(lin),
        "kt": KT(),
        **{name: context.best(name, "ptw") for name in scale.architectures},
    }
    every = np.array(list(itertools.product((0, 1), repeat=short)), np.int32)
    fields: dict[str, list[Any]] = {name: [] for name in _FIELDS}
    for number, (name, predictor) in enumerate(predictors.items()):
        context.progress.update(f"searching for the worst case of {name}", number / len(predictors))
        codes = _codes(predictor)
        worst = [_search(codes, length, m, scale.seed) for m in SEGMENTS]
        exact = codes(every)[:, None] - hindsight(every)
        fields["regret"].append([each.regret for each in worst])
        fields["symbols"].append([each.symbols for each in worst])
        fields["short_regret"].append(exact.max(0))
        fields["short_found"].append(
            [_search(codes, short, m, scale.seed).regret for m in SEGMENTS]
        )
        prior = {"ptw": ptw.prior, "lin": lin.prior}.get(name)
        for key, size in (("bound", length), ("short_bound", short)):
            fields[key].append(_bounds(name, prior, size))
    axes = ("predictor", "segments")
    shapes = {"symbols": (*axes, "time")}
    return xr.Dataset(
        {
            key: (shapes.get(key, axes), np.array(fields[key]), {"units": units})
            for key, units in _FIELDS.items()
        },
        {"predictor": list(predictors), "segments": list(SEGMENTS)},
        {"worst_length": length, "short_length": short},
    )


_FIELDS = {
    "regret": "bits",
    "symbols": "1",
    "bound": "bits",
    "short_regret": "bits",
    "short_found": "bits",
    "short_bound": "bits",
}


def _codes(predictor: Any) -> Codes:
    def code_lengths(symbols: np.ndarray) -> np.ndarray:
        logs = np.asarray(predictor.log_density(symbols), float)
        return np.asarray(-logs.sum(-1) / np.log(2))

    return code_lengths


def hindsight(
    symbols: Int[np.ndarray, "sequence time"],
) -> Float[np.ndarray, "sequence segments"]:
    """The least code length of a partition of at most m segments with known biases, in bits."""
    length = symbols.shape[1]
    ones = np.pad(symbols.cumsum(1), ((0, 0), (1, 0)))
    at = np.arange(length + 1)
    sizes = at - at[:, None]  # (start, end)
    counts = ones[:, None, :] - ones[:, :, None]
    shares = np.clip(counts / np.maximum(sizes, 1), 0.0, 1.0)
    terms = [
        np.where(p > 0, -p * np.log2(np.maximum(p, 1e-300)), 0.0) for p in (shares, 1 - shares)
    ]
    costs = np.where(sizes >= 0, sizes * (terms[0] + terms[1]), np.inf)
    best = costs[:, 0]
    least = []
    for m in range(1, max(SEGMENTS) + 1):
        if m > 1:
            best = (best[:, :, None] + costs).min(1)
        if m in SEGMENTS:
            least.append(best[:, -1])
    return np.stack(least, -1)


def _search(codes: Codes, length: int, segments: int, seed: int) -> _Worst:
    """The best of several ascents, each by the flip of one symbol that gains most."""
    column = SEGMENTS.index(segments)

    def regrets(symbols: np.ndarray) -> np.ndarray:
        return codes(symbols) - hindsight(symbols)[:, column]

    random = np.random.default_rng([seed, length, segments])
    biases = random.beta(0.5, 0.5, (_RESTARTS, length))
    block = random.integers(1, length + 1, _RESTARTS)
    held = [bias[np.arange(length) // size] for bias, size in zip(biases, block, strict=True)]
    now = (random.random((_RESTARTS, length)) < held).astype(np.int32)
    value = regrets(now)
    flips = np.eye(length, dtype=np.int32)
    for _ in range(_MOST_STEPS):
        near = now[:, None] ^ flips
        gains = regrets(near.reshape(-1, length)).reshape(_RESTARTS, length)
        best = gains.argmax(1)
        rows = np.arange(_RESTARTS)
        better = gains[rows, best] > value + 1e-6
        if not better.any():
            break
        now = np.where(better[:, None], near[rows, best], now)
        value = np.where(better, gains[rows, best], value)
    top = int(value.argmax())
    return _Worst(float(value[top]), now[top])


def _bounds(name: str, prior: Prior | None, length: int) -> list[float]:
    """Proved upper bounds of the regret against m segments, NaN without one.

    A Bayesian mixture has at least the weight of each partition, and KT loses at most
    log2(l) / 2 + 1 bits in a segment of l symbols (Willems, Shtarkov and Tjalkens, 1995). The
    bound is the largest over partitions of -log2(weight) + sum_i (log2(l_i) / 2 + 1).
    """
    if isinstance(prior, PTW):
        tree = [_tree_bound(prior.depth, length, m) for m in range(max(SEGMENTS))]
        return [max(tree[:m]) for m in SEGMENTS]
    if prior is None:
        return [_kt(length) if name == "kt" and m == 1 else np.nan for m in SEGMENTS]
    return _partition_bounds(prior, length)


def _kt(length: int) -> float:
    return 0.5 * np.log2(length) + 1


def _tree_bound(height: int, length: int, switches: int) -> float:
    """The bound of PTW in a node of this height whose first `length` symbols are there.

    A partition is refined to one of the tree, in which each node with a switch inside is split;
    a decision costs one bit.
    """
    size = 2**height
    length = min(length, size)
    if switches == 0:
        return float(height > 0) + _kt(length)
    half = size // 2
    if length <= half:
        return 1 + _tree_bound(height - 1, length, switches)
    options = [-np.inf]
    for between in (0, 1):
        for left in range(min(switches - between, half - 1) + 1):
            right = switches - between - left
            if right <= length - half - 1:
                options.append(
                    _tree_bound(height - 1, half, left)
                    + _tree_bound(height - 1, length - half, right)
                )
    return 1 + max(options)


def _partition_bounds(prior: Prior, length: int) -> list[float]:
    """The bound for a prior under which every partition is possible, by dynamic programming."""
    starts, runs = np.arange(length)[:, None], np.arange(1, length + 1)[None]
    hazard = np.asarray(prior.hazard_after(starts.astype(float), runs.astype(float)), float)
    hazard = np.broadcast_to(hazard, (length, length))
    survival = np.cumprod(np.pad(1 - hazard, ((0, 0), (1, 0)), constant_values=1.0), axis=1)
    with np.errstate(divide="ignore"):
        ended = -np.log2(hazard * survival[:, :-1])  # a segment of exactly this length
        cut = -np.log2(survival[:, :-1])  # of at least this length
    loss = np.array([_kt(run) for run in range(1, length + 1)])
    best = {0: np.where(np.arange(length) == 0, 0.0, -np.inf)}
    bounds = []
    for m in range(1, max(SEGMENTS) + 1):
        before = best[m - 1]
        bounds.append(
            max(before[s] + cut[s, length - s - 1] + loss[length - s - 1] for s in range(length))
        )
        after = np.full(length, -np.inf)
        for s, run in itertools.product(range(length), range(1, length)):
            if s + run < length:
                after[s + run] = max(after[s + run], before[s] + ended[s, run - 1] + loss[run - 1])
        best[m] = after
    return [max(bounds[:m]) for m in SEGMENTS]


def _plot(result: xr.Dataset, local: xr.Dataset | None = None) -> dict[str, Figure]:
    """The regret in the worst case with the bounds, and the sequences."""
    del local
    return {"worst-case": _regrets(result), "worst-case-sequences": _sequences(result)}


def _regrets(result: xr.Dataset) -> Figure:
    figure, panels = figures.panels(2, 2, 3.2, 0.5, sharey=False)
    sizes = result.attrs["short_length"], result.attrs["worst_length"]
    for axes, prefix, size in zip(panels, ("short_", ""), sizes, strict=True):
        for name in names(result["predictor"]):
            one = result.sel(predictor=name)
            style = figures.line_style(name)
            axes.plot(result["segments"], one[f"{prefix}regret"], label=display_name(name), **style)
            bound = one[f"{prefix}bound"]
            if bound.notnull().any():
                dashed = {**style, "linestyle": (0, (1, 1.5)), "linewidth": 1.6}
                axes.plot(result["segments"], bound, marker="_", **dashed)
        how = "all sequences" if prefix else "the worst that a search found"
        axes.set_title(f"{size} symbols: {how}")
        axes.set_xlabel("segments in hindsight, at most")
        figures.powers_axis(axes, result["segments"].values)
        axes.set_ylim(bottom=0)
    panels[0].set_ylabel("regret in the worst case (bits)")
    figures.legend_of(panels[0], ncols=4, columnspacing=1.2)
    return figure


def _sequences(result: xr.Dataset) -> Figure:
    """The worst sequences against 2 segments in hindsight, a row for each predictor."""
    rows = result["symbols"].sel(segments=2).values
    figure, (axes,) = figures.panels(1, 1, 0.32 * len(rows), 0.6)
    axes.imshow(rows, cmap="Blues", vmin=0, vmax=1.4, aspect="auto", interpolation="nearest")
    labels = [
        f"{display_name(name)}, {float(regret):.1f}"
        for name, regret in zip(
            names(result["predictor"]), result["regret"].sel(segments=2).values, strict=True
        )
    ]
    axes.set_yticks(range(len(rows)), labels)
    for edge in range(1, len(rows)):
        axes.axhline(edge - 0.5, color="white", linewidth=3)
    axes.grid(False)
    figures.position_axis(axes, rows.shape[1])
    return figure


def _captions(result: xr.Dataset) -> dict[str, base.Caption]:
    networks = [name for name in names(result["predictor"]) if name not in _EXACT]
    above = _above_bound(result)
    length = result.attrs["worst_length"]
    broken = ", ".join(
        f"{display_name(name)} by {excess:.1f}" for name, excess in above.items() if excess > 0
    )
    return {
        "worst-case": base.Caption(
            alt="Two panels: regret in the worst case against the number of segments in hindsight, "
            "for exact predictors with dotted bounds, and for networks.",
            observed=f"Networks trained on PTW that exceed the bound of PTW at {length} symbols, "
            f"in bits: {broken or 'none'}.",
            paper="Not in the paper, which remarks that a long misleading context may deceive.",
            size="all sequences of the first panel; a search in the second",
        ),
        "worst-case-sequences": base.Caption(
            alt=f"Sequences of {length} bits as dark and light cells, a row for each predictor.",
            observed="The worst sequences that were found against at most two segments in "
            f"hindsight, with their regret in bits, of {len(networks)} networks and three exact "
            "predictors.",
            paper="Not in the paper.",
            size="one sequence for each predictor",
        ),
    }


def _above_bound(result: xr.Dataset) -> dict[str, float]:
    """By how much the worst case of each network exceeds the bound of PTW, at most."""
    bound = result["bound"].sel(predictor="ptw")
    networks = [name for name in names(result["predictor"]) if name not in _EXACT]
    return {name: float((result["regret"].sel(predictor=name) - bound).max()) for name in networks}


def _tables(results: Mapping[str, xr.Dataset]) -> list[base.Table]:
    """The regret in the worst case of every predictor, with its bound."""
    result = results["worst-case"]
    tables = []
    for prefix, size in (("short_", "short_length"), ("", "worst_length")):
        rows = []
        for name in names(result["predictor"]):
            one = result.sel(predictor=name)
            pairs = zip(one[f"{prefix}regret"].values, one[f"{prefix}bound"].values, strict=True)
            cells = [
                f"{regret:.2f}" if np.isnan(bound) else f"{regret:.2f} (at most {bound:.2f})"
                for regret, bound in pairs
            ]
            rows.append([display_name(name), *cells])
        how = "all sequences" if prefix else "found by search"
        head = ["", *(f"{m} segment{'s' * (m > 1)}" for m in SEGMENTS)]
        title = f"Regret in the worst case of {result.attrs[size]} symbols, {how}, bits"
        tables.append(base.Table(title, head, rows))
    return tables


def _inherited(result: xr.Dataset) -> base.Verdict:
    above = _above_bound(result)
    texts = [f"{display_name(name)} {excess:+.1f}" for name, excess in above.items()]
    return max(above.values()) <= 0, f"bits above the bound of PTW: {', '.join(texts)}"


STUDY = base.Study(
    name="worst-case",
    title="The worst case",
    paper="nothing of the paper",
    question="Do networks inherit the guarantees of the predictor that they imitate?",
    scale_fields=("worst_length",),
    networks=lambda scale: [base.main_run(scale, each) for each in scale.architectures],
    analyse=_worst_cases,
    plot=_plot,
    captions=_captions,
    tables=_tables,
    claims={"Networks trained on PTW obey its bound in the worst case.": _inherited},
    on_request=True,
    seconds={"quick": 20, "full": 600, "zoo": 600},
)
