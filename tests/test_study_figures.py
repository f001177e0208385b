"""The figures of studies show the saved numbers, in files that do not depend on the day."""

import hashlib

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from saved_studies import NETWORKS, SOURCES, all_studies

from switchpoint.figures.identity import colour_of, source_name
from switchpoint.figures.marks import measured_here, spread_apart
from switchpoint.figures.studies import STUDIES, draw_study, study_figures
from switchpoint.report.captions import study_captions


@pytest.fixture(scope="module")
def studies():
    return all_studies(length=32, seeds=3)


@pytest.fixture(scope="module")
def figures(studies):
    """The figures of every study, drawn once."""
    return {name: study_figures(name, dataset) for name, dataset in studies.items()}


def heights(axes, colour=None):
    """All heights that lines of a colour go through."""
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
    return {text.get_text() for text in axes.texts}


def shown(values, found):
    """Whether every one of `values` is among those found."""
    return all(np.isclose(found, value, rtol=1e-6).any() for value in np.ravel(values))


def test_there_is_a_drawing_for_every_study(studies):
    assert set(STUDIES) == set(studies)
    with pytest.raises(ValueError, match=r"study must be one of trajectory, .*, got 'other'"):
        study_figures("other", studies["memory"])


def test_files_are_the_same_on_every_day(studies, tmp_path, monkeypatch):
    digests = []
    for day in ("0", "1000000000"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", day)
        paths = draw_study("mean-regret", studies["mean-regret"], tmp_path / day / "new")
        assert [path.name for path in paths] == ["mean-regret.pdf", "mean-regret.png"]
        starts = [path.read_bytes()[:4] for path in paths]
        assert starts == [b"%PDF", b"\x89PNG"]
        digests.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in paths])
        assert {path.name for path in paths[0].parent.iterdir()} == {path.name for path in paths}
    assert digests[0] == digests[1]


def test_trajectories(studies, figures):
    dataset = studies["trajectory"]
    found = figures["trajectory"]
    assert list(found) == [f"trajectory-{source}" for source in SOURCES]
    one = dataset.sel(source="lin", predictor="lstm")
    top, middle, bottom = found["trajectory-lin"].axes
    for axes, name in ((top, "prediction"), (middle, "regret"), (bottom, "cumulative_regret")):
        drawn = heights(axes, colour_of("lstm"))
        np.testing.assert_array_equal(drawn, one[name])
    labels = [text.get_text() for text in top.get_legend().get_texts()]
    assert labels == ["true bias", "exact optimum", "KT Oracle", "LSTM [LIN]"]


def test_every_seed_has_a_dot_and_every_exact_predictor_a_name(studies):
    dataset = studies["on-distribution"].copy(deep=True)
    dataset["regret"][0, 1, 0] = np.nan  # a member that did not train
    figures = study_figures("on-distribution", dataset)
    panels = figures["on-distribution"].axes
    for axes, source in zip(panels, SOURCES, strict=True):
        one = dataset.sel(source=source)
        assert title(axes) == source_name(dataset, source)
        for network in NETWORKS:
            seeds = one["regret"].sel(architecture=network).values
            drawn = heights(axes, colour_of(network))
            np.testing.assert_array_equal(drawn, seeds[np.isfinite(seeds)])
        assert shown(one["regret_median"], heights(axes, "#2B2B2B"))
        assert shown(one["regret_minimum"], heights(axes, "#2B2B2B"))
        assert shown(one["exact_regret"].sel(exact="optimum"), heights(axes, "#2B2B2B"))
        low, high = axes.get_ylim()
        assert low < np.nanmin(one["regret"])
        assert high > np.nanmax(one["regret"])
    assert {"optimum = PTW 12.20", "LIN 16.30", "KT Oracle 9.90", "KT 36.00 ↑"} == texts(panels[0])
    assert {"KT 23.80", "LIN 4.10"} == texts(figures["on-distribution-excess"].axes[0])


def test_what_is_measured_here_stands_beside_recorded_seeds(studies):
    dataset = studies["on-distribution"]
    excess = dataset["excess_minimum"] + 0.01
    here = dataset.assign(here_excess=excess, here_excess_error=0 * excess + 0.02)
    for name, figure in study_figures("on-distribution", here).items():
        (legend,) = figure.legends
        labels = [text.get_text() for text in legend.get_texts()]
        assert {"one seed, recorded", "zoo, measured here"} <= set(labels)
        for axes, source in zip(figure.axes, SOURCES, strict=True):
            diamonds = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
            own = dataset["exact_regret"].sel(source=source, exact="optimum")
            base = 0.0 if name.endswith("excess") else float(own)
            expected = excess.sel(source=source).values + base
            np.testing.assert_allclose([each.get_ydata()[0] for each in diamonds], expected)
    lengths = studies["longer-lengths"]
    few = lengths["excess_mean"].where(lengths["length"] < 100)  # not measured beyond
    marked = lengths.assign(here_excess=few, here_excess_error=0.1 * few)
    (axes,) = study_figures("longer-lengths", marked)["longer-lengths"].axes
    diamonds = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert np.isfinite([line.get_ydata()[0] for line in diamonds]).sum() == 2 * len(NETWORKS)


def test_what_is_measured_here_is_seen_however_far_off_it_is(studies):
    study = studies["on-distribution"]
    far = study["excess"].max("seed") * 0 + 50.0
    marked = study.assign(here_excess=far, here_excess_error=0 * far + 0.1)
    drawn = study_figures("on-distribution", marked)
    for name, kind in (("on-distribution", "regret"), ("on-distribution-excess", "excess")):
        for axes, source in zip(drawn[name].axes, SOURCES, strict=False):
            optimum = float(study["exact_regret"].sel(source=source, exact="optimum"))
            top = 50 + (optimum if kind == "regret" else 0)
            assert axes.get_ylim()[0] < top < axes.get_ylim()[1]


def test_off_distribution_and_its_matrix(studies, figures):
    dataset = studies["off-distribution"]
    found = figures["off-distribution"]
    assert [title(axes) for axes in found["off-distribution"].axes] == [
        "PTW₅ → Random Uniform(32)",
        "LIN → Random Uniform(32)",
        "PTW₅ → Regular(20)",
        "LIN → Regular(20)",
        "Random Uniform(32) → PTW₅",
        "Random Uniform(32) → LIN",
    ]
    panels = {title(axes): axes for axes in found["off-distribution-matrix"].axes}
    values = dataset["excess_mean"].sel(architecture="lstm", train_source="ptw").values
    drawn = [text.get_text() for text in panels["LSTM"].texts]
    assert len(drawn) == 16
    np.testing.assert_allclose([float(text) for text in drawn[:4]], values, rtol=0.01, atol=0.006)
    exact = [float(text.get_text()) for text in panels["exact optimum"].texts]
    assert exact[:4] == [0.0, 6.1, 25.1, 6.2]  # PTW on each source
    assert exact[5] == exact[10] == exact[15] == 0


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_lengths(studies, scale):
    for name, kinds in (("longer-lengths", ["excess"]), ("other-lengths", ["own", "transferred"])):
        dataset = studies[name].copy()
        for kind in kinds:
            if scale == "linear":
                dataset[f"{kind}_mean"] = 5 + np.tanh(dataset[f"{kind}_mean"])
        (axes,) = study_figures(name, dataset)[name].axes
        low, high = axes.get_ylim()
        assert axes.get_yscale() == scale
        for network in NETWORKS:
            drawn = heights(axes, colour_of(network))
            for kind in kinds:
                means = dataset[f"{kind}_mean"].sel(architecture=network)
                assert shown(means, drawn)
                assert ((low < means) & (means < high)).all()
        assert f"trained on {dataset.attrs['length']}" in texts(axes)


def test_ablations_with_and_without_their_parts(studies, figures):
    dataset = studies["ablations"]
    found = figures["ablations"]
    recurrent, transformers = found["ablations-parameters"].axes
    parts = dataset["part"].values
    for axes, chosen in ((recurrent, ["core", "stack"]), (transformers, ["positions"])):
        means = dataset["regret_mean"].values[np.isin(parts, chosen)]
        assert shown(means, heights(axes))
    assert len(found["ablations-stack"].axes[0].texts) == 9
    left, right = found["ablations-transformer"].axes
    assert shown(dataset["excess_mean"].values[parts == "positions"], heights(left))
    assert shown(dataset["excess_mean"].values[parts == "context"], heights(right))
    few = dataset.isel(configuration=parts == "core")
    assert list(study_figures("ablations", few)) == ["ablations-parameters"]
    assert list(study_captions("ablations", few)) == ["ablations-parameters"]


def test_ablations_show_a_part_where_there_is_something_to_compare(studies):
    dataset = studies["ablations"]
    parts, models = dataset["part"].values, dataset["model"].values
    one_of_each_stack = [
        np.flatnonzero((parts == "stack") & (models == model))[0]
        for model in ("stack-rnn", "stack-lstm")
    ]
    whole_context = np.flatnonzero((parts == "context") & (dataset["context"].values < 0))
    positions, context = np.flatnonzero(parts == "positions"), np.flatnonzero(parts == "context")
    core = np.flatnonzero(parts == "core")
    for chosen, panels in (
        ([*one_of_each_stack, *positions, *whole_context], ["positions and layers"]),
        ([*one_of_each_stack, positions[0], *context], ["context window"]),
        ([*one_of_each_stack, positions[0], *whole_context], []),
    ):
        some = dataset.isel(configuration=[*core, *chosen])
        found = study_figures("ablations", some)
        expected = ["ablations-parameters"] + ["ablations-transformer"] * bool(panels)
        assert list(found) == expected
        captions = study_captions("ablations", some)
        assert list(captions) == expected
        if panels:
            drawn = found["ablations-transformer"].axes
            assert [axes.get_title(loc="left") for axes in drawn] == panels
            for title in ("positions and layers", "context window"):
                said = f"best {title}: " in captions["ablations-transformer"].seen
                assert said == (title in panels)
    stacks = np.flatnonzero(parts == "stack")[:2]
    some = dataset.isel(configuration=[*core, *stacks])
    assert list(study_figures("ablations", some)) == ["ablations-parameters", "ablations-stack"]
    assert list(study_captions("ablations", some)) == ["ablations-parameters", "ablations-stack"]


def test_priors(studies, figures):
    dataset = studies["priors"]
    found = figures["priors"]
    (positions,) = found["priors-ptw-positions"].axes
    one = dataset.sel(source="ptw")
    np.testing.assert_array_equal(positions.lines[-1].get_ydata(), one["switch_probability"])
    bars = [patch.get_height() for patch in positions.patches]
    np.testing.assert_array_equal(bars, one["switch_frequency"])
    exact, sampled = found["priors-ptw-counts"].axes
    for axes, name in ((exact, "ptw_count_law"), (sampled, "ptw_count_sampled")):
        deepest = dataset[name].sel(depth=9).values
        assert shown(deepest[deepest > 0], heights(axes))
        assert shown(dataset["ptw_count_limit"], heights(axes, "#2B2B2B"))
    assert len(found["priors-switches"].axes) == 2 * len(SOURCES)


def test_regret_by_index(studies, figures):
    dataset = studies["regret-by-index"]
    found = figures["regret-by-index"]
    (axes,) = found["regret-by-index"].axes
    np.testing.assert_array_equal(heights(axes, "#2B2B2B"), dataset["optimum_regret"])
    for panel, network in zip(found["regret-by-index-difference"].axes, NETWORKS, strict=True):
        drawn = heights(panel, colour_of(network))
        np.testing.assert_array_equal(drawn, dataset["difference"].sel(architecture=network))


def test_longer_sequences(studies, figures):
    dataset = studies["length-512"]
    found = figures["length-512"]
    *panels, cumulative = found["length-512-sequence"].axes
    assert [title(axes) for axes in panels] == [
        "RNN", "LSTM", "Stack-RNN", "Stack-LSTM", "Transformer",
    ]  # fmt: skip
    for network in NETWORKS:
        expected = dataset["cumulative_regret"].sel(predictor=network)
        np.testing.assert_array_equal(heights(cumulative, colour_of(network)), expected)
    maps = {title(axes): axes for axes in found["length-512-map"].axes}
    image = maps["Transformer"].images[0]
    np.testing.assert_array_equal(
        image.get_array(), dataset["difference"].sel(architecture="transformer")
    )
    low, high = image.get_clim()
    assert low == -high < 0  # white is where network and PTW are equal


def test_memory(studies, figures):
    dataset = studies["memory"]
    for axes, source in zip(figures["memory"]["memory"].axes, SOURCES, strict=True):
        one = dataset.sel(source=source)
        for name in ("regret", "regret_mean", "bound", "optimum_regret"):
            assert shown(one[name], heights(axes))


def test_every_figure_has_a_caption(studies, figures):
    for name, dataset in studies.items():
        assert list(study_captions(name, dataset)) == list(figures[name])


def test_one_seed_is_enough():
    for name, dataset in all_studies(length=32, seeds=1).items():
        if name in ("longer-lengths", "other-lengths", "ablations"):
            assert np.isnan(
                dataset["own_deviation" if name == "other-lengths" else "excess_deviation"]
            ).all()
            assert study_figures(name, dataset)


def test_what_is_on_the_optimum_is_drawn_on_it():
    """Differences that are nothing beside the regret itself do not fill a panel."""
    dataset = all_studies(length=32)["on-distribution"]
    optimum = dataset["exact_regret"].sel(exact="optimum")
    near = {name: optimum + 1e-3 + 0 * dataset[name] for name in dataset if "regret_m" in name}
    near["regret"] = optimum + 1e-3 + 0 * dataset["regret"]
    alone = dataset.assign(near).sel(exact=["optimum", "kt"])
    panels = study_figures("on-distribution", alone)["on-distribution"].axes
    for axes, bits in zip(panels, optimum.values, strict=True):
        low, high = axes.get_ylim()
        assert high - low > 0.1 * bits


def test_a_band_of_lengths_holds_all_seeds(studies, figures):
    dataset = studies["longer-lengths"]
    (axes,) = figures["longer-lengths"]["longer-lengths"].axes
    bands = [each.get_paths()[0].get_extents() for each in axes.collections]
    for name, band in zip(dataset["architecture"].values, bands, strict=True):
        seeds = dataset["excess"].sel(architecture=name)
        assert band.ymax == pytest.approx(float(seeds.max()))


@pytest.mark.parametrize(("value", "marks"), [(0.5, 1), (-0.1, 0)])
def test_a_bar_on_a_logarithmic_scale_goes_down_to_the_edge(value, marks):
    axes = Figure().subplots()
    axes.set_yscale("log")
    axes.set_ylim(1e-3, 10)
    measured_here(axes, 1.0, "lstm", value, 0.3, log=True)
    (bar,) = axes.collections[0].get_segments()
    assert 0 < bar[:, 1].min() < 1e-3
    assert bar[:, 1].max() == pytest.approx(value + 0.6)
    assert sum(line.get_marker() == "D" for line in axes.lines) == marks


def test_predictors_can_be_told_apart():
    names = [*NETWORKS, "kt", "oracle", "ptw", "lin", "optimum"]
    assert len({colour_of(name) for name in names}) == len(names)


def test_labels_keep_their_order_and_their_distance():
    wanted = np.array([0.0, 0.5, 0.51, 0.52, 0.99, 1.0])
    places = spread_apart(wanted, 0.05)
    assert (np.diff(places) >= 0.05 - 1e-9).all()
    assert places[0] == 0.0
    assert places[2] == pytest.approx(0.51)
    assert places[-1] <= 1.0
