"""The pages of the public API and of the commands, generated from `__all__` and the commands."""

import contextlib
import importlib
import inspect
import io
import os
from pathlib import Path

import plain_docstrings

PACKAGES = (
    "priors",
    "segments",
    "sources",
    "exact",
    "streams",
    "detection",
    "evaluation",
    "neural",
    "training",
    "zoo",
    "checking",
    "spec",
    "figures",
    "paper",
)
ADAPTERS = ("sklearn", "sktime", "river")


def modules():
    """The public modules that have an `__all__`, without those whose package is missing."""
    for name in (*PACKAGES, *(f"adapters.{each}" for each in ADAPTERS)):
        with contextlib.suppress(ModuleNotFoundError):
            module = importlib.import_module(f"switchpoint.{name}")
            if hasattr(module, "__all__"):
                yield module


def shortest_names():
    """For each public name of each module its shortest full name: switchpoint.PTW."""
    import switchpoint

    top = {id(getattr(switchpoint, name)): f"switchpoint.{name}" for name in switchpoint.__all__}
    return {
        (module.__name__, name): top.get(id(getattr(module, name)), f"{module.__name__}.{name}")
        for module in modules()
        for name in module.__all__
    }


def write_pages(app):
    """Write a page for each module with the names of its `__all__`."""
    directory = Path(app.srcdir) / "api"
    directory.mkdir(exist_ok=True)
    names = shortest_names()
    documented = set()
    pages = []
    for module in modules():
        short = module.__name__.removeprefix("switchpoint.")
        title = f"switchpoint.{short}"
        lines = [title, "=" * len(title), "", f".. py:module:: {module.__name__}", ""]
        lines += [plain_docstrings.to_rst(inspect.getdoc(module) or "", {}), ""]
        lines += [f".. py:currentmodule:: {module.__name__}", ""]
        for name in module.__all__:
            full, value = names[module.__name__, name], getattr(module, name)
            if full in documented:
                lines += [f"``{name}``", f"   The same as :py:obj:`{full}`.", ""]
                continue
            documented.add(full)
            lines += _entry(full, value)
        pages.append(short.replace(".", "-"))
        _write(directory / f"{pages[-1]}.rst", "\n".join(lines))
    _write(directory / "commands.rst", _commands())
    _write(directory / "index.rst", _index(pages))


def _entry(full, value):
    if inspect.isclass(value):
        return [f".. autoclass:: {full}", "   :members:", "   :show-inheritance:", ""]
    if inspect.ismodule(value):
        members = [name for name in vars(value) if _is_own(value, name)]
        entries = [line for name in members for line in _entry(f"{value.__name__}.{name}", None)]
        text = plain_docstrings.to_rst(inspect.getdoc(value) or "", {})
        return [f"**{value.__name__}**: {text}", "", *entries]
    if callable(value) or value is None:
        return [f".. autofunction:: {full}", ""]
    return [f".. autodata:: {full}", "   :no-value:", ""]


def _is_own(module, name):
    value = getattr(module, name)
    return (
        not name.startswith("_")
        and inspect.isfunction(value)
        and value.__module__ == module.__name__
    )


def _index(pages):
    top = "\n   ".join(pages)
    return f"""\
API reference
=============

The public API is ``__all__`` of ``switchpoint`` and of its subpackages, the commands and their
options, and the files they write. These pages are generated from it. ``import switchpoint as sp``
has the names in daily use: ``sp.PTW`` is ``switchpoint.PTW``.

.. toctree::
   :maxdepth: 1

   {top}
   commands
"""


def _commands():
    os.environ.update(TERMINAL_WIDTH="92", COLUMNS="92", NO_COLOR="1")
    from switchpoint.cli.app import PANELS, load_command

    lines = ["Commands", "========", ""]
    lines += ["The help of every command, as ``switchpoint COMMAND --help`` prints it.", ""]
    for commands in PANELS.values():
        for name in commands:
            title = f"switchpoint {name}"
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                command = load_command(name)
                context = command.make_context(title, [], resilient_parsing=True)
                printed.write(command.get_help(context))
            text = "\n".join(
                f"   {line.rstrip()}".rstrip() for line in printed.getvalue().splitlines()
            )
            lines += [title, "-" * len(title), "", ".. code-block:: text", "", text, ""]
    return "\n".join(lines)


def _write(path, text):
    """Write only what changed, so that Sphinx reads only that again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def process_docstring(app, what, name, obj, options, lines):
    """Show the plain text of a docstring as it stands."""
    del name, options
    if what == "data" and (type(obj).__doc__ or "").strip() == "\n".join(lines).strip():
        names = ", ".join(f"`{each}`" for each in obj)  # the docstring is that of its type
        lines[:] = [f"Its names: {names}."]
    lines[:] = [*plain_docstrings.to_rst("\n".join(lines), app.public_links).splitlines(), ""]


def setup(app):
    """Generate the pages before Sphinx reads, and convert each docstring."""
    app.public_links = {name: full for (_, name), full in shortest_names().items()}
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", process_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
