"""Alarms of `switchpoint watch`: false alarms, delays beside FOCuS, and changes not to be missed.

    python benchmarks/alarms.py [metrics] [rates] [changes]

FOCuS (Romano et al., 2023) is told the standard deviation, and has the threshold that raises most
nearly as many false alarms on the same values: pip install changepoint-online.
"""

import importlib.util
import sys
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

import switchpoint as sp
from switchpoint.detection.online import Monitor, Report

Rule: TypeAlias = Callable[[list[float]], list[int]]
"""From values to the positions of alarms."""

ONE_IN = 14_000
STATIONARY = 700_000
"""Observations of N(0, 1), in which 50 false alarms are expected."""
THRESHOLDS = (9.0, 9.5, 10.0, 10.25, 10.5)
SHIFTS = (0.5, 1.0, 2.0, 3.0, 5.0)
ORDINARY = 100_000
"""Observations of each ordinary metric, in which the default rule expects one false alarm."""


def autoregressive(rng: np.random.Generator, count: int) -> np.ndarray:
    """AR(1) noise with coefficient 0.7."""
    values, noise = np.zeros(count), rng.normal(size=count)
    for i in range(1, count):
        values[i] = 0.7 * values[i - 1] + noise[i]
    return values


METRICS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, count: rng.normal(size=count),
    "lognormal": lambda rng, count: rng.lognormal(size=count),
    "Student t, 3 degrees": lambda rng, count: rng.standard_t(3, count),
    "exponential": lambda rng, count: rng.exponential(size=count),
    "AR(1), 0.7": autoregressive,
    "Poisson, 3": lambda rng, count: rng.poisson(3, count).astype(float),
    "Bernoulli, 0.01": lambda rng, count: (rng.random(count) < 0.01).astype(float),
}


def reports(values: list[float], one_in: float) -> tuple[Monitor, list[Report]]:
    """A monitor, and its reports of alarms and outliers, as `switchpoint watch` has them."""
    monitor = Monitor(sp.Geometric(0.005), one_in=one_in)
    every = (report for x in values for report in monitor.update((x,)))
    return monitor, [report for report in every if report.change or report.outlier]


def ours(values: list[float], one_in: float = ONE_IN) -> list[int]:
    """The positions of the alarms."""
    return [report.position for report in reports(values, one_in)[1] if report.change]


def focus(threshold: float) -> Rule:
    """FOCuS with this threshold, which begins anew after an alarm."""
    from changepoint_online import Focus, Gaussian

    def alarms(values: list[float]) -> list[int]:
        detector, positions = Focus(Gaussian()), []
        for position, x in enumerate(values):
            detector.update(x)
            if detector.statistic() >= threshold:
                positions.append(position)
                detector = Focus(Gaussian())
        return positions

    return alarms


def delays(alarms: Rule, shift: float, count: int) -> np.ndarray:
    """Observations from a shift after 1,000 to the first alarm; NaN if there is none in 2,000."""
    rng = np.random.default_rng([1, int(10 * shift)])
    result = []
    for _ in range(count):
        values = rng.normal(size=1000 + (2000 if shift < 1 else 200))
        values[1000:] += shift
        later = [position for position in alarms(values.tolist()) if position >= 1000]
        result.append(later[0] - 999 if later else np.nan)
    return np.array(result)


def missed(make: Callable[[np.random.Generator], np.ndarray], count: int, begin: int) -> int:
    """Sequences without an alarm from `begin` on."""
    rng = np.random.default_rng(2)
    return sum(
        not any(position >= begin for position in ours(make(rng).tolist(), 100_000))
        for _ in range(count)
    )


def recovery(rng: np.random.Generator) -> np.ndarray:
    """20 observations at +5 sigma, and back."""
    values = rng.normal(size=400)
    values[200:220] += 5
    return values


def outage(rng: np.random.Generator) -> np.ndarray:
    """A shift by 2 sigma during 60 missing values."""
    values = rng.normal(size=360)
    values[200:260] = np.nan
    values[260:] += 2
    return values


def small(rng: np.random.Generator) -> np.ndarray:
    """A shift by 0.5 sigma, seen for 2,000 observations."""
    values = rng.normal(size=3000)
    values[1000:] += 0.5
    return values


def metrics() -> None:
    """False alarms on ordinary metrics, at the rate that is set by default."""
    print(f"set: one false alarm in 100,000; {ORDINARY:,} observations of each")
    for name, draw in METRICS.items():
        values = draw(np.random.default_rng([3, len(name)]), ORDINARY).tolist()
        monitor, raised = reports(values, 100_000)
        changes = sum(report.change is not None for report in raised)
        outliers = sum(report.outlier for report in raised)
        print(f"  {name}: {changes} false alarms, {outliers} outliers ({monitor.models[0]})")


def rates() -> None:
    """The rate on N(0, 1), and delays beside FOCuS with the threshold of the same measured rate."""
    noise = np.random.default_rng(0).normal(size=STATIONARY).tolist()
    false = len(ours(noise))
    print(
        f"set: one false alarm in {ONE_IN:,}; {false} in {STATIONARY:,} observations of N(0, 1), "
        f"{STATIONARY / ONE_IN:.0f} expected",
        flush=True,
    )
    rules: dict[str, Rule] = {"switchpoint": ours}
    if importlib.util.find_spec("changepoint_online"):
        counts = {threshold: len(focus(threshold)(noise)) for threshold in THRESHOLDS}
        print("FOCuS by threshold:", *(f"{k:g}: {v}" for k, v in counts.items()), flush=True)
        nearest = min(counts, key=lambda each: abs(counts[each] - false))
        rules[f"FOCuS, threshold {nearest:g}"] = focus(nearest)
    for name, alarms in rules.items():
        print(name)
        for shift in SHIFTS:
            waits = delays(alarms, shift, 60 if shift < 1 else 200)
            print(
                f"  shift {shift}: median delay {np.nanmedian(waits):g}, "
                f"mean {np.nanmean(waits):.2f}, missed {np.isnan(waits).sum()} of {len(waits)}",
                flush=True,
            )


def changes() -> None:
    """Changes that must not be missed, at the rate that is set by default."""
    print(f"recovery after 20 at +5 sigma: {missed(recovery, 100, 220)} of 100 missed")
    print(f"shift by 0.5 sigma within 2,000: {missed(small, 60, 1000)} of 60 missed")
    print(f"shift of 2 sigma across 60 missing: {missed(outage, 30, 260)} of 30 missed")


if __name__ == "__main__":
    parts = {"metrics": metrics, "rates": rates, "changes": changes}
    for part in sys.argv[1:] or parts:
        parts[part]()
