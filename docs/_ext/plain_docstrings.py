"""The library's docstrings are plain text; this shows them as they stand.

Paragraphs and lists keep their words, whatever characters they contain. Names in backquotes become
links where they are public. Indented blocks are literal, examples stay examples.
"""

import ast
import re
import textwrap

CODE = re.compile(r"(``.+?``|`[^`]+?`)", re.DOTALL)


def to_rst(text, links):
    """A plain-text docstring as reStructuredText; `links` are full names by short ones."""
    parts = []
    for block in _blocks(text):
        first = block.lstrip()
        indented = all(line.startswith("    ") for line in block.splitlines() if line.strip())
        if first.startswith(">>>"):
            parts.append(textwrap.dedent(block))
        elif first.startswith("```"):
            language, *lines = first.splitlines()
            parts.append(_literal("\n".join(lines[:-1]), language[3:] or "text"))
        elif indented:
            code = textwrap.dedent(block)
            parts.append(_literal(code, "python" if _is_python(code) else "text"))
        else:
            parts.append(_inline(block, links))
    return "\n\n".join(parts)


def _blocks(text):
    """Paragraphs; a fenced block is one, and so are indented paragraphs in a row."""
    blocks, fenced = [], False
    for paragraph in re.split(r"\n[ \t]*\n", textwrap.dedent(text).strip("\n")):
        joins = fenced or (
            blocks
            and paragraph.startswith("    ")
            and blocks[-1].startswith("    ")
            and ">>>" not in paragraph + blocks[-1]
        )
        if joins:
            blocks[-1] += "\n\n" + paragraph
        else:
            blocks.append(paragraph)
        if paragraph.count("```") % 2:
            fenced = not fenced
    return blocks


def _literal(code, language):
    return f".. code-block:: {language}\n\n{textwrap.indent(code, '   ')}"


def _is_python(code):
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return False
    return not all(isinstance(each, ast.Expr) for each in tree.body)


def _inline(text, links):
    parts = CODE.split(text)
    for i, part in enumerate(parts):
        if i % 2:
            name = part.strip("`")
            full = links.get(name.removeprefix("sp."))
            parts[i] = f":py:obj:`{name} <{full}>`" if full else f"``{name}``"
            after = parts[i + 1][:1]
            if after and (after.isalnum() or after in "_("):
                parts[i] += "\\ "
        else:
            parts[i] = re.sub(r"([\\*|_])", r"\\\1", part)
    return "".join(parts)
