"""Speed of the networks of the zoo on a CPU: how long the predictions of test sequences take.

    python benchmarks/networks_cpu.py                            # all five, one minute on 2 cores
    python benchmarks/networks_cpu.py transformer --length 512

Seconds are the lowest of several calls after one that compiles, as `switchpoint verify` makes them:
with a part of the sequences on each core. CPU seconds are those of all cores together. The first
line is what a large matrix product reaches.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

import switchpoint as sp
from switchpoint.evaluation import regrets
from switchpoint.training import use_all_cores

MODELS = ("rnn", "lstm", "stack-rnn", "stack-lstm", "transformer")
SIZE = 2048  # of the matrices
REPEATS = 3


class Seconds(NamedTuple):
    """The first call, and the lowest of the calls after it."""

    first: float
    wall: float
    cpu: float


def timed(call: Callable[[], Any]) -> Seconds:
    wall, cpu = [], []
    for _ in range(REPEATS + 1):
        start = time.perf_counter(), time.process_time()
        jax.block_until_ready(call())
        wall.append(time.perf_counter() - start[0])
        cpu.append(time.process_time() - start[1])
    return Seconds(wall[0], min(wall[1:]), min(cpu[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS, help=f"of {', '.join(MODELS)}")
    parser.add_argument("--sequences", type=int, default=250)
    parser.add_argument("--length", type=int, default=256)
    options = parser.parse_args()
    use_all_cores()
    matrix = jnp.ones((SIZE, SIZE))
    product = jax.jit(jnp.matmul)
    peak = timed(lambda: product(matrix, matrix))
    operations = 2 * SIZE**3 / 1e9
    console = Console()
    console.print(
        f"{len(jax.devices())} cores; a product of {SIZE} x {SIZE} matrices: "
        f"{operations / peak.wall:.0f} GFLOP/s, {operations / peak.cpu:.0f} on each core"
    )
    table = Table("", "first call, s", "s", "CPU s")
    for column in table.columns[1:]:
        column.justify = "right"
    source = sp.Source(sp.PTW(8))
    count, length = options.sequences, options.length
    for model in options.models:
        network = sp.load(f"{model}-ptw")
        found = timed(partial(regrets, [network], source, length, count, chunk=count))
        table.add_row(model, *(f"{seconds:.2f}" for seconds in found))
    console.print(table)


if __name__ == "__main__":
    main()
