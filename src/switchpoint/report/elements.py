"""Pieces of HTML: each function returns text that is safe to put into a page."""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def folded(summary: str, text: str) -> str:
    """A line of plain text that opens to show more of it."""
    return f"<details><summary>{escape(summary)}</summary>\n{paragraph(text)}</details>"


def picture(path: Path, alt: str, caption: Sequence[str]) -> str:
    """The PNG file at `path` inside the page, what it shows in words, and paragraphs below it."""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    words = "".join(paragraph(text) for text in caption)
    return (
        f'<figure id="figure-{escape(path.stem)}">\n'
        f'<div class="picture" role="group" tabindex="0" aria-label="{escape(path.stem)}">'
        f'<img src="data:image/png;base64,{data}" alt="{escape(alt)}"></div>\n'
        f"<figcaption>{words}</figcaption>\n</figure>"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], name: str, kind: str = "") -> str:
    """A table of plain text that scrolls by itself; the first column names the rows."""
    body = "\n".join(
        f"<tr>{row_head(row[0])}{''.join(f'<td>{escape(cell)}</td>' for cell in row[1:])}</tr>"
        for row in rows
    )
    return whole_table([escape(cell) for cell in head], body, name, kind)


def whole_table(head: Sequence[str], body: str, name: str, kind: str = "") -> str:
    """A table whose head and rows are HTML already."""
    columns = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}">\n'
        f"<table{_class(kind)}>\n<thead><tr>{columns}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def row_head(text: str) -> str:
    """The first cell of a row, which names it."""
    return f'<th scope="row">{escape(text)}</th>'


def section(name: str, title: str, body: Iterable[str]) -> str:
    """A part of the page with a title, that links can point to by `name`."""
    return f'<section id="{escape(name)}">\n<h2>{escape(title)}</h2>\n{_joined(body)}\n</section>'


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(parts)


def _class(kind: str) -> str:
    return f' class="{escape(kind)}"' if kind else ""
