"""KT on the host, in plain Python floats."""

import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from switchpoint.exact import KT, KTOracle
from switchpoint.streams.engine import Runs, SymbolEngine, check_arrays, log_ratios


class CountEngine(SymbolEngine):
    """The counts of the current segment, whose start is known: 0, or the last true switch."""

    name = "counts"

    def __init__(self, predictor: KT | KTOracle) -> None:
        super().__init__(predictor.alphabet)
        self.pseudo = [float(each) for each in predictor.segment.pseudo_counts]
        self.switches: list[bool] | None = None
        if isinstance(predictor, KTOracle):
            predictor.init()  # which refuses several rows
            self.switches = np.asarray(predictor.switches).tolist()
        self._restart()

    def _restart(self) -> None:
        self.run = 0
        self.counts = list(self.pseudo)
        self.total = math.fsum(self.pseudo)

    def predict(self) -> Float[np.ndarray, " alphabet"]:
        if self.switches is not None and True in self.switches[self.position : self.position + 1]:
            return log_ratios(self.pseudo, math.fsum(self.pseudo))
        return log_ratios(self.counts, self.total)

    def step(self, symbol: int) -> float:
        if self.switches is not None:
            self.check_length(self.position + 1)
            if self.switches[self.position]:
                self._restart()
        log_prob = 0.0
        if symbol >= 0:
            count = self.counts[symbol]
            log_prob = math.log(count / self.total)
            self.counts[symbol] = count + 1
            self.total += 1
        self.position += 1
        self.run += 1
        return log_prob

    def check_length(self, length: int) -> None:
        if self.switches is not None and length > len(self.switches):
            raise ValueError(
                f"switches must cover the sequence, got {len(self.switches)} of them for "
                f"{length} symbols"
            )

    def runs(self) -> Runs:
        return Runs(np.array([float(self.run)]), np.ones(1))

    def arrays(self) -> dict[str, np.ndarray]:
        return {"counts": np.array(self.counts), "run": np.array(float(self.run))}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        check_arrays(arrays, {"counts": (self.alphabet,), "run": ()})
        self.counts, self.run = arrays["counts"].tolist(), int(arrays["run"])
        self.total = math.fsum(self.counts)
