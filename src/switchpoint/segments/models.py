"""The segment models for bits and for larger alphabets."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from switchpoint import _checks
from switchpoint.segments.base import Segment

_SMALLEST, _LARGEST = 1e-15, 1e15  # between which single precision represents all ratios


class Bernoulli(Segment):
    """Bits whose probability of a 1 is drawn from Beta(alpha, beta).

    The default Beta(1/2, 1/2) makes the predictor inside a segment the KT estimator.
    """

    alpha: float | Float[Array, ""]
    beta: float | Float[Array, ""]

    def __init__(self, alpha: ArrayLike = 0.5, beta: ArrayLike = 0.5) -> None:
        self.alpha = _pseudo_count("alpha", alpha)
        self.beta = _pseudo_count("beta", beta)

    @property
    def pseudo_counts(self) -> tuple[float | Float[Array, ""], ...]:
        return (self.beta, self.alpha)


class Categorical(Segment):
    """Symbols 0..size-1 whose distribution is drawn from a symmetric Dirichlet distribution."""

    size: int = eqx.field(static=True)
    concentration: float | Float[Array, ""]

    def __init__(self, size: int, concentration: ArrayLike = 0.5) -> None:
        self.size = _checks.positive_int("size", size)
        if self.size < 2:
            raise ValueError(f"size must be at least 2, got {self.size}")
        self.concentration = _pseudo_count("concentration", concentration)

    @property
    def alphabet(self) -> int:
        return self.size

    @property
    def pseudo_counts(self) -> Float[np.ndarray | Array, " alphabet"]:
        known = isinstance(self.concentration, float)
        return (np if known else jnp).full(self.size, self.concentration)


def make_segment(
    alphabet: int,
    alpha: float | None = None,
    beta: float | None = None,
    concentration: float | None = None,
) -> Segment:
    """`Bernoulli(alpha, beta)` for an alphabet of 2, `Categorical(alphabet, concentration)` above.

    Parameters that are None default to 0.5; those of the other model are refused.
    """
    if alphabet < 2:
        raise ValueError(f"alphabet must be at least 2, got {alphabet}")
    bits = alphabet == 2
    given = {"alpha": alpha, "beta": beta, "concentration": concentration}
    for name, value in given.items():
        if value is not None and bits == (name == "concentration"):
            wanted = "alphabets above 2" if bits else "an alphabet of 2"
            takes = "alpha and beta" if bits else "concentration"
            raise ValueError(
                f"{name} is for {wanted}, got {value} (an alphabet of {alphabet} takes {takes})"
            )
    known = {name: value for name, value in given.items() if value is not None}
    return Bernoulli(**known) if bits else Categorical(alphabet, **known)


def _pseudo_count(name: str, value: ArrayLike) -> float | Float[Array, ""]:
    if isinstance(value, jax.core.Tracer):
        return value
    number = _checks.positive_float(name, value)
    if not _SMALLEST <= number <= _LARGEST:
        raise ValueError(f"{name} must be from {_SMALLEST:g} to {_LARGEST:g}, got {number:g}")
    return number
