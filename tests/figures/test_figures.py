"""Figures show what they are given, with labels, and can be saved."""

import io

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from switchpoint.figures import prediction_figure, prior_figure

LENGTH = 40


def labels(figure):
    return [axes.get_ylabel() for axes in figure.axes]


def assert_saves(figure):
    assert isinstance(figure, Figure)
    for kind, start in (("png", b"\x89PNG\r\n\x1a\n"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        file = io.BytesIO()
        figure.savefig(file, format=kind)
        figure.set_layout_engine("none")  # laid out once: the costly half of drawing
        assert file.getvalue().startswith(start)


def prediction(alphabet, switches=(10, 25)):
    random = np.random.default_rng(0)
    best = np.zeros(LENGTH, bool)
    best[list(switches)] = True
    return prediction_figure(
        symbols=random.integers(0, alphabet, LENGTH),
        probs=random.dirichlet(np.ones(alphabet), LENGTH),
        probs_smoothed=random.dirichlet(np.ones(alphabet), LENGTH),
        switch_smoothed=random.uniform(0, 1, LENGTH),
        map_switches=best,
        title="LIN()",
    )


def test_prediction_of_bits():
    figure = prediction(2)
    assert labels(figure) == ["P(symbol is 1)", "P(switch at t)"]
    assert figure.axes[-1].get_xlabel() == "position t"
    assert figure.get_suptitle() == "LIN()"
    names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert names == ["data", "predicted", "smoothed", "most probable partition"]
    # The best partition goes through both panels, before its first symbols.
    lines = [line.get_xdata()[0] for line in figure.axes[1].lines]
    assert lines == [9.5, 24.5]
    assert_saves(figure)


def test_prediction_of_larger_alphabets():
    figure = prediction(4)
    assert labels(figure) == [
        "symbol, predicted",
        "symbol, smoothed",
        "P(switch at t)",
        "probability",
    ]
    assert figure.axes[0].images[0].get_array().shape == (4, LENGTH)
    assert_saves(figure)


def test_prediction_without_a_switch():
    assert_saves(prediction(2, switches=()))


@pytest.mark.parametrize(
    "laws",
    [
        {"start 0": np.array([0.0, 0.0, 1.0])},
        {"start 0": 0.5 ** np.arange(1, 101)},
        {"start 0": np.full(8, 1 / 8), "start 4": np.full(4, 1 / 4)},
        {"start 0": np.zeros(5)},
    ],
    ids=["one length", "a wide range", "two starts", "nothing in sight"],
)
@pytest.mark.slow
def test_prior(laws):
    figure = prior_figure(
        length_laws=laws,
        switch_probability=np.linspace(0, 0.5, LENGTH),
        count_law=np.append(np.zeros(LENGTH - 1), 1.0),
        title="a prior",
    )
    assert labels(figure) == ["P(length)", "P(switch at t)", "probability"]
    assert [axes.get_xlabel() for axes in figure.axes] == [
        "length of a segment",
        "position t",
        "number of switches",
    ]
    assert_saves(figure)


def test_the_look_does_not_leak():
    before = dict(matplotlib.rcParams)
    prediction(2)
    assert dict(matplotlib.rcParams) == before
