"""Several columns: which follow from others, and whether their noise is correlated."""

import numpy as np
from jaxtyping import Float

from switchpoint.detection.checks import clipped_differences

_FOLLOWS = 1e-5  # of the standard deviation of a column that is left beside the others
_LEAST = 30  # rows
_CORRELATED, _STANDARD_ERRORS = 0.3, 4.0


def independent_columns(values: Float[np.ndarray, "time columns"]) -> list[int]:
    """The columns that do not follow from those before them, by linear regression.

    Of complete rows, if there are more than columns. O(time columns^2).
    """
    everything = list(range(values.shape[1]))
    rows = values[~np.isnan(values).any(1)]
    if len(rows) <= len(everything) + 1 or len(everything) == 1:
        return everything
    rows = rows / np.maximum(np.abs(rows).max(0), 1e-300)
    rest = rows - rows.mean(0)
    sizes = np.linalg.norm(rest, axis=0)
    kept: list[int] = []
    for column in everything:
        left = float(np.linalg.norm(rest[:, column]))
        if left <= _FOLLOWS * sizes[column]:
            continue  # constant columns, too: nothing changes in them
        kept.append(column)
        axis = rest[:, column] / left
        rest = rest - np.outer(axis, axis @ rest)
    return kept or everything[:1]


def noise_correlation(values: Float[np.ndarray, "time columns"]) -> float | None:
    """The largest correlation of the noise of two columns, if there is a noticeable one.

    That of the differences of neighbouring rows (`clipped_differences`), of all or of a quarter of
    them: correlations may change, too.
    """
    if values.shape[1] < 2:
        return None
    largest = np.abs(np.where(np.isnan(values), 0.0, values)).max(0)  # whose square may overflow
    rows, _ = clipped_differences(values / np.where(largest > 0, largest, 1.0))
    rows = rows[~np.isnan(rows).any(1)]
    if len(rows) < _LEAST or not (rows.std(0) > 0).all():
        return None
    noticed = []
    for part in (rows, *np.array_split(rows, 4)):
        if len(part) >= _LEAST and (part.std(0) > 0).all():
            off_diagonal = np.corrcoef(part, rowvar=False) - np.eye(part.shape[1])
            largest = float(np.abs(off_diagonal).max())
            if largest > max(_CORRELATED, _STANDARD_ERRORS / np.sqrt(len(part))):
                noticed.append(largest)
    return max(noticed, default=None)


def noise_axes(
    values: Float[np.ndarray, "time columns"],
) -> Float[np.ndarray, "columns columns"] | None:
    """Axes along which the noise of neighbouring rows is uncorrelated with variance 1.

    `values @ axes` are the values in these coordinates: a model of them learns no covariance that
    all segments share. None if the noise has no variance in some direction.
    """
    rows, scales = clipped_differences(values)
    rows = rows[~np.isnan(rows).any(1)]
    sizes, axes = np.linalg.eigh(rows.T @ rows / (2 * max(len(rows), 1)))
    if not sizes[0] > _FOLLOWS**2 * sizes[-1]:
        return None
    return axes / np.sqrt(sizes) / scales[:, None]
