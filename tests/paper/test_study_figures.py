"""The figures, captions and tables of studies: complete, reproducible, with the saved numbers."""

import functools
import re

import numpy as np
import pytest
import xarray as xr
from test_report import QUICK

from switchpoint.paper import STUDIES, draw, load_result
from switchpoint.paper.labels import display_name
from switchpoint.paper.results import Result, copy_result, result_path
from switchpoint.paper.scale import RECORDED

DONE = [name for name in STUDIES if (QUICK / "results" / f"{name}.nc").exists()]


@functools.cache
def saved(name):
    return load_result(QUICK, name).shown


@functools.cache
def recorded(name):
    return load_result(RECORDED, name).shown


def labels_of(coordinate):
    return [str(label) for label in coordinate.values]


def heights(axes):
    """All heights that lines go through."""
    return np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines])


def contains(drawn, values):
    """Whether every one of `values` is among those that were drawn."""
    return all(np.isclose(drawn, value, rtol=1e-6).any() for value in np.ravel(values))


DRAWN = {
    "mean-regret": ("mean-regret", ["cumulative_regret"]),
    "on-distribution": ("on-distribution", ["regret", "regret_median", "regret_minimum"]),
    "longer-lengths": ("longer-lengths", ["excess_mean"]),
    "other-lengths": ("other-lengths", ["own_mean", "transferred_mean"]),
    "ablations": ("ablations-parameters", ["optimum_regret"]),
    "regret-by-index": ("regret-by-index", ["regret", "optimum_regret"]),
    "memory": ("memory", ["regret", "regret_mean", "bound", "optimum_regret"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DONE)
def test_figures_have_captions_and_labels_and_show_the_saved_numbers(name):
    result = saved(name)
    figures = STUDIES[name].figures(result)
    assert list(STUDIES[name].captions(result)) == list(figures)
    for figure in figures.values():
        assert any(axes.get_xlabel() or axes.get_title(loc="left") for axes in figure.axes)
    figure, variables = DRAWN.get(name, (None, []))
    for variable in variables:
        drawn = np.concatenate([heights(axes) for axes in figures[figure].axes])
        assert contains(drawn, result[variable]), variable


@pytest.mark.parametrize("name", STUDIES)
def test_captions_are_complete(name):
    results = [saved(name)] if name in DONE else []
    results += [recorded(name)] if (RECORDED / f"{name}.nc").exists() else []
    assert results
    for caption in (c for result in results for c in STUDIES[name].captions(result).values()):
        for words in (caption.alt, caption.observed, caption.paper):
            assert words
            assert not re.search(r"\b(nan|unknown|None|inf)\b", words)


@pytest.mark.slow
def test_files_are_the_same_on_every_day_and_drawn_once(tmp_path, monkeypatch):
    drawn, name = [], "mean-regret"
    for day in ("0", "1000000000"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", day)
        out = tmp_path / day
        (out / "results").mkdir(parents=True)
        copy_result(result_path(QUICK, name), result_path(out, name))
        paths = draw(STUDIES[name], load_result(out, name), out)
        assert [path.name for path in paths] == ["mean-regret.pdf", "mean-regret.png"]
        drawn.append([path.read_bytes() for path in paths])
    assert [data[:4] for data in drawn[0]] == [b"%PDF", b"\x89PNG"]
    assert drawn[0] == drawn[1]
    before = [path.stat().st_mtime_ns for path in paths]  # current figures are left as they are
    assert draw(STUDIES[name], load_result(out, name), out) == paths
    assert [path.stat().st_mtime_ns for path in paths] == before
    result_path(out, name).touch()
    draw(STUDIES[name], load_result(out, name), out)
    assert all(path.stat().st_mtime_ns > time for path, time in zip(paths, before, strict=True))


def test_a_result_without_a_variable_that_is_drawn_is_named(tmp_path):
    result_path(tmp_path, "memory").parent.mkdir()
    copy_result(result_path(QUICK, "memory"), result_path(tmp_path, "memory"))
    result = Result(saved("memory").drop_vars("bound"))
    with pytest.raises(ValueError, match=r"memory\.nc lacks .*bound"):
        draw(STUDIES["memory"], result, tmp_path)
    assert not (tmp_path / "figures").exists()


def test_a_network_that_diverged_is_left_out():
    result = saved("on-distribution").isel(source=[0, 1]).copy(deep=True)
    result["regret"][0, 1, 0] = np.nan
    figure = STUDIES["on-distribution"].figures(result)["on-distribution"]
    for axes, regret in zip(figure.axes, result["regret"].transpose("source", ...), strict=True):
        assert contains(heights(axes), regret.values[np.isfinite(regret.values)])


def test_one_seed_is_enough():
    """There is no deviation between seeds then."""
    for name in ("longer-lengths", "other-lengths", "memory"):
        result = saved(name).isel(seed=[0])
        missing = {n: np.nan * result[n] for n in result if str(n).endswith("_deviation")}
        assert missing
        assert STUDIES[name].figures(result.assign(missing))


def test_ablations_show_a_part_where_there_is_something_to_compare():
    result = saved("ablations")
    part, model = (result[name].values.astype(str) for name in ("part", "model"))
    places = {name: np.flatnonzero(part == name) for name in set(part)}
    of_each = [places["stack"][model[places["stack"]] == m][0] for m in set(model[places["stack"]])]
    whole = [place for place in places["context"] if result["context"][place] < 0]
    first, panels = places["positions"][:1], "ablations-transformer"
    for chosen, titles, stack in (
        ([], [], False),
        ([*of_each, *places["positions"], *whole], ["positions and layers"], False),
        ([*of_each, *first, *places["context"]], ["context window"], False),
        (places["stack"], [], True),
    ):
        some = result.isel(configuration=[*places["core"], *chosen])
        figures = STUDIES["ablations"].figures(some)
        assert list(STUDIES["ablations"].captions(some)) == list(figures)
        assert ("ablations-stack" in figures) == stack
        shown = figures[panels].axes if panels in figures else []
        assert [axes.get_title(loc="left") for axes in shown] == titles


def test_networks_that_track_the_position_expect_switches_where_ptw_does():
    """A network with the exact probabilities has a correlation of 1, noise has none."""
    old = saved("length-512")
    networks, end = labels_of(old["architecture"]), old.attrs["length"]
    exact = 0.1 / (1 + np.arange(2 * end)) + 0.1 * (np.arange(2 * end) % (end // 2) == 0)
    own = np.stack([exact] * len(networks))
    own[1, end:] = np.random.default_rng(0).uniform(0.01, 0.5, end)
    result = old.assign(
        after_zeros=(("architecture", "time"), own), exact_after_zeros=("time", exact)
    )
    (table,) = STUDIES["length-512"].tables({"length-512": result})
    assert [row[0] for row in table.rows] == [display_name(name) for name in networks]
    assert table.rows[0][2:4] == ["1.00", "1.00"]
    assert table.rows[1][2] == "1.00"
    assert abs(float(table.rows[1][3])) < 0.5
    lost = float(result["difference"].sel(architecture=networks[0]).sum("time").mean())
    assert float(table.rows[0][4]) == pytest.approx(lost, abs=0.006)


def test_training_curves():
    ptw = [[[2.0, 0.5, 1.4, 0.3], [2.0, 0.6, 0.4, 0.2]], [[1.0, 0.1, np.nan, np.nan]] * 2]
    lin = [[[1.0, 0.2, 0.1, -0.01]] * 2, [[0.5, 0.02, np.nan, np.nan]] * 2]
    result = xr.Dataset(
        {
            "step": (("architecture", "record"), [[1, 10, 20, 30], [1, 10, np.nan, np.nan]]),
            "excess": (("source", "architecture", "seed", "record"), [ptw, lin]),
        },
        coords={"architecture": ["rnn", "lstm"], "source": ["ptw", "lin"], "seed": [0, 1]},
        attrs=saved("on-distribution").attrs,
    )
    study = STUDIES["training-curves"]
    (caption,), (figure,) = study.captions(result).values(), study.figures(result).values()
    drawn = [[line.get_ydata() for line in axes.lines] for axes in figure.axes]
    wanted = result["excess"].transpose("architecture", "source", "seed", "record").values.copy()
    wanted[wanted < 0] = 1e-3  # has no logarithm
    np.testing.assert_array_equal(np.reshape(drawn, (2, 2, 2, 4)), wanted)
    assert "RNN 1 (median 0.25) and LSTM 0 (median 0.10)" in caption.observed
    (table,) = study.tables({"training-curves": result})
    assert [row[:3] for row in table.rows] == [["rnn, PTW_5", "1 of 2", "+0.90 (ends at 0.30)"]]
