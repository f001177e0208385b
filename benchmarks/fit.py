"""What `fit` recovers: the hazard and the noise of streams from a known source, one fit per stream.

    python benchmarks/fit.py                                    # 100 streams of 5,000
    python benchmarks/fit.py --streams 10 --length 1000

Hazard and noise start a factor of two away. With `--hypotheses` the evidence is that of the pruned
recursion, which takes O(n) time.
"""

import argparse
import time

import jax
import numpy as np

import switchpoint as sp

HAZARD, NOISE = 0.01, 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--length", type=int, default=5000)
    parser.add_argument("--hypotheses", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    true = sp.Source(sp.Geometric(HAZARD), sp.Gaussian(0.0, 3.0, NOISE))
    key = jax.random.key(options.seed)
    values = np.asarray(true.sample(key, options.streams, options.length).values)
    start = sp.Source(sp.Geometric(2 * HAZARD), sp.Gaussian(0.0, 3.0, 2 * NOISE))
    found = []
    begun = time.process_time()
    for number, row in enumerate(values):
        fit = sp.fit(start, row, ["hazard", "scale"], starts=1, max_hypotheses=options.hypotheses)
        segment: sp.Gaussian = fit.source.segment  # type: ignore[assignment]
        prior: sp.Geometric = fit.source.prior  # type: ignore[assignment]
        found.append((float(prior.hazard), float(segment.scale)))
        if (number + 1) % 10 == 0:
            report(np.array(found), time.process_time() - begun)


def report(found: np.ndarray, seconds: float) -> None:
    error = found.std(0, ddof=1) / len(found) ** 0.5
    for name, truth, mean, spread in zip(
        ("hazard", "noise"), (HAZARD, NOISE), found.mean(0), error, strict=True
    ):
        print(
            f"{len(found)} streams: mean {name} {mean:.5f} +- {spread:.5f}, truth {truth} "
            f"({100 * (mean / truth - 1):+.1f} %)",
            flush=True,
        )
    print(f"    {seconds / len(found):.1f} s of CPU time per fit", flush=True)


if __name__ == "__main__":
    main()
