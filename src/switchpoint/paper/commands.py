"""The commands of the studies: `switchpoint reproduce`, and `python -m switchpoint.paper`."""

import os
import shlex
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from switchpoint import _checks
from switchpoint._display import show_progress
from switchpoint._numbers import duration
from switchpoint.cli import output
from switchpoint.cli.app import Group
from switchpoint.cli.executor_options import EXECUTOR, JOBS, RAY_ADDRESS, executor_arguments
from switchpoint.cli.process import SIGNALS
from switchpoint.executors import open_executor
from switchpoint.neural.storage import MODEL_FILE
from switchpoint.paper.base import main_runs
from switchpoint.paper.networks import training_cost
from switchpoint.paper.pipeline import StudyRunner, draw, recordable_plans, select_studies
from switchpoint.paper.registry import STUDIES
from switchpoint.paper.report import write_markdown, write_report
from switchpoint.paper.results import copy_result, has_plan, load_result, result_path
from switchpoint.paper.scale import RECORDED, SCALES, SETTINGS
from switchpoint.training import use_all_cores
from switchpoint.zoo import Zoo, build
from switchpoint.zoo.building import TEST_SEQUENCES

app = typer.Typer(
    name="python -m switchpoint.paper",
    cls=Group,
    invoke_without_command=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_SETTINGS = ", ".join(SETTINGS)
_REPORT: Any = typer.Argument(metavar="DIR", file_okay=False, help="The directory of a report.")


@app.callback()
def paper(context: typer.Context) -> None:
    """Show and record the results of the paper's studies, which switchpoint reproduce runs."""
    SIGNALS.unwinds = True
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def reproduce(
    scale: str = typer.Option("zoo", help=f"The size of the studies: {', '.join(SCALES)}."),
    out: Path = typer.Option(
        Path("report"),
        metavar="DIR",
        file_okay=False,
        help="The directory of the report and its data.",
    ),
    only: list[str] | None = typer.Option(
        None, metavar="STUDY", help="Run only this study; may be repeated."
    ),
    settings: list[str] | None = typer.Option(
        None,
        "--set",
        metavar="NAME=VALUE",
        help="Change a field of the scale, such as period=30 or longer_lengths=[256,512], with "
        "a value in TOML syntax; may be repeated. Networks with other settings need another "
        f"--out. Fields: {_SETTINGS}.",
    ),
    executor: str | None = EXECUTOR,
    jobs: int | None = JOBS,
    ray_address: str | None = RAY_ADDRESS,
    show: bool = typer.Option(
        False, "--list", help="Print the studies with their cost and state, and exit."
    ),
) -> None:
    """Run the paper's studies, and write a report with every figure.

    Scale `zoo` is the paper's setting on any machine, without training: it measures pretrained
    networks on fewer sequences, beside the recorded results of all seeds. `quick` trains small
    networks, on any machine with two cores; `full` is the paper's setting from scratch, for a
    GPU. The same command resumes where an earlier one was stopped; finished studies are not run
    again.

    For example:

        switchpoint reproduce --out report
        switchpoint reproduce --scale quick --set period=30 --set first_seed=100 --out other
        switchpoint reproduce --scale full --executor ray --ray-address 10.0.0.1:6379 --out full
    """
    _checks.one_of("scale", scale, SCALES)
    size = SCALES[scale]
    given = dict(map(_setting, settings or []))
    size = size.changed(given)
    chosen = executor_arguments(executor, jobs, ray_address)
    if size.fast_compile:
        _compile_fast()
    use_all_cores()
    options = [word for each in settings or [] for word in ("--set", each)]
    options += [] if chosen["executor"] == "local" else ["--executor", chosen["executor"]]
    words = ["switchpoint", "reproduce", "--scale", scale, "--out", str(out), *options]
    with show_progress(sys.stderr) as progress:
        runner = StudyRunner(size, out, only or None, progress)
        if show:
            _print_studies(runner)
            return
        _print_plan(runner, out, given)

        with open_executor(**chosen) as opened:
            runner.run(opened, shlex.join(words), lambda study, result: draw(study, result, out))
    if skipped := [name for name, state in runner.states.items() if state == "skipped"]:
        _print(f"skipped: no recorded results of {', '.join(skipped)}")
    _print(f"{write_report(out, runner.results)}: the report")


@app.command()
def report(
    directory: Path = typer.Argument(
        RECORDED,
        metavar="[DIR]",
        file_okay=False,
        show_default=False,
        help="The directory of a report; the recorded results by default.",
    ),
    redraw: list[str] | None = typer.Option(
        None, metavar="STUDY", help="Redraw the figures of this study; may be repeated."
    ),
    markdown: bool = typer.Option(
        False, "--markdown", help="Print the tables of all studies in Markdown."
    ),
) -> None:
    """Rewrite the report of a directory from its saved results, or print its tables.

    For example:

        python -m switchpoint.paper report report --redraw on-distribution

        python -m switchpoint.paper report --markdown
    """
    if markdown:
        sys.stdout.write(write_markdown(directory))
        return
    if directory == RECORDED:
        raise ValueError("the directory of a report must be given, as report report")
    results = {
        study.name: load_result(directory, study.name)
        for study in (select_studies(redraw) if redraw else [])
    }
    if not (directory / "results").is_dir() and not (directory / "recorded").is_dir():
        raise ValueError(
            f"there are no results in {directory}; switchpoint reproduce --out {directory} makes "
            "them"
        )
    for name, result in results.items():
        for path in draw(STUDIES[name], result, directory, again=True):
            _print(str(path))
    _print(str(write_report(directory, results)))


@app.command()
def record(
    directory: Path = _REPORT,
    into: Path = typer.Option(
        RECORDED, metavar="DIR", file_okay=False, help="The directory of recorded results."
    ),
) -> None:
    """Record the results of a directory for scale zoo.

    For example:

        switchpoint reproduce --scale full --only memory --out full

        python -m switchpoint.paper record full
    """
    studies = [study for study in STUDIES.values() if study.recorded]
    results = {study.name: result_path(directory, study.name) for study in studies}
    if not any(path.exists() for path in results.values()):
        raise ValueError(f"there are no results in {directory}; switchpoint reproduce makes them")
    for study in studies:
        if results[study.name].exists():
            result = load_result(directory, study.name).local
            if result is None or not any(
                has_plan(result, plan) for plan in recordable_plans(study)
            ):
                raise ValueError(f"{results[study.name]} is not a result of scale full")
            target = into / results[study.name].name
            copy_result(results[study.name], target)
            _print(str(target))


@app.command()
def build_zoo(
    directory: Path = _REPORT,
    out: Path = typer.Option(metavar="DIR", file_okay=False, help="The directory of the zoo."),
    sequences: int = typer.Option(
        TEST_SEQUENCES, help="The number of test sequences for the score on each card."
    ),
) -> None:
    """Build a zoo from the networks of scale full: the best seed of each architecture and source.

    The best seed has the lowest excess on the validation sequences of its run; it is then
    measured on test sequences. Networks that are already in the zoo are not measured again.

    For example:

        python -m switchpoint.paper build-zoo full --out zoo
    """
    zoo = Zoo(out)
    runs = [directory / "runs" / run.name for run in main_runs(SCALES["full"])]
    paths = sorted(path for path in runs if (path / MODEL_FILE).exists())
    with show_progress(sys.stderr) as progress:
        names = build(paths, zoo, sequences, progress, training_cost)
    for name in names:
        test = zoo.card(name)["test"]
        _print(f"{name}: {test['excess']:.3f} ± {test['excess_error']:.3f} bits")
    _print(f"{out}: {len(zoo.names())} networks, {zoo.size() / 2**20:.1f} MiB")


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


def _print_plan(runner: StudyRunner, out: Path, settings: Mapping[str, Any]) -> None:
    """Print the studies ahead, their expected time, and the directory."""
    scale, states = runner.scale, runner.states
    ahead = [study for study in runner.studies if states[study.name] == "to do"]
    networks = "pretrained networks" if scale.zoo is not None else f"{scale.seeds} seeds"
    size = f"sequences of {scale.length}, {networks}, {scale.sequences:,} test sequences"
    rows = {"scale": f"{scale.name}: {size}"}
    if settings:
        rows["settings"] = ", ".join(f"{name} = {value}" for name, value in settings.items())
    names = ", ".join(study.name for study in ahead)
    rows["to do"] = names or "nothing; all studies are done"
    for state in ("done", "recorded"):
        if count := list(states.values()).count(state):
            rows[state] = f"{count} of {len(states)} studies"
    if ahead:
        seconds = sum(study.seconds.get(scale.name, 0) for study in ahead)
        usual = f" with the settings of {scale.name}" if settings else ""
        rows["time"] = f"about {duration(seconds)}{usual}"
    rows["directory"] = str(out)
    output.console().print(output.labelled(rows.items()))


def _print_studies(runner: StudyRunner) -> None:
    """Print a table of the studies, with their cost and state."""
    title = f"Studies at scale {runner.scale.name}, in {runner.out}"
    table = output.table(title, "study", "paper", "state", "cost", texts=3)
    for study in runner.studies:
        state, cost = runner.states[study.name], "-"
        if state == "to do":
            cost = f"about {duration(study.seconds.get(runner.scale.name, 0))}"
        local = runner.results[study.name].local if state == "done" else None
        if local is not None:
            spent = local.attrs["provenance"]
            cost = duration(spent["wall_seconds"] + spent["training_seconds"])
        table.add_row(study.name, study.paper, state, cost)
    output.console().print(table)


def _print(text: str) -> None:
    output.console().print(Text(text), soft_wrap=True)
