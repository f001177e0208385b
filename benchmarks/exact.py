"""Speed and memory of the exact core: samplers, predictors, posteriors.

    python benchmarks/exact.py            # the table, about two minutes on 2 cores

Speeds are the median of several calls after one that compiles; the compile time is apart. On a busy
machine CPU time is the better measure; two cores share most of it. Rust's `changepoint` is timed
too where it is installed (pip install changepoint).
Memory is the growth of the process's peak while 10,000 sequences of 256 are predicted, in a
process of its own.
"""

import argparse
import functools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import switchpoint as sp

PRIORS = ("ptw", "lin", "uniform")
REPEATS = 9


class Row(NamedTuple):
    """One line of the table."""

    title: str
    call: Callable[[], Any]
    sequences: int
    length: int
    reach: float | None


def ready(result: Any) -> Any:
    return jax.block_until_ready(result)


def timed(call: Callable[[], Any]) -> tuple[float, float, float]:
    """Seconds of the first call; medians of the later ones, by the clock and of CPU time."""
    seconds, busy = [], []
    for _ in range(REPEATS + 1):
        start, begun = time.perf_counter(), time.process_time()
        ready(call())
        seconds.append(time.perf_counter() - start)
        busy.append(time.process_time() - begun)
    first, *later = seconds
    return first, statistics.median(later), statistics.median(busy[1:])


def random_bits(batch: int, length: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).integers(0, 2, (batch, length), np.int32))


def calls(batch: int, length: int, bars: tuple[float | None, ...] = (None,) * 3) -> list[Row]:
    """What is timed at one size, and what it has to reach."""
    key = jax.random.key(0)
    sources = {name: sp.Source(sp.prior_from_name(name, length)) for name in PRIORS}
    symbols = random_bits(batch, length)
    few = symbols[: max(1, batch // 20)]
    sampling, ptw, lin = bars
    reach = {"sample ptw": sampling, "predict ptw": ptw, "predict lin": lin}
    rows = []
    for name, source in sources.items():
        predictor = sp.bayes_optimal(source)
        work: dict[str, tuple[Callable[[], Any], int]] = {
            "sample": (functools.partial(source.sample, key, batch, length), batch),
            "predict": (functools.partial(predictor.log_probs, symbols), batch),
            "posterior": (functools.partial(predictor.posterior, few), len(few)),
        }
        for what, (call, sequences) in work.items():
            title = f"{what} {name}"
            rows.append(Row(title, call, sequences, length, reach.get(title)))
    # Beta laws other than Beta(1/2, 1/2) and Beta(1, 1) have no closed form to draw from.
    other = sp.Source(sp.prior_from_name("ptw", length), sp.Bernoulli(0.7, 0.7))
    draw = functools.partial(other.sample, key, batch, length)
    rows.append(Row("sample ptw, Beta(0.7, 0.7)", draw, batch, length, None))
    return sorted(rows, key=lambda row: row.title.split()[0], reverse=True)


def letters(alphabet: int) -> Row:
    """LIN on one long sequence of a larger alphabet."""
    predictor = sp.bayes_optimal(sp.Source(sp.LIN(), sp.Categorical(alphabet)))
    symbols = np.random.default_rng(0).integers(0, alphabet, 4096)
    call = functools.partial(predictor.log_probs, symbols)
    return Row(f"predict lin, {alphabet} letters", call, 1, 4096, None)


def families() -> list[Row]:
    """The general algorithms, on real values."""
    geometric, ptw = sp.Geometric(0.01), sp.PTW(8)
    random = np.random.default_rng(0).normal(size=(1000, 256))
    long = np.random.default_rng(0).normal(size=(1, 10_000))
    rows = []
    for title, prior, segment, values, goal in (
        ("normal-gamma, geometric", geometric, sp.NormalGamma(), long, 0.06),
        ("normal-gamma, geometric", geometric, sp.NormalGamma(), random, 2.0),
        ("normal-gamma, ptw", ptw, sp.NormalGamma(), random, 5.0),
        ("trend, geometric", geometric, sp.Trend(), random, None),
        ("trend, ptw", ptw, sp.Trend(), random, None),
    ):
        predictor = sp.bayes_optimal(sp.Source(prior, segment))
        call = functools.partial(predictor.log_density, values)
        sequences, length = values.shape
        rows.append(Row(title, call, sequences, length, goal))
    return rows


def rust_changepoint(length: int) -> float | None:
    """Millions of observations per second of Rust's `changepoint`, where it is installed."""
    try:
        import changepoint  # type: ignore
    except ImportError:
        return None
    detector = changepoint.Bocpd(
        prior=changepoint.NormalGamma(m=0.0, r=1.0, s=2.0, v=2.0), lam=100.0
    )
    values = np.random.default_rng(0).normal(size=length).tolist()
    start = time.perf_counter()
    for value in values:
        detector.step(value)
    return length / (time.perf_counter() - start) / 1e6


def speeds() -> Table:
    table = Table(title="Exact core, millions of symbols per second")
    for column in (
        "what",
        "batch x length",
        "compile s",
        "ms",
        "CPU ms",
        "M symbols/s",
        "to reach",
    ):
        table.add_column(column, justify="left" if column == "what" else "right")
    if jax.default_backend() == "cpu":
        rows = calls(1000, 256, (30, 14, 4)) + calls(20, 4096, (30, 8, 0.25))
    else:  # sizes that fill an accelerator; the figures to reach are for a CPU
        rows = calls(10_000, 256) + calls(100, 4096)
    for row in [*rows, letters(2), letters(256), *families()]:
        compile_seconds, seconds, busy = timed(row.call)
        speed = row.sequences * row.length / seconds / 1e6
        table.add_row(
            row.title,
            f"{row.sequences} x {row.length}",
            f"{max(0, compile_seconds - seconds):.1f}",
            f"{1e3 * seconds:.3g}",
            f"{1e3 * busy:.3g}",
            f"{speed:.3g}",
            "" if row.reach is None else f"{row.reach:g}",
        )
    peer = rust_changepoint(10_000)
    if peer is not None:
        title = "Rust's changepoint, normal-gamma, geometric"
        table.add_row(title, "1 x 10000", "", f"{10 / peer:.3g}", "", f"{peer:.3g}", "")
    return table


def peak_kib() -> int:
    """The peak of this process's memory; unlike `getrusage`, without its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def peak_memory(prior_name: str) -> None:
    """Print how many MiB predicting 10,000 x 256 adds to the peak of this process."""
    source = sp.Source(sp.prior_from_name(prior_name, 256))
    symbols = ready(random_bits(10_000, 256))
    before = peak_kib()
    ready(sp.bayes_optimal(source).log_probs(symbols))
    after = peak_kib()
    print(f"{(after - before) / 1024:.0f} {after / 1024:.0f}")


def memory() -> Table:
    table = Table(title="Predicting 10,000 x 256, peak memory in MiB (to stay under 1024)")
    for column in ("prior", "growth", "whole process"):
        table.add_column(column, justify="left" if column == "prior" else "right")
    for name in ("ptw", "lin"):
        command = [sys.executable, __file__, "--memory-of", name]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        table.add_row(name, *answer)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    prior_name = parser.parse_args().memory_of
    if prior_name:
        peak_memory(prior_name)
        return
    console = Console()
    console.print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}")
    console.print(speeds())
    console.print(memory())


if __name__ == "__main__":
    main()
