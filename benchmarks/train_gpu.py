"""Training speed on a GPU at the paper's size: 4 sources x 10 seeds of each architecture.

    python benchmarks/train_gpu.py                    # all five, under five minutes on an H200
    python benchmarks/train_gpu.py --models lstm --kernels plain
    python benchmarks/train_gpu.py --models lstm --trace DIR    # and where the time goes

A trace is for Perfetto or TensorBoard; the time of each kernel is printed, too.

A step is everything: drawing the data, the forward and backward pass, the update. Arithmetic is
that of the products with weights and of attention, three times the forward pass; the floor is that
at 400 TFLOP/s.
"""

import argparse
import gzip
import json
import re
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import jax
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from switchpoint.neural import Network
from switchpoint.training import TrainConfig
from switchpoint.training.program import Program

MODELS = ("rnn", "lstm", "stack-rnn", "stack-lstm", "transformer")
PUBLISHED = {"rnn": 34.2, "lstm": 34.1, "stack-lstm": 51.2, "transformer": 49.2}
"""Milliseconds per seed-step of the published code on the same chip, where measured."""
BARS = {"rnn": 0.25, "lstm": 0.55, "stack-rnn": 0.4, "stack-lstm": 0.75, "transformer": 3.5}
FLOOR = 400e12
LENGTH, BATCH = 256, 128


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--seeds", type=int, default=10, help="members are four times as many")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--kernels", default="auto", help="auto, fused or plain")
    parser.add_argument("--trace", metavar="DIR", help="write a profiler trace of the timed steps")
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


@dataclass(frozen=True)
class Timing:
    """What one model took."""

    model: str
    device: str
    seconds: float
    """Of a seed-step."""
    operations: float
    peak: float
    """Bytes of memory in use at once."""
    compiling: float


def timing(model: str, seeds: int, steps: int, backend: str, trace: str | None) -> Timing:
    """Train `4 * seeds` members of a model for a few steps."""
    config = TrainConfig(
        model=model,
        prior=("ptw", "lin", "regular", "uniform"),
        period=20,
        length=LENGTH,
        batch=BATCH,
        seeds=seeds,
        steps=10**6,
    )
    program = Program(config, backend)
    state = program.start()
    begun = time.perf_counter()
    state = program.advance(state, 2)
    jax.block_until_ready(state.step)
    compiling = time.perf_counter() - begun
    with jax.profiler.trace(f"{trace}/{model}") if trace else nullcontext():
        begun = time.perf_counter()
        state = program.advance(state, 2 + steps)
        jax.block_until_ready(state.step)
        seconds = (time.perf_counter() - begun) / steps / (4 * seeds)
    device = jax.devices()[0]
    return Timing(
        model,
        device.device_kind,
        seconds,
        operations(config.network(jax.random.key(0)), model),
        (device.memory_stats() or {}).get("peak_bytes_in_use", 0),
        compiling,
    )


def row(found: Timing) -> list[str]:
    published = PUBLISHED.get(found.model)
    return [
        found.model,
        f"{found.seconds * 1e3:.3f}",
        f"{BARS[found.model]:g}",
        f"{found.operations / found.seconds / 1e12:.0f}",
        f"{found.operations / FLOOR * 1e3:.3f}",
        "-" if published is None else f"{published / found.seconds / 1e3:.0f}x",
        f"{found.peak / 2**30:.1f}",
        f"{found.compiling:.1f}",
    ]


def kernel_times(trace: Path) -> Counter[str]:
    """The microseconds of each kernel on the GPU, all launches, in the latest trace of a folder."""
    latest = max(trace.rglob("*.trace.json.gz"), key=lambda path: path.stat().st_mtime)
    with gzip.open(latest) as file:
        events = [event for event in json.load(file)["traceEvents"] if event]
    names = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    times: Counter[str] = Counter()
    for event in events:
        on_gpu = "GPU" in names.get(event["pid"], "")
        if on_gpu and event["ph"] == "X" and "hlo_op" in event.get("args", {}):
            times[re.sub(r"[_.\d]+$", "", event["name"])] += event["dur"]
    return times


def main() -> None:
    options = arguments()
    # A process of its own for each: the peak of memory is that of a whole process.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
        waiting = [
            processes.submit(
                timing, model, options.seeds, options.steps, options.kernels, options.trace
            )
            for model in options.models
        ]
        found = [each.result() for each in waiting]
    title = f"{found[0].device}, {4 * options.seeds} members, {options.kernels} kernels"
    table = Table(title=title, box=SIMPLE)
    for heading in ("model", "ms", "bar", "TFLOP/s", "floor", "published", "GiB", "compile, s"):
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)
    for each in found:
        table.add_row(*row(each))
    Console().print(table)
    for each in found if options.trace else ():
        print(f"{each.model}: ms per step of all members, by kernel")
        for name, duration in kernel_times(Path(options.trace, each.model)).most_common(16):
            print(f"{duration / options.steps / 1e3:8.2f} {name}")
    print("ms and floor per seed-step; published: times as fast; GiB: most in use at once")


if __name__ == "__main__":
    main()
