"""`detect(group_by=...)`: many series in one table."""

import io
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

import switchpoint as sp
from switchpoint.cli import main

LENGTHS = {"north": 40, "south": 25, "empty": 10, "short": 1}


def stacked():
    """Rows of four groups in the order of days; the first jumps, and the third has no values."""
    rng = np.random.default_rng(0)
    frames = []
    for group, length in LENGTHS.items():
        values = rng.normal(size=length) + 6 * (group == "north") * (np.arange(length) >= 30)
        days = pd.date_range("2024-01-01", periods=length)
        frames.append(pd.DataFrame({"day": days, "shop": group, "units": values}))
    frame = pd.concat(frames).sort_values("day", kind="stable", ignore_index=True)
    frame.loc[frame["shop"] == "empty", "units"] = np.nan
    return frame


@pytest.fixture(scope="module")
def found():
    return sp.detect(stacked(), "day", group_by="shop")


def test_each_group_is_a_series_of_its_own(found):
    assert list(found) == ["north", "south", "short"]
    frames = dict(list(stacked().groupby("shop")))
    for group, result in found.items():
        frame = frames[group]
        alone = sp.detect(frame[["units"]].set_index(frame["day"]))
        assert result.series.times.labels == alone.series.times.labels
        np.testing.assert_array_equal(result.switch_probability, alone.switch_probability)
        assert result.series.labels.index.equals(frame.index)
    assert found["north"].changepoints.tolist() == [30]
    assert repr(found) == (
        "GroupedSegmentation(4 groups by shop, 1 of them failed, 1 change point in 1)"
    )


def test_a_group_that_fails_stops_no_other(found):
    sentence = "group empty: column units has no observation: all 10 are missing"
    assert dict(found.failed) == {"empty": sentence}
    with pytest.raises(KeyError, match=sentence):
        found["empty"]


def test_all_groups_share_a_table(found):
    table, changes = found.segments, found.changepoints
    assert table.columns[0] == changes.columns[0] == "shop"
    assert table["shop"].tolist() == ["north", "north", "south", "short"]
    expected = found["north"].segments
    pd.testing.assert_frame_equal(table[:2].drop(columns="shop")[expected.columns], expected)
    assert changes[["shop", "position", "time"]].to_numpy().tolist() == [
        ["north", 30, "2024-01-31"]
    ]
    assert pd.read_csv(io.StringIO(found.to_csv()))["end"].tolist() == [30, 40, 25, 1]
    content = json.loads(found.to_json(about={"by": "hand"}))
    assert content["summary"]["by"] == "hand"
    assert content["summary"]["changepoints"] == content["summary"]["changed"] == 1
    assert [each["group"] for each in content["groups"]] == list(found)
    assert content["groups"][0]["changepoints"][0]["time"] == "2024-01-31"


def test_groups_by_labels_and_in_polars(found):
    frame = stacked()
    labels = frame.pop("shop")
    by_labels = sp.detect(frame, group_by=labels)
    pd.testing.assert_frame_equal(by_labels.segments, found.segments)
    result = sp.detect(pl.DataFrame(stacked()), "day", group_by="shop")
    assert result.changepoints["position"].to_list() == [30]
    assert sp.detect(np.ones(6), group_by=[1, 2] * 3).changepoints.columns[0] == "group"


def test_groups_of_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    stacked().to_csv("shops.csv", index=False)
    assert main(["detect", "shops.csv", "--group-by", "shop", "--out", "all.json"]) == 0
    printed = capsys.readouterr().out
    for part in ("1 change point in 1 of 4 groups", "column units has no observation", "north"):
        assert part in printed
    content = json.loads((tmp_path / "all.json").read_text())
    assert content["summary"]["group_by"] == "shop"
    assert content["groups"][0]["changepoints"][0]["time"] == "2024-01-31"


BAD = {
    "got 'town'; the columns are: day, shop, units": {"group_by": "town"},
    "group_by must have a label for each of 76 rows, got 2": {"group_by": ["a", "b"]},
    "got none in row 3": {"group_by": ["a", "b", "c", None, *["a"] * 72]},
    "group north: sensitivity must be a finite number above 0": {
        "group_by": "shop",
        "sensitivity": -1.0,
    },
}


@pytest.mark.parametrize(("message", "arguments"), BAD.items(), ids=list(BAD))
def test_bad_groups_are_refused_in_one_sentence(message, arguments):
    frame = stacked()
    if isinstance(arguments["group_by"], list):
        frame = frame.drop(columns="shop")
    with pytest.raises(ValueError, match=message):
        sp.detect(frame, "day", **arguments)


def test_a_picture_of_all_groups_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    stacked().to_csv("shops.csv", index=False)
    assert main(["detect", "shops.csv", "--group-by", "shop", "--plot", "x.png"]) == 2
    assert "choose a group with --where shop=VALUE" in capsys.readouterr().err
