"""All studies at a tiny scale: complete, resumable, and in agreement with `evaluate`."""

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
import typer

import switchpoint as sp
from switchpoint import evaluation
from switchpoint._progress import Progress
from switchpoint.neural import save_networks
from switchpoint.paper import STUDIES, Scale, StudyRunner, commands, load_result, reproduce
from switchpoint.paper.base import Measurement, Run, cached_config, main_run, main_runs
from switchpoint.paper.networks import Networks, training_cost
from switchpoint.paper.results import result_path
from switchpoint.paper.scale import SCALES, TestSet
from switchpoint.paper.store import MeasurementStore
from switchpoint.zoo.manifest import SOURCES

SMALL = {"batch": 4, "steps": 4, "validation": 8}
CELL = {**SMALL, "hidden": 4, "readout": 0}
TINY = Scale(
    name="tiny",
    length=8,
    period=2,
    seeds=2,
    sequences=30,
    architectures={"lstm": CELL},
    longer_lengths=(8, 16),
    longer_sequences=20,
    base_length=4,
    other_lengths=(4, 8),
    other_architectures=("lstm",),
    other_sequences=20,
    ablations=({"part": "core", "model": "lstm", **CELL},),
    ablation_seeds=1,
    prior_sequences=200,
    max_depth=3,
    max_switches=8,
    heatmap_sequences=10,
    probe_sequences=8,
    worst_length=6,
    passing_settings={"batch": 4, "steps": 4},
    passing_sequences=8,
    detector_settings={**CELL, "model": "gru", "hidden": 4},
    detector_sequences=8,
    orders=(0,),
    memoryless_settings=SMALL,
    bound_order=3,
    richer_length=6,
    richer_sources=("categorical",),
    richer_architectures={"lstm": CELL},
)


class Log(Progress):
    """Remembers which studies were computed and which runs were trained."""

    def __init__(self):
        self.computed, self.trained, self.notes = [], set(), []

    def note(self, text):
        study, done, _ = text.partition(": done in")
        (self.computed if done else self.notes).append(study)

    def update(self, text, done):
        del done
        if text.startswith("training "):
            self.trained.add(text.removeprefix("training ").partition(":")[0])


DIFFERENCES = (
    "On PTW the RNN has a slightly larger error than the other networks.",
    "The better a network fits PTW, the less robust it is on Random Uniform.",
    "On longer sequences the LSTM and the Stack-LSTM lose least.",
)
"""Claims of the paper that our results do not confirm."""


def run_studies(out, only=None, scale=TINY):
    log = Log()
    reproduce(scale, out, only, log)
    return log


def load(out, study):
    """The result of a study that was computed locally."""
    return load_result(out, study).local


def state(study, out, scale=TINY):
    return StudyRunner(scale, out, [study]).states[study]


def same(first, second):
    """Whether two results are the same to the last bit, whatever time they took."""
    return first.drop_attrs().identical(second.drop_attrs())


def compute_tiny_studies(out):
    log = run_studies(out)
    assert log.computed == list(STUDIES)
    assert log.trained >= {"lstm", "lstm-length-4", "memoryless"}
    assert not any(name.startswith("ablation") for name in log.trained)  # it is the LSTM


@pytest.fixture(scope="module")
def whole(tiny_studies, tmp_path_factory):
    """The directory of all studies, never interrupted."""
    return shutil.copytree(tiny_studies, tmp_path_factory.mktemp("whole") / "out")


def test_sources_may_have_steps_of_their_own():
    fewer = TINY.replace(fewer_steps={"lstm": {"lin": 2, "regular": 2}})
    runs = {run.name: run.config for run in main_runs(fewer)}
    assert [(name, each.steps, each.prior) for name, each in runs.items()] == [
        ("lstm", 4, ("ptw", "uniform")),
        ("lstm-2-steps", 2, ("lin", "regular")),
    ]
    assert main_run(fewer, "lstm", "lin").config == runs["lstm-2-steps"]


@pytest.mark.slow
def test_every_study_has_a_whole_result(whole):
    for name, study in STUDIES.items():
        result = load(whole, name)
        assert result.attrs["question"] == study.question
        assert result.attrs["plan"] == study.plan(TINY)
        assert result.attrs.get("sequences") == study.tested_sequences(
            result.attrs["plan"]["scale"]
        )
        provenance = result.attrs["provenance"]
        assert provenance["seed"] == 0
        assert provenance["wall_seconds"] > 0
        for key, variable in result.data_vars.items():
            if variable.dtype.kind == "f" and not key.endswith(("deviation", "bound")):
                assert np.isfinite(variable.values).all(), (name, key)
        for finding in study.judge(result):  # the others compare the LSTM with other networks
            assert (finding.holds is None) == (finding.claim in DIFFERENCES)
            assert finding.evidence
    assert not list((whole / "measurements").glob("*.json"))


@pytest.mark.slow
def test_exact_values_are_those_of_evaluate(whole):
    result = load(whole, "on-distribution")
    source = sp.Source(sp.PTW(3))
    predictors = {"lin": sp.bayes_optimal(sp.Source(sp.LIN())), "oracle": sp.KTOracle}
    predictors["optimum"] = sp.bayes_optimal(source)
    summary = sp.summarise(sp.evaluate(predictors, source, 8, 30), "optimum").isel(member=0)
    for name in predictors:
        ours, theirs = result.sel(source="ptw", exact=name), summary.sel(predictor=name)
        assert float(ours["exact_regret"]) == float(theirs["regret"])
        assert float(ours["exact_excess"]) == pytest.approx(float(theirs["excess"]), abs=1e-12)
        assert float(ours["exact_regret_error"]) == pytest.approx(float(theirs["regret_error"]))


@pytest.mark.slow
def test_networks_are_those_of_the_runs(whole):
    networks = sp.load_members(whole / "runs" / "lstm")
    index = SOURCES.index("lin") * TINY.seeds + 1
    source = sp.Source(sp.PTW(3))
    found = sp.evaluate({"lstm": networks[index]}, source, 8, 30)["regret"].mean()
    result = load(whole, "off-distribution")
    cell = result.sel(train_source="lin", test_source="ptw", architecture="lstm", seed=1)
    assert float(cell["regret"]) == pytest.approx(float(found), abs=1e-12)
    own = load(whole, "on-distribution")
    for source in SOURCES:
        diagonal = result.sel(train_source=source, test_source=source)
        np.testing.assert_array_equal(diagonal["excess"], own["excess"].sel(source=source))
    ablation = load(whole, "ablations").isel(configuration=0)
    assert ablation.sizes["seed"] == TINY.ablation_seeds == 1
    first = own["excess"].sel(source="ptw", architecture="lstm", seed=[0])
    np.testing.assert_array_equal(ablation["excess"], first)
    assert int(ablation["parameters"]) == sum(leaf.size for leaf in jax.tree.leaves(networks[0]))
    lengths = load(whole, "longer-lengths").sel(length=8)
    assert lengths["optimum_regret"] > 0
    other = load(whole, "other-lengths").sel(length=4)
    np.testing.assert_array_equal(other["own"], other["transferred"])


@pytest.mark.slow
def test_trajectories_lose_what_their_predictions_say(whole):
    result = load(whole, "trajectory")
    true, said = result["probability"], result["prediction"]
    bits = true * np.log2(true / said) + (1 - true) * np.log2((1 - true) / (1 - said))
    np.testing.assert_allclose(bits.transpose(*result["regret"].dims), result["regret"], atol=1e-4)
    np.testing.assert_allclose(result["regret"].cumsum("time"), result["cumulative_regret"])
    moves = result["probability"].diff("time") != 0
    assert not (moves & (result["switches"].isel(time=slice(1, None)) == 0)).any()


@pytest.mark.slow
def test_sampled_switches_agree_with_their_law(whole):
    result = load(whole, "priors")
    for exact, sampled in (
        ("switch_probability", "switch_frequency"),
        ("count_law", "count_frequency"),
    ):
        margin = 5 * np.sqrt(result[exact] * (1 - result[exact]) / TINY.prior_sequences) + 1e-12
        assert (abs(result[exact] - result[sampled]) <= margin).all()
    np.testing.assert_allclose(
        result["ptw_count_law"].sel(depth=2)[:4], [1 / 2, 1 / 8, 1 / 4, 1 / 8]
    )
    assert float(result["ptw_count_sampled"].sel(depth=0, switches=0)) == 1


@pytest.mark.slow
def test_heat_map_is_ordered_by_switches(whole):
    result = load(whole, "length-512")
    assert (np.diff(result["switch_count"]) >= 0).all()
    assert result["difference"].dims == ("architecture", "sequence", "time")
    assert result.sizes["time"] == result.attrs["test_length"] == 16
    assert (result["probability"] == result["probability"][0]).all()
    # After zeros alone: the PTW of the training length, then that of twice the length.
    zeros = np.zeros(16, int)
    short, long = (sp.bayes_optimal(sp.Source(sp.PTW(depth))) for depth in (3, 4))
    expected = np.exp([*short.log_probs(zeros[:8])[:, 1], *long.log_probs(zeros)[8:, 1]])
    np.testing.assert_allclose(result["exact_after_zeros"], expected, rtol=1e-5)
    networks = sp.load_members(whole / "runs" / "lstm")[: TINY.seeds]  # trained on PTW
    own = [np.exp(each.log_probs(zeros))[:, 1] for each in networks]
    found = result["after_zeros"].sel(architecture="lstm").values
    assert min(np.abs(found - each).max() for each in own) < 1e-6


@pytest.mark.slow
def test_nothing_is_done_twice(whole):
    def times():
        return {path: path.stat().st_mtime_ns for path in (whole / "results").glob("*.nc")}

    before, log = times(), run_studies(whole)
    assert (log.computed, log.trained) == ([], set())
    assert before == times()


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["deleted", "one bit", "other plan"])
def test_one_missing_result_is_one_study_to_do(whole, damage):
    path = result_path(whole, "longer-lengths")
    before = evaluation.load(path)
    if damage == "deleted":
        path.unlink()
    elif damage == "one bit":
        path.write_bytes(flipped(path.read_bytes(), -20))
    else:
        evaluation.save(before.assign_attrs(plan={"study": "longer-lengths"}), path)
    assert state("longer-lengths", whole) == "to do"
    log = run_studies(whole)
    assert (log.computed, log.trained) == (["longer-lengths"], set())
    assert len(log.notes) == (damage == "one bit")
    assert all(str(path) in note and "computed again" in note for note in log.notes)
    assert same(evaluation.load(path), before)


@pytest.fixture
def command(monkeypatch):
    """The commands at the tiny scale, as the command line calls them."""
    monkeypatch.setitem(SCALES, "tiny", TINY)
    monkeypatch.setattr(commands, "_compile_fast", lambda: None)
    app = typer.Typer()
    app.command()(commands.reproduce)
    app.command()(commands.report)

    def run(*arguments):
        return app(args=[str(each) for each in arguments], standalone_mode=False)

    return run


def flipped(data, place):
    """A file's bytes with one bit the other way."""
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


_KILLED = """
import os, signal, sys
sys.path[:0] = {paths!r}
from pathlib import Path
import test_studies
from switchpoint._progress import Progress
from switchpoint.paper import reproduce

class Killer(Progress):
    def update(self, text, done):
        if text.startswith("evaluating memoryless (lin)"):
            os.kill(os.getpid(), signal.SIGKILL)

reproduce(test_studies.TINY, Path({out!r}), {only!r}, Killer())
"""


@pytest.mark.slow
def test_a_killed_study_resumes_to_the_same_result(whole, tmp_path):
    paths = [str(Path(__file__).parent), str(Path(sp.__file__).parents[1])]
    script = _KILLED.format(paths=paths, out=str(tmp_path), only=["memory"])
    environment = {**os.environ, "PYTEST_XDIST_WORKER": "killed"}  # shares the compilations
    status = subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode
    assert status == -signal.SIGKILL
    assert state("memory", tmp_path) == "to do"
    (measured,) = (tmp_path / "measurements" / "trained").glob("*.nc")  # on ptw, before lin
    measured.write_bytes(flipped(measured.read_bytes(), -5))
    before = training_cost(tmp_path / "runs" / "memoryless")
    log = run_studies(tmp_path, ["memory"])
    assert (log.computed, log.trained) == (["memory"], set())
    (note,) = log.notes
    assert str(measured) in note
    assert same(load(tmp_path, "memory"), load(whole, "memory"))
    # The time of the training is counted, although the process was killed after it.
    provenance = load(tmp_path, "memory").attrs["provenance"]
    assert before["training_seconds"] > 0
    assert provenance["training_seconds"] == round(before["training_seconds"], 3)


@pytest.mark.slow
def test_reproduce_draws_and_report_draws_again(command, whole, capsys):
    command("reproduce", "--scale", "tiny", "--out", whole, "--only", "memory")
    printed = capsys.readouterr()
    assert "all studies are done" in printed.out
    assert printed.out.splitlines()[-1].startswith(str(whole / "index.html"))
    assert (whole / "figures" / "memory.png").exists()
    command("report", whole, "--redraw", "memory")
    assert str(whole / "figures" / "memory.png") in capsys.readouterr().out.splitlines()


@pytest.mark.slow
def test_changed_settings_do_not_reuse_other_results(command, whole, capsys):
    options = ("--set", "sequences = 20", "--set", "longer_lengths=[8]", "--list")
    command("reproduce", "--scale", "tiny", "--out", whole, *options)
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.split()}
    changed = TINY.replace(sequences=20, longer_lengths=[8])
    for name, study in STUDIES.items():
        assert (" done " in rows[name]) == (study.plan(changed) == study.plan(TINY)), name


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("sequences", "NAME=VALUE"),
        ("=3", "NAME=VALUE"),
        ("sequences=many", "TOML"),
        ("sequences=3\nseed=4", "TOML"),
        ("longer_lengths=" + "[" * 10**5, "TOML"),
        ("sequenzes=30", "did you mean 'sequences'"),
        ("architectures={lstm={steps=-1}}", "steps must be"),
    ],
    ids=lambda text: text[:20],
)
def test_a_bad_setting_is_refused_at_once(command, tmp_path, setting, words):
    with pytest.raises(ValueError, match=words):
        command("reproduce", "--scale", "tiny", "--set", setting, "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_bad_arguments_are_refused_at_once(command, tmp_path):
    with pytest.raises(ValueError, match="scale must be one of quick, full"):
        command("reproduce", "--scale", "huge", "--out", tmp_path)
    with pytest.raises(ValueError, match="study must be one of trajectory"):
        command("reproduce", "--only", "figure-3", "--out", tmp_path)
    with pytest.raises(ValueError, match="there is no result of memory"):
        command("report", tmp_path, "--redraw", "memory")


QUICK = Path(__file__).parents[1] / "quick"
"""Results of `switchpoint reproduce --scale quick`."""


@pytest.mark.slow
def test_saved_results_have_the_plan_of_the_scale_and_the_findings_hold():
    there = [path.stem for path in (QUICK / "results").glob("*.nc")]
    assert len(there) >= 11
    for name in there:
        assert state(name, QUICK, SCALES["quick"]) == "done", name
        judged = STUDIES[name].judge(load_result(QUICK, name).shown)
        assert {finding.claim for finding in judged if not finding.holds} <= set(DIFFERENCES)


def test_the_measurement_store_keeps_rows_by_their_key(tmp_path):
    run = main_run(TINY, "lstm")
    asked = Measurement(run, "ptw", TestSet("lin", 8, 5))
    rows = {0: np.arange(5.0), 1: np.arange(5.0) + 10}
    store = MeasurementStore(tmp_path)
    store.add(asked, 0, rows)
    for each in (store, MeasurementStore(tmp_path)):  # also from its files
        found = each.find(asked, 0)
        assert list(found) == [0, 1]
        np.testing.assert_array_equal(found[1], rows[1])
        fewer = each.find(Measurement(run, "ptw", TestSet("lin", 8, 3), seeds=1), 0)
        np.testing.assert_array_equal(fewer[0], rows[0][:3])
        assert list(fewer) == [0]
        for other in (
            Measurement(run, "lin", asked.test),
            Measurement(run, "ptw", TestSet("ptw", 8, 5)),
            Measurement(run, "ptw", TestSet("lin", 16, 5)),
            Measurement(run, "ptw", TestSet("lin", 8, 6)),
            Measurement(Run("other", run.config), "ptw", asked.test),
            Measurement(None, "ptw", asked.test),
        ):
            assert each.find(other, 0) == {}
        assert each.find(asked, 1) == {}  # other test sequences
    longer = main_run(TINY.changed({"architectures": {"lstm": {**CELL, "steps": 5}}}), "lstm")
    assert store.find(Measurement(longer, "ptw", asked.test), 0) == {}
    watched = {**CELL, "validation": 20, "report_every": 2}  # decides nothing about the weights
    again = main_run(TINY.changed({"architectures": {"lstm": watched}}), "lstm")
    assert list(store.find(Measurement(again, "ptw", asked.test), 0)) == [0, 1]


@pytest.mark.slow
def test_better_recipes_orphan_nothing(monkeypatch):
    """A result is identified by the plan inside it, not by the defaults of the day."""
    from switchpoint.neural.registry import MODELS

    full = {name: study.plan(SCALES["full"]) for name, study in STUDIES.items()}
    cached_config.cache_clear()
    for name, model in MODELS.items():
        better = replace(model.recipe, learning_rate=1.0, steps=77, warmup=3)
        monkeypatch.setitem(MODELS, name, replace(model, recipe=better))
    assert {name: study.plan(SCALES["full"]) for name, study in STUDIES.items()} == full
    assert state("ablations", QUICK, SCALES["quick"]) == "done"
    cached_config.cache_clear()


@pytest.mark.slow
def test_settings_that_came_later_orphan_nothing(whole, tmp_path):
    """What earlier versions did not write has the default that they had."""
    shutil.copytree(whole, tmp_path / "old")
    path = result_path(tmp_path / "old", "memory")
    result = evaluation.load(path)
    for config in result.attrs["plan"]["runs"].values():
        del config["schedule"]
    evaluation.save(result, path)
    assert state("memory", tmp_path / "old") == "done"
    path.unlink()
    for rows in (tmp_path / "old" / "measurements" / "trained").glob("memoryless*.nc"):
        measured = evaluation.load(rows)
        del measured.attrs["key"]["plan"]["schedule"]
        evaluation.save(measured, rows)
    log = run_studies(tmp_path / "old", ["memory"])
    assert (log.trained, log.notes) == (set(), [])
    assert same(load(tmp_path / "old", "memory"), load(whole, "memory"))


def test_the_best_network_is_one_that_did_not_diverge(tmp_path):
    config = sp.TrainConfig(model="markov", order=1, length=4, seeds=2)
    run, path = Run("run", config), tmp_path / "two.safetensors"
    both = [config.network(jax.random.key(seed)) for seed in (0, 1)]
    members = [
        {"prior": "ptw", "seed": 0, "excess": 0.1, "diverged": True},
        {"prior": "ptw", "seed": 1, "excess": 0.5, "diverged": False},
    ]
    card = {
        "model": "markov",
        "alphabet": 2,
        "length": 4,
        "options": {"order": 1},
        "members": members,
    }
    save_networks(path, both, card)
    networks = Networks()
    networks.add("run", path)
    assert networks.members(run, "ptw")[0] is None
    best = networks.best(run, "ptw")
    for ours, theirs in zip(jax.tree.leaves(best), jax.tree.leaves(both[1]), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ValueError, match="no network of run trained on lin"):
        networks.best(run, "lin")


@pytest.mark.slow
def test_a_new_study_is_one_object_and_one_line_in_the_registry(
    command, whole, tmp_path, monkeypatch, capsys
):
    """The example of CONTRIBUTING: what the LSTM of PTW loses on other lengths."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "STUDY" in b]
    names = {}
    exec(block.replace("LENGTHS = (8, 16, 32)", "LENGTHS = (4, 8)"), names)
    study = names["STUDY"]
    monkeypatch.setitem(STUDIES, study.name, study)
    shutil.copytree(whole / "runs" / "lstm", tmp_path / "runs" / "lstm")
    command("reproduce", "--scale", "tiny", "--only", study.name, "--out", tmp_path)
    result = load(tmp_path, study.name)
    networks = sp.load_members(tmp_path / "runs" / "lstm")[:2]
    source = sp.Source(sp.PTW(3))
    expected = sp.evaluate({"lstm": networks}, source, 8, 30)["regret"].mean("sequence").values[0]
    regret = (result["excess"] + result["optimum_regret"]).sel(length=8, architecture="lstm")
    np.testing.assert_allclose(regret.values, expected, rtol=1e-6)
    page = (tmp_path / "index.html").read_text()
    for text in (study.title, study.question, "Mean excess, bits", *study.claims):
        assert text in page
    assert f'id="figure-{study.name}"' in page
    assert (tmp_path / "figures" / f"{study.name}.pdf").exists()
    capsys.readouterr()
    command("report", tmp_path, "--markdown")
    assert f"| lstm | {float(result['excess_mean'][0, 0]):.3f} |" in capsys.readouterr().out
