"""`switchpoint reproduce` and `switchpoint figure`: the paper's studies and their pictures."""

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

from switchpoint.cli.study_progress import duration, watcher_for
from switchpoint.experiments import SCALES, STUDIES, Outcome, Scale, Study, load_result, state_of
from switchpoint.experiments import reproduce as carry_out
from switchpoint.experiments.drawn import Drawn
from switchpoint.experiments.reproduce import chosen
from switchpoint.experiments.scales import SETTINGS, changed
from switchpoint.training import use_all_cores

_OUT = Path("report")


def reproduce(
    scale: Annotated[
        str, typer.Option(help=f"How large the studies are: {', '.join(SCALES)}.")
    ] = "zoo",
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", file_okay=False, help="Where the report and all else goes."),
    ] = _OUT,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="STUDY", help="Carry out this study alone; may be repeated."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change a field of the scale, such as period=30 or longer_lengths=[256,512], with "
            "a value in TOML syntax; may be repeated. Networks of other settings need another "
            f"--out. Fields: {', '.join(SETTINGS)}.",
        ),
    ] = None,
    first_seed: Annotated[
        int | None,
        typer.Option(help="The first seed of the networks that are trained; 0 if not given."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--list", help="Print the studies with their cost and state, and end.")
    ] = False,
) -> None:
    """Carry out the paper's studies, and write a report with every figure.

    `zoo` is the paper's setting for any machine: it measures the networks of the zoo on it, on
    fewer sequences, beside the recorded results of all seeds, and trains nothing; studies that
    have no recorded results are not run. `quick` trains small networks, on any machine with two
    cores; `full` is the paper's setting from scratch, for a GPU. What is done already is left as
    it is: the same command resumes where an earlier one was stopped.

    For example:

        switchpoint reproduce --out report

        switchpoint reproduce --scale quick --set period=30 --first-seed 100 --out other
    """
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    given = dict(map(_setting, settings or []))
    if first_seed is not None:
        given["first_seed"] = first_seed
    size = changed(SCALES[scale], given)
    studies = chosen(only or None)
    if size.shipped is not None:
        size.shipped.check(size.architectures)
    if size.hasty:
        _compile_quickly()
    if size.shipped is None:
        use_all_cores()
    console = Console(file=sys.stdout, highlight=False)
    if show:
        _print_studies(console, studies, size, out)
        return
    states = {study.name: state_of(study, size, out) for study in studies}
    ahead = [study for study in studies if states[study.name] in ("to do", "partly")]
    _print_plan(console, states, ahead, size, out, given)
    drawn = Drawn(out)
    options = [word for each in settings or [] for word in ("--set", each)]
    options += [] if first_seed is None else ["--first-seed", str(first_seed)]
    command = shlex.join(
        ["switchpoint", "reproduce", "--scale", scale, "--out", str(out), *options]
    )
    expected = {study.name: size.seconds.get(study.name, 0.0) for study in ahead}
    with watcher_for(sys.stderr, expected) as watcher:

        def draw(outcome: Outcome) -> None:
            if outcome.computed or not drawn.is_current(outcome.study.name):
                watcher.doing(f"drawing {outcome.study.name}", 0.0)
                drawn.draw(outcome.study.name, outcome.result)

        carry_out(size, out, [study.name for study in studies], watcher, command, draw)
    from switchpoint.report import write_report  # Matplotlib is slow to import

    left = [name for name, state in states.items() if state == "not run"]
    if left:
        console.print(f"not run, for want of recorded results: {', '.join(left)}", soft_wrap=True)
    console.print(Text(f"{write_report(out)}: the report"), soft_wrap=True)


def figure(
    name: Annotated[str, typer.Argument(metavar="STUDY", help=f"One of {', '.join(STUDIES)}.")],
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", file_okay=False, help="The directory of the report."),
    ] = _OUT,
) -> None:
    """Draw the figures of one study again from its saved results; nothing is computed.

    For example:

        switchpoint figure on-distribution --out report
    """
    (study,) = chosen([name])
    paths = Drawn(out).draw(study.name, load_result(out, study.name))
    from switchpoint.report import write_report

    console = Console(file=sys.stdout, highlight=False)
    for path in (*paths, write_report(out)):
        console.print(Text(str(path)), soft_wrap=True)


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


def _compile_quickly() -> None:
    """Ask for less effort in compiling for a CPU, where it would take longer than training.

    The products of matrices, which most of the time goes to, are as fast. It must be said
    before JAX is first used; what the user says wins.
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
    """Print what will be done, how long it takes, and where it goes."""
    names = ", ".join(study.name for study in ahead) or "nothing; all studies are done"
    seconds = sum(scale.seconds.get(study.name, 0) for study in ahead)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column()
    networks = "networks of the zoo" if scale.shipped is not None else f"{scale.seeds} seeds"
    table.add_row(
        "scale",
        Text(
            f"{scale.name}: sequences of {scale.length}, {networks}, "
            f"{scale.sequences:,} test sequences"
        ),
    )
    if settings:
        changes = (f"{name} = {value}" for name, value in settings.items())
        table.add_row("settings", Text(", ".join(changes)))
    table.add_row("to do", Text(names))
    done = [name for name, state in states.items() if state == "done"]
    if done:
        table.add_row("done", Text(f"{len(done)} of {len(states)} studies"))
    if ahead:
        usual = f" with the settings of {scale.name}" if settings else ""
        table.add_row("time", Text(f"about {duration(seconds)}{usual}"))
    table.add_row("directory", Text(str(out)))
    console.print(table)


def _print_studies(console: Console, studies: list[Study], scale: Scale, out: Path) -> None:
    """Print a table of the studies, with their cost and state."""
    table = Table(
        title=Text(f"Studies at scale {scale.name}, in {out}"),
        title_justify="left",
        title_style="cyan",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("study", no_wrap=True)
    table.add_column("paper")
    table.add_column("cost", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for study in studies:
        state = state_of(study, scale, out)
        cost = f"about {duration(scale.seconds.get(study.name, 0))}"
        if state == "not run":
            cost = "-"
        if state == "done":
            took = load_result(out, study.name).attrs["provenance"]
            cost = duration(took["wall_seconds"] + took["training_seconds"])
        table.add_row(Text(study.name), Text(study.paper), cost, state)
    console.print(table)
