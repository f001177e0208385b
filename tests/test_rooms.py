"""The rooms of the house: imports point only to rooms that data flow through earlier."""

import ast
from pathlib import Path

import pytest

import switchpoint

ROOT = Path(switchpoint.__file__).parent
ROOMS = [
    "priors",
    "segments",
    "sources",
    "exact",
    "neural",
    "evaluation",
    "training",
    "zoo",
    "figures",
    "experiments",
    "report",
    "cli",
]
EARLIER = {
    room: {
        "_checks",
        "_random",
        "_prefix_sums",
        "_batching",
        "_files",
        "_provenance",
        "_tensors",
        "_text",
        "predictor",
        *ROOMS[: i + 1],
    }
    for i, room in enumerate(ROOMS)
}


def imported_rooms(path):
    """The modules of the package that a file imports at its top level."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == "switchpoint":
                names = [alias.name for alias in node.names]
                yield from names if len(parts) == 1 else parts[1:2]


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_only_upwards(room):
    files = list((ROOT / room).glob("*.py"))
    assert files
    for path in files:
        beyond = set(imported_rooms(path)) - EARLIER[room] - {"__version__"}
        assert not beyond, f"{path.name} imports {beyond}"
