"""`switchpoint reproduce`, `figure` and `report`: the paper's studies and what is shown of them."""

import os
import shlex
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from switchpoint._numbers import duration
from switchpoint.cli.executor_options import (
    Executor,
    Jobs,
    RayAddress,
    ShardMembers,
    executor_arguments,
)
from switchpoint.cli.study_progress import reporter_for
from switchpoint.paper import SCALES, STUDIES, Outcome, Scale, Study, draw, load_result
from switchpoint.paper import reproduce as run_studies
from switchpoint.paper.pipeline import networks_for, select_studies, state_of
from switchpoint.paper.report import write_markdown, write_report
from switchpoint.paper.scale import RECORDED, SETTINGS
from switchpoint.training import use_all_cores

_OUT = Path("report")


def reproduce(
    scale: Annotated[str, typer.Option(help=f"The size of the studies: {', '.join(SCALES)}.")] = (
        "zoo"
    ),
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", file_okay=False, help="The directory of the report and its data."
        ),
    ] = _OUT,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="STUDY", help="Run only this study; may be repeated."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change a field of the scale, such as period=30 or longer_lengths=[256,512], with "
            "a value in TOML syntax; may be repeated. Networks with other settings need another "
            f"--out. Fields: {', '.join(SETTINGS)}.",
        ),
    ] = None,
    first_seed: Annotated[
        int | None,
        typer.Option(help="The first training seed; 0 by default."),
    ] = None,
    executor: Executor = None,
    jobs: Jobs = None,
    ray_address: RayAddress = None,
    shard_members: ShardMembers = None,
    show: Annotated[
        bool, typer.Option("--list", help="Print the studies with their cost and state, and exit.")
    ] = False,
) -> None:
    """Run the paper's studies, and write a report with every figure.

    Scale `zoo` is the paper's setting on any machine, without training: it measures pretrained
    networks on fewer sequences, beside the recorded results of all seeds. `quick` trains small
    networks, on any machine with two cores; `full` is the paper's setting from scratch, for a
    GPU. The same command resumes where an earlier one was stopped; finished studies are not run
    again.

    For example:

        switchpoint reproduce --out report
        switchpoint reproduce --scale quick --set period=30 --first-seed 100 --out other
        switchpoint reproduce --scale full --executor ray --ray-address 10.0.0.1:6379 --out full
    """
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    given = dict(map(_setting, settings or []))
    if first_seed is not None:
        given["first_seed"] = first_seed
    size = SCALES[scale].changed(given)
    studies = select_studies(only or None)
    chosen = executor_arguments(executor, jobs, ray_address)
    networks = networks_for(size, out, shard_members)
    if size.fast_compile:
        _compile_fast()
    use_all_cores()
    console = Console(file=sys.stdout, highlight=False)
    states = {study.name: state_of(study, size, out, networks) for study in studies}
    if show:
        _print_studies(console, studies, states, size, out)
        return
    ahead = [study for study in studies if states[study.name] in ("to do", "partly")]
    _print_plan(console, states, ahead, size, out, given)
    options = [word for each in settings or [] for word in ("--set", each)]
    options += [] if first_seed is None else ["--first-seed", str(first_seed)]
    options += [] if chosen["executor"] == "local" else ["--executor", chosen["executor"]]
    options += [] if shard_members is None else ["--shard-members", str(shard_members)]
    command = shlex.join(
        ["switchpoint", "reproduce", "--scale", scale, "--out", str(out), *options]
    )
    expected = {study.name: study.seconds.get(scale, 0.0) for study in ahead}
    with reporter_for(sys.stderr, expected) as reporter:

        def draw_figures(outcome: Outcome) -> None:
            reporter.update(f"drawing {outcome.study.name}", 0.0)
            draw(outcome.study, out)

        names = [study.name for study in studies]
        run_studies(
            size,
            out,
            names,
            reporter,
            command,
            draw_figures,
            networks,
            **chosen,
        )
    if skipped := [name for name, state in states.items() if state == "skipped"]:
        text = f"skipped: no recorded results of {', '.join(skipped)}"
        console.print(text, soft_wrap=True)
    console.print(Text(f"{write_report(out)}: the report"), soft_wrap=True)


def figure(
    name: Annotated[str, typer.Argument(metavar="STUDY", help=f"One of {', '.join(STUDIES)}.")],
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", file_okay=False, help="The directory of the report."),
    ] = _OUT,
) -> None:
    """Redraw the figures of one study from its saved results, without computing anything.

    For example:

        switchpoint figure on-distribution --out report
    """
    (study,) = select_studies([name])
    load_result(out, study.name)  # names a study without a result
    console = Console(file=sys.stdout, highlight=False)
    for path in (*draw(study, out, again=True), write_report(out)):
        console.print(Text(str(path)), soft_wrap=True)


def report(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]",
            file_okay=False,
            show_default=False,
            help="The directory of a report; the recorded results by default.",
        ),
    ] = RECORDED,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the tables of all studies in Markdown.")
    ] = False,
) -> None:
    """Rewrite the report of a directory from its saved results, or print its tables.

    For example:

        switchpoint report report

        switchpoint report --markdown
    """
    if markdown:
        sys.stdout.write(write_markdown(directory))
        return
    if directory == RECORDED:
        raise ValueError("the directory of a report must be given, as switchpoint report report")
    if not (directory / "results").is_dir() and not (directory / "recorded").is_dir():
        raise ValueError(
            f"there are no results in {directory}; switchpoint reproduce --out {directory} makes "
            "them"
        )
    Console(file=sys.stdout, highlight=False).print(Text(str(write_report(directory))))


def _setting(text: str) -> tuple[str, Any]:
    """The name and the value in a text such as `period=30`."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not (name and equals):
        raise ValueError(f"--set must be followed by NAME=VALUE, as period=30, got {text!r}")
    try:
        parsed = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError) as error:
        parsed = {"error": error}
    if set(parsed) != {"value"}:
        raise ValueError(
            f'the value of {name} must be written as in TOML, as 30, true, [8, 16] or "text", '
            f"got {value.strip()!r}"
        )
    return name, parsed["value"]


def _compile_fast() -> None:
    """Reduce XLA's effort in compiling for a CPU, where it would take longer than training.

    Matrix products, which take most of the time, are as fast. It must be set before JAX is first
    used; a setting of the user takes precedence.
    """
    given = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_optimization_level" not in given:
        os.environ["XLA_FLAGS"] = f"{given} --xla_backend_optimization_level=1".strip()


def _print_plan(
    console: Console,
    states: Mapping[str, str],
    ahead: list[Study],
    scale: Scale,
    out: Path,
    settings: Mapping[str, Any],
) -> None:
    """Print the studies ahead, their expected time, and the directory."""
    networks = "pretrained networks" if scale.zoo is not None else f"{scale.seeds} seeds"
    size = f"sequences of {scale.length}, {networks}, {scale.sequences:,} test sequences"
    rows = {"scale": f"{scale.name}: {size}"}
    if settings:
        rows["settings"] = ", ".join(f"{name} = {value}" for name, value in settings.items())
    names = ", ".join(study.name for study in ahead)
    rows["to do"] = names or "nothing; all studies are done"
    for state, text in (("done", "done"), ("recorded", "recorded")):
        count = sum(each == state for each in states.values())
        if count:
            rows[text] = f"{count} of {len(states)} studies"
    if ahead:
        seconds = sum(study.seconds.get(scale.name, 0) for study in ahead)
        usual = f" with the settings of {scale.name}" if settings else ""
        rows["time"] = f"about {duration(seconds)}{usual}"
    rows["directory"] = str(out)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold cyan", no_wrap=True)
    for name, text in rows.items():
        table.add_row(name, Text(text))
    console.print(table)


def _print_studies(
    console: Console, studies: list[Study], states: Mapping[str, str], scale: Scale, out: Path
) -> None:
    """Print a table of the studies, with their cost and state."""
    title = Text(f"Studies at scale {scale.name}, in {out}")
    style: dict[str, Any] = {"title_justify": "left", "title_style": "cyan", "pad_edge": False}
    table = Table(title=title, box=box.SIMPLE_HEAD, **style)
    table.add_column("study", no_wrap=True)
    table.add_column("paper")
    table.add_column("cost", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for study in studies:
        state = states[study.name]
        cost = "-"
        if state in ("to do", "partly"):
            cost = f"about {duration(study.seconds.get(scale.name, 0))}"
        if state == "done":
            took = load_result(out, study.name).local
            times = {} if took is None else took.attrs["provenance"]
            cost = duration(times["wall_seconds"] + times["training_seconds"])
        table.add_row(Text(study.name), Text(study.paper), cost, state)
    console.print(table)
