"""`switchpoint train`: networks on a source."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import typer
from rich.table import Table

from switchpoint import _checks, training
from switchpoint.cli import output
from switchpoint.cli.config_options import EVERY, given_settings, with_options
from switchpoint.neural.kernels.backend import check_backend
from switchpoint.training.config import Member, TrainConfig, read_toml
from switchpoint.training.metrics_log import EvalRecord


@with_options(*EVERY)
def train(
    *,
    out: Path = typer.Option(
        metavar="DIR",
        file_okay=False,
        help="The directory of the run; an interrupted run is resumed.",
    ),
    config: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="A TOML file of settings, such as learning_rate = 0.01; options on the command line "
        "take precedence.",
    ),
    kernels: str = typer.Option(
        "auto",
        metavar="BACKEND",
        help="The backend: fused (GPU kernels, for the networks that have them; on a CPU they "
        "are interpreted, which is slow), plain (JAX alone), or auto: fused on a GPU, plain "
        "elsewhere. Predictions agree to about 0.002. Checkpoints are the same, so a run may "
        "resume on another backend.",
    ),
    minutes: float | None = typer.Option(
        None,
        metavar="NUMBER",
        help="Stop after this time and write the networks as they are; the same command resumes "
        "the run. The learning-rate schedule still spans all steps.",
    ),
    tensorboard: bool = typer.Option(
        False, "--tensorboard", help="Also write events for TensorBoard."
    ),
    quiet: bool = typer.Option(
        False,
        "--quiet",
        help="Print only the path of the trained networks, and warnings about damaged files.",
    ),
    **settings: Any,
) -> None:
    """Train networks to predict a source, and measure their excess regret over its optimum.

    One program trains all members: a network for each prior, learning rate and seed. Defaults are
    those of the paper or, where the help says "by model", of the model's recipe. The same command
    with the same --out resumes a run that was stopped.

    For example:

        switchpoint train --prior ptw --prior lin --seeds 10 --out runs/lstm
    """
    training.use_all_cores()
    check_backend(kernels)
    minutes = None if minutes is None else _checks.positive_float("minutes", minutes)
    given = given_settings(settings)
    plan = TrainConfig(**given) if config is None else read_toml(config, **given)
    screen = output.console(quiet=quiet)
    screen.print(output.panel("switchpoint train", _plan_lines(plan, out)))
    run = training.train(
        plan,
        out=out,
        minutes=minutes,
        progress="warnings" if quiet else True,
        tensorboard=tensorboard,
        kernels=kernels,
    )
    screen.print(_results_table(plan, run.members, run.reports[-1]))
    count = len(run.members)
    networks = "the trained network" if count == 1 else f"the {count} trained networks"
    print(run.path if quiet else f"{run.path}: {networks}")


def _plan_lines(plan: TrainConfig, out: Path) -> Iterator[tuple[str, str]]:
    """The network, the sources, the members, the training and the directory."""
    shapes = eqx.filter_eval_shape(plan.network, jax.random.key(0))
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    details = [f"{name} {value}" for name, value in plan.options().items() if value is not None]
    yield "network", f"{', '.join([plan.model, *details])}; {count:,} parameters"
    for prior in plan.prior:
        source = plan.source(prior)
        yield "source", f"{output.shortened(repr(source.prior))}, {source.segment!r}"
    last = f" to {plan.first_seed + plan.seeds - 1}" if plan.seeds > 1 else ""
    rates = ", ".join(f"{rate:g}" for rate in plan.learning_rate)
    yield (
        "members",
        f"{len(plan.members())}: seed {plan.first_seed}{last}, learning rate {rates}",
    )
    lengths = str(plan.length) if plan.min_length is None else f"{plan.min_length} to {plan.length}"
    yield "training", f"{plan.steps:,} steps of {plan.batch} sequences of {lengths} symbols"
    yield (
        "",
        f"{plan.schedule} rate after {plan.warmup} steps of warm-up, clip norm {plan.clip_norm:g}",
    )
    if plan.tbptt_length is not None:
        yield "", f"gradients cut after every {plan.tbptt_length} symbols"
    yield "directory", str(out)


def _results_table(plan: TrainConfig, members: tuple[Member, ...], report: EvalRecord) -> Table:
    """The excess of each member at the end."""
    unfinished = report.step < plan.steps
    done = f"{report.step:,} of {plan.steps:,}" if unfinished else f"{report.step:,}"
    table = output.table(
        f"Excess over the Bayes optimum in bits per sequence, after {done} steps",
        *("prior", "learning rate", "seed", "excess, bits", "error", "loss, bits/symbol"),
        caption=f"measured on {plan.validation:,} sequences of {plan.length:,} symbols",
        caption_justify="left",
    )
    for member in members:
        cells = ["diverged", "-", "-"]
        if member.index not in report.diverged:
            excess, error = report.excess[member.index], report.excess_error[member.index]
            cells = [f"{excess:.3f}", f"{error:.3f}", f"{report.loss[member.index]:.4f}"]
        table.add_row(member.prior, f"{member.learning_rate:g}", str(member.seed), *cells)
    return table
