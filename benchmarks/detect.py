"""False changes of `detect`, and changes that it finds: python benchmarks/detect.py.

Series with fixed seeds, each kind without a change and with one: AR(1) noise, noise with heavy
tails, the Nile with an outlier in any year, and days with a weekly and a yearly season. Names of
kinds as arguments choose some of them. AR(1) noise is also given to lines with and without a lag.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

import switchpoint as sp

SERIES, TOLERANCE = 20, 5
NILE = Path(__file__).parents[1] / "examples" / "nile.csv"


def autoregression(phi: float, seed: int, length: int = 500) -> np.ndarray:
    """AR(1) noise with unit innovations, stationary from the start."""
    values = np.random.default_rng(seed).normal(size=length)
    values[0] /= np.sqrt(1 - phi**2)
    for t in range(1, length):
        values[t] += phi * values[t - 1]
    return values


def compare(
    title: str,
    values: Iterable[np.ndarray],
    step: float,
    at: int,
    times: pd.DatetimeIndex | None = None,
    segment: str | None = None,
) -> None:
    """Print the changes in series without a change, and how often a step is found."""
    counts, found = [], 0
    for each in values:
        counts.append(len(sp.detect(each, times, segment=segment).changepoints))
        stepped = each + step * (np.arange(len(each)) >= at)
        positions = sp.detect(stepped, times, segment=segment).changepoints
        found += bool((np.abs(positions - at) <= TOLERANCE).any())
    print(
        f"{title}, {segment or 'chosen'}: {sum(counts) / len(counts):.2f} false changes a series, "
        f"at most {max(counts)}; a step of {step:.1f} found in {found} of {len(counts)}",
        flush=True,
    )


def autocorrelation() -> None:
    for phi in (0.5, 0.7, 0.9):
        noise = [autoregression(phi, seed) for seed in range(SERIES)]
        for segment in (None, "trend", "autocorrelated"):
            step = 3 / np.sqrt(1 - phi**2)
            compare(f"AR(1) noise of {phi}", noise, step, 250, segment=segment)


def tails() -> None:
    noise = [np.random.default_rng(seed).standard_t(3, size=500) for seed in range(SERIES)]
    compare("Student-t noise of 3 degrees", noise, 3.0, 250)


def nile() -> None:
    flow = pd.read_csv(NILE)["flow"].to_numpy(float)
    for value in (0.0, 2000.0, 3000.0):
        right = listed = 0
        for row in range(len(flow)):
            changed = flow.copy()
            changed[row] = value
            result = sp.detect(changed)
            positions = result.changepoints.tolist()
            right += len(positions) == 1 and abs(positions[0] - 28) <= 2
            listed += result.outliers["position"].tolist() == [row]
        print(f"the Nile with {value:g} in one year: only the change of 1899 in {right} of 100, "
              f"only that outlier in {listed}", flush=True)  # fmt: skip


def seasons() -> None:
    times = np.arange(730)
    waves = 10 * np.sin(2 * np.pi * times / 365.25) + 3 * (times % 7 >= 5)
    noise = [np.random.default_rng(seed).normal(size=730) for seed in range(SERIES // 4)]
    dates = pd.date_range("2021-01-01", periods=730)
    compare("days of two years", [waves + each for each in noise], 5.0, 400, dates)


KINDS = {each.__name__: each for each in (autocorrelation, tails, nile, seasons)}

if __name__ == "__main__":
    for name in sys.argv[1:] or KINDS:
        KINDS[name]()
