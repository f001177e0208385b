"""Formulas over an array namespace: the same code runs in NumPy and in JAX.

A formula asks `namespace` for the module of its arguments and uses only functions that both have.
Given NumPy arrays it computes on the host in double precision, without tracing or dispatch, which
is what a stream of single observations needs; given JAX arrays it can be compiled.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import ArrayLike, Num

if TYPE_CHECKING:
    Numbers: TypeAlias = Any
else:
    Numbers: TypeAlias = Num[ArrayLike, "..."]
    """An array of NumPy or of JAX, or a number; type checkers cannot follow both at once."""

_HOST_TYPES = {np.ndarray, np.float64, np.int64, np.bool_, float, int, bool}


ONE, HALF = np.array(1.0), np.array(0.5)
"""For formulas on the host: NumPy adds an array faster than a number."""


def namespace(*arrays: Any) -> Any:
    """`numpy` if every array is NumPy's or a plain number, and `jax.numpy` otherwise.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> from switchpoint.segments import namespace
    >>> namespace(np.ones(2), 3.0).__name__, namespace(np.ones(2), jnp.ones(2)).__name__
    ('numpy', 'jax.numpy')
    """
    for array in arrays:
        if type(array) not in _HOST_TYPES and not isinstance(array, np.ndarray | np.generic):
            return jnp
    return np


def as_float(x: Any) -> Any:
    """x in the default precision of its namespace."""
    return namespace(x).asarray(x, float)


def broadcast_batch(one: Any, other: Any) -> tuple[Any, Any]:
    """Two arrays of vectors, both with the leading axes of both."""
    xp, batch = namespace(one, other), np.broadcast_shapes(one.shape[:-1], other.shape[:-1])
    first, second = (xp.broadcast_to(each, (*batch, each.shape[-1])) for each in (one, other))
    return first, second


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^-x), accurate in both tails."""
    return scipy.special.expit(x) if namespace(x) is np else jax.nn.sigmoid(x)


def log_sigmoid(x: Any) -> Any:
    """ln 1 / (1 + e^-x), accurate in both tails."""
    return scipy.special.log_expit(x) if namespace(x) is np else jax.nn.log_sigmoid(x)


def gammaln(x: Any) -> Any:
    """ln Gamma(x)."""
    return scipy.special.gammaln(x) if namespace(x) is np else jax.scipy.special.gammaln(x)


def ndtr(x: Any) -> Any:
    """P(X <= x) of a standard normal variable."""
    return scipy.special.ndtr(x) if namespace(x) is np else jax.scipy.special.ndtr(x)


def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularised incomplete beta function I_x(a, b)."""
    on_host = namespace(a, b, x) is np
    return (scipy.special if on_host else jax.scipy.special).betainc(a, b, x)


def floor_log2(x: Any) -> Any:
    """The largest v with 2^v <= x, for whole numbers x >= 1."""
    if namespace(x) is np:
        return np.frexp(x)[1] - 1
    x = jnp.asarray(x)
    return jnp.iinfo(x.dtype).bits - 1 - jax.lax.clz(x)
