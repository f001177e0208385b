"""The layers of the package: a module imports only from its own layer and from earlier ones."""

import ast
from graphlib import TopologicalSorter
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
    "neural",
    "checking",
    "evaluation",
    "training",
    "zoo",
    "spec",
    "streams",
    "figures",
    "detection",
    "adapters",
    "playground",
    "paper",
    "cli",
]
ENTRY_POINTS = {"switchpoint", "switchpoint.__main__"}  # which may import everything


def module_name(path):
    parts = ["switchpoint", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def layer(module):
    if module in PLACED:
        return PLACED[module]
    first = module.removeprefix("switchpoint").lstrip(".").split(".")[0]
    return first if (ROOT / first).is_dir() else BASE


def package_imports(source, package):
    """The modules of the package that a source file imports, in functions as well.

    A block under `if TYPE_CHECKING:` is not executed, and does not count.
    """
    pending = [ast.parse(source)]
    while pending:
        match pending.pop():
            case ast.If(test=ast.Name("TYPE_CHECKING"), orelse=body):
                pending += body
            case ast.Import(names):
                yield from (name.name for name in names if name.name.startswith("switchpoint"))
            case ast.ImportFrom(module, names, level):
                module = resolve_name("." * level + (module or ""), package)
                if module.split(".")[0] == "switchpoint":
                    inside = [f"{module}.{alias.name}" for alias in names]
                    # A name that is no module was defined in the module it is imported from; but
                    # the names of the package itself are for its users.
                    defined = [name if name in MODULES else module for name in inside]
                    defined = inside if module == "switchpoint" else defined
                    yield from (name for name in defined if name != "switchpoint.__version__")
            case node:
                pending += ast.iter_child_nodes(node)


def imports(module):
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return set(package_imports(path.read_text(), package))


def test_every_subpackage_is_in_a_layer():
    assert {layer(module) for module in MODULES if module not in ENTRY_POINTS} == set(LAYERS)


@pytest.mark.parametrize("name", LAYERS)
def test_imports_point_only_to_earlier_layers(name):
    allowed = LAYERS[: LAYERS.index(name) + 1]
    modules = MODULES.keys() - ENTRY_POINTS
    for module in modules:
        if layer(module) == name:
            later = {each for each in imports(module) if layer(each) not in allowed}
            assert not later, f"{module} imports {later}"
            unknown = imports(module) - modules
            assert not unknown, f"{module} imports {unknown}, not the modules that define them"


def test_no_modules_import_each_other_in_a_cycle():
    TopologicalSorter({module: imports(module) for module in MODULES}).prepare()


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
    assert set(package_imports(source, "switchpoint.neural")) == {
        "switchpoint.cli.app",
        "switchpoint.zoo",
        "switchpoint.exact",
        "switchpoint.exact.ptw",
        "switchpoint.figures.style",
        "switchpoint.neural.kernels.attention",
        "switchpoint.priors.base",
        "switchpoint.Prior",
    }
