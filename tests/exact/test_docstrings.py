"""Examples in the docstrings of the public names are true."""

import doctest

import pytest

import switchpoint as sp

DOCUMENTED = [
    sp.bayes_optimal,
    sp.compare,
    sp.fit,
    sp.ExactPredictor,
    sp.ForwardPredictor,
    sp.KT,
    sp.KTOracle,
    sp.PTWPredictor,
    sp.Posterior,
]


@pytest.mark.parametrize("documented", DOCUMENTED, ids=lambda each: each.__name__)
def test_examples_are_true(documented, capsys):
    runner = doctest.DocTestRunner()
    for example in doctest.DocTestFinder(recurse=False).find(documented):
        runner.run(example)
    assert runner.tries > 1
    assert runner.failures == 0, capsys.readouterr().out
