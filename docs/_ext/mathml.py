"""Mathematics as MathML: browsers typeset it, without a script or a network."""

from docutils import nodes
from latex2mathml.converter import convert


def inline(self, node):
    """Write mathematics inside a line."""
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def display(self, node):
    """Write mathematics on a line of its own."""
    self.body.append(self.starttag(node, "div", CLASS="math"))
    self.body.append(convert(node.astext(), display="block"))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app):
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
