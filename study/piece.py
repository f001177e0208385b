"""Train pieces of the paper's study, and measure all that the studies ask of them.

    python study/piece.py lstm --prior ptw --seeds 0-9 --out $OUT
    python study/piece.py markov-1 markov-2 markov-4 --out $OUT
    python study/piece.py --list

A piece is a training run of the full scale, or some of its priors and seeds: what fits into the
ten minutes of a call; small runs go into one call together. The command is self-contained. It
keeps checkpoints below --work, and the same command goes on from them; when all is done it writes
a few files of at most 16 MiB to --out. Give SWITCHPOINT_COMMIT where the sources have no history.
`study/assemble.py` makes the results of the studies from these files, `study/zoo.py` the zoo.
"""

import argparse
import sys
from pathlib import Path

from switchpoint.cli.study_progress import watcher_for
from switchpoint.experiments import SCALES, STUDIES, Scale
from switchpoint.experiments.pieces import carry_out, piece_of
from switchpoint.experiments.runs import TrainingRun


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="names of training runs, see --list")
    parser.add_argument("--prior", nargs="+", help="some of its priors; all if not given")
    parser.add_argument("--seeds", help="some of its seeds, as 0-4; all if not given")
    parser.add_argument("--out", type=Path, default=Path("pieces"))
    parser.add_argument("--work", type=Path, default=Path("runs/pieces"))
    parser.add_argument("--scale", default="full", choices=list(SCALES))
    parser.add_argument("--list", action="store_true", help="print all runs, and end")
    given = parser.parse_args()
    scale = SCALES[given.scale]
    runs = all_runs(scale)
    if given.list or not given.runs:
        _print_runs(scale, runs)
        return
    for name in given.runs:
        if name not in runs:
            parser.error(f"run must be one of {', '.join(runs)}, got {name!r}")
    try:
        pieces = [
            piece_of(run, given.prior or run.config.prior, _seeds(given.seeds, run))
            for run in (runs[name] for name in given.runs)
        ]
    except ValueError as error:
        parser.error(str(error))
    with watcher_for(sys.stderr, {}) as watcher:
        for name, piece in zip(given.runs, pieces, strict=True):
            for path in carry_out(scale, runs[name], piece, given.work, given.out, watcher):
                print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB", flush=True)


def _seeds(text: str | None, run: TrainingRun) -> range:
    """The seeds that were asked for, or all of a run."""
    if text is None:
        return run.seeds
    first, _, last = text.partition("-")
    if not (first.isdecimal() and (last or first).isdecimal()):
        raise ValueError(f"seeds must be a number or two, as 0-4, got {text!r}")
    return range(int(first), int(last or first) + 1)


def all_runs(scale: Scale) -> dict[str, TrainingRun]:
    """Every training run that a study needs, in the order of the studies."""
    return {run.name: run for study in STUDIES.values() for run in study.runs(scale)}


def _print_runs(scale: Scale, runs: dict[str, TrainingRun]) -> None:
    needs = {study.name: {run.name for run in study.runs(scale)} for study in STUDIES.values()}
    for name, run in runs.items():
        studies = [study for study, names in needs.items() if name in names]
        print(
            f"{name}: {len(run.config.members())} members x {run.config.steps} steps on "
            f"{', '.join(run.config.prior)}; for {', '.join(studies)}"
        )


if __name__ == "__main__":
    main()
