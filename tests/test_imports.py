"""Importing the package loads nothing that is slow to import before it is needed."""

import subprocess
import sys

import pytest

import switchpoint

PROGRAM = """
import sys
import switchpoint
for name in {names!r}:
    getattr(switchpoint, name)
heavy = ("matplotlib", "rich", "xarray", "pandas", "scipy.sparse", "jax.experimental.pallas")
print(*(name for name in heavy if name in sys.modules))
"""
HEAVY = {"evaluation", "training"}  # xarray, rich
LIGHT = [
    "neural",
    *(name for name, module in switchpoint._MODULE_OF.items() if module not in HEAVY),
]


@pytest.mark.parametrize("names", [[], LIGHT], ids=["the package", "priors to networks"])
def test_heavy_modules_are_imported_when_needed(names):
    program = PROGRAM.format(names=names)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.returncode, run.stdout.strip()) == (0, ""), run.stderr
