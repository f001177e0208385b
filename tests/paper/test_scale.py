"""Scales, plans and summaries: what decides the numbers of a study, and what is made of them."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from switchpoint.paper import SCALES, STUDIES, Scale
from switchpoint.paper.base import main_runs, over_seeds
from switchpoint.paper.scale import SETTINGS


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_every_scale_describes_every_study(scale):
    configs = {}
    for study in STUDIES.values():
        assert scale.name in study.seconds
        for run in study.runs(scale).values():  # a name means the same run in every study
            assert configs.setdefault(run.name, run.config) == run.config, run.name
    assert set(scale.architectures) == {"rnn", "lstm", "stack-rnn", "stack-lstm", "transformer"}
    assert {each["part"] for each in scale.ablations} == {"core", "stack", "positions", "context"}
    plans = scale.to_dict("ablations")["ablations"]
    assert all(plans.count(plan) == 1 for plan in plans)
    assert 0 in scale.orders
    assert scale.longer_lengths[0] == scale.length
    assert scale.base_length in scale.other_lengths


def test_full_scale_is_the_papers():
    full = SCALES["full"]
    assert (full.length, full.period, full.seeds, full.sequences) == (256, 20, 10, 10_000)
    assert (full.longer_lengths[-1], full.longer_sequences) == (4096, 1000)
    trained = [
        (run.config.model, member.prior, member.seed)
        for run in main_runs(full)
        for member in run.config.members()
    ]
    sources = ("ptw", "lin", "regular", "uniform")
    assert sorted(trained) == sorted(product(full.architectures, sources, range(10)))
    lstm = next(run.config for run in main_runs(full) if run.name == "lstm")
    assert (lstm.hidden, lstm.readout, lstm.depth, lstm.longest) == (256, 2, 8, 256)


QUICK = SCALES["quick"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("perid", 30, ["'perid'", "did you mean 'period'"]),
        ("zoo", 1, ["unknown field 'zoo'"]),
        ("period", "long", ["period", "'long'"]),
        ("seeds", 2.5, ["seeds", "2.5"]),
        ("longer_lengths", ["a"], ["longer_lengths", "'a'"]),
        ("sequences", 1, ["sequences", "equal to 2"]),
        ("orders", [1, 2], ["orders", "include 0"]),
        ("fast_compile", 1, ["fast_compile", "got 1"]),
        ("architectures", {"rnn": {}}, ["lstm", "rnn"]),
        ("architectures", {"lstm": {"step": 3}}, ["architectures.lstm", "'steps'"]),
        ("memoryless_settings", {"seeds": 3}, ["memoryless_settings", "seeds"]),
        ("ablations", [{"part": "core"}], ["model"]),
        ("first_seed", -1, ["first_seed", "-1"]),
        ("fewer_steps", {"gru": {}}, ["gru", "lstm"]),
        ("fewer_steps", {"lstm": {"poisson": 2}}, ["poisson"]),
        ("fewer_steps", {"lstm": {"lin": 0}}, ["lin"]),
    ],
)
def test_what_a_scale_cannot_be_is_refused_by_name(name, value, words):
    with pytest.raises(ValueError, match=name) as refused:
        QUICK.changed({name: value})
    assert all(word in str(refused.value) for word in words)


def test_every_field_can_be_set_and_is_documented():
    assert set(SETTINGS) == set(Scale.model_fields) - {"zoo", "recorded"}
    page = (Path(__file__).parents[2] / "docs" / "studies.md").read_text()
    assert [name for name in SETTINGS if f"`{name}`" not in page] == []
    for scale in SCALES.values():
        assert scale.changed({}) == scale


@pytest.mark.slow
def test_a_changed_scale_is_other_work_where_a_study_depends_on_it():
    plans = {name: study.plan(QUICK) for name, study in STUDIES.items()}

    def other(name, value):
        scale = QUICK.changed({name: value})
        return {name for name, plan in plans.items() if STUDIES[name].plan(scale) != plan}

    assert other("longer_lengths", [32, 48]) == {"longer-lengths", "passing-states"}
    assert other("ablations", [{"part": "core", "model": "rnn"}]) == {"ablations"}
    assert other("first_seed", 100) == set(STUDIES) - {"priors"}
    assert other("period", 30) == set(STUDIES)
    assert other("fast_compile", False) == set()
    # Where every ablation is a network of the main studies, no run tells how many seeds it has.
    main = QUICK.changed(
        {"ablations": [{"part": "core", "model": "rnn", **QUICK.architectures["rnn"]}]}
    )
    two = main.changed({"ablation_seeds": 2})
    assert STUDIES["ablations"].plan(main) != STUDIES["ablations"].plan(two)


def test_summaries_of_seeds_are_those_of_the_formulas():
    values = np.random.default_rng(0).normal(size=(2, 3, 50))
    values[1, 2] = np.nan  # a network whose training failed
    bits = xr.DataArray(values, dims=("source", "seed", "sequence"))
    summary = over_seeds(bits, "x")
    means = values.mean(-1)
    np.testing.assert_allclose(summary["x"], means)
    np.testing.assert_allclose(summary["x_error"], values.std(-1, ddof=1) / 50**0.5)
    np.testing.assert_allclose(summary["x_mean"], [means[0].mean(), means[1, :2].mean()])
    common = values[0].mean(0)
    np.testing.assert_allclose(summary["x_mean_error"][0], common.std(ddof=1) / 50**0.5)
    expected = [means[0].std(ddof=1), means[1, :2].std(ddof=1)]
    np.testing.assert_allclose(summary["x_deviation"], expected)
    np.testing.assert_allclose(summary["x_minimum"], [means[0].min(), means[1, :2].min()])
    np.testing.assert_allclose(summary["x_median"], [np.median(means[0]), means[1, :2].mean()])


def lengths_result(growth, error):
    length, architecture = [32, 64], ["lstm", "rnn"]
    excess = np.array([[0.5, 0.5], [0.5 + growth, 2.0]])
    both = ("length", "architecture")
    return xr.Dataset(
        {"excess_mean": (both, excess), "excess_mean_error": (both, np.full((2, 2), error))},
        coords={"length": length, "architecture": architecture},
        attrs={"length": 32},
    )


@pytest.mark.parametrize(
    ("growth", "error", "holds"), [(1.0, 0.1, True), (1.0, 0.3, False), (-0.2, 0.01, False)]
)
def test_a_finding_holds_only_beyond_its_error(growth, error, holds):
    longer, _ = STUDIES["longer-lengths"].judge(lengths_result(growth, error))
    assert longer.holds is holds
    assert "64" in longer.evidence
    for study in STUDIES.values():
        assert all(each.holds is None and study.name in each.evidence for each in study.judge(None))
