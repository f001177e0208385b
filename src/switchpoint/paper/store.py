"""The measurement store: the regret of every network on every test sequence, in files."""

import glob
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from switchpoint import evaluation
from switchpoint._formats import check_format
from switchpoint.paper.base import Grid, Measurement, network_plan

FORMAT = 1
"""Of the file of a measurement."""


class MeasurementStore:
    """The regret of networks by run, training source, plan, seed, test set and test seed.

    A file holds one measurement, of some seeds, and is written whole or not at all, so that a
    process that is killed loses at most the measurement it was taking. Files of other directories
    and machines are merged by copying them. A measurement of more sequences serves requests for
    fewer, and those of another plan are left alone.

    With a `name`, only the files of that name are read and written: those of one run, while
    other processes work on other runs.
    """

    def __init__(
        self, directory: Path, note: Callable[[str], None] = lambda _: None, name: str = ""
    ) -> None:
        self.directory = directory
        self._note, self._name = note, name
        self._rows: dict[str, list[tuple[Sequence[int], np.ndarray]]] = {}
        self._loaded: set[Path] = set()
        self.load()

    def load(self) -> None:
        """Add the measurements of the files that have come since."""
        pattern = f"{glob.escape(self._name)}-*.nc" if self._name else "*.nc"
        for path in sorted(set(self.directory.glob(pattern)) - self._loaded):
            try:
                self.read(path)
                self._loaded.add(path)
            except ValueError as error:
                self._note(f"{error}; it is measured again")

    def read(self, path: Path) -> None:
        """Add the measurement of a file."""
        content = evaluation.load(path)
        if content.attrs.get("kind") != "measurement":
            raise ValueError(f"{path} is not a measurement of a study")
        check_format(content.attrs, str(path))
        key = content.attrs["key"]
        plan = key["plan"] and network_plan(key["plan"], key["trained_on"])  # in today's terms
        self._add({**key, "plan": plan}, content["seed"].values.tolist(), content["regret"].values)

    def find(self, measurement: Measurement, test_seed: int) -> dict[int, np.ndarray]:
        """The regret of the test sequences by seed, for the seeds that were measured."""
        count = measurement.test.sequences
        by_seed: dict[int, np.ndarray] = {}
        for seeds, values in self._rows.get(_text(_key(measurement, test_seed)), ()):
            if values.shape[1] >= count:
                by_seed |= zip(seeds, values[:, :count], strict=True)
        return {seed: by_seed[seed] for seed in measurement.all_seeds if seed in by_seed}

    def add(self, measurement: Measurement, test_seed: int, rows: Mapping[int, np.ndarray]) -> None:
        """Keep the regret of the test sequences by seed, in memory and in a file."""
        key, seeds = _key(measurement, test_seed), list(rows)
        values = np.stack(list(rows.values()))
        self.directory.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(_text([key, seeds, values.shape[1]]).encode()).hexdigest()
        path = self.directory / f"{self._name or measurement.run_name}-{digest[:16]}.nc"
        regret = xr.DataArray(
            values, {"seed": seeds}, ("seed", "sequence"), attrs={"units": "bits"}
        )
        about = {"kind": "measurement", "format": FORMAT, "key": key}
        evaluation.save(xr.Dataset({"regret": regret}, attrs=about), path)
        self._loaded.add(path)
        self._add(key, seeds, values)

    def _add(self, key: Mapping[str, Any], seeds: Sequence[int], values: np.ndarray) -> None:
        self._rows.setdefault(_text(key), []).append((seeds, values))

    def array(self, grid: Grid, test_seed: int) -> xr.DataArray:
        """The regret (labels..., seed, sequence) of a grid; what was not measured is NaN."""
        seeds = sorted({seed for cell in grid.cells for seed in cell.all_seeds})
        missing = np.full(max(cell.test.sequences for cell in grid.cells), np.nan)
        found = (self.find(cell, test_seed) for cell in grid.cells)
        rows = [[each.get(seed, missing) for seed in seeds] for each in found]
        shape = [*map(len, grid.labels.values()), len(seeds), len(missing)]
        values = xr.DataArray(
            np.reshape(rows, shape),
            {**grid.labels, "seed": np.array(seeds, np.int32)},
            (*grid.labels, "seed", "sequence"),
        )
        exact = all(cell.run is None for cell in grid.cells)
        return values.isel(seed=0, drop=True) if exact else values


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


def _text(content: Any) -> str:
    return json.dumps(content, sort_keys=True)
