"""Do both paths train equally good networks? The same members by fused kernels and by plain JAX.

    python benchmarks/paths.py                        # 10 LSTMs, 2,000 steps, on a GPU
    python benchmarks/paths.py --model rnn --steps 1000

Members of one seed start with the same weights and read the same sequences on both paths. Excess
is in bits per sequence over the exact optimum, on sequences that no member is trained on.
"""

import argparse
import time

import numpy as np

from switchpoint.neural.registry import MODEL_OPTIONS
from switchpoint.training import TrainConfig, train


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODEL_OPTIONS, default="lstm")
    parser.add_argument("--prior", default="ptw")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--validation", type=int, default=10_000)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    config = TrainConfig(**vars(options), report_every=options.steps)
    excess = {}
    for path in ("fused", "plain"):
        begun = time.perf_counter()
        (report,) = train(config, kernels=path).reports
        excess[path] = np.asarray(report.excess)
        seconds = time.perf_counter() - begun
        print(f"{path}: {seconds:.0f} s, excess of each seed", *(f"{x:.3f}" for x in excess[path]))
        print(
            f"    standard errors {min(report.excess_error):.3f} to {max(report.excess_error):.3f}"
        )
    difference = excess["fused"] - excess["plain"]
    error = difference.std(ddof=1) / len(difference) ** 0.5
    print(f"fused - plain, mean over seeds: {difference.mean():+.4f} +- {error:.4f} bits")


if __name__ == "__main__":
    main()
