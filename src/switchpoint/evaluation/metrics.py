"""Regret and code length in bits, and the error of their means."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.scipy.special import xlogy
from jaxtyping import Array, Float

from switchpoint._labels import keeps_labels, unlabelled
from switchpoint.sources import Draw

Part: TypeAlias = tuple[int, Float[np.ndarray, " width"], Float[np.ndarray, " width"]]

BITS_PER_NAT = float(1 / np.log(2))
"""The factor from natural logarithms to bits."""


def regret(draw: Draw, log_probs: Float[Array, "..."]) -> Float[Array, "*batch time"]:
    """The expected instantaneous regret in bits.

    With the true distribution p_t and the prediction q_t of symbol x_t given the past that was
    drawn, it is KL(p_t || q_t) = sum_k p_t(k) log2(p_t(k) / q_t(k)). `log_probs` are ln q_t(k),
    of the shape (..., time, alphabet) of `draw.probs`. Without an alphabet, `log_probs` are the log
    densities (..., time) of the values, and the regret is the realised one: log2 p(x_t) / q(x_t).

    >>> import jax
    >>> import switchpoint as sp
    >>> draw = sp.Source(sp.Geometric(0.1)).sample(jax.random.key(0), 20, 16)
    >>> bits = sp.regret(draw, sp.KT().log_probs(draw.symbols))
    >>> bits.shape, float(bits.sum(-1).mean()) > 0
    ((20, 16), True)
    """
    if draw.symbol_probs is None:
        _same_shape("log densities", log_probs, draw.switches.shape)
        return (draw.log_density - log_probs) * BITS_PER_NAT
    _same_shape("log_probs", log_probs, draw.probs.shape)
    # A symbol of true probability 0 adds nothing, whatever its prediction.
    expected = jnp.where(draw.probs > 0, draw.probs * log_probs, 0)
    return jnp.sum(xlogy(draw.probs, draw.probs) - expected, axis=-1) * BITS_PER_NAT


def cumulative_regret(draw: Draw, log_probs: Float[Array, "..."]) -> Float[Array, "*batch time"]:
    """The regret in bits summed up to and including each time.

    The regret after n symbols is that of coding them: sum_t KL(p_t || q_t), in O(time x alphabet).

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import switchpoint as sp
    >>> draw = sp.Source(sp.Geometric(0.1)).sample(jax.random.key(0), 20, 16)
    >>> bits = sp.cumulative_regret(draw, sp.KT().log_probs(draw.symbols))
    >>> bool(jnp.allclose(bits[:, -1], sp.regret(draw, sp.KT().log_probs(draw.symbols)).sum(-1)))
    True
    """
    return jnp.cumsum(regret(draw, log_probs), axis=-1)


def excess_regret(
    draw: Draw,
    log_probs: Float[Array, "..."],
    reference: Float[Array, "..."],
) -> Float[Array, "*batch time"]:
    """The regret of each symbol in bits beyond that of `reference`: sum_k p(k) log2 r(k) / q(k).

    It is one difference, so it is accurate where both regrets are nearly the same.

    >>> import jax
    >>> import switchpoint as sp
    >>> source = sp.Source(sp.Geometric(0.1))
    >>> draw = source.sample(jax.random.key(0), 20, 16)
    >>> kt, optimum = (p.log_probs(draw.symbols) for p in (sp.KT(), sp.bayes_optimal(source)))
    >>> float(sp.excess_regret(draw, kt, optimum).sum(-1).mean()) > 0
    True
    """
    if draw.symbol_probs is None:
        _same_shape("log densities", log_probs, draw.switches.shape)
        return (reference - log_probs) * BITS_PER_NAT
    _same_shape("log_probs", log_probs, draw.probs.shape)
    _same_shape("reference", reference, draw.probs.shape)
    expected = jnp.where(draw.probs > 0, draw.probs * (reference - log_probs), 0)
    return jnp.sum(expected, axis=-1) * BITS_PER_NAT


@keeps_labels("code_length")
def code_length(symbols: Any, log_probs: Any) -> Float[Array, "*batch time"]:
    """The realised code length in bits, -log2 q(x_t | x_<t), of the symbol that occurred.

    `symbols` are (..., time) and `log_probs` (..., time, alphabet). An arithmetic coder spends the
    sum over time, to within two bits.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> bits = sp.code_length([1, 1], sp.KT().log_probs([1, 1]))  # of probabilities 1/2 and 3/4
    >>> np.asarray(bits, float).round(2).tolist()
    [1.0, 0.42]
    """
    symbols, log_probs = unlabelled(symbols), unlabelled(log_probs)
    _same_shape("log_probs", log_probs, (*symbols.shape, log_probs.shape[-1]))
    taken = jnp.take_along_axis(log_probs, symbols[..., None], axis=-1)[..., 0]
    return -taken * BITS_PER_NAT


def standard_error(values: Any, axis: Any = -1) -> Any:
    """The standard error of the mean of n values along an axis: s / sqrt(n), NaN for n = 1.

    s^2 = sum_i (x_i - mean)^2 / (n - 1). `values` is an array, or a DataArray with the name of a
    dimension as its `axis`.
    """
    if isinstance(values, xr.DataArray):
        return values.reduce(standard_error, axis)
    count = values.shape[axis]
    if count < 2:
        return np.full_like(values.mean(axis), np.nan)
    with np.errstate(invalid="ignore"):  # infinite values have no deviation
        return values.std(axis, ddof=1) / np.sqrt(count)


def moments(rows: Float[np.ndarray, "rows width"]) -> Part:
    """The number of rows, their sum and their sum of squared deviations, in float64."""
    rows = rows.astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinite values have no deviation
        return len(rows), rows.sum(0), ((rows - rows.mean(0)) ** 2).sum(0)


def mean_and_error(parts: Sequence[Part]) -> Float[np.ndarray, "2 width"]:
    """The mean of all rows, and its standard error, from the moments of a few at a time.

    See Chan, Golub and LeVeque (1983); the error is NaN if there is only one row.
    """
    counts, sums, squares = (np.array(each) for each in zip(*parts, strict=True))
    count, counts = counts.sum(), counts[:, None]
    mean = sums.sum(0) / count
    with np.errstate(invalid="ignore"):  # 0 / 0 of one row
        deviations = (squares + counts * (sums / counts - mean) ** 2).sum(0)
        return np.stack([mean, np.sqrt(deviations / np.float64(count - 1) / count)])


def _same_shape(name: str, array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
