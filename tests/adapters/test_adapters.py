"""Adapters: the examples of their page, and what they say without their packages."""

import importlib
import re
import sys
from pathlib import Path

import pytest

import switchpoint.adapters

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adapters.md").read_text()
PACKAGES = {"sklearn": "scikit-learn", "sktime": "sktime", "river": "river", "ray": "ray"}


@pytest.mark.slow
def test_the_examples_print_what_the_page_says(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    examples = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == PAGE.count("```python") == 7
    names = {}
    for code, printed in examples:
        if "sktime" in code and importlib.util.find_spec("sktime") is None:
            continue
        exec(code, names)
        out = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert out == [line.rstrip() for line in printed.splitlines()]


@pytest.mark.parametrize("adapter", PACKAGES)
def test_a_package_that_is_not_installed(adapter, monkeypatch):
    monkeypatch.setitem(sys.modules, adapter, None)
    for name in [name for name in sys.modules if name.startswith(f"{adapter}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"switchpoint.adapters.{adapter}", raising=False)
    monkeypatch.delattr(switchpoint.adapters, adapter, raising=False)
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(f"switchpoint.adapters.{adapter}")
    needed = f"the package {PACKAGES[adapter]}: pip install 'switchpoint[{adapter}]'"
    assert needed in str(caught.value)
