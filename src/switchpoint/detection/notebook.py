"""Results as HTML, for notebooks: a sentence, a table and a picture, without scripts."""

import base64
import html
from collections.abc import Mapping, Sequence
from typing import Any

from switchpoint.detection.tables import make_table

_ROWS = 30


def result_html(
    title: str, notes: Sequence[str], rows: Sequence[Mapping[str, Any]], figure: Any = None
) -> str:
    """The repr of a result, its notes, the first rows of its table, and its picture."""
    parts = [f"<p><b>{html.escape(title)}</b></p>"]
    if notes:
        listed = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
        parts.append(f"<ul>{listed}</ul>")
    if rows:
        # Cells are escaped by pandas.
        table = make_table(rows[:_ROWS]).to_html(
            index=False, border=0, na_rep="", float_format=_shown, max_cols=None
        )
        parts.append(f'<div style="overflow-x: auto; white-space: nowrap">{table}</div>')
    if len(rows) > _ROWS:
        parts.append(f"<p>and {len(rows) - _ROWS} more rows</p>")
    if figure is not None:
        picture, size = figure._repr_png_()
        data = base64.b64encode(picture).decode()
        parts.append(
            f'<img alt="{html.escape(title)}" style="max-width: 100%; width: {size["width"]}px" '
            f'src="data:image/png;base64,{data}">'
        )
    return "\n".join(parts)


def _shown(number: float) -> str:
    return f"{number:.4g}"
