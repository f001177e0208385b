"""The sequences on which predictors lose most, against the best partition in hindsight."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from scipy.special import entr

from switchpoint.exact import bayes_optimal
from switchpoint.exact.kt import KT
from switchpoint.figures import style
from switchpoint.paper import base, figures
from switchpoint.paper.context import StudyContext
from switchpoint.paper.labels import display_name, listed, slices
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
    results = []
    for number, (name, predictor) in enumerate(predictors.items()):
        context.progress.update(f"searching for the worst case of {name}", number / len(predictors))
        codes = _codes(predictor)
        regrets, symbols = zip(
            *(_search(codes, length, m, scale.seed) for m in SEGMENTS), strict=True
        )
        prior = {"ptw": ptw.prior, "lin": lin.prior}.get(name)
        values = {
            "regret": regrets,
            "bound": _bounds(name, prior, length),
            "short_regret": (codes(every)[:, None] - hindsight(every)).max(0),
            "short_found": [_search(codes, short, m, scale.seed)[0] for m in SEGMENTS],
            "short_bound": _bounds(name, prior, short),
        }
        fields: dict[str, Any] = {
            key: ("segments", np.array(value), {"units": "bits"}) for key, value in values.items()
        }
        fields["symbols"] = (("segments", "time"), np.array(symbols), {"units": "1"})
        results.append(xr.Dataset(fields, {"segments": list(SEGMENTS)}))
    result = xr.concat(results, xr.Variable("predictor", list(predictors)))
    return result.assign_attrs(worst_length=length, short_length=short)


def _codes(predictor: Any) -> Codes:
    def code_lengths(symbols: np.ndarray) -> np.ndarray:
        logs = np.asarray(predictor.log_density(symbols), float)
        return np.asarray(-logs.sum(-1) / np.log(2))

    return code_lengths


def hindsight(
    symbols: Int[np.ndarray, "sequence time"],
) -> Float[np.ndarray, "sequence segments"]:
    """The least code length of a partition of at most m segments with known biases, in bits."""
    ones = np.pad(symbols.cumsum(1), ((0, 0), (1, 0)))
    at = np.arange(symbols.shape[1] + 1)
    sizes = at - at[:, None]  # (start, end)
    counts = ones[:, None, :] - ones[:, :, None]
    one, zero, both = (entr(np.maximum(each, 0)) for each in (counts, sizes - counts, sizes))
    costs = np.where(sizes >= 0, (one + zero - both) / np.log(2), np.inf)
    return _least(costs, costs[..., -1])


def _least(
    costs: Float[np.ndarray, "*batch start end"], last: Float[np.ndarray, "*batch start"]
) -> Float[np.ndarray, "*batch segments"]:
    """The least sum of costs of at most m segments that cover 0..n, of the last one `last`."""
    reached = np.where(np.arange(costs.shape[-1]) == 0, 0.0, np.inf)
    least = []
    for _ in range(max(SEGMENTS)):
        least.append((reached + last).min(-1))
        reached = (reached[..., None] + costs).min(-2)
    return np.stack([np.min(least[:m], axis=0) for m in SEGMENTS], -1)


def _search(
    codes: Codes, length: int, segments: int, seed: int
) -> tuple[float, Int[np.ndarray, " time"]]:
    """The largest regret of several ascents, each by the flip of one symbol that gains most.

    Returns it with its sequence.
    """
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
    return float(value[top]), now[top]


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


def _kt(length: Any) -> Any:
    return 0.5 * np.log2(length) + 1


def _tree_bound(height: int, length: int, switches: int) -> float:
    """The bound of PTW in a node of this height whose first `length` symbols are there.

    A partition is refined to one of the tree, in which each node with a switch inside is split;
    a decision costs one bit.
    """
    half, length = 2**height // 2, min(length, 2**height)
    if switches == 0:
        return float(height > 0) + _kt(length)
    if length <= half:
        return 1 + _tree_bound(height - 1, length, switches)
    options = (
        _tree_bound(height - 1, half, left)
        + _tree_bound(height - 1, length - half, switches - between - left)
        for between in (0, 1)
        for left in range(min(switches - between, half - 1) + 1)
        if switches - between - left <= length - half - 1
    )
    return 1 + max(options, default=-np.inf)


def _partition_bounds(prior: Prior, length: int) -> list[float]:
    """The bound for a prior under which every partition is possible."""
    starts = np.arange(length)
    runs = np.maximum(starts - starts[:, None], 1)
    ended = -prior.log_pmf(starts[:, None], runs) / np.log(2) + _kt(runs)
    gains = np.where(starts > starts[:, None], ended, -np.inf)
    last = -prior.log_survival(starts, length - starts - 1) / np.log(2) + _kt(length - starts)
    return (-_least(-gains, -np.asarray(last, float))).tolist()


def _plot(result: xr.Dataset) -> dict[str, Figure]:
    """The regret in the worst case with the bounds, and the sequences."""
    return {"worst-case": _regrets(result), "worst-case-sequences": _sequences(result)}


def _regrets(result: xr.Dataset) -> Figure:
    figure, panels = figures.panels(2, 2, 3.2, 0.5, sharey=False)
    sizes = result.attrs["short_length"], result.attrs["worst_length"]
    for axes, prefix, size in zip(panels, ("short_", ""), sizes, strict=True):
        for name, one in slices(result, "predictor"):
            look = style.line_style(name)
            axes.plot(result["segments"], one[f"{prefix}regret"], label=display_name(name), **look)
            if (bound := one[f"{prefix}bound"]).notnull().any():
                dashed = look | {"linestyle": (0, (1, 1.5)), "linewidth": 1.6}
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
    two = result.sel(segments=2)
    rows = two["symbols"].values
    figure, (axes,) = figures.panels(1, 1, 0.32 * len(rows), 0.6)
    axes.imshow(rows, cmap="Blues", vmin=0, vmax=1.4, aspect="auto", interpolation="nearest")
    pairs = slices(two["regret"], "predictor")
    labels = [f"{display_name(name)}, {float(regret):.1f}" for name, regret in pairs]
    axes.set_yticks(range(len(rows)), labels)
    for edge in range(1, len(rows)):
        axes.axhline(edge - 0.5, color="white", linewidth=3)
    axes.grid(False)
    figures.position_axis(axes, rows.shape[1])
    return figure


def _captions(result: xr.Dataset) -> dict[str, base.Caption]:
    above, length = _above_bound(result), result.attrs["worst_length"]
    broken = ", ".join(listed(above[above > 0], "by {:.1f}".format))
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
            f"hindsight, with their regret in bits, of {above.size} networks and three exact "
            "predictors.",
            size="one sequence for each predictor",
        ),
    }


def _above_bound(result: xr.Dataset) -> xr.DataArray:
    """By how much the worst case of each network exceeds the bound of PTW, at most."""
    gap = result["regret"] - result["bound"].sel(predictor="ptw", drop=True)
    return gap.drop_sel(predictor=list(_EXACT)).max("segments")


def _tables(results: Mapping[str, xr.Dataset]) -> list[base.Table]:
    """The regret in the worst case of every predictor, with its bound."""
    result = results["worst-case"]
    tables = []
    for prefix, size in (("short_", "short_length"), ("", "worst_length")):
        rows = []
        for name, one in slices(result, "predictor"):
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
    texts = ", ".join(listed(above, "{:+.1f}".format))
    return bool((above <= 0).all()), f"bits above the bound of PTW: {texts}"


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
