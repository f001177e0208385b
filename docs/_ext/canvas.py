"""Shapes that add up to an SVG in the colours of the theme."""

from html import escape

import numpy as np


class Canvas:
    """Shapes in user units; their classes are coloured by `_static/site.css`."""

    def __init__(self, title, width, height):
        self.title, self.width, self.height, self.parts = title, width, height, []

    def add(self, tag, text=None, /, **attributes):
        """One element; `_` in names of attributes stands for `-`, `kind` for `class`."""
        attributes = {
            ("class" if k == "kind" else k.replace("_", "-")): v for k, v in attributes.items()
        }
        written = " ".join(f'{name}="{_number(value)}"' for name, value in attributes.items())
        self.parts.append(
            f"<{tag} {written}/>" if text is None else f"<{tag} {written}>{escape(text)}</{tag}>"
        )

    def text(self, x, y, text, kind="", anchor="middle"):
        """A line of text whose baseline is at y."""
        self.add("text", text, x=x, y=y, kind=kind, text_anchor=anchor)

    def box(self, x, y, width, height, kind="box", **more):
        """A rectangle with round corners."""
        self.add("rect", x=x, y=y, width=width, height=height, rx=4, kind=kind, **more)

    def line(self, x1, y1, x2, y2, kind="line", **more):
        """A straight line."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, kind=kind, **more)

    def arrow(self, x1, y1, x2, y2, kind="line"):
        """A line with a head at its end."""
        angle = np.arctan2(y2 - y1, x2 - x1)
        ends = [angle + turn for turn in (2.7, -2.7)]
        head = " ".join(
            f"L{x2 + 7 * np.cos(a):.1f} {y2 + 7 * np.sin(a):.1f} M{x2} {y2}" for a in ends
        )
        self.add("path", d=f"M{x1} {y1} L{x2} {y2} {head}", kind=kind)

    def svg(self):
        """The text of the drawing."""
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" width="{self.width}" role="img">'
            f"<title>{escape(self.title)}</title>{''.join(self.parts)}</svg>"
        )


def _number(value):
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value
