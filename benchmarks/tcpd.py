"""Change points of real series against those that five people marked.

    python benchmarks/tcpd.py DIR         # DIR has annotations.json and NAME.json for each series
    python benchmarks/tcpd.py DIR --fit   # the hyperparameters of highest evidence for each series
    python benchmarks/tcpd.py DIR --sweep # the means when each default is changed

The files are those of the Turing Change Point Dataset (van den Burg and Williams, 2020): five
people's change points for every series, 0-based, the first observation of a new segment. One
setting serves all series, `switchpoint.detect` with its defaults, and no label is used. The
metrics are the paper's: covering, and F1 with a margin of 5 observations.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.table import Table

import switchpoint as sp
from switchpoint.detection import choice, covering, defaults, f1, model, outliers

PUBLISHED = {
    "AMOC": (0.721, 0.718),
    "binary segmentation": (0.672, 0.700),
    "PELT": (0.671, 0.673),
    "BOCPD": (0.577, 0.609),
    "no change points at all": (0.610, 0.689),
    "BOCPD, best of a grid for each series": (0.787, 0.877),
}
"""Published means of covering and F1 on 13 univariate series, with default settings.

From the scores of every method and series that van den Burg and Williams (2020) published.
"""


def read_series(path: Path) -> np.ndarray:
    """The values of a series, (time,) or (time, columns); missing ones are NaN."""
    columns: list[dict[str, Any]] = json.loads(path.read_text())["series"]
    values = [np.array(column["raw"], float) for column in columns]
    return values[0] if len(values) == 1 else np.stack(values, axis=-1)


VARIATIONS: dict[str, tuple[Any, str, tuple[float, ...]]] = {
    "level_scale": (defaults, "_LEVEL_SCALE", (1.0, 4.0)),
    "slope_scale": (defaults, "_SLOPE_SCALE", (0.05, 0.2)),
    "season_scale": (defaults, "_SEASON_SCALE", (1.0, 4.0)),
    "shape": (defaults, "_SHAPE", (2.0, 6.0)),
    "rate": (defaults, "_RATE", (0.5, 2.0)),
    "sensitivity": (model, "SENSITIVITY", (1.0, 2.5, 10.0, 20.0)),
    "share of outliers": (outliers, "SHARE", (0.003, 0.03)),
    "gain of a lag": (choice, "_LEAST_GAIN", (0.025, 0.1)),
    "distance from a unit root": (choice, "_UNIT_ROOT", (15.0, 30.0)),
}
"""The defaults that are changed, one at a time: where they are, and other values."""


def score(
    detect: Callable[[np.ndarray], sp.Segmentation], directory: Path
) -> Iterator[tuple[str, int, list[int], tuple[float, float], float]]:
    """Of every series: its name, length, change points, covering and F1, and seconds."""
    annotated = json.loads((directory / "annotations.json").read_text())
    for name, annotations in annotated.items():
        values = read_series(directory / f"{name}.json")
        began = time.perf_counter()
        found = detect(values).changepoints.tolist()
        seconds = time.perf_counter() - began
        scores = covering(annotations, found, len(values)), f1(annotations, found)
        yield name, len(values), found, scores, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--fit", action="store_true", help="choose hyperparameters by evidence")
    parser.add_argument("--sweep", action="store_true", help="vary the defaults, one at a time")
    arguments = parser.parse_args()
    console = Console()
    if arguments.sweep:
        for setting, (module, name, others) in VARIATIONS.items():
            for value in others:
                with patch.object(module, name, value):
                    varied = [each[3] for each in score(sp.detect, arguments.directory)]
                covering, f1 = np.mean(varied, axis=0)
                console.print(f"{setting} {value:g}: covering / F1 {covering:.3f} / {f1:.3f}")
        return
    table = Table(title="switchpoint.detect on the Turing Change Point Dataset")
    for heading in ("series", "length", "covering", "F1", "seconds", "change points"):
        texts = ("series", "change points")
        table.add_column(heading, justify="left" if heading in texts else "right")
    rows = list(score(lambda values: sp.detect(values, fit=arguments.fit), arguments.directory))
    for name, length, found, scores, seconds in rows:
        shown = " ".join(map(str, found[:12])) + (f" ... ({len(found)})" if len(found) > 12 else "")
        cells = [f"{each:.3f}" for each in scores]
        table.add_row(name, str(length), *cells, f"{seconds:.1f}", shown)
    table.add_section()
    means = np.mean([scores for *_, scores, _ in rows], axis=0)
    table.add_row(f"mean of {len(rows)}", "", *(f"{mean:.3f}" for mean in means), style="bold")
    table.add_section()
    for method, published in PUBLISHED.items():
        table.add_row(f"published: {method}", "13 series", *(f"{mean:.3f}" for mean in published))
    console.print(table)


if __name__ == "__main__":
    main()
