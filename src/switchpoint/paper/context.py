"""The context of a study: its scale, its measurements, and trained networks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from switchpoint import evaluation
from switchpoint._progress import Part, Progress
from switchpoint.evaluation import regrets
from switchpoint.evaluation.evaluate import Entry
from switchpoint.evaluation.measure import Member
from switchpoint.exact.named import exact_predictor
from switchpoint.neural import Network
from switchpoint.paper.base import Measurement, Study, main_run
from switchpoint.paper.networks import Networks
from switchpoint.paper.scale import Scale
from switchpoint.paper.store import MeasurementStore
from switchpoint.sources import Source

_WITHOUT_PRIOR = ("kt", "oracle", "optimum")


class StudyContext:
    """The measurements of one study, taken where the store does not have them."""

    def __init__(
        self, scale: Scale, networks: Networks, store: MeasurementStore, progress: Progress
    ) -> None:
        self.scale = scale
        self.networks = networks
        self.store = store
        self.progress = progress
        self.regret: dict[str, xr.DataArray] = {}
        """The regret (labels..., seed, sequence) of each grid of the study."""

    def measure(self, study: Study) -> None:
        """Take every measurement that a study declares, and put them together."""
        for name, grid in study.grids(self.scale).items():
            for measurement in grid.cells:
                self.take(measurement)
            self.regret[name] = self.store.array(grid, self.scale.seed)

    def take(self, measurement: Measurement) -> None:
        """Measure the networks whose regret the store does not have yet."""
        scale, test, run = self.scale, measurement.test, measurement.run
        known = self.store.find(measurement, scale.seed)
        wanted = [seed for seed in measurement.all_seeds if seed not in known]
        if not wanted:
            return
        members: Mapping[int, Member | None]
        source = scale.source(test.source, test.length)
        if run is None:
            members = {0: self.exact(measurement.trained_on, source, test.length)}
        else:
            members = self.networks.members(run, measurement.trained_on)
        ready = {seed: members[seed] for seed in wanted if seed in members}
        if ready:
            named = f"{measurement.run_name} ({measurement.trained_on}) on {test.source}"
            text = f"evaluating {named}, length {test.length}: "
            bits = regrets(
                list(ready.values()),
                source,
                test.length,
                test.sequences,
                scale.seed,
                progress=Part(self.progress, 0.0, 1.0, text),
            )
            self.store.add(measurement, scale.seed, dict(zip(ready, bits, strict=True)))

    def best(self, architecture: str, trained_on: str) -> Network:
        """The best network of the main run of an architecture."""
        return self.networks.best(main_run(self.scale, architecture, trained_on), trained_on)

    def evaluate(
        self, predictors: Mapping[str, Entry], source: Source, length: int, sequences: int
    ) -> xr.DataArray:
        """The regret (predictor, sequence, time) of every symbol."""
        evaluation_result = evaluation.evaluate(
            predictors,
            source,
            length,
            sequences,
            seed=self.scale.seed,
            keep="all",
            progress=Part(self.progress, 0.0, 1.0, "evaluating "),
        )
        bits = evaluation_result["regret_by_symbol"].isel(member=0, drop=True).astype(np.float64)
        return bits.drop_vars(["members"], errors="ignore")

    def exact(self, name: str, source: Source, length: int) -> Any:
        """The exact predictor called `name`, for sequences of `source`."""
        named = source if name in _WITHOUT_PRIOR else self.scale.source(name, length)
        return exact_predictor(name, source.segment, named.prior)
