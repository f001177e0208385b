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
from statistics import NormalDist
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import switchpoint as sp
from switchpoint.detection import covering, defaults, f1

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

TREND = defaults.default_column("trend", np.zeros(1)).segment


def read_series(path: Path) -> np.ndarray:
    """The values of a series, (time,) or (time, columns); missing ones are NaN."""
    columns: list[dict[str, Any]] = json.loads(path.read_text())["series"]
    values = [np.array(column["raw"], float) for column in columns]
    return values[0] if len(values) == 1 else np.stack(values, axis=-1)


def variations() -> dict[str, Callable[[np.ndarray], sp.Segmentation]]:
    """The defaults of `detect`, and each of them changed."""

    def with_setting(
        segment: sp.Segment = TREND,
        length: float = 1000 / defaults.SENSITIVITY,
        scale: Callable[[np.ndarray], Any] | None = None,
    ) -> Callable[[np.ndarray], sp.Segmentation]:
        source = sp.Source(sp.Geometric(1 / length), segment)

        def detect(values: np.ndarray) -> sp.Segmentation:
            _, centre, usual = defaults.default_column("trend", values)
            width = usual if scale is None else scale(values)
            return sp.detect((values - centre) / width, source=source)

        return detect

    def changed_trend(name: str, value: float) -> sp.Trend:
        names = ("level_scale", "slope_scale", "shape", "rate")
        return sp.Trend(*(value if each == name else getattr(TREND, each) for each in names))

    def quantile_range(tail: float) -> Callable[[np.ndarray], Any]:
        width = 2 * NormalDist().inv_cdf(1 - tail)
        return lambda values: np.ptp(np.nanquantile(values, [tail, 1 - tail])) / width

    made = {"defaults": with_setting()}
    made |= {f"mean length {each}": with_setting(length=each) for each in (50, 100, 400, 1000)}
    for name, values in {
        "level_scale": (1, 4),
        "slope_scale": (0.05, 0.2),
        "shape": (1, 2, 6),
        "rate": (0.5, 2),
    }.items():
        made |= {f"{name} {each:g}": with_setting(changed_trend(name, each)) for each in values}
    made["scale: standard deviation"] = with_setting(scale=np.nanstd)
    made["scale: central 90%"] = with_setting(scale=quantile_range(0.05))
    made["scale: quartiles"] = with_setting(scale=quantile_range(0.25))
    made["constant levels"] = with_setting(defaults.default_column("level", np.zeros(1)).segment)
    return made


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
        table = Table("setting", "covering", "F1", title="Means over all series")
        for setting, detect in variations().items():
            means = np.mean([each[3] for each in score(detect, arguments.directory)], axis=0)
            table.add_row(setting, *(f"{mean:.3f}" for mean in means))
        console.print(table)
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
