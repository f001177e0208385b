"""Argument checks: each raises a `ValueError` that names the argument and its value."""

import math
import operator
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Int, PRNGKeyArray

from switchpoint._text import did_you_mean


def positive_int(name: str, value: Any) -> int:
    """`value` as an int of at least 1."""
    return _as_int(name, value, least=1)


def whole_number(name: str, value: Any) -> int:
    """`value` as an int of at least 0."""
    return _as_int(name, value, least=0)


def seed(value: Any) -> int:
    """`value` as an int that `jax.random.key` accepts without truncation."""
    number = _as_int("seed", value)
    if not 0 <= number < 2**32:
        raise ValueError(f"seed must be from 0 to {2**32 - 1}, got {number}")
    return number


def finite_float(name: str, value: Any) -> float:
    """`value` as a finite float."""
    return _finite(name, value, "a finite number", -math.inf)


def positive_float(name: str, value: Any) -> float:
    """`value` as a finite float above 0."""
    return _finite(name, value, "a finite number above 0", 0.0)


def probability(name: str, value: Any, *, below_one: bool = False) -> float:
    """`value` as a float in (0, 1], or in (0, 1) if `below_one`."""
    number = _as_float(name, value)
    if not 0 < number <= 1 or (below_one and number == 1):
        allowed = "strictly between 0 and 1" if below_one else "above 0 and at most 1"
        raise ValueError(f"{name} must be {allowed}, got {number}")
    return number


def distribution(name: str, values: Any) -> tuple[float, ...]:
    """`values` as non-negative floats that sum to one, without trailing zeros."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a list of numbers, got {values!r}") from error
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a non-empty list of numbers, got shape {array.shape}")
    for index, value in enumerate(array):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(
                f"{name} must hold finite numbers of at least 0, got {value} at index {index}"
            )
    total = math.fsum(array)
    if abs(total - 1) > 1e-6:
        raise ValueError(f"{name} must sum to one, got a sum of {total:.9g}")
    if abs(total - 1) <= 2 * np.finfo(float).eps:
        total = 1.0  # what was normalised before stays as it is
    return tuple((array[: np.flatnonzero(array)[-1] + 1] / total).tolist())


def distributions(name: str, values: Any, axes: int) -> Any:
    """An array of `axes` axes, of distributions along the last one, unless traced."""
    if any(isinstance(each, jax.core.Tracer) for each in jax.tree.leaves(values)):
        return jnp.asarray(values)
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers, got {shown(values)}") from error
    if array.ndim != axes or array.size == 0:
        raise ValueError(f"{name} must be an array of {axes} axes, got shape {array.shape}")
    if axes > 1:
        rows = [distributions(f"{name}[{i}]", row, axes - 1) for i, row in enumerate(array)]
        return np.stack(rows)
    positive = distribution(name, array)
    return np.pad(positive, (0, len(array) - len(positive)))


def one_of(name: str, value: Any, choices: Iterable[str]) -> str:
    """`value`, which must be one of these names; the message has the nearest of them."""
    choices = list(choices)
    if not isinstance(value, str) or value not in choices:
        near = did_you_mean(str(value), choices)
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {shown(value)}{near}")
    return value


def mixture_weights(name: str, weights: Any, count: int, parts: str) -> Any:
    """The distribution over `count` parts of a mixture, by default uniform, unless traced."""
    given = np.full(count, 1 / count) if weights is None else weights
    array = distributions(name, given, 1)
    if len(array) != count:
        raise ValueError(f"{name} must be one for each of {count} {parts}, got {len(array)}")
    return array


def random_key(value: Any) -> PRNGKeyArray:
    """`value` as a random key; a number is refused, since it is probably a seed."""
    try:
        jax.random.key_impl(value)  # accepts legacy uint32 keys too
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"key must be a JAX random key, such as jax.random.key(0), got {shown(value)}"
        ) from error
    return value


def symbols(values: Any, alphabet: int, name: str = "symbols") -> Int[Array, "*batch time"]:
    """`values` as an int32 array of symbols 0..alphabet-1 with time last.

    Inside `jit` only the shape and the type are checked.
    """
    traced = isinstance(values, jax.core.Tracer)
    if traced and not jnp.issubdtype(values.dtype, jnp.integer):
        raise ValueError(f"{name} must be whole numbers, got dtype {values.dtype}")
    array = values if traced else as_array(values, name)
    if array.ndim == 0 or 0 in array.shape:
        raise ValueError(f"{name} must hold at least one symbol, got shape {tuple(array.shape)}")
    return jnp.asarray(array if traced else known_symbols(array, alphabet, name), jnp.int32)


def symbol(value: Any, alphabet: int) -> Int[ArrayLike, ""]:
    """`value` as one int32 symbol 0..alphabet-1; unchecked inside `jit`."""
    if isinstance(value, jax.core.Tracer):
        return value.astype(jnp.int32)
    known = as_array(value, "symbol")
    if known.ndim != 0:
        raise ValueError(f"symbol must be a single symbol, got shape {known.shape}")
    return np.int32(known_symbols(known, alphabet, "symbol"))


def numbers(values: Any, name: str, columns: int = 0) -> np.ndarray:
    """`values` as an array of float64; with `columns`, a DataFrame may have several."""
    if columns and hasattr(values, "columns") and hasattr(values, "to_numpy"):
        values = values.to_numpy()
    array = as_array(values, name)
    if array.dtype == object:
        known = [np.nan if is_missing(each) else each for each in array.ravel()]
        array = array_of(known).reshape(array.shape)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numbers, got {_no_number(array)}")
    return array.astype(np.float64)


def array_of(values: Any) -> np.ndarray:
    """An array of the values as they are: NumPy would make numbers beside a text texts as well."""
    array = np.asarray(values)
    return array if array.dtype.kind not in "US" else np.asarray(values, dtype=object)


def _no_number(array: np.ndarray) -> str:
    """The first entry that is not a number, and where it is, in words."""
    for at, each in np.ndenumerate(array):
        if not isinstance(each, int | float | np.number | np.bool_):
            return f"{shown(str(each) if isinstance(each, str) else each)}{place(at)}"
    return f"dtype {array.dtype}"


def check_in_memory(name: str, values: Any) -> None:
    """Raise a `ValueError` for a query of polars that was not executed."""
    if type(values).__name__ == "LazyFrame":
        raise ValueError(f"{name} must be in memory, got a LazyFrame: pass its collect()")


def has_missing(values: Any) -> bool:
    """Whether there is a NaN among values."""
    array = values if isinstance(values, np.ndarray | jax.Array) else as_array(values, "values")
    if array.dtype == object:
        return any(is_missing(each) for each in array.ravel())
    return array.dtype.kind == "f" and bool(np.isnan(np.asarray(array)).any())


def place(at: tuple[int, ...]) -> str:
    """Where an entry of an array of sequences is, in words."""
    if not at:
        return ""
    sequence = f" of sequence {at[0] if len(at) == 2 else at[:-1]}" if len(at) > 1 else ""
    return f" at position {at[-1]}{sequence}"


def one_line(module: Any) -> str:
    """The `repr` of a module, which is broken into lines where it is long, in one line."""
    return " ".join(repr(module).split()).replace("( ", "(").replace(" )", ")")


def shown(value: Any) -> str:
    """A value for a message, shortened to one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_missing(value: Any) -> bool:
    """Whether an observation is None, NaN, or the NA or NaT of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(value != value)


def as_array(values: Any, name: str) -> np.ndarray:
    """Numbers, lists, arrays, Series and single-column DataFrames as an array."""
    if isinstance(values, str | bytes | bytearray | dict | set | frozenset | Iterator):
        advice = {
            str: "map each symbol to a number from 0 first",
            bytes: "pass list(data) for an alphabet of 256",
            bytearray: "pass list(data) for an alphabet of 256",
        }.get(type(values), "make a list or an array of it first")
        raise ValueError(
            f"{name} must be numbers in a list or an array, "
            f"got the {type(values).__name__} {shown(values)}: {advice}"
        )
    check_in_memory(name, values)
    if hasattr(values, "columns") and hasattr(values, "to_numpy"):  # pandas or polars
        columns = [str(column) for column in values.columns]
        if len(columns) != 1:
            raise ValueError(
                f"{name} must be one column, got a DataFrame of {len(columns)} "
                f"({', '.join(columns[:5])}{', ...' if len(columns) > 5 else ''}): pass one of "
                "them, such as df['x'], or df.to_numpy().T for a sequence from each column"
            )
        values = values.to_numpy()[:, 0]
    try:
        array = array_of(values)
    except ValueError as error:  # lists of different lengths
        raise ValueError(
            f"{name} must have sequences of the same length, got {shown(values)}"
        ) from error
    if array.dtype == object:
        whole = all(isinstance(each, int | np.integer | np.bool_) for each in array.ravel())
        try:
            return array.astype(np.int64) if whole else array
        except OverflowError as error:
            raise ValueError(f"{name} must be numbers of 64 bits, got {shown(values)}") from error
    return array


def known_symbols(array: np.ndarray, alphabet: int, name: str) -> np.ndarray:
    """An array of symbols, if all of them are from 0 to alphabet-1."""
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be whole numbers, got {_no_number(array)}: map each symbol to a number "
            f"from 0 to {alphabet - 1} first"
        )
    if array.dtype.kind != "f" and array.min() >= 0 and array.max() < alphabet:
        return array  # the common case, in two fast passes
    bad = ~((array >= 0) & (array < alphabet) & (array == np.floor(array)))
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        value = array[at].item()
        raise ValueError(
            f"{name} must be whole numbers from 0 to {alphabet - 1}, got {value}{place(at)}"
            f"{_advice(value, array, alphabet)}"
        )
    return array


def _advice(value: float, array: np.ndarray, alphabet: int) -> str:
    """A remedy for a value that is not a symbol."""
    if math.isfinite(value) and value != math.floor(value):
        return "; for real values use a family such as switchpoint.NormalGamma()"
    if alphabet <= value < 1000 and (array >= 0).all():
        return f"; a larger alphabet is switchpoint.Categorical({int(array.max()) + 1})"
    return ""


def _as_int(name: str, value: Any, least: int | None = None) -> int:
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        number = operator.index(value)
    except TypeError as error:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from error
    if least is not None and number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {number}")
    return number


def _finite(name: str, value: Any, wanted: str, above: float) -> float:
    number = _as_float(name, value)
    if not (math.isfinite(number) and number > above):
        raise ValueError(f"{name} must be {wanted}, got {number}")
    return number


def _as_float(name: str, value: Any) -> float:
    try:
        if isinstance(value, bool | np.bool_ | str):
            raise TypeError
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a number, got {value!r}") from error
