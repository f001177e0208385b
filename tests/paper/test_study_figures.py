"""The figures of studies show the saved numbers, in files that do not depend on the day."""

import functools
import itertools
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from switchpoint import evaluation
from switchpoint._numbers import bits
from switchpoint.figures.style import colour_of
from switchpoint.paper import STUDIES, draw, load_result
from switchpoint.paper.figures.annotations import labels_right, spread_apart
from switchpoint.paper.figures.labels import display_name, source_label, with_subscripts
from switchpoint.paper.figures.seeds import draw_local
from switchpoint.paper.scale import RECORDED

QUICK = Path(__file__).parents[1] / "quick"
"""Results of `switchpoint reproduce --scale quick`."""
ZOO = Path(__file__).parents[1] / "format0" / "zoo"
"""Results of `--scale zoo`: recorded ones, and what was measured beside them."""
DONE = [name for name in STUDIES if (QUICK / "results" / f"{name}.nc").exists()]


@functools.cache
def saved(name):
    return load_result(QUICK, name).shown


@functools.cache
def recorded(name):
    return load_result(RECORDED, name, RECORDED / f"{name}.nc").shown


@functools.cache
def figures_of(name):
    """The figures of a study, drawn once for all tests."""
    return STUDIES[name].plot(saved(name))


def plot(name, result, local=None):
    return STUDIES[name].plot(result, local)


def labels_of(coordinate):
    return [str(label) for label in coordinate.values]


def heights(axes, predictor=None):
    """All heights that the lines of a predictor go through, or all lines."""
    colour = predictor and colour_of(predictor).upper()
    return np.concatenate(
        [
            np.asarray(line.get_ydata(), float)
            for line in axes.lines
            if colour is None or to_hex(line.get_color()).upper() == colour
        ]
    )


def title(axes):
    return axes.get_title(loc="left")


def texts(axes):
    return [text.get_text() for text in axes.texts]


def diamonds(axes):
    """The heights of the marks of what was measured on this machine."""
    marks = [line for line in axes.lines if line.get_marker() == "D"]
    return [line.get_ydata()[0] for line in marks if line.get_markerfacecolor() == "white"]


def bars(axes):
    """The lower and upper ends of the error bars."""
    return [
        segment[:, 1]
        for each in axes.collections
        if isinstance(each, LineCollection)
        for segment in each.get_segments()
    ]


def contains(found, values):
    """Whether every one of `values` is among those found."""
    return all(np.isclose(found, value, rtol=1e-6).any() for value in np.ravel(values))


@pytest.mark.slow
@pytest.mark.parametrize("name", DONE)
def test_every_figure_has_a_caption_and_every_caption_a_figure(name):
    assert list(STUDIES[name].captions(saved(name))) == list(figures_of(name))


@pytest.mark.parametrize("name", STUDIES)
def test_captions_are_whole_sentences(name):
    results = [saved(name)] if name in DONE else []
    results += [recorded(name)] if (RECORDED / f"{name}.nc").exists() else []
    assert results
    for result in results:
        for caption in STUDIES[name].captions(result).values():
            for words in (caption.alt, caption.observed, caption.paper):
                assert words[0].isupper() or words[0].isdigit()
                assert words.rstrip().endswith(".")
                assert not re.search(r"\b(nan|unknown|None|inf)\b", words)


def test_captions_tell_the_numbers():
    result = recorded("longer-lengths")
    told = STUDIES["longer-lengths"].captions(result)["longer-lengths"].observed
    for network in labels_of(result["architecture"]):
        first, *_, last = result["excess_mean"].sel(architecture=network).values
        assert f" {display_name(network)} {bits(first)} → {bits(last)}" in told
    told = STUDIES["trajectory"].captions(saved("trajectory"))
    for source in labels_of(saved("trajectory")["source"]):
        one = saved("trajectory").sel(source=source)
        switches = np.flatnonzero(one["switches"])
        observed = told[f"trajectory-{source}"].observed
        assert observed.startswith(f"32 symbols with {len(switches) or 'no'} switch")
        assert str(switches[0]) in observed


@pytest.mark.slow
def test_files_are_the_same_on_every_day_and_drawn_once(tmp_path, monkeypatch):
    drawn = []
    for day in ("0", "1000000000"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", day)
        results = tmp_path / day / "results"
        results.mkdir(parents=True)
        shutil.copy(QUICK / "results" / "mean-regret.nc", results)
        paths = draw(STUDIES["mean-regret"], tmp_path / day)
        assert [path.name for path in paths] == ["mean-regret.pdf", "mean-regret.png"]
        drawn.append([path.read_bytes() for path in paths])
    assert [data[:4] for data in drawn[0]] == [b"%PDF", b"\x89PNG"]
    assert drawn[0] == drawn[1]
    paths[0].touch()  # what is current is left as it is, and what is not is drawn again
    before = [path.stat().st_mtime_ns for path in paths]
    assert draw(STUDIES["mean-regret"], tmp_path / day) == paths
    assert [path.stat().st_mtime_ns for path in paths] == before
    paths[1].write_bytes(b"another picture")
    draw(STUDIES["mean-regret"], tmp_path / day)
    assert [path.read_bytes() for path in paths] == drawn[0]


def test_a_result_without_what_is_drawn_is_named(tmp_path):
    (tmp_path / "results").mkdir()
    path = tmp_path / "results" / "memory.nc"
    evaluation.save(saved("memory").drop_vars("bound"), path)
    with pytest.raises(ValueError, match=r"bound") as error:
        draw(STUDIES["memory"], tmp_path)
    assert str(path) in str(error.value)
    assert not (tmp_path / "figures").exists()


def test_trajectories():
    result, found = saved("trajectory"), figures_of("trajectory")
    assert list(found) == [f"trajectory-{source}" for source in labels_of(result["source"])]
    one = result.sel(source="lin")
    top, middle, bottom = found["trajectory-lin"].axes
    for axes, name in ((top, "prediction"), (middle, "regret"), (bottom, "cumulative_regret")):
        for predictor in labels_of(one["predictor"]):
            drawn = heights(axes, predictor)
            np.testing.assert_array_equal(drawn, one[name].sel(predictor=predictor))
    labels = {text.get_text() for text in top.get_legend().get_texts()}
    assert labels == {"true bias", "exact optimum", "KT Oracle", "LSTM [LIN]"}


def test_mean_regret():
    result = saved("mean-regret")
    (axes,) = figures_of("mean-regret")["mean-regret"].axes
    for predictor in labels_of(result["predictor"]):
        values = result["cumulative_regret"].sel(predictor=predictor).values
        np.testing.assert_array_equal(heights(axes, predictor), values)
        assert f"{display_name(predictor)} {values[-1]:.2f}" in texts(axes)


def test_every_seed_has_a_dot_and_every_exact_predictor_a_name():
    result = saved("on-distribution").isel(source=[0, 1]).copy(deep=True)
    result["regret"][0, 1, 0] = np.nan  # a network whose training diverged
    found = plot("on-distribution", result)
    for axes, source in zip(
        found["on-distribution"].axes, labels_of(result["source"]), strict=True
    ):
        one = result.sel(source=source)
        assert title(axes) == source_label(result, source)
        for network in labels_of(one["architecture"]):
            seeds = one["regret"].sel(architecture=network).values
            np.testing.assert_array_equal(heights(axes, network), seeds[np.isfinite(seeds)])
        marks = heights(axes, "optimum")
        for name in ("regret_median", "regret_minimum"):
            assert contains(marks, one[name])
        assert contains(marks, one["exact_regret"].sel(exact="optimum"))
        labels = " ".join(texts(axes))
        for exact in ("KT", "LIN", "PTW", "KT Oracle"):
            assert exact in labels
    above = " ".join(texts(found["on-distribution-excess"].axes[0]))
    excess = result["exact_excess"].sel(source="ptw", exact=["kt", "lin"]).values
    assert all(f"{value:.2f}" in above for value in excess)


@pytest.mark.parametrize("kind", ["quick", "recorded"])
@pytest.mark.slow
def test_panels_zoom_in_on_the_seeds_and_say_so(kind):
    result = {"quick": saved, "recorded": recorded}[kind]("on-distribution")
    found = figures_of("on-distribution") if kind == "quick" else plot("on-distribution", result)
    panels = found["on-distribution"].axes
    for axes, source in zip(panels, labels_of(result["source"]), strict=True):
        one = result.sel(source=source)
        optimum = float(one["exact_regret"].sel(exact="optimum"))
        low, high = axes.get_ylim()
        assert low < optimum < float(one["regret"].min())
        assert float(one["regret"].max()) < high
        assert float(one["regret"].max()) - optimum > 0.4 * (high - low)
        written = [*texts(axes), axes.get_xlabel()]
        (note,) = [text for text in written if "of the optimum" in text]
        share = float(re.search(r"([\d.]+)\s%", note)[1]) / 100
        assert share == pytest.approx((high - low) / optimum, rel=0.2)


@pytest.mark.slow
def test_what_was_measured_here_stands_beside_recorded_seeds():
    result = load_result(ZOO, "on-distribution")
    local = result.beside["excess"].mean("seed")
    for name, figure in plot("on-distribution", result.shown, result.beside).items():
        (legend,) = figure.legends
        assert any("recorded" in text.get_text() for text in legend.get_texts())
        assert any("here" in text.get_text() for text in legend.get_texts())
        for axes, source in zip(figure.axes, labels_of(local["source"]), strict=True):
            expected = local.sel(source=source).values
            if name.endswith("excess"):  # a logarithmic axis has no place for the others
                expected = expected[expected > 0]
            else:
                expected = expected + float(
                    result.shown["exact_regret"].sel(source=source, exact="optimum")
                )
            np.testing.assert_allclose(diamonds(axes), expected)
            assert all(bar[0] < axes.get_ylim()[1] for bar in bars(axes))  # it is seen
    result = load_result(ZOO, "longer-lengths")
    (axes,) = plot("longer-lengths", result.shown, result.beside)["longer-lengths"].axes
    expected = result.beside["excess"].mean("seed").values
    np.testing.assert_allclose(sorted(diamonds(axes)), sorted(expected[expected > 0]))


def test_what_was_measured_here_is_seen_however_far_off_it_is():
    result = load_result(ZOO, "on-distribution")
    shown, local = (each.isel(source=[0, 1]) for each in (result.shown, result.beside))
    optimum = shown["exact_regret"].sel(exact="optimum").values
    far = local.assign(excess=50.0 + 0 * local["excess"])
    noise = far.assign(excess_error=40.0 + 0 * local["excess"])
    alone, noisy = (plot("on-distribution", shown, each) for each in (None, noise))
    for name, figure in plot("on-distribution", shown, far).items():
        base = np.zeros_like(optimum) if name.endswith("excess") else optimum
        for axes, own in zip(figure.axes, base, strict=True):
            assert axes.get_ylim()[0] < 50 + own < axes.get_ylim()[1]
        # What is far off within its error does not stretch the axes.
        for axes, same in zip(noisy[name].axes, alone[name].axes, strict=True):
            assert axes.get_ylim() == same.get_ylim()


def tell_where_they_are(name, result, figures):
    """Captions name the size of a local measurement where it is drawn, and only there."""
    for figure, caption in STUDIES[name].captions(result).items():
        assert caption.local == any(diamonds(axes) for axes in figures[figure].axes)


def test_a_local_measurement_is_drawn_over_recorded_curves():
    result = recorded("regret-by-index")
    local = result.assign(
        difference=result["difference"] + 1e-4, difference_error=6 * result["difference_error"]
    )
    name = "regret-by-index-difference"
    drawn, alone = (plot("regret-by-index", result, each) for each in (local, None))
    tell_where_they_are("regret-by-index", result, drawn)
    panels, alone = drawn[name].axes, alone[name].axes
    for axes, bare, network in zip(panels, alone, labels_of(result["architecture"]), strict=True):
        assert contains(heights(axes, network), result["difference"].sel(architecture=network))
        some = local.sel(architecture=network).isel(time=slice(32, None, 32))
        np.testing.assert_allclose(diamonds(axes), some["difference"])
        np.testing.assert_allclose(np.ptp(bars(axes), axis=1), 4 * some["difference_error"])
        assert axes.get_ylim() == bare.get_ylim()
    result = recorded("mean-regret")
    excess = xr.DataArray(np.linspace(0, 0.1, 256)[None], dims=("architecture", "time"))
    local = xr.Dataset({"excess": excess, "excess_error": 0.2 * excess})
    local = local.assign_coords(architecture=["lstm"], time=result["time"])
    (axes,) = plot("mean-regret", result, local)["mean-regret"].axes
    assert contains(heights(axes, "lstm"), result["cumulative_regret"].sel(predictor="lstm"))
    exact = result["cumulative_regret"].sel(predictor="ptw")
    np.testing.assert_allclose(diamonds(axes), (exact + excess[0])[32::32])
    np.testing.assert_allclose(np.ptp(bars(axes), axis=1), 0.8 * excess[0, 32::32])


def test_on_another_source_a_local_measurement_stands_above_the_exact_predictor_of_training():
    """Its regret on a few sequences depends on which they are, that beyond the other hardly."""
    result = recorded("off-distribution")
    local = result.isel(seed=[0]).assign(
        regret=result["regret"].isel(seed=[0]) + 5,
        beyond_exact=0.1 + 0 * result["excess"].isel(seed=[0]),
        beyond_exact_error=0.02 + 0 * result["excess"].isel(seed=[0]),
    )
    drawn = plot("off-distribution", result, local)
    tell_where_they_are("off-distribution", result, drawn)
    axes = drawn["off-distribution"].axes[0]
    assert title(axes) == "PTW₈ → Random Uniform(256)"
    exact = float(result["exact_regret"].sel(test_source="uniform", exact="ptw"))
    np.testing.assert_allclose(diamonds(axes), exact + 0.1)
    np.testing.assert_allclose(bars(axes), [[exact + 0.06, exact + 0.14]] * 5)
    old = local.drop_vars(["beyond_exact", "beyond_exact_error"])
    assert diamonds(plot("off-distribution", result, old)["off-distribution"].axes[0]) == []


def test_off_distribution_and_its_matrix():
    result, found = saved("off-distribution"), figures_of("off-distribution")
    titles = [title(axes) for axes in found["off-distribution"].axes]
    assert len(set(titles)) == 6
    assert titles[0] == "PTW₅ → Random Uniform(32)"
    axes = found["off-distribution"].axes[0]
    one = result.sel(train_source="ptw", test_source="uniform")
    for network in labels_of(one["architecture"]):
        seeds = one["regret"].sel(architecture=network)
        np.testing.assert_array_equal(heights(axes, network), seeds)
    tables = {title(axes): axes for axes in found["off-distribution-matrix"].axes}
    sources = labels_of(result["train_source"])
    expected = {
        display_name(network): result["excess_mean"]
        .sel(architecture=network)
        .transpose("train_source", "test_source")
        for network in labels_of(result["architecture"])
    }
    expected["exact optimum"] = result["exact_excess"].sel(exact=sources).transpose("exact", ...)
    for name, values in expected.items():
        drawn = [float(text) for text in texts(tables[name])]
        np.testing.assert_allclose(drawn, values.values.ravel(), rtol=0.01, atol=0.006)


@pytest.mark.parametrize("scale", ["log", "linear"])
@pytest.mark.parametrize("name", ["longer-lengths", "other-lengths"])
def test_lengths(name, scale):
    result = recorded(name).copy()
    kinds = ["excess"] if name == "longer-lengths" else ["own", "transferred"]
    if scale == "linear":
        result = result.assign(
            {f"{kind}_mean": 5 + np.tanh(result[f"{kind}_mean"]) for kind in kinds}
        )
    (axes,) = plot(name, result)[name].axes
    assert axes.get_yscale() == scale
    low, high = axes.get_ylim()
    for network in labels_of(result["architecture"]):
        for kind in kinds:
            means = result[f"{kind}_mean"].sel(architecture=network)
            assert contains(heights(axes, network), means)
            assert ((low < means) & (means < high)).all()
    trained = result.attrs["length" if name == "longer-lengths" else "base_length"]
    assert f"trained on {trained}" in texts(axes)


def test_a_band_of_lengths_holds_all_seeds():
    result = saved("longer-lengths")
    (axes,) = figures_of("longer-lengths")["longer-lengths"].axes
    bands = [each.get_paths()[0].get_extents() for each in axes.collections]
    for network, band in zip(labels_of(result["architecture"]), bands, strict=True):
        seeds = result["excess"].sel(architecture=network)
        assert band.ymax == pytest.approx(float(seeds.max()))


def test_one_seed_is_enough():
    """There is no deviation between seeds then."""
    for name in ("longer-lengths", "other-lengths", "memory"):
        result = saved(name).isel(seed=[0])
        missing = {n: np.nan * result[n] for n in result if str(n).endswith("_deviation")}
        assert missing
        assert list(plot(name, result.assign(missing))) == list(figures_of(name))


def test_ablations():
    result, found = saved("ablations"), figures_of("ablations")
    assert list(found) == ["ablations-parameters", "ablations-stack", "ablations-transformer"]
    recurrent, transformers = found["ablations-parameters"].axes
    parts = result["part"].values.astype(str)
    for axes, chosen in ((recurrent, ["core", "stack"]), (transformers, ["positions"])):
        assert contains(heights(axes), result["regret_mean"].values[np.isin(parts, chosen)])
        assert contains(heights(axes, "optimum"), result["optimum_regret"])
    numbers = [text for axes in found["ablations-stack"].axes for text in texts(axes)]
    drawn = sorted(float(text) for text in numbers)
    expected = sorted(result["excess_mean"].values[parts == "stack"])
    np.testing.assert_allclose(drawn, expected, rtol=0.01, atol=0.006)
    left, right = found["ablations-transformer"].axes
    for axes, part in ((left, "positions"), (right, "context")):
        assert contains(heights(axes), result["excess_mean"].values[parts == part])


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
        ([*of_each, *first, *whole], [], False),
        (places["stack"], [], True),
    ):
        some = result.isel(configuration=[*places["core"], *chosen])
        found, captions = plot("ablations", some), STUDIES["ablations"].captions(some)
        assert list(captions) == list(found)
        assert ("ablations-stack" in found) == stack
        assert len(found["ablations-parameters"].axes) == 1 + ("positions and layers" in titles)
        assert ([title(axes) for axes in found[panels].axes] if panels in found else []) == titles
        for each in titles:
            assert f"best {each}: " in captions[panels].observed
    lacking = recorded("ablations")  # it has no stacks of several sizes
    assert list(plot("ablations", lacking)) == list(STUDIES["ablations"].captions(lacking))


def test_priors():
    result, found = saved("priors"), figures_of("priors")
    (positions,) = found["priors-ptw-positions"].axes
    one = result.sel(source="ptw")
    assert contains(heights(positions), one["switch_probability"])
    bars = [patch.get_height() for patch in positions.patches]
    np.testing.assert_array_equal(bars, one["switch_frequency"])
    exact, sampled = found["priors-ptw-counts"].axes
    for axes, name in ((exact, "ptw_count_law"), (sampled, "ptw_count_sampled")):
        values = result[name].values
        assert contains(heights(axes), values[values > 0])
        assert contains(heights(axes, "optimum"), result["ptw_count_limit"])
    assert len(found["priors-switches"].axes) == 2 * result.sizes["source"]


def test_regret_by_position():
    result, found = saved("regret-by-index"), figures_of("regret-by-index")
    (axes,) = found["regret-by-index"].axes
    np.testing.assert_array_equal(heights(axes, "optimum"), result["optimum_regret"])
    panels = found["regret-by-index-difference"].axes
    for panel, network in zip(panels, labels_of(result["architecture"]), strict=True):
        assert texts(panel) == [display_name(network)]
        drawn = heights(panel, network)
        np.testing.assert_array_equal(drawn, result["difference"].sel(architecture=network))
        np.testing.assert_array_equal(
            heights(axes, network), result["regret"].sel(architecture=network)
        )


def test_sequences_of_twice_the_length():
    result, found = saved("length-512"), figures_of("length-512")
    *panels, cumulative = found["length-512-sequence"].axes
    networks = labels_of(result["architecture"])
    assert [title(axes) for axes in panels] == [display_name(name) for name in networks]
    for axes, network in zip(panels, networks, strict=True):
        for drawn, name in ((axes, "prediction"), (cumulative, "cumulative_regret")):
            values = result[name].sel(predictor=network)
            np.testing.assert_array_equal(heights(drawn, network), values)
    maps = {title(axes): axes for axes in found["length-512-map"].axes}
    for network in networks:
        (image,) = maps[display_name(network)].images
        np.testing.assert_array_equal(
            image.get_array(), result["difference"].sel(architecture=network)
        )
        low, high = image.get_clim()
        assert low == -high < 0  # white is where network and PTW are equal


def test_networks_that_keep_time_expect_switches_where_ptw_does():
    """A network with the exact probabilities has a correlation of 1, one without a clock none."""
    old = saved("length-512")
    assert "length-512-clock" not in STUDIES["length-512"].plot(old)
    networks, end = labels_of(old["architecture"]), old.attrs["length"]
    exact = 0.1 / (1 + np.arange(2 * end)) + 0.1 * (np.arange(2 * end) % (end // 2) == 0)
    own = np.stack([exact] * len(networks))
    own[1, end:] = np.random.default_rng(0).uniform(0.01, 0.5, end)
    result = old.assign(
        after_zeros=(("architecture", "time"), own), exact_after_zeros=("time", exact)
    )
    panels = STUDIES["length-512"].plot(result)["length-512-clock"].axes
    for axes, network, values in zip(panels, networks, own, strict=True):
        assert texts(axes) == [display_name(network)]
        np.testing.assert_array_equal(heights(axes, network), values)
        np.testing.assert_array_equal(heights(axes, "ptw"), exact)
    (table,) = STUDIES["length-512"].tables({"length-512": result})
    assert [row[0] for row in table.rows] == [display_name(name) for name in networks]
    assert table.rows[0][2:4] == ["1.00", "1.00"]
    assert table.rows[1][2] == "1.00"
    assert abs(float(table.rows[1][3])) < 0.5
    lost = float(result["difference"].sel(architecture=networks[0]).sum("time").mean())
    assert float(table.rows[0][4]) == pytest.approx(lost, abs=0.006)
    assert STUDIES["length-512"].tables({"length-512": old}) == []


def test_memory():
    result = saved("memory")
    axes_of = zip(figures_of("memory")["memory"].axes, labels_of(result["source"]), strict=True)
    for axes, source in axes_of:
        assert title(axes) == source_label(result, source)
        for name in ("regret", "regret_mean", "bound", "optimum_regret"):
            assert contains(heights(axes), result[name].sel(source=source))


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
    (caption,), (figure,) = study.captions(result).values(), study.plot(result).values()
    drawn = [[line.get_ydata() for line in axes.lines] for axes in figure.axes]
    wanted = result["excess"].transpose("architecture", "source", "seed", "record").values.copy()
    wanted[wanted < 0] = 1e-3  # has no logarithm
    np.testing.assert_array_equal(np.reshape(drawn, (2, 2, 2, 4)), wanted)
    assert "RNN 1 (median 0.25) and LSTM 0 (median 0.10)" in caption.observed
    (table,) = study.tables({"training-curves": result})
    assert [row[:3] for row in table.rows] == [
        ["rnn, PTW_5", "1 of 2", "+0.90 (ends at 0.30)"],
    ]


@pytest.mark.parametrize(("value", "marks"), [(0.5, 1), (-0.1, 0)])
def test_a_bar_on_a_logarithmic_scale_goes_down_to_the_edge(value, marks):
    axes = Figure().subplots()
    axes.set_yscale("log")
    axes.set_ylim(1e-3, 10)
    values = {"excess": ("architecture", [value]), "excess_error": ("architecture", [0.3])}
    draw_local(axes, 1.0, xr.Dataset(values, {"architecture": ["lstm"]}), "lstm")
    (bar,) = bars(axes)
    assert 0 < bar.min() < 1e-3
    assert bar.max() == pytest.approx(value + 0.6)
    assert len(diamonds(axes)) == marks


def test_predictors_can_be_told_apart():
    names = [*labels_of(saved("on-distribution")["architecture"])]
    names += [*labels_of(saved("on-distribution")["exact"])]
    assert len({colour_of(name) for name in names}) == len(names)
    assert len({display_name(name) for name in names}) == len(names)
    assert with_subscripts("PTW_12 and LIN_3") == "PTW₁₂ and LIN_3"


def test_labels_keep_their_order_and_their_distance():
    wanted = np.array([0.0, 0.5, 0.51, 0.52, 0.99, 1.0])
    places = spread_apart(wanted, 0.05)
    assert (np.diff(places) >= 0.05 - 1e-9).all()
    assert places[0] == 0.0
    assert places[2] == pytest.approx(0.51)
    assert places[-1] <= 1.0


def test_labels_beside_an_axis_do_not_overlap():
    figure = Figure()
    axes = figure.subplots()
    labels_right(axes, [(height, f"label {height}", "#000000") for height in (0.5, 0.51, 0.1)])
    figure.draw_without_rendering()
    boxes = sorted(
        (text.get_text(), text.get_window_extent().y0, text.get_window_extent().y1)
        for text in axes.texts
    )
    assert [name for name, _, _ in boxes] == ["label 0.1", "label 0.5", "label 0.51"]
    for (_, _, top), (_, bottom, _) in itertools.pairwise(boxes):
        assert bottom >= top - 1
