"""Adapters without their packages: they say what to install."""

import importlib
import sys

import pytest

import switchpoint.adapters


@pytest.mark.parametrize(
    ("adapter", "package"), [("sklearn", "scikit-learn"), ("sktime", "sktime")]
)
def test_a_package_that_is_not_installed(adapter, package, monkeypatch):
    monkeypatch.setitem(sys.modules, adapter, None)
    for name in [name for name in sys.modules if name.startswith(f"{adapter}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"switchpoint.adapters.{adapter}", raising=False)
    monkeypatch.delattr(switchpoint.adapters, adapter, raising=False)
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(f"switchpoint.adapters.{adapter}")
    assert f"the package {package}: pip install 'switchpoint[{adapter}]'" in str(caught.value)
