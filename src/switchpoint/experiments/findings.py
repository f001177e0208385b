"""The paper's findings, judged on saved results with their errors."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xarray as xr

_ERRORS = 3.0  # standard errors that a difference must exceed to count


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, and what our numbers say of it."""

    claim: str
    holds: bool | None
    """None where the study that it is judged on has not been run."""
    evidence: str

    def fields(self) -> dict[str, Any]:
        """The finding as JSON has it."""
        return asdict(self)


def findings(results: Mapping[str, xr.Dataset]) -> list[Finding]:
    """Every claim, judged on the results of the studies by name."""
    judged = []
    for claim, (study, judge) in _CLAIMS.items():
        if study not in results:
            judged.append(Finding(claim, None, f"the study {study} has not been run"))
            continue
        holds, evidence = judge(results[study])
        judged.append(Finding(claim, holds, evidence))
    return judged


def _optimum_is_lowest(result: xr.Dataset) -> tuple[bool, str]:
    """No exact predictor that is not told the switching points, and no network, does better."""
    holds, lines = True, []
    for source in _names(result["source"]):
        exact = result.sel(source=source)
        rivals = [n for n in _names(exact["exact"]) if n not in ("oracle", "optimum", source)]
        gaps = exact["exact_excess"].sel(exact=rivals)
        holds &= bool((gaps > _ERRORS * exact["exact_excess_error"].sel(exact=rivals)).all())
        networks = exact["excess"] + _ERRORS * exact["excess_error"]
        holds &= bool((networks.min(skipna=True) > 0).item())
        nearest = rivals[int(np.argmin(gaps.values))]
        lines.append(
            f"{_label(result, source)}: {nearest} loses {_plus(gaps.min())} bits, "
            f"the best network {_plus(exact['excess'].min())}"
        )
    return holds, "; ".join(lines)


def _lstm_is_near(result: xr.Dataset) -> tuple[bool, str]:
    holds, lines = True, []
    for source in ("ptw", "lin"):
        one = result.sel(source=source, architecture="lstm")
        optimum = float(one["exact_regret"].sel(exact="optimum"))
        part, error = (float(one[name]) / optimum for name in ("excess_mean", "excess_mean_error"))
        holds &= part + _ERRORS * error < 0.1
        lines.append(f"{_label(result, source)}: {part:.2%} ± {error:.2%} above the optimum")
    return holds, "; ".join(lines)


def _regular_is_learned(result: xr.Dataset) -> tuple[bool, str]:
    """All networks are within a tenth of the oracle's regret, where KT needs much more."""
    one = result.sel(source="regular")
    oracle = float(one["exact_regret"].sel(exact="oracle"))
    lines = []
    parts = (one["excess_mean"] + _ERRORS * one["excess_mean_error"]) / oracle
    for architecture in _names(one["architecture"]):
        part = float(one["excess_mean"].sel(architecture=architecture)) / oracle
        lines.append(f"{architecture} {part:.2%}")
    return bool((parts < 0.1).all()), "above KT Oracle: " + ", ".join(lines)


def _elsewhere_is_worse(result: xr.Dataset) -> tuple[bool, str]:
    """On each source, networks trained on it beat those trained on any other."""
    holds, lines = True, []
    names = _names(result["test_source"])
    for tested in names:
        others = [name for name in names if name != tested]
        away = result.sel(test_source=tested, train_source=others)
        holds &= bool((away["penalty"] > _ERRORS * away["penalty_error"]).all())
        least = int(away["penalty"].values.argmin())
        gap, error = (away[name].values.flat[least] for name in ("penalty", "penalty_error"))
        lines.append(f"on {_label(result, tested)} by at least {gap:.2f} ± {error:.2f} bits")
    return holds, "; ".join(lines)


def _longer_is_worse(result: xr.Dataset) -> tuple[bool, str]:
    """The excess over PTW at the longest length, against that at the length of training."""
    shortest, longest = int(result["length"].min()), int(result["length"].max())
    first, last = (result.sel(length=n) for n in (shortest, longest))
    gap = last["excess_mean"] - first["excess_mean"]
    error = np.hypot(last["excess_mean_error"], first["excess_mean_error"])
    lines = [
        f"{name} {float(first['excess_mean'].sel(architecture=name)):.2f} to "
        f"{float(last['excess_mean'].sel(architecture=name)):.2f}"
        for name in _names(result["architecture"])
    ]
    text = f"bits of excess from length {shortest} to {longest}: {', '.join(lines)}"
    return bool((gap > _ERRORS * error).all()), text


def _memory_is_needed(result: xr.Dataset) -> tuple[bool, str]:
    """Memoryless prediction is far from the optimum, and no network beats its exact bound."""
    orders = [n for n in result["order"].values if n in result["bound_order"].values]
    bound = result["bound"].sel(bound_order=orders).rename(bound_order="order")
    measured = result.sel(order=orders)
    # The bound is an expectation, from which sampled regrets deviate by their errors.
    above = measured["regret"] + _ERRORS * measured["regret_error"] > bound
    none = result.sel(order=0)
    far = none["excess_mean"] > _ERRORS * none["excess_mean_error"]
    lines = [
        f"{_label(result, name)} {float(none['excess_mean'].sel(source=name)):.1f}"
        for name in _names(result["source"])
    ]
    text = "bits above the optimum without memory: " + ", ".join(lines)
    return bool(above.all()) and bool(far.all()), text


_CLAIMS: Mapping[str, tuple[str, Callable[[xr.Dataset], tuple[bool, str]]]] = {
    "The exact optimum of a source has the lowest regret there.": (
        "on-distribution",
        _optimum_is_lowest,
    ),
    "The LSTM comes within 10% of the optimum's regret on PTW and LIN.": (
        "on-distribution",
        _lstm_is_near,
    ),
    "Every network learns where regular switches are, and comes near KT Oracle.": (
        "on-distribution",
        _regular_is_learned,
    ),
    "Networks do worse on a source that they were not trained on.": (
        "off-distribution",
        _elsewhere_is_worse,
    ),
    "The excess over PTW grows with length beyond that of training.": (
        "longer-lengths",
        _longer_is_worse,
    ),
    "Without memory the optimum is out of reach.": ("memory", _memory_is_needed),
}


def _names(coordinate: xr.DataArray) -> list[str]:
    return [str(name) for name in coordinate.values]


def _label(result: xr.Dataset, source: str) -> str:
    return str(result.attrs["labels"][source])


def _plus(value: xr.DataArray) -> str:
    return f"{float(value):.2f}"
