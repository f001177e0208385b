"""How far the excess of networks jumped while they were trained, from the reports of the study.

    python study/jumps.py
    python study/jumps.py study/training/lstm.*.jsonl --prior lin

For each seed the largest rise between two reports, in bits, the step of it, and where the seed
ended: excess over the exact optimum on the validation sequences. The largest rise comes first.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from switchpoint.zoo.manifest import SOURCES

TRAINING = Path(__file__).parent / "training"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    recurrent = [
        TRAINING / f"{name}.{'_'.join(SOURCES)}.0-9.jsonl" for name in ("lstm", "stack-rnn")
    ]
    parser.add_argument("reports", nargs="*", type=Path, default=recurrent)
    parser.add_argument("--prior", choices=SOURCES, default="ptw")
    given = parser.parse_args()
    for path in given.reports:
        print(*jumps_of(path, given.prior), sep="\n")


def jumps_of(path: Path, prior: str) -> list[str]:
    """A line for each seed of one prior of a piece, whose name says which it has."""
    name, priors, seeds, _ = path.name.split(".")
    reports = [json.loads(line) for line in path.read_text().splitlines()]
    first, count = int(seeds.split("-")[0]), len(reports[0]["excess"]) // len(priors.split("_"))
    begin = priors.split("_").index(prior) * count
    found = []
    for seed in range(count):
        excess = [report["excess"][begin + seed] for report in reports]
        rise, at = largest_rise(excess)
        text = f"{name} on {prior}, seed {first + seed}: {rise:+.2f} by step {reports[at]['step']}"
        found.append((rise, f"{text}, ended at {excess[-1]:.3f}"))
    return [text for _, text in sorted(found, reverse=True)]


def largest_rise(values: Sequence[float]) -> tuple[float, int]:
    """The largest difference to the value before, and its place."""
    return max((values[i] - values[i - 1], i) for i in range(1, len(values)))


if __name__ == "__main__":
    main()
