"""The layers of the package: a module imports only from its own layer and from earlier ones."""

import ast
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

import switchpoint

ROOT = Path(switchpoint.__file__).parent
BASE = ""  # the modules beside the subpackages, such as _checks and predictor
PLACED = {  # modules that are not of the layer of their package
    "switchpoint.spec": "spec",
    "switchpoint.paper.commands": "cli",
    "switchpoint.paper.__main__": "cli",
}
LAYERS = [
    BASE,
    "priors",
    "segments",
    "sources",
    "exact",
    "spec",
    "neural",
    "checking",
    "evaluation",
    "training",
    "zoo",
    "streams",
    "figures",
    "detection",
    "adapters",
    "paper",
    "cli",
]
ENTRY_POINTS = {"switchpoint", "switchpoint.__main__"}  # which may import everything


def module_of(path):
    parts = ["switchpoint", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def layer_of(module):
    if module in PLACED:
        return PLACED[module]
    first = module.removeprefix("switchpoint").lstrip(".").split(".")[0]
    return first if (ROOT / first).is_dir() else BASE


def imports_of(source, package):
    """The modules of ours that a source file imports, in functions as well.

    A block under `if TYPE_CHECKING:` is not executed, and does not count.
    """
    pending = [ast.parse(source)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in (
            getattr(node.test, "id", ""),
            getattr(node.test, "attr", ""),
        ):
            pending += node.orelse
            continue
        pending += ast.iter_child_nodes(node)
        found = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            names = [f"{module}.{alias.name}" for alias in node.names]
            # A name that is no module was defined in the module it is imported from.
            found = [name if name in MODULES else module for name in names]
            if module == "switchpoint":
                found = [name for name in names if name != "switchpoint.__version__"]
        yield from (name for name in found if name.split(".")[0] == "switchpoint")


def imports(module):
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return set(imports_of(path.read_text(), package))


def test_every_subpackage_is_in_a_layer():
    found = {layer_of(module) for module in MODULES if module not in ENTRY_POINTS}
    assert found == set(LAYERS)
    assert layer_of("switchpoint.neural.kernels.attention") == "neural"
    assert "switchpoint.neural.kernels.attention" in MODULES


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_only_to_earlier_layers(layer):
    allowed = LAYERS[: LAYERS.index(layer) + 1]
    for module in MODULES.keys() - ENTRY_POINTS:
        if layer_of(module) == layer:
            later = {each for each in imports(module) if layer_of(each) not in allowed}
            assert not later, f"{module} imports {later}"
            others = imports(module) - (MODULES.keys() - ENTRY_POINTS)
            assert not others, f"{module} imports {others}, not the modules that define them"


def test_no_modules_import_each_other_in_a_cycle():
    try:
        TopologicalSorter({module: imports(module) for module in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle of imports: {' <- '.join(error.args[1])}")


def test_all_forms_of_import_are_found():
    source = """
import switchpoint.cli.app as app, os
from switchpoint import zoo, __version__
from switchpoint.exact import KT, ptw
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from switchpoint.paper.report import write
else:
    from switchpoint.figures import style
def late():
    with open("x"):
        from .kernels import attention
        from ..priors.base import Prior
        from switchpoint import Prior
"""
    assert set(imports_of(source, "switchpoint.neural")) == {
        "switchpoint.cli.app",
        "switchpoint.zoo",
        "switchpoint.exact",
        "switchpoint.exact.ptw",
        "switchpoint.figures.style",
        "switchpoint.neural.kernels.attention",
        "switchpoint.priors.base",
        "switchpoint.Prior",  # no module: the package's own names are for its users
    }
