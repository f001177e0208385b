"""The studies as data, the exact bounds on short memories, and what is concluded from results."""

import itertools
import math
from dataclasses import fields, replace
from pathlib import Path

import jax
import numpy as np
import pytest
import reference
import xarray as xr

import switchpoint as sp
from switchpoint.exact.windows import window_regret
from switchpoint.experiments import SCALES, STUDIES, Watcher, findings
from switchpoint.experiments.kept import Kept
from switchpoint.experiments.plans import ablation_runs, length_runs, main_runs, memory_runs
from switchpoint.experiments.runs import Ensemble, Runs, TrainingRun, is_complete
from switchpoint.experiments.scales import SETTINGS, Scale, Trial, changed
from switchpoint.experiments.summaries import of_seeds, regret_and_excess
from switchpoint.experiments.work import Work

SEGMENTS = [sp.Bernoulli(), sp.Bernoulli(1.5, 0.5)]


def law_of_sequences(prior, segment, length):
    """P(x) of every sequence, by going through all partitions."""
    sequences = list(itertools.product(range(segment.alphabet), repeat=length))
    law = {}
    for symbols in sequences:
        law[symbols] = math.fsum(
            reference.prior_of_partition(prior, switches)
            * math.exp(
                sum(
                    reference.log_marginal_of_segment(segment, symbols[a:b])
                    for a, b in reference.bounds(switches)
                )
            )
            for switches in reference.partitions(length)
        )
    return law


def entropy_given_window(law, time, order):
    """H(x_t | the last `order` symbols) in bits, from the law of whole sequences."""
    joint = {}
    for symbols, chance in law.items():
        window = symbols[max(0, time - order) : time + 1]
        joint[window] = joint.get(window, 0.0) + chance
    before = {}
    for window, chance in joint.items():
        before[window[:-1]] = before.get(window[:-1], 0.0) + chance
    return -sum(p * math.log2(p / before[w[:-1]]) for w, p in joint.items())


def entropy_of_segment(segment):
    """The mean entropy of Beta(a, b) in bits, by adding up the density's mass."""
    a, b = segment.pseudo_counts
    angle = (np.arange(200_000) + 0.5) / 200_000 * np.pi / 2  # p = sin^2: no poles are left
    p = np.sin(angle) ** 2
    density = p ** (a - 0.5) * (1 - p) ** (b - 0.5)
    with np.errstate(divide="ignore", invalid="ignore"):
        bits = -np.nan_to_num(p * np.log2(p)) - np.nan_to_num((1 - p) * np.log2(1 - p))
    return float((density * bits).sum() / density.sum())


@pytest.mark.parametrize("prior", [sp.PTW(3), sp.LIN(), sp.RegularPeriodic(3), sp.RandomUniform(7)])
@pytest.mark.parametrize("segment", SEGMENTS, ids=repr)
def test_window_regret_is_that_of_enumeration(prior, segment):
    length = 6
    law = law_of_sequences(prior, segment, length)
    assert math.fsum(law.values()) == pytest.approx(1)
    entropy = entropy_of_segment(segment)
    for order in (0, 1, 3, length - 1):
        expected = [entropy_given_window(law, t, order) - entropy for t in range(length)]
        measured = window_regret(sp.Source(prior, segment), length, order)
        np.testing.assert_allclose(measured, expected, atol=1e-8)


def test_with_full_memory_the_bound_is_the_regret_of_the_optimum():
    source, length = sp.Source(sp.LIN()), 8
    found = sp.evaluate({"optimum": sp.bayes_optimal(source)}, source, length, 4000)
    regret = found["regret"].values.ravel()
    bound = window_regret(source, length, 100).sum()
    assert abs(regret.mean() - bound) < 4 * regret.std() / len(regret) ** 0.5


def test_more_memory_never_costs_regret():
    regrets = [window_regret(sp.Source(sp.PTW(3)), 8, order).sum() for order in range(8)]
    assert all(np.diff(regrets) < 1e-12)
    assert regrets[0] > 1.5 * regrets[-1]


def test_too_long_a_memory_is_refused():
    with pytest.raises(ValueError, match="order"):
        window_regret(sp.Source(sp.PTW(8)), 256, 40)
    with pytest.raises(ValueError, match="length"):
        window_regret(sp.Source(sp.PTW(2)), 16, 1)


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_every_scale_describes_every_study(scale):
    assert set(scale.seconds) == set(STUDIES)
    runs = [r for plan in (main_runs, length_runs, ablation_runs, memory_runs) for r in plan(scale)]
    configs = {}
    for run in runs:
        assert configs.setdefault(run.name, run.config) == run.config, run.name
    assert set(scale.architectures) == {"rnn", "lstm", "stack-rnn", "stack-lstm", "transformer"}
    assert {each.part for each in scale.ablations} == {"core", "stack", "positions", "context"}
    names = [ablation.name for ablation in scale.ablations]
    assert len(set(names)) == len(names)
    assert 0 in scale.orders
    assert scale.longer_lengths[0] == scale.length
    assert scale.base_length in scale.other_lengths


def test_full_scale_is_the_papers():
    full = SCALES["full"]
    assert (full.length, full.period, full.seeds, full.sequences) == (256, 20, 10, 10_000)
    assert (full.longer_lengths[-1], full.longer_sequences) == (4096, 1000)
    for run in main_runs(full):
        assert run.config.prior == ("ptw", "lin", "regular", "uniform")
        assert len(run.config.members()) == 40
    lstm = next(run.config for run in main_runs(full) if run.name == "lstm")
    assert (lstm.hidden, lstm.readout, lstm.depth, lstm.longest) == (256, 2, 8, 256)


def test_a_study_is_described_by_what_decides_its_numbers():
    quick, full = SCALES["quick"], SCALES["full"]
    for study in STUDIES.values():
        assert study.description(quick) != study.description(full)
    on = STUDIES["on-distribution"]
    assert on.description(quick)["runs"]["lstm"]["hidden"] == quick.architectures["lstm"]["hidden"]
    assert "ablations" not in on.description(quick)["scale"]


QUICK = SCALES["quick"]


def test_seeds_are_labelled_as_they_are(tmp_path):
    scale = replace(QUICK, first_seed=100)
    runs = [r for plan in (main_runs, length_runs, ablation_runs, memory_runs) for r in plan(scale)]
    assert {run.config.first_seed for run in runs} == {100}
    run = memory_runs(scale)[0]
    networks = [run.config.network(jax.random.key(seed)) for seed in (0, 1)]
    members = [{"prior": "lin", "frozen": False}] * 2

    class Untrained(Runs):
        def ensemble(self, _):
            return Ensemble(networks, {"members": members})

    watcher = Watcher()
    for seeds in (None, 1):
        parts = Kept(tmp_path / str(seeds), {}, print)
        work = Work(scale, Untrained(tmp_path, watcher), parts, watcher)
        regret = work.network_regret(run, "lin", Trial("lin", 4, 2), seeds)
        assert regret["seed"].values.tolist() == [100, 101][:seeds]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("perid", 30, ["'perid'", "did you mean 'period'"]),
        ("shipped", 1, ["no field 'shipped'"]),
        ("period", "long", ["period", "'long'"]),
        ("seeds", 2.5, ["seeds", "2.5"]),
        ("longer_lengths", ["a"], ["longer_lengths", "'a'"]),
        ("sequences", 1, ["sequences", "at least 2"]),
        ("orders", [1, 2], ["orders must have 0"]),
        ("hasty", 1, ["hasty", "true or false"]),
        ("architectures", {"rnn": {}}, ["other_architectures", "rnn"]),
        ("architectures", {"lstm": {"step": 3}}, ["architectures.lstm", "'steps'"]),
        ("forgetful", {"seeds": 3}, ["forgetful", "seeds"]),
        ("ablations", [{"part": "core"}], ["model", "None"]),
        ("first_seed", -1, ["first_seed", "-1"]),
    ],
)
def test_what_a_scale_cannot_be_is_refused_by_name(name, value, words):
    with pytest.raises(ValueError, match=name) as refused:
        changed(QUICK, {name: value})
    assert all(word in str(refused.value) for word in words)


def test_every_field_can_be_set_and_is_documented():
    assert set(SETTINGS) == {each.name for each in fields(Scale)} - {"shipped", "seconds"}
    page = (Path(__file__).parent.parent / "docs" / "studies.md").read_text()
    assert [name for name in SETTINGS if f"`{name}`" not in page] == []
    for scale in SCALES.values():
        assert changed(scale, {}) == scale


def test_a_changed_scale_is_other_work_where_a_study_depends_on_it():
    def other(name, value):
        scale = changed(QUICK, {name: value})
        return {n for n, s in STUDIES.items() if s.description(scale) != s.description(QUICK)}

    assert other("longer_lengths", [32, 48]) == {"longer-lengths"}
    assert other("ablations", [{"part": "core", "model": "rnn"}]) == {"ablations"}
    assert other("first_seed", 100) == set(STUDIES) - {"priors"}
    assert other("period", 30) == set(STUDIES)
    assert other("hasty", False) == set()
    # Where every ablation is a network of the main studies, no run tells how many seeds it has.
    main = changed(
        QUICK, {"ablations": [{"part": "core", "model": "rnn", **QUICK.architectures["rnn"]}]}
    )
    two = changed(main, {"ablation_seeds": 2})
    assert STUDIES["ablations"].description(main) != STUDIES["ablations"].description(two)


def test_summaries_of_seeds_are_those_of_the_formulas():
    values = np.random.default_rng(0).normal(size=(2, 3, 50))
    values[1, 2] = np.nan  # a network whose training failed
    bits = xr.DataArray(values, dims=("source", "seed", "sequence"))
    summary = of_seeds(bits, "x")
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


def test_excess_is_over_the_optimum_on_the_same_sequences():
    rng = np.random.default_rng(1)
    optimum = xr.DataArray(100 * rng.normal(size=200), dims="sequence")
    regret = optimum + xr.DataArray(0.1 * rng.normal(size=(2, 200)), dims=("seed", "sequence"))
    summary = regret_and_excess(regret, optimum)
    assert float(summary["regret_error"].min()) > 5
    assert float(summary["excess_error"].max()) < 0.02


def lengths_result(growth, error):
    length, architecture = [32, 64], ["lstm", "rnn"]
    excess = np.array([[0.5, 0.5], [0.5 + growth, 2.0]])
    both = ("length", "architecture")
    return xr.Dataset(
        {"excess_mean": (both, excess), "excess_mean_error": (both, np.full((2, 2), error))},
        coords={"length": length, "architecture": architecture},
    )


@pytest.mark.parametrize(
    ("growth", "error", "holds"), [(1.0, 0.1, True), (1.0, 0.3, False), (-0.2, 0.01, False)]
)
def test_a_finding_holds_only_beyond_its_error(growth, error, holds):
    judged = findings({"longer-lengths": lengths_result(growth, error)})
    (longer,) = [finding for finding in judged if finding.holds is not None]
    assert longer.holds is holds
    assert "64" in longer.evidence
    assert all("has not been run" in each.evidence for each in judged if each is not longer)


def test_a_run_whose_weights_are_damaged_is_not_complete(tmp_path):
    config = sp.TrainConfig(model="memoryless", length=4, steps=2, batch=2, validation=2)
    sp.train(config, tmp_path / "run")
    assert is_complete(tmp_path, TrainingRun("run", config))
    path = tmp_path / "run" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert not is_complete(tmp_path, TrainingRun("run", config))
