"""Every public name of the library has an example, and examples run."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import switchpoint as sp

PACKAGES = (
    sp.detection,
    sp.evaluation,
    sp.exact,
    sp.neural,
    sp.priors,
    sp.segments,
    sp.sources,
    sp.streams,
    sp.training,
    sp.zoo,
)
MODULES = [
    "switchpoint.predictor",
    "switchpoint._namespace",
    "switchpoint._parameters",
    "switchpoint.checking.properties",
    *(
        module.name
        for package in (*PACKAGES, sp.neural.networks)
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + ".")
    ),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("package", [sp, *PACKAGES], ids=lambda package: package.__name__)
def test_public_names_have_an_example(package):
    for name in package.__all__:
        value = getattr(package, name)
        if (inspect.isclass(value) or inspect.isfunction(value)) and not name.endswith("State"):
            text = inspect.getdoc(value)
            assert ">>>" in text or "See `" in text, f"{package.__name__}.{name}"


def test_examples_of_decorated_functions_run():
    """`doctest.testmod` passes over a function whose wrapper is of another module."""
    for test in doctest.DocTestFinder().find(sp.code_length, globs={}):
        assert doctest.DocTestRunner().run(test).failed == 0
