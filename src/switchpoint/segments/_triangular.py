"""Triangular roots of scatter matrices, R with R'R = S, as tuples of rows.

Runs merge by Givens rotations, so that no matrix of squares is formed: single precision has twice
the digits that it would have for S.
"""

from typing import Any

from switchpoint.segments.base import weighted_mean


def insert(
    xp: Any, root: list[Any], row: Any, start: int = 0, ratios: list[Any] | None = None
) -> Any:
    """Rotate a row into a triangular root, in place; what is left of the row is a residual.

    Its entries before `start` must be 0. The determinant of R'R grows by the product of 1 + each
    of the `ratios`, if they are requested.
    """
    for i in range(start, len(root)):
        above, entry = root[i][..., i], row[..., i]
        if ratios is not None:
            ratios.append((entry / above) ** 2)
        norm = square_root(xp, above * above + entry * entry)
        inverse = 1 / xp.where(norm > 0, norm, 1.0)
        cosine = xp.where(norm > 0, above * inverse, 1.0)[..., None]
        sine = (entry * inverse)[..., None]
        root[i], row = cosine * root[i] + sine * row, cosine * row - sine * root[i]
    return row


def between(xp: Any, one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, tuple[Any, Any]]:
    """The row that the distance of two means adds to a root, and the weight and mean of both.

    Each run is given as its weight and its means (..., columns).
    """
    (weight, means), (added, others) = one, other
    total, both, _ = weighted_mean(
        (xp.asarray(weight)[..., None], xp.asarray(added)[..., None]), (means, others)
    )
    total = total[..., 0]
    share = weight * added * (1 / xp.where(total > 0, total, 1.0))
    return square_root(xp, share)[..., None] * (others - means), (total, both)


def square_root(xp: Any, square: Any) -> Any:
    """The square root, whose gradient at 0 is 0."""
    positive_only = xp.where(square > 0, square, 1.0)
    return xp.where(square > 0, xp.sqrt(positive_only), 0.0)
