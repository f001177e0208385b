"""Training speed on a GPU at the paper's size: 4 sources x 10 seeds of each architecture.

    python benchmarks/train_gpu.py                    # all five, under five minutes on an H200
    python benchmarks/train_gpu.py --models lstm --kernels plain

A step is everything: drawing the data, the forward and backward pass, the update. Arithmetic is
that of the products with weights and of attention, three times the forward pass; the floor is that
at 400 TFLOP/s.
"""

import argparse
import time

import jax
from rich.console import Console
from rich.table import Table

from switchpoint.neural import Network
from switchpoint.training import TrainConfig
from switchpoint.training.program import Program

MODELS = ("rnn", "lstm", "stack-rnn", "stack-lstm", "transformer")
PUBLISHED = {"rnn": 34.2, "lstm": 34.1, "stack-lstm": 51.2, "transformer": 49.2}
"""Milliseconds per seed-step of the published code on the same chip, where measured."""
BARS = {"rnn": 0.5, "lstm": 0.8, "stack-rnn": 0.8, "stack-lstm": 1.2, "transformer": 5.0}
FLOOR = 400e12
LENGTH, BATCH = 256, 128


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--seeds", type=int, default=10, help="members are four times as many")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--kernels", default="auto", help="auto, fused or plain")
    return parser.parse_args()


def operations(network: Network, model: str) -> float:
    """Floating-point operations of one seed-step."""
    matrices = [leaf for leaf in jax.tree.leaves(network) if leaf.ndim >= 2]
    products = 2.0 * LENGTH * BATCH * sum(leaf.size for leaf in matrices)
    attention = 0.0
    if model == "transformer":
        layers, heads = 16, 8
        # Half of the pairs are seen; a score has 72 terms and a value 8.
        attention = layers * heads * BATCH * LENGTH**2 / 2 * 2 * (72 + 8)
    return 3 * (products + attention)


def main() -> None:
    options = arguments()
    device = jax.devices()[0]
    members = 4 * options.seeds
    table = Table(title=f"{device.device_kind}, {members} members, {options.kernels} kernels")
    table.add_column("model")
    for heading in (
        "ms/seed-step",
        "bar",
        "TFLOP/s",
        "floor, ms",
        "times as fast as published",
        "peak, GiB",
        "compile, s",
    ):
        table.add_column(heading, justify="right")
    for model in options.models:
        config = TrainConfig(
            model=model,
            prior=("ptw", "lin", "regular", "uniform"),
            period=20,
            length=LENGTH,
            batch=BATCH,
            seeds=options.seeds,
            steps=10**6,
        )
        work = operations(config.network(jax.random.key(0)), model)
        program = Program(config, options.kernels)
        state = program.start()
        begun = time.perf_counter()
        state = program.advance(state, 2)
        jax.block_until_ready(state.step)
        compiled = time.perf_counter() - begun
        begun = time.perf_counter()
        state = program.advance(state, 2 + options.steps)
        jax.block_until_ready(state.step)
        seconds = (time.perf_counter() - begun) / options.steps / members
        peak = (device.memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**30
        published = PUBLISHED.get(model)
        table.add_row(
            model,
            f"{seconds * 1e3:.3f}",
            f"{BARS[model]:g}",
            f"{work / seconds / 1e12:.0f}",
            f"{work / FLOOR * 1e3:.3f}",
            "-" if published is None else f"{published / seconds / 1e3:.0f}",
            f"{peak:.1f}",
            f"{compiled:.1f}",
        )
        del program, state
    Console().print(table)


if __name__ == "__main__":
    main()
