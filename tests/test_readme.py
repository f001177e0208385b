"""The README is true: its Python runs as written, and its files are there."""

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_python_blocks_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) >= 2
    names = {}
    for block in blocks:
        exec(block, names)
    regret = float(capsys.readouterr().out.split()[0])
    errors = float(np.asarray(names["bits"]).sum(-1).std()) / 1000**0.5
    assert regret == pytest.approx(12.1, abs=5 * errors)


@pytest.mark.parametrize("name", re.findall(r"\]\(([^)]+)\)", README))
def test_links_lead_somewhere(name):
    assert (ROOT / name).is_file()
