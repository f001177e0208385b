"""Tables of results, in the library of the values, and their files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from switchpoint._checks import is_missing
from switchpoint._files import atomic_write
from switchpoint._labels import Labels

CHANGE_COLUMNS = (
    "position",
    "probability",
    "interval_begin",
    "interval_end",
    "interval_probability",
)
"""The columns of a table of change points."""

_WHOLE = ("interval_begin", "interval_end")
_REAL = ("probability", "interval_probability")


def make_table(
    rows: Sequence[Mapping[str, Any]], labels: Labels | None = None, columns: Sequence[str] = ()
) -> Any:
    """Rows about segments or changes as a DataFrame of pandas, or of polars if the values were.

    Without rows, it has these columns.
    """
    names = list(rows[0] if rows else columns)
    if labels is None or labels.library == "pandas":
        import pandas as pd

        table = pd.DataFrame(rows, columns=names)
        return table.astype({name: "Int64" for name in _WHOLE if name in table})
    import polars as pl

    kinds = {**dict.fromkeys(_WHOLE, pl.Int64), **dict.fromkeys(_REAL, pl.Float64)}
    kinds = {name: kind for name, kind in kinds.items() if name in names}
    return pl.DataFrame(rows, names, schema_overrides=kinds, infer_schema_length=None)


def plain_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows for JSON, where what is missing is None."""
    return [{key: None if is_missing(cell) else cell for key, cell in row.items()} for row in rows]


def write_text(text: str, path: Path | str | None) -> str:
    """The text, which is also written to `path` if there is one."""
    if path is not None:
        with atomic_write(Path(path), "path") as file:
            file.write(text.encode())
    return text
