"""A mean and its standard error, from rows that come a few at a time."""

import numpy as np
from jaxtyping import Float


class Moments:
    """Collects rows and keeps only their sum and squared deviations, in float64."""

    def __init__(self, width: int) -> None:
        self._count = 0
        self._sum = np.zeros(width)
        self._squares = np.zeros(width)

    def add(self, rows: Float[np.ndarray, "rows width"]) -> None:
        """Take in more rows: Chan's update, which does not cancel."""
        rows = rows.astype(np.float64)
        mean = rows.mean(0)
        with np.errstate(invalid="ignore"):  # an infinite regret has no deviation
            self._squares += ((rows - mean) ** 2).sum(0)
            if self._count:
                share = self._count * len(rows) / (self._count + len(rows))
                self._squares += (mean - self.mean) ** 2 * share
        self._sum += rows.sum(0)
        self._count += len(rows)

    @property
    def mean(self) -> Float[np.ndarray, " width"]:
        """The mean of all rows."""
        return self._sum / self._count

    @property
    def error(self) -> Float[np.ndarray, " width"]:
        """The standard error of the mean; NaN where there is but one row."""
        if self._count < 2:
            return np.full_like(self._sum, np.nan)
        return np.sqrt(self._squares / (self._count - 1) / self._count)
