"""What a result shows in a notebook."""

import base64
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import switchpoint as sp

NAME = "<script>alert('x')</script> & \"more\""


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attributes)


def values():
    return np.random.default_rng(0).normal(size=40) + 6 * (np.arange(40) >= 30)


@pytest.mark.parametrize("columns", [1, 2])
def test_a_result_shows_its_table_and_picture(columns):
    frame = pd.DataFrame({NAME: values(), "other": values() - 1}).iloc[:, :columns]
    shown = sp.detect(frame)._repr_html_()
    tags = Tags(shown).tags
    assert "script" not in tags
    assert tags.count("img") == tags.count("table") == 1
    assert "1 change point at 30" in shown
    picture = re.search(r"base64,([^\"]*)", shown).group(1)
    assert base64.b64decode(picture).startswith(b"\x89PNG")


def test_a_picture_shows_itself_without_pyplot():
    picture, size = sp.detect(values()).plot()._repr_png_()
    assert picture.startswith(b"\x89PNG")
    assert size == {"width": 960}


def test_groups_show_their_change_points_and_failures():
    labels = [NAME] * 40 + ["empty"] * 2
    found = sp.detect(np.append(values(), [np.nan] * 2), group_by=labels)
    shown = found._repr_html_()
    assert "script" not in Tags(shown).tags
    assert "group empty: the series has no observation" in shown
    assert "&lt;script&gt;" in shown
    many = sp.detect(np.tile(values(), 31), group_by=np.repeat(np.arange(31), 40))
    assert "and 1 more rows" in many._repr_html_()


def test_kinds_and_forecasts_are_drawn():
    rng = np.random.default_rng(0)
    x = np.concatenate([np.zeros(60), 0.3 * np.arange(60), np.full(60, 10.0)]) + rng.normal(
        size=180
    )
    kinds = sp.Mixture(sp.NormalGamma(0.0, 0.01), sp.Regression(level_scale=10.0))
    found = sp.detect(x, source=sp.Source(sp.Geometric(0.01), kinds))
    assert [name for name, _ in found.kinds] == ["NormalGamma", "Regression", "NormalGamma"]
    assert found.segments["kind"].tolist() == [name for name, _ in found.kinds]
    assert found.segments["slope"].round(1).tolist() == [0.0, 0.3, 0.0]
    axes = found.plot(horizon=12).axes[0]
    assert [text.get_text() for text in axes.texts] == [name for name, _ in found.kinds]
    ahead = next(line for line in axes.lines if "forecast" in line.get_label())
    assert ahead.get_xdata().tolist() == list(range(179, 192))
    assert ahead.get_ydata()[1:] == pytest.approx(found.forecast(12)["mean"])
    assert "Regression" in found._repr_html_()
    assert "kind" not in sp.detect(x).segments
