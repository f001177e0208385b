"""Long series of real values: `detect` beside other packages, and a million predictions.

    python benchmarks/long_series.py            # all tables, some minutes on 2 cores
    python benchmarks/long_series.py --detect   # only that of `detect`
    python benchmarks/long_series.py --detect 100000  # of one length
    python benchmarks/long_series.py --exact    # 20,000 observations against the exact posterior

Times are of the first call, which compiles, and of the quicker of two later ones; of one call from
10^5 observations on. Other packages are compared where they are installed: ruptures (KernelCPD with
a linear kernel, and Pelt), fastcpd, and Rbeast. The first three find changes of the mean, without
probabilities; Rbeast samples, trends included. A
million observations are predicted in processes of their own, whose peak memory is shown.
"""

import argparse
import functools
import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import switchpoint as sp
from switchpoint.detection.changes import change_points
from switchpoint.detection.posterior import SwitchPosterior

LENGTHS = (200, 1_000, 4_000, 10_000, 100_000, 1_000_000)

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


def timed(call: Callable[[], Any], once: bool = False) -> tuple[float, float]:
    """Seconds of the first call, and of the quicker of two later ones, or of the first again."""
    seconds = []
    for _ in range(1 if once else 3):
        begun = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - begun)
    return seconds[0], min(seconds[1:], default=seconds[0])


def peers() -> dict[str, tuple[int, Callable[[np.ndarray], Any]]]:
    """Other detectors that are installed, and the longest series for each in a few seconds."""
    found: dict[str, tuple[int, Callable[[np.ndarray], Any]]] = {}
    try:
        ruptures: Any = importlib.import_module("ruptures")
    except ImportError:
        pass
    else:
        kernel, pelt = ruptures.KernelCPD, ruptures.Pelt
        found["ruptures KernelCPD"] = 10**6, lambda x: kernel("linear").fit(x).predict(pen=30)
        found["ruptures Pelt, l2"] = 10_000, lambda x: pelt("l2", jump=1).fit(x).predict(pen=30)
    try:
        fastcpd: Any = importlib.import_module("fastcpd.segmentation")
    except ImportError:
        pass
    else:
        found["fastcpd mean"] = 10**6, lambda x: fastcpd.mean(x)
    try:
        beast: Any = importlib.import_module("Rbeast")
    except ImportError:
        pass
    else:
        found["Rbeast, without season"] = (
            10_000,
            functools.partial(
                beast.beast, season="none", quiet=True, print_progress=False, print_options=False
            ),
        )
    return found


def against_exact(length: int = 20_000) -> None:
    """`detect`'s recursion beside the exact posterior of `bayes_optimal`."""
    values = series(length, 200)
    source = sp.Source(sp.Geometric(0.005), sp.NormalGamma(0.0, 0.25, 3.0, 1.0))
    merged = SwitchPosterior(source, values)
    with jax.enable_x64(True):
        exact = sp.bayes_optimal(source).posterior(values)
        probability = np.array(exact.switch_smoothed, float)
    probability[0] = 0.0  # the start is no switch here
    seen = np.ones(length, bool)
    found, truth = (change_points(p, seen) for p in (merged.switch_probability, probability))
    largest = np.abs(merged.switch_probability - probability).max()
    print(f"{length:,}: {len(found)} change points, {'the same' if found == truth else truth}; "
          f"probabilities differ by at most {largest:.1e}, ln evidence by "
          f"{merged.log_evidence - float(exact.log_marginal):.1e}")  # fmt: skip


def detecting(lengths: Sequence[int]) -> None:
    print(f"{'seconds':50} {'first':>8} {'later':>8}")
    for length in lengths:
        for between in (200, None) if length <= 10_000 else (1_000,):
            values = series(length, between)
            title = "no switch" if between is None else f"a switch every {between}"
            for segment in (None, "level") if length > 10_000 else (None,):
                call = functools.partial(sp.detect, values, segment=segment)
                first, later = timed(call, length > 10_000)
                name = f"{length:,}, {title}: {segment or 'chosen'}"
                print(f"{name:50} {first:8.2f} {later:8.2f}", flush=True)
            for name, (most, detect) in peers().items():
                if length <= most and length >= 1_000:
                    first, later = timed(functools.partial(detect, values), length > 10_000)
                    print(f"{f'    {name}':50} {first:8.2f} {later:8.2f}", flush=True)


def million(name: str) -> None:
    values = series(10**6, 1_000)
    first, later = timed(lambda: MILLION[name].log_density(values))
    status = Path("/proc/self/status").read_text()  # unlike `getrusage`, without the parent's peak
    peak = int(status.split("VmHWM:")[1].split()[0]) / 2**20
    print(f"{f'a million, {name}':40} {first:8.2f} {later:8.2f}   {peak:.2f} GiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--million", choices=MILLION, help=argparse.SUPPRESS)
    parser.add_argument("--detect", type=int, nargs="*", help="only the table of `detect`")
    parser.add_argument("--exact", action="store_true", help="compare with the exact posterior")
    arguments = parser.parse_args()
    if arguments.million:
        million(arguments.million)
        return
    if arguments.exact:
        against_exact()
        return
    detecting(arguments.detect or LENGTHS)
    if arguments.detect is not None:
        return
    for name in MILLION:
        subprocess.run([sys.executable, __file__, "--million", name], check=True)


if __name__ == "__main__":
    main()
