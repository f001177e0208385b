"""`switchpoint sweep`: training runs that differ in some settings, compared."""

import sys
from collections.abc import Iterator
from pathlib import Path

import typer
import xarray as xr
from rich.table import Table

from switchpoint import training
from switchpoint._display import show_progress
from switchpoint.cli import output
from switchpoint.cli.executor_options import EXECUTOR, JOBS, RAY_ADDRESS, executor_arguments
from switchpoint.training.packing import pack
from switchpoint.training.sweep import MAX_MEMBERS, RESULT_FILE, Sweep

_SHOWN = 50  # members in the table


def sweep(
    config: Path = typer.Argument(
        metavar="FILE",
        help="A TOML file of training settings, as for switchpoint train --config, with a "
        "table [sweep] of the settings that vary.",
    ),
    out: Path = typer.Option(
        Path("sweep"),
        metavar="DIR",
        file_okay=False,
        help="The directory of the sweep; an interrupted sweep is resumed.",
    ),
    draws: int | None = typer.Option(
        None, min=1, metavar="N", help="Draw this many combinations at random; all by default."
    ),
    executor: str | None = EXECUTOR,
    jobs: int | None = JOBS,
    ray_address: str | None = RAY_ADDRESS,
    members: int = typer.Option(
        MAX_MEMBERS,
        min=1,
        metavar="N",
        help="The maximum number of members in one program. A different number gives networks "
        "that differ by rounding.",
    ),
    kernels: str = typer.Option(
        "auto", metavar="BACKEND", help="The backend: fused, plain or auto, as for train."
    ),
    tensorboard: bool = typer.Option(
        False, "--tensorboard", help="Also write events for TensorBoard."
    ),
) -> None:
    """Train every combination of some settings, and sort the results by excess regret.

    Members that differ only in learning rate, seeds, clip_norm, b2 and matrix_decay are trained in
    one program. The table [sweep] holds lists of values, such as learning_rate = [1e-3, 3e-3], and
    with draws = N also ranges, such as learning_rate = {low = 1e-4, high = 1e-2, log = true}. The
    same command with the same --out resumes a sweep that was stopped.

    For example:

        switchpoint sweep lstm.toml --out sweeps/lstm --executor processes
    """
    training.use_all_cores()
    plan = training.read_sweep(config, draws)
    chosen = executor_arguments(executor, jobs, ray_address)
    screen = output.console()
    screen.print(output.panel("switchpoint sweep", _plan_lines(plan, members, out)))
    with show_progress(sys.stderr) as progress:
        result = training.sweep(
            plan,
            out,
            **chosen,
            members=members,
            tensorboard=tensorboard,
            kernels=kernels,
            listener=progress,
        )
    screen.print(_table(result))
    print(f"{out / RESULT_FILE}: {result.sizes['member']} members")


def _plan_lines(plan: Sweep, members: int, out: Path) -> Iterator[tuple[str, str]]:
    """The settings that vary, and the number of members and programs."""
    for name, axis in plan.axes.items():
        yield name, output.shortened(str(axis if isinstance(axis, list) else vars(axis)))
    count = len(plan.configs)
    yield "runs", f"{count} combinations" if plan.draws is None else f"{count} random draws"
    programs = pack(plan.configs, members)
    total = sum(len(program.members()) for program in programs)
    yield "members", f"{total} in {len(programs)} program{'' if len(programs) == 1 else 's'}"
    yield "directory", str(out)


def _table(result: xr.Dataset) -> Table:
    """The best members, with the settings that differ."""
    frame = result.drop_dims("step").to_dataframe().drop(columns="program")
    shown = [
        str(name)
        for name in frame.columns.difference(list(result.data_vars), sort=False)
        if frame[name].nunique() > 1 or name in result.attrs["swept"]
    ]
    table = output.table(
        "Excess over the Bayes optimum in bits per sequence, at the end of training",
        *(*shown, "excess, bits", "error", "loss, bits/symbol"),
        texts=0,
        caption=f"the best {_SHOWN} of {len(frame)}" if len(frame) > _SHOWN else None,
        caption_justify="left",
    )
    for row in frame.head(_SHOWN).to_dict("records"):
        cells = [f"{row['excess']:.3f}", f"{row['excess_error']:.3f}", f"{row['loss']:.4f}"]
        cells = cells if row["excess"] == row["excess"] else ["diverged", "-", "-"]
        settings = (row[name] for name in shown)
        table.add_row(
            *(f"{each:g}" if isinstance(each, float) else str(each) for each in settings), *cells
        )
    return table
