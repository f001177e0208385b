"""`switchpoint shard`, `merge` and `build-zoo`: studies trained piecewise on other machines."""

import fnmatch
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from switchpoint._files import make_directory
from switchpoint._work import Task, WorkQueue
from switchpoint.cli.executor_options import Executor, Jobs, RayAddress, executor_arguments
from switchpoint.cli.study_progress import reporter_for
from switchpoint.executors import open_executor
from switchpoint.paper import SCALES, STUDIES, reproduce
from switchpoint.paper.base import Run
from switchpoint.paper.networks import ShardNetworks
from switchpoint.paper.networks import shard as shard_of
from switchpoint.paper.pipeline import can_compute, forget_partial
from switchpoint.paper.recording import record, recorded_result, unrecorded_runs
from switchpoint.paper.results import load_result, result_path
from switchpoint.paper.scale import RECORDED, Scale
from switchpoint.paper.shards import all_runs, train_shard
from switchpoint.zoo import Zoo, build
from switchpoint.zoo.building import TEST_SEQUENCES

_SCALE = Annotated[str, typer.Option(help=f"One of {', '.join(SCALES)}.")]


def shard(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Training runs, or patterns such as 'ablation-*'; if none is given, they are "
            "listed.",
        ),
    ] = None,
    missing: Annotated[
        bool,
        typer.Option(
            "--missing",
            help="Only runs that the recorded results lack: all of these, if no RUN is given.",
        ),
    ] = False,
    prior: Annotated[
        list[str] | None,
        typer.Option(help="Only this training source of the runs; may be repeated."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="FIRST-LAST", help="Only these seeds, such as 0-4.")
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Directory of finished shards.")
    ] = Path("shards"),
    work: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Directory of checkpoints.")
    ] = Path("runs/shards"),
    best_only: Annotated[
        bool,
        typer.Option(
            "--best-only",
            help="Write only the weights of the best network of each source on validation.",
        ),
    ] = False,
    executor: Executor = None,
    jobs: Jobs = None,
    ray_address: RayAddress = None,
    scale: _SCALE = "full",
) -> None:
    """Train some seeds of the studies' runs, and take all their measurements.

    Writes a few files of at most 16 MiB, from which `switchpoint merge` computes the results of
    the studies, and `switchpoint build-zoo` builds the zoo. The same command resumes from its
    checkpoints. Set SWITCHPOINT_COMMIT if the source tree has no git history.

    For example:

        switchpoint shard lstm --prior ptw --seeds 0-9 --out shards
        switchpoint shard --missing --out shards
    """
    size = _scale(scale)
    chosen = executor_arguments(executor, jobs, ray_address)
    known = all_runs(size)
    wanted = _matching(runs or list(known), known)
    unrecorded = unrecorded_runs(size, RECORDED) if missing or not runs else {}
    if missing:
        wanted = [run for run in wanted if run.name in unrecorded]
    listing = not (runs or missing)
    parts: list[tuple[Run, Run]] = []
    refusals: list[ValueError] = []
    for run in wanted:
        try:
            parts.append((run, shard_of(run, prior or run.config.prior, _seeds(seeds, run))))
        except ValueError as error:  # a list leaves out runs without these sources and seeds
            refusals.append(error)
    if refusals and not (listing and parts):
        raise refusals[0]
    console = Console(file=sys.stdout, highlight=False)
    if listing:
        users = {study.name: set(study.runs(size)) for study in STUDIES.values()}
        for run, part in parts:
            used = [study for study, needed in users.items() if run.name in needed]
            count = len(part.config.members())
            console.print(
                f"{run.name}: {count} member{'s' * (count != 1)} x {part.config.steps} steps on "
                f"{', '.join(part.config.prior)}; for {', '.join(used)}"
                f"{'; not recorded' * (run.name in unrecorded)}",
                soft_wrap=True,
            )
        return
    if not wanted:
        console.print("Recorded results have all of these runs.")
    work, out = work.absolute(), out.absolute()  # workers may have another working directory
    tasks = [
        Task(part.name, train_shard, (size, run, part, work, out, best_only)) for run, part in parts
    ]
    with reporter_for(sys.stderr, {}) as reporter, open_executor(**chosen) as opened:
        make_directory(out)
        queue = WorkQueue(opened, work / "claims", reporter)
        queue.add(tasks)
        queue.finish([task.name for task in tasks])
    for paths in queue.results.values():
        for path in paths:
            size_text = f"{path.stat().st_size / 2**20:.1f} MiB"
            console.print(Text(f"{path}: {size_text}"), soft_wrap=True)
    queue.check()


def merge(
    shards: Annotated[
        Path, typer.Argument(metavar="DIR", file_okay=False, help="Directory of finished shards.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Directory of the results.")
    ],
    recorded: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="DIR",
            file_okay=False,
            help="Also record the results there, with their SHA-256 in manifest.json. Runs that "
            "the shards lack are taken from the results recorded before with the same settings.",
        ),
    ] = None,
    scale: _SCALE = "full",
) -> None:
    """Compute the results of the studies from shards.

    Missing networks are named in the results, and the studies that need them are listed here.
    Studies of the best networks are computed now, from the networks in the shards.

    For example:

        switchpoint merge shards --out runs/full
    """
    size = _scale(scale)
    if not any(shards.glob("*.nc")):
        raise ValueError(f"there are no shards in {shards}; switchpoint shard makes them")
    networks = ShardNetworks(shards, all_runs(size), recorded)
    ready = [name for name, study in STUDIES.items() if can_compute(study, size, networks)]
    forget_partial(out, ready)
    # Nothing is trained here, as at the scale zoo.
    expected = {name: STUDIES[name].seconds.get("zoo", 0.0) for name in ready}
    command = "switchpoint shard for each shard, then switchpoint merge"
    with reporter_for(sys.stderr, expected) as reporter:
        reproduce(size, out, ready, reporter, command, networks=networks)
    console = Console(file=sys.stdout, highlight=False)
    for name, study in STUDIES.items():
        state = "skipped, its networks are missing"
        if name in ready:
            if recorded is not None and study.recorded:
                record(result_path(out, name), recorded)
            missing = len(load_result(out, name).shown.attrs.get("missing_runs", {}))
            state = f"done, without {missing} of its runs" if missing else "done"
        elif recorded_result(recorded, name) is not None:
            state = "as recorded before, since its networks are not among these"
        console.print(f"{name}: {state}")


def build_zoo(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Directories of runs, or their files.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Directory of the zoo.")
    ],
    sequences: Annotated[
        int, typer.Option(help="The number of test sequences for the score on each card.")
    ] = TEST_SEQUENCES,
) -> None:
    """Build a zoo from finished runs: the best seed of each architecture and source.

    The best seed has the lowest excess on the validation sequences of its run; it is then
    measured on test sequences. Networks that are already in the zoo are not measured again.

    For example:

        switchpoint build-zoo shards/*.safetensors --out zoo
    """
    zoo = Zoo(out)
    console = Console(file=sys.stdout, highlight=False)
    with reporter_for(sys.stderr, {}) as reporter:
        made = build(
            runs,
            zoo,
            sequences,
            lambda name, done, total: reporter.update(f"measuring {name}", done / total),
        )
    for name in made:
        test = zoo.card(name)["test"]
        console.print(f"{name}: {test['excess']:.3f} ± {test['excess_error']:.3f} bits")
    size = sum(entry.size for entry in zoo.entries.values()) / 2**20
    console.print(Text(f"{out}: {len(zoo.entries)} networks, {size:.1f} MiB"), soft_wrap=True)


def _scale(name: str) -> Scale:
    if name not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {name!r}")
    return SCALES[name]


def _matching(patterns: list[str], known: Mapping[str, Run]) -> list[Run]:
    """The runs of these names or patterns, each once, in the order they are asked for."""
    found: dict[str, Run] = {}
    for pattern in patterns:
        names = fnmatch.filter(known, pattern)
        if not names:
            raise ValueError(f"run must be one of {', '.join(known)}, got {pattern!r}")
        found |= {name: known[name] for name in names}
    return list(found.values())


def _seeds(text: str | None, run: Run) -> range:
    """The seeds that were asked for, or all of a run."""
    if text is None:
        return run.seeds
    first, dash, last = text.partition("-")
    last = last if dash else first
    if not (first.isdecimal() and last.isdecimal()):
        raise ValueError(f"seeds must be a number or two, as 0-4, got {text!r}")
    return range(int(first), int(last) + 1)
