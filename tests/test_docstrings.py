"""Every public name of the library has an example, and examples run."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import switchpoint as sp

RECORDS = (
    "Change",
    "Forecast",
    "Level",
    "Predictive",
    "RunLength",
    "Support",
    "SwitchInterval",
    "Updates",
)
PACKAGES = (sp.priors, sp.segments, sp.sources, sp.exact, sp.streams)
WITH_EXAMPLES = (*PACKAGES, sp.detection, sp.evaluation, sp.neural, sp.training, sp.zoo)
MODULES = [
    "switchpoint.predictor",
    "switchpoint._namespace",
    "switchpoint._parameters",
    "switchpoint.neural.networks.recurrent",
    *(
        module.name
        for package in WITH_EXAMPLES
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + ".")
    ),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_public_classes_have_an_example(package):
    for name in package.__all__:
        value = getattr(package, name)
        is_record = name in RECORDS or name.endswith("State")
        if inspect.isclass(value) and not is_record:
            assert ">>>" in inspect.getdoc(value), name
