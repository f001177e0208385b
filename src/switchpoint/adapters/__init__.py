"""Interfaces of other packages, one module each, imported only by those who have that package.

`switchpoint.adapters.sklearn`, `switchpoint.adapters.sktime`, `switchpoint.adapters.river` and
`switchpoint.adapters.ray` need the extra of the same name.
"""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def requires(package: str, extra: str) -> Iterator[None]:
    """Say how to install a package whose import fails inside."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"switchpoint.adapters.{extra} needs the package {package}: "
            f"pip install 'switchpoint[{extra}]'",
            name=error.name,
        ) from error
