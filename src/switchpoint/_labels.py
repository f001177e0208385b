"""Labels of values: what is computed from a Series or a DataFrame keeps its library and its index.

Neither pandas nor polars is imported here: a caller who passes their objects has imported them.
"""

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class Labels:
    """The library of some values, and their index, which polars does not have."""

    library: str
    index: Any = None
    names: tuple[str, ...] = ()
    """The names of the columns of a DataFrame."""

    def attach(self, array: Any, name: str) -> Any:
        """Numbers of each observation: one in a Series of this name, several in a DataFrame."""
        if array.ndim == 2:
            return self.frame(dict(enumerate(np.asarray(array).T)))
        module = sys.modules[self.library]
        if self.library == "polars":
            return module.Series(name, np.asarray(array))
        return module.Series(np.asarray(array), index=self.index, name=name)

    def frame(self, columns: Mapping[Any, Any]) -> Any:
        """Several values for each observation, as a DataFrame of the same library."""
        module = sys.modules[self.library]
        if self.library == "polars":  # where names are strings
            return module.DataFrame({str(name): np.asarray(each) for name, each in columns.items()})
        arrays = {name: np.asarray(each) for name, each in columns.items()}
        return module.DataFrame(arrays, index=self.index)


def labels_of(values: Any) -> Labels | None:
    """The labels of a Series or a DataFrame; None for everything else."""
    for library in ("pandas", "polars"):
        module = sys.modules.get(library)
        if module is not None and isinstance(values, (module.Series, module.DataFrame)):
            names = tuple(map(str, getattr(values, "columns", ())))
            return Labels(library, getattr(values, "index", None), names)
    return None


def unlabelled(values: Any) -> jax.Array:
    """Values as an array of JAX, without their labels."""
    return jnp.asarray(values if labels_of(values) is None else values.to_numpy())


def keeps_labels(name: str) -> Callable[[Function], Function]:
    """Let a function from values to an array, (time,) or (time, symbols), keep their labels.

    Arrays and lists give an array. The first argument that is a Series or a DataFrame makes the
    result a Series of this name, or a DataFrame with a column for each symbol. Of a tuple, such as
    a state and an array, only the last is labelled.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def labelled(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            labels = next(filter(None, map(labels_of, (*args, *kwargs.values()))), None)
            if labels is None:
                return result
            if isinstance(result, tuple):
                return *result[:-1], labels.attach(result[-1], name)
            return labels.attach(result, name)

        return labelled  # type: ignore[return-value]

    return decorate
