"""`switchpoint train`: networks on a source."""

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import equinox as eqx
import jax
import typer
from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from switchpoint import _checks, training
from switchpoint.cli.config_options import EVERY, given_settings, with_options
from switchpoint.cli.summary import shortened
from switchpoint.neural.kernels.backend import BACKENDS
from switchpoint.training.config import Member, TrainConfig, read_toml
from switchpoint.training.fields import one_of
from switchpoint.training.metrics_log import EvalRecord
from switchpoint.training.progress import Warnings, progress_for


@with_options(*EVERY)
def train(
    *,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="The directory of the run; one that was interrupted is continued.",
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A TOML file of settings, such as learning_rate = 0.01; what is given here as an "
            "option wins over it.",
        ),
    ] = None,
    kernels: Annotated[
        str,
        typer.Option(
            metavar="BACKEND",
            help="The backend: fused (GPU kernels, for the networks that have them; on a CPU they "
            "are interpreted, which is slow), plain (JAX alone), or auto: fused on a GPU, plain "
            "elsewhere. Predictions agree to about 0.002; checkpoints are the same, so that a run "
            "may be continued on another backend.",
        ),
    ] = "auto",
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Stop after this much time, with the networks as they are then; the same command "
            "goes on later. The learning rate follows the schedule of all steps nevertheless.",
        ),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write events for TensorBoard as well.")
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            help="Print nothing but the path of the trained networks, and warnings of damaged "
            "files.",
        ),
    ] = False,
    **settings: Any,
) -> None:
    """Train networks to predict a source, and measure how far from its Bayes optimum they end.

    One program trains all members: a network for each prior, learning rate and seed. What is
    not given follows the paper or, where the default is by model, a recipe that works for the
    model. The same command with the same --out continues a run that was stopped.

    For example:

        switchpoint train --prior ptw --prior lin --seeds 10 --out runs/lstm
    """
    training.use_all_cores()
    kernels = one_of(*BACKENDS)("kernels", kernels)
    minutes = None if minutes is None else _checks.positive_float("minutes", minutes)
    given = given_settings(settings)
    plan = TrainConfig(**given) if config is None else read_toml(config, **given)
    console = Console(file=sys.stdout, highlight=False, quiet=quiet)
    _print_plan(console, plan, out)
    run = training.train(
        plan,
        out=out,
        minutes=minutes,
        progress=Warnings(sys.stderr) if quiet else progress_for(sys.stderr),
        tensorboard=tensorboard,
        kernels=kernels,
    )
    _print_results(console, plan, run.members, run.reports[-1])
    count = len(run.members)
    networks = "the trained network" if count == 1 else f"the {count} trained networks"
    print(run.path if quiet else f"{run.path}: {networks}")


def _print_plan(console: Console, plan: TrainConfig, out: Path) -> None:
    """Print what will be trained on what, and where it goes."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column()
    shapes = eqx.filter_eval_shape(plan.network, jax.random.key(0))
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    details = [f"{name} {value}" for name, value in plan.options().items() if value is not None]
    table.add_row("network", Text(f"{', '.join([plan.model, *details])}; {count:,} parameters"))
    for prior in plan.prior:
        source = plan.source(prior)
        table.add_row("source", Text(f"{shortened(repr(source.prior))}, {source.segment!r}"))
    seeds = f"seed {plan.first_seed}" + (
        f" to {plan.first_seed + plan.seeds - 1}" if plan.seeds > 1 else ""
    )
    rates = ", ".join(f"{rate:g}" for rate in plan.learning_rate)
    table.add_row("members", Text(f"{len(plan.members())}: {seeds}, learning rate {rates}"))
    lengths = str(plan.length) if plan.min_length is None else f"{plan.min_length} to {plan.length}"
    table.add_row(
        "training", Text(f"{plan.steps:,} steps of {plan.batch} sequences of {lengths} symbols")
    )
    rate = f"{plan.schedule} rate after {plan.warmup} steps of warm-up"
    table.add_row("", Text(f"{rate}, gradients clipped to {plan.clip_norm:g}"))
    if plan.tbptt_length is not None:
        table.add_row("", Text(f"gradients cut after every {plan.tbptt_length} symbols"))
    table.add_row("directory", Text(str(out)))
    console.print(Panel(table, title="switchpoint train", expand=False, border_style="dim"))


def _print_results(
    console: Console, plan: TrainConfig, members: tuple[Member, ...], report: EvalRecord
) -> None:
    """Print how far each member ended from the Bayes optimum."""
    unfinished = report.step < plan.steps
    done = f"{report.step:,} of {plan.steps:,}" if unfinished else f"{report.step:,}"
    table = Table(
        title=f"Excess over the Bayes optimum in bits per sequence, after {done} steps",
        caption=f"measured on {plan.validation:,} sequences of {plan.length:,} symbols",
        title_justify="left",
        caption_justify="left",
        title_style="cyan",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("prior")
    for heading in ("learning rate", "seed", "excess, bits", "error", "loss, bits/symbol"):
        table.add_column(heading, justify="right")
    for member in members:
        frozen = member.index in report.frozen
        table.add_row(
            member.prior,
            f"{member.learning_rate:g}",
            str(member.seed),
            "frozen" if frozen else f"{report.excess[member.index]:.3f}",
            "-" if frozen else f"{report.excess_error[member.index]:.3f}",
            "-" if frozen else f"{report.loss[member.index]:.4f}",
        )
    console.print(table)
