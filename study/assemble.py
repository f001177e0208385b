"""Put the results of the full scale together from the files of its pieces.

    python study/assemble.py --pieces pieces --out runs/full

Networks that no piece has are named in the results as not run, studies that cannot do without them
are named here, and nothing is filled in. Studies that look at the best networks alone (trajectory,
mean-regret, regret-by-index, length-512) are computed now, from the networks of the pieces. Results
that are whole are not made again. The compact ones are copied to --record, which is where the
package has them, and their SHA-256 is entered in its manifest.json, by which the package refuses
what is not the file that was recorded.
"""

import argparse
import contextlib
import sys
from pathlib import Path

from switchpoint.cli.study_progress import watcher_for
from switchpoint.experiments import SCALES, STUDIES, load_result, reproduce, result_path
from switchpoint.experiments.assembled import Pieces
from switchpoint.experiments.shipped import RECORDED, record

_NOT_RECORDED = ("length-512",)  # has numbers of every sequence, and the zoo makes it again


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pieces", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--record", type=Path, default=RECORDED)
    parser.add_argument("--scale", default="full", choices=list(SCALES))
    given = parser.parse_args()
    scale = SCALES[given.scale]
    pieces = Pieces(given.pieces, scale.seed)
    possible, why_not = [], {}
    for name, study in STUDIES.items():
        try:
            pieces.check_study(study, scale)
            possible.append(name)
            _forget_if_not_whole(given.out, name)
        except ValueError as error:
            why_not[name] = str(error)
    command = "study/piece.py for each piece, then study/assemble.py"
    expected = {name: scale.seconds[name] for name in possible}
    with watcher_for(sys.stderr, expected) as watcher:
        reproduce(scale, given.out, possible, watcher, command, networks=pieces)
    given.record.mkdir(parents=True, exist_ok=True)
    for name in possible:
        if name not in _NOT_RECORDED:
            record(result_path(given.out, name), given.record)
        print(f"{name}: done")
    for name, reason in why_not.items():
        print(f"{name}: not run, {reason}")


def _forget_if_not_whole(out: Path, study: str) -> None:
    """Remove a result that lacks seeds, which may be there now."""
    with contextlib.suppress(ValueError):  # not there, or damaged: it is computed
        if "not_run" in load_result(out, study).attrs:
            result_path(out, study).unlink()


if __name__ == "__main__":
    main()
