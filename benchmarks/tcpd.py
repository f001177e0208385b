"""Change points of real series against those that five people marked.

    python benchmarks/tcpd.py DIR         # DIR has annotations.json and NAME.json for each series

The files are those of the Turing Change Point Dataset (van den Burg and Williams, 2020): five
people's change points for every series, 0-based, the first observation of a new segment. One
setting serves all series, `switchpoint.detect` with its defaults, and no label is used. The
metrics are the paper's: covering, and F1 with a margin of 5 observations.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import switchpoint as sp

MARGIN = 5
PUBLISHED = {
    "BOCPD, default settings": (0.591, 0.657),
    "binary segmentation, default settings": (0.655, 0.690),
    "no change points at all": (0.557, 0.647),
    "BOCPD, best of a grid for each series": (0.764, 0.876),
}
"""Published means of covering and F1 on 25 univariate series of the dataset."""

Annotations = Mapping[str, Sequence[int]]


def covering(annotations: Annotations, found: Sequence[int], length: int) -> float:
    """How well the found segments cover those of each person, in the mean over people.

    The best Jaccard overlap of each marked segment with a found one, weighted by its length.
    """
    segments = list(pairwise([0, *found, length]))

    def best_overlap(a: int, b: int) -> float:
        return max(max(min(b, d) - max(a, c), 0) / (max(b, d) - min(a, c)) for c, d in segments)

    covered = [
        sum((b - a) / length * best_overlap(a, b) for a, b in pairwise([0, *marked, length]))
        for marked in annotations.values()
    ]
    return float(np.mean(covered))


def f1_score(annotations: Annotations, found: Sequence[int], margin: int = MARGIN) -> float:
    """The harmonic mean of precision and recall; index 0 counts as marked and as found.

    Precision counts the found points near those of anyone, recall is the mean over people.
    """
    points = {0, *found}
    everyone = {0}.union(*annotations.values())
    precision = _matches(everyone, points, margin) / len(points)
    recall = np.mean(
        [
            _matches({0, *marked}, points, margin) / len({0, *marked})
            for marked in annotations.values()
        ]
    )
    return float(2 * precision * recall / (precision + recall))


def _matches(marked: set[int], found: set[int], margin: int) -> int:
    """How many marked points have a found one within the margin, none of them used twice."""
    left, matches = set(found), 0
    for point in sorted(marked):
        near = [(abs(point - each), each) for each in left if abs(point - each) <= margin]
        if near:
            left.remove(min(near)[1])
            matches += 1
    return matches


def read_series(path: Path) -> np.ndarray:
    """The values of a series, (time,) or (time, columns); missing ones are NaN."""
    columns: list[dict[str, Any]] = json.loads(path.read_text())["series"]
    values = [np.array(column["raw"], float) for column in columns]
    return values[0] if len(values) == 1 else np.stack(values, axis=-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--fit", action="store_true", help="choose hyperparameters by evidence")
    arguments = parser.parse_args()
    annotated = json.loads((arguments.directory / "annotations.json").read_text())
    table = Table(title="switchpoint.detect on the Turing Change Point Dataset")
    for heading in ("series", "length", "covering", "F1", "seconds", "change points"):
        table.add_column(
            heading, justify="left" if heading in ("series", "change points") else "right"
        )
    scores = []
    for name, annotations in annotated.items():
        values = read_series(arguments.directory / f"{name}.json")
        began = time.perf_counter()
        found = sp.detect(values, fit=arguments.fit).changepoints.tolist()
        seconds = time.perf_counter() - began
        scores.append((covering(annotations, found, len(values)), f1_score(annotations, found)))
        shown = " ".join(map(str, found[:12])) + (f" ... ({len(found)})" if len(found) > 12 else "")
        cells = [f"{score:.3f}" for score in scores[-1]]
        table.add_row(name, str(len(values)), *cells, f"{seconds:.1f}", shown)
    table.add_section()
    means = np.mean(scores, axis=0)
    table.add_row(f"mean of {len(scores)}", "", *(f"{mean:.3f}" for mean in means), style="bold")
    table.add_section()
    for method, published in PUBLISHED.items():
        table.add_row(f"published, 25 series: {method}", "", *(f"{mean:.3f}" for mean in published))
    Console().print(table)


if __name__ == "__main__":
    main()
