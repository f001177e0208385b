"""Speed of training: an ensemble in one program against as many programs of one member.

    python benchmarks/train.py            # the issue's bar: 10 LSTM members, about two minutes
    python benchmarks/train.py --recipe gru lru mamba transformer:rotary    # a step of one member

A step is everything: drawing the data, the forward and backward pass, the update. Each round
times both ways one after the other, and the ratio is the median over rounds, so that a noisy
machine disturbs both alike.
"""

import argparse
import statistics
import time

import jax
from rich.console import Console
from rich.table import Table

from switchpoint.training import TrainConfig, use_all_cores
from switchpoint.training.program import Program, TrainState

ROUNDS = 7


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--model", default="lstm")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10, help="steps in a timed call")
    parser.add_argument(
        "--recipe", nargs="+", help="models, or models with positions, to time by their recipe"
    )
    return parser.parse_args()


class Timed:
    """A program that is always ready for the next steps."""

    def __init__(self, config: TrainConfig) -> None:
        self._program = Program(config)
        self._state: TrainState = self._program.start()
        self._done = 0
        self.compile_seconds = self.seconds(1)

    def seconds(self, steps: int) -> float:
        """How long so many steps take."""
        self._done += steps
        start = time.perf_counter()
        self._state = self._program.advance(self._state, self._done)
        jax.block_until_ready(self._state.step)
        return time.perf_counter() - start


def by_recipe(models: list[str]) -> None:
    """Print the time of a step, and of all steps, of one member on PTW_8."""
    for name in models:
        model, _, positions = name.partition(":")
        config = TrainConfig(model=model, **({"positions": positions} if positions else {}))
        program = Timed(config)
        seconds = statistics.median(program.seconds(1) for _ in range(ROUNDS))
        minutes = seconds * config.steps / 60
        print(f"{name}: {1e3 * seconds:.0f} ms per step, {minutes:.0f} min for {config.steps:,}")


def main() -> None:
    options = arguments()
    use_all_cores()
    if options.recipe:
        by_recipe(options.recipe)
        return

    def config(seeds: int, first: int) -> TrainConfig:
        return TrainConfig(
            model=options.model,
            hidden=options.hidden,
            length=options.length,
            batch=options.batch,
            seeds=seeds,
            first_seed=first,
            steps=10**6,
        )

    ensemble = Timed(config(options.members, 0))
    singles = [Timed(config(1, seed)) for seed in range(options.members)]
    rounds = []
    for _ in range(ROUNDS):
        together = ensemble.seconds(options.steps) / options.steps
        apart = sum(single.seconds(options.steps) for single in singles) / options.steps
        rounds.append((together, apart, together / apart))
    together, apart, ratio = (statistics.median(column) for column in zip(*rounds, strict=True))

    table = Table(
        title=f"{options.members} {options.model} members, hidden {options.hidden}, "
        f"length {options.length}, batch {options.batch}, {jax.default_backend()}"
    )
    table.add_column("")
    for heading in ("ms per step of all", "ms per seed-step", "compile, s"):
        table.add_column(heading, justify="right")
    compile_apart = sum(single.compile_seconds for single in singles)
    for name, seconds, compiled in (
        ("one program", together, ensemble.compile_seconds),
        ("one program each", apart, compile_apart),
    ):
        per_member = seconds / options.members
        table.add_row(name, f"{seconds * 1e3:.1f}", f"{per_member * 1e3:.2f}", f"{compiled:.1f}")
    console = Console()
    console.print(table)
    lowest, highest = min(r[2] for r in rounds), max(r[2] for r in rounds)
    console.print(f"ratio {ratio:.2f} (rounds from {lowest:.2f} to {highest:.2f}); to reach: 0.7")


if __name__ == "__main__":
    main()
