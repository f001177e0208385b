"""The two segment models."""

import equinox as eqx

from switchpoint import _checks
from switchpoint.segments.base import Segment


class Bernoulli(Segment):
    """Bits whose probability of a 1 is drawn from Beta(alpha, beta).

    The default Beta(1/2, 1/2) makes the predictor inside a segment the KT estimator.
    """

    alpha: float = eqx.field(static=True)
    beta: float = eqx.field(static=True)

    def __init__(self, alpha: float = 0.5, beta: float = 0.5) -> None:
        self.alpha = _checks.positive_float("alpha", alpha)
        self.beta = _checks.positive_float("beta", beta)

    @property
    def pseudo_counts(self) -> tuple[float, ...]:
        return (self.beta, self.alpha)


class Categorical(Segment):
    """Symbols 0..size-1 whose distribution is drawn from a symmetric Dirichlet law."""

    size: int = eqx.field(static=True)
    concentration: float = eqx.field(static=True)

    def __init__(self, size: int, concentration: float = 0.5) -> None:
        self.size = _checks.positive_int("size", size)
        if self.size < 2:
            raise ValueError(f"size must be at least 2, got {self.size}")
        self.concentration = _checks.positive_float("concentration", concentration)

    @property
    def pseudo_counts(self) -> tuple[float, ...]:
        return (self.concentration,) * self.size
