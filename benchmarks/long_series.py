"""Long series of real values: `detect`, and a million observations.

    python benchmarks/long_series.py            # both tables, about two minutes on 2 cores

Times are of the first call, which compiles, and of the quicker of two later ones. A million
observations are predicted in processes of their own, whose peak memory is shown.
"""

import argparse
import functools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import switchpoint as sp

MILLION = {
    "PTW(20)": sp.bayes_optimal(sp.Source(sp.PTW(20), sp.NormalGamma())),
    "Geometric, 100 hypotheses": sp.bayes_optimal(
        sp.Source(sp.Geometric(0.001), sp.NormalGamma()), max_hypotheses=100
    ),
}


def series(length: int, between: int | None) -> np.ndarray:
    """Noise, around levels that switch every so many observations."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=length)
    if between is None:
        return noise
    return noise + np.repeat(rng.normal(0, 3, length // between + 1), between)[:length]


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the first call, and of the quicker of two later ones."""
    seconds = []
    for _ in range(3):
        begun = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - begun)
    return seconds[0], min(seconds[1:])


def detecting() -> None:
    print(f"{'detect, seconds':40} {'first':>8} {'later':>8}")
    for length in (200, 1_000, 4_000, 10_000):
        for between in (200, None):
            values = series(length, between)
            first, later = timed(functools.partial(sp.detect, values))
            title = "no switch" if between is None else f"a switch every {between}"
            print(f"{f'{length:,} observations, {title}':40} {first:8.2f} {later:8.2f}", flush=True)


def million(name: str) -> None:
    values = series(10**6, 1_000)
    first, later = timed(lambda: MILLION[name].log_density(values))
    status = Path("/proc/self/status").read_text()  # unlike `getrusage`, without the parent's peak
    peak = int(status.split("VmHWM:")[1].split()[0]) / 2**20
    print(f"{f'a million, {name}':40} {first:8.2f} {later:8.2f}   {peak:.2f} GiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--million", choices=MILLION, help=argparse.SUPPRESS)
    chosen = parser.parse_args().million
    if chosen:
        million(chosen)
        return
    detecting()
    for name in MILLION:
        subprocess.run([sys.executable, __file__, "--million", name], check=True)


if __name__ == "__main__":
    main()
