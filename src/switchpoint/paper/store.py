"""The measurement store: the regret of every network on every test sequence, in files."""

import glob
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from switchpoint import evaluation
from switchpoint._formats import check_format
from switchpoint.paper.base import Grid, Measurement, network_plan

FORMAT = 1
"""Of a file of measurements."""


class MeasurementStore:
    """Rows keyed by run, training source, plan, seed, test source, length and test seed.

    A file holds any number of rows and is written whole or not at all, so that a process that is
    killed loses at most the measurement it was taking. Files of other directories and machines
    are merged by copying them. A row of more sequences serves requests for fewer, and rows of
    another plan are left alone.

    With a `name`, only the files of that name are read and written: those of one shard, while
    other processes work on other shards.
    """

    def __init__(
        self, directory: Path, note: Callable[[str], None] = lambda _: None, name: str | None = None
    ) -> None:
        self.directory = directory
        self._name = name
        self._rows: dict[tuple[Any, ...], list[tuple[dict[str, Any], np.ndarray]]] = {}
        self._loaded: set[Path] = set()
        self.provenance: dict[str, Any] = {}
        """The provenance of rows of other machines, by file."""
        self.load(name, note)

    def load(self, name: str | None = None, note: Callable[[str], None] = lambda _: None) -> None:
        """Add the rows of the files of this name, or of all, that have come since."""
        pattern = "*.nc" if name is None else f"{glob.escape(name)}-*.nc"
        for path in sorted(set(self.directory.glob(pattern)) - self._loaded):
            self._loaded.add(path)
            try:
                self.merge(path)
            except ValueError as error:
                note(f"{error}; it is measured again")

    def merge(self, path: Path) -> None:
        """Add the rows of a file."""
        content = evaluation.load(path)
        if content.attrs.get("kind") != "measurements":
            raise ValueError(f"{path} is not a file of measurements")
        check_format(content.attrs, str(path))
        if content.attrs.get("provenance"):
            self.provenance[path.stem] = content.attrs["provenance"]
        for index, key in enumerate(content.attrs["rows"]):
            plan = key["plan"] and network_plan(key["plan"], key["trained_on"])  # in today's terms
            self._add_row({**key, "plan": plan}, content[f"regret_{index}"].values)

    def find(self, measurement: Measurement, test_seed: int) -> dict[int, np.ndarray]:
        """The regret of the test sequences by seed, for the seeds that were measured."""
        wanted = _key(measurement, test_seed)
        count = measurement.test.sequences
        by_seed: dict[int, np.ndarray] = {}
        for key, values in self._rows.get(_place(wanted), ()):
            if values.shape[1] >= count and all(key[name] == wanted[name] for name in wanted):
                by_seed |= zip(key["seeds"], values[:, :count].astype(float), strict=True)
        return {seed: by_seed[seed] for seed in measurement.all_seeds if seed in by_seed}

    def add(self, measurement: Measurement, test_seed: int, rows: Mapping[int, np.ndarray]) -> None:
        """Keep the regret of the test sequences by seed, in memory and in a file."""
        key = {**_key(measurement, test_seed), "seeds": list(rows)}
        values = np.stack(list(rows.values()))
        self.directory.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(json.dumps([key, values.shape[1]], sort_keys=True).encode())
        path = self.directory / f"{self._name or measurement.run_name}-{digest.hexdigest()[:16]}.nc"
        write_rows(path, [(key, values)])
        self._loaded.add(path)
        self._add_row(key, values)

    def _add_row(self, key: dict[str, Any], values: np.ndarray) -> None:
        self._rows.setdefault(_place(key), []).append((key, values))

    def pack(
        self, path: Path, measurements: Iterable[Measurement], test_seed: int, provenance: Any
    ) -> None:
        """Write the rows of these measurements into one file.

        In float32, which halves its size and is as fine as the regrets are measured.
        """
        rows = []
        for measurement in measurements:
            by_seed = self.find(measurement, test_seed)
            key = {**_key(measurement, test_seed), "seeds": list(by_seed)}
            rows.append((key, np.stack(list(by_seed.values())).astype(np.float32)))
        write_rows(path, rows, provenance)

    def array(self, grid: Grid, test_seed: int, drop_missing: bool = False) -> xr.DataArray:
        """The regret (labels..., seed, sequence) of a grid; what was not measured is NaN.

        With `drop_missing`, labels of the first dimension that have no measurement are left out.
        """
        cells = {key: self.find(cell, test_seed) for key, cell in grid.cells.items()}
        labels = list(grid.labels.values())
        exact = all(cell.run is None for cell in grid.cells.values())
        if drop_missing and not exact:
            there = {key[0] for key, rows in cells.items() if rows}
            labels[0] = [label for label in labels[0] if label in there]
        seeds = sorted({seed for cell in grid.cells.values() for seed in cell.all_seeds})
        count = max(cell.test.sequences for cell in grid.cells.values())
        shape = [*map(len, labels), len(seeds), count]
        values = xr.DataArray(
            np.full(shape, np.nan),
            dims=(*grid.dimensions, "seed", "sequence"),
            coords={
                **dict(zip(grid.dimensions, labels, strict=True)),
                "seed": np.array(seeds, np.int32),
            },
        )
        for key, rows in cells.items():
            for seed, row in rows.items():
                place = [axis.index(label) for axis, label in zip(labels, key, strict=True)]
                values.values[(*place, seeds.index(seed))] = row
        return values.isel(seed=0, drop=True) if exact else values


def write_rows(
    path: Path, rows: Sequence[tuple[Mapping[str, Any], np.ndarray]], provenance: Any = None
) -> None:
    """Write a file of the store."""
    variables = {
        f"regret_{index}": ((f"seed_{index}", f"sequence_{index}"), values, {"units": "bits"})
        for index, (_, values) in enumerate(rows)
    }
    about = {"kind": "measurements", "format": FORMAT, "rows": [dict(key) for key, _ in rows]}
    if provenance is not None:
        about["provenance"] = provenance
    evaluation.save(xr.Dataset(variables, attrs=about), path)


def _key(measurement: Measurement, test_seed: int) -> dict[str, Any]:
    run, test = measurement.run, measurement.test
    return {
        "run": measurement.run_name,
        "trained_on": measurement.trained_on,
        "plan": {} if run is None else run.plan(measurement.trained_on),
        "source": test.source,
        "length": test.length,
        "test_seed": test_seed,
    }


def _place(key: Mapping[str, Any]) -> tuple[Any, ...]:
    """The part of a key that rows are stored under."""
    return tuple(key[name] for name in ("run", "trained_on", "source", "length", "test_seed"))
