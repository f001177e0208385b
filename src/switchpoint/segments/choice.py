"""The segment model that fits an alphabet."""

from switchpoint.segments.base import Segment
from switchpoint.segments.models import Bernoulli, Categorical


def segment_of(
    alphabet: int,
    alpha: float | None = None,
    beta: float | None = None,
    concentration: float | None = None,
) -> Segment:
    """`Bernoulli(alpha, beta)` for an alphabet of 2, `Categorical(alphabet, concentration)` above.

    Parameters that are None are 0.5; those of the other model are refused.
    """
    if alphabet < 2:
        raise ValueError(f"alphabet must be at least 2, got {alphabet}")
    if alphabet == 2:
        if concentration is not None:
            raise ValueError(
                f"concentration is for alphabets above 2, got {concentration} "
                "(an alphabet of 2 takes alpha and beta)"
            )
        return Bernoulli(0.5 if alpha is None else alpha, 0.5 if beta is None else beta)
    for name, value in (("alpha", alpha), ("beta", beta)):
        if value is not None:
            raise ValueError(
                f"{name} is for an alphabet of 2, got {value} "
                f"(an alphabet of {alphabet} takes concentration)"
            )
    return Categorical(alphabet, 0.5 if concentration is None else concentration)
