"""Seconds for P(switch at t | all values): the exact recursion, and one pass of a network.

    python benchmarks/amortised.py [1000 10000]     # lengths

The network is that of the study `amortised`, with untrained weights, which cost the same. Both are
timed on one sequence after a call that compiles; the median of several calls.
"""

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

import switchpoint as sp
from switchpoint.paper.scale import SCALES
from switchpoint.paper.studies.amortised import Detector, source

REPEATS = 5


def seconds(call: Callable[[], jax.Array]) -> float:
    jax.block_until_ready(call())
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _exact(predictor: Any, values: Any) -> jax.Array:
    return predictor.posterior(values).switch_smoothed


def main() -> None:
    hidden = SCALES["full"].detector_settings["hidden"]
    network = Detector(hidden, jax.random.key(0))
    drawn_from = source(SCALES["full"].length // 2)
    exact = sp.bayes_optimal(drawn_from)
    for length in map(int, sys.argv[1:] or ("1000", "10000")):
        values = np.asarray(drawn_from.sample(jax.random.key(1), 1, length).values)
        recursion = seconds(partial(_exact, exact, values))
        one_pass = seconds(partial(network.logits, values))
        print(f"{length:6d} values: exact {recursion:.3g} s, network {one_pass:.3g} s")


if __name__ == "__main__":
    main()
