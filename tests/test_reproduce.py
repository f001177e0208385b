"""All studies at a tiny scale: complete, resumable, and in agreement with `evaluate`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import typer

import switchpoint as sp
from switchpoint import evaluation
from switchpoint._files import read_json
from switchpoint.cli import reproduce as commands
from switchpoint.experiments import (
    STUDIES,
    Scale,
    Watcher,
    load_result,
    reproduce,
    result_path,
    sizes,
    state_of,
)
from switchpoint.experiments.findings import findings
from switchpoint.experiments.plans import trials_of
from switchpoint.experiments.runs import Runs
from switchpoint.experiments.scales import SOURCES, Ablation

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
    ablations=(Ablation("core", {"model": "lstm", **CELL}),),
    ablation_seeds=1,
    prior_sequences=200,
    deepest=3,
    most_switches=8,
    heat_sequences=10,
    orders=(0,),
    forgetful=SMALL,
    bound_order=3,
    seconds=dict.fromkeys(STUDIES, 1.0),
)


class Log(Watcher):
    """Remembers which studies were begun and which runs were trained."""

    def __init__(self):
        self.begun, self.trained, self.notes = [], set(), []

    def begin(self, study):
        self.begun.append(study)

    def note(self, text):
        self.notes.append(text)

    def doing(self, text, done):
        if text.startswith("training ") and done < 1:
            self.trained.add(text.removeprefix("training "))


class Asked(Runs):
    """Remembers what studies want to know of networks."""

    def __init__(self, directory, watcher):
        super().__init__(directory, watcher)
        self.trials = {}

    def measured(self, run, prior, trial, sequences):
        known = self.trials.setdefault((run.name, prior), {})
        known[trial] = max(sequences, known.get(trial, 0))


def carried_out(out, only=None):
    log = Log()
    log.asked = Asked(out / "runs", log)
    reproduce(TINY, out, only, log, networks=log.asked)
    return log


def same(first, second):
    """Whether two results are the same to the last bit, whatever time they took."""
    return first.drop_attrs().identical(second.drop_attrs())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The directory of all studies, never interrupted."""
    out = tmp_path_factory.mktemp("whole")
    log = carried_out(out)
    assert log.begun == list(STUDIES)
    assert log.trained == {"lstm", "lstm-length-4", "memoryless"}  # the ablation is no other
    check_trials(log.asked.trials)
    return out


def check_trials(asked):
    """What the studies asked is what pieces of training runs are measured on."""
    runs = {run.name: run for study in STUDIES.values() for run in study.runs(TINY)}
    assert asked == {
        (name, prior): {trial.name: trial.sequences for trial in trials_of(TINY, run, prior)}
        for name, run in runs.items()
        for prior in run.config.prior
    }


def test_every_study_has_a_whole_result(whole):
    for name, study in STUDIES.items():
        result = load_result(whole, name)
        assert result.attrs["question"] == study.question
        assert result.attrs["description"] == study.description(TINY)
        provenance = result.attrs["provenance"]
        assert provenance["seed"] == 0
        assert provenance["wall_seconds"] > 0
        for key, variable in result.data_vars.items():
            if variable.dtype.kind == "f" and not key.endswith("deviation"):
                assert np.isfinite(variable.values).all(), (name, key)
    claims = read_json(whole / "results" / "findings.json", findings=list)["findings"]
    assert all(claim["holds"] in (True, False) for claim in claims)
    assert not (whole / "parts").exists()


def test_exact_values_are_those_of_evaluate(whole):
    result = load_result(whole, "on-distribution")
    source = sp.Source(sp.PTW(3))
    predictors = {"lin": sp.bayes_optimal(sp.Source(sp.LIN())), "oracle": sp.KTOracle}
    predictors["optimum"] = sp.bayes_optimal(source)
    summary = sp.summarise(sp.evaluate(predictors, source, 8, 30), "optimum").isel(member=0)
    for name in predictors:
        ours, theirs = result.sel(source="ptw", exact=name), summary.sel(predictor=name)
        assert float(ours["exact_regret"]) == float(theirs["regret"])
        assert float(ours["exact_excess"]) == pytest.approx(float(theirs["excess"]), abs=1e-12)
        assert float(ours["exact_regret_error"]) == pytest.approx(float(theirs["regret_error"]))


def test_results_say_on_how_many_sequences_networks_were_tested(whole):
    for name, count in (
        ("on-distribution", TINY.sequences),
        ("longer-lengths", TINY.longer_sequences),
        ("other-lengths", TINY.other_sequences),
        ("length-512", TINY.heat_sequences),
    ):
        assert load_result(whole, name).attrs["sequences"] == count
    assert "sequences" not in load_result(whole, "trajectory").attrs


def test_networks_are_those_of_the_runs(whole):
    networks = sp.load_members(whole / "runs" / "lstm")
    index = SOURCES.index("lin") * TINY.seeds + 1
    source = sp.Source(sp.PTW(3))
    found = sp.evaluate({"lstm": networks[index]}, source, 8, 30)["regret"].mean()
    result = load_result(whole, "off-distribution")
    cell = result.sel(train_source="lin", test_source="ptw", architecture="lstm", seed=1)
    assert float(cell["regret"]) == pytest.approx(float(found), abs=1e-12)
    own = load_result(whole, "on-distribution")
    for source in SOURCES:
        diagonal = result.sel(train_source=source, test_source=source)
        np.testing.assert_array_equal(diagonal["excess"], own["excess"].sel(source=source))
    ablation = load_result(whole, "ablations").isel(configuration=0)
    assert ablation.sizes["seed"] == TINY.ablation_seeds == 1
    first = own["excess"].sel(source="ptw", architecture="lstm", seed=[0])
    np.testing.assert_array_equal(ablation["excess"], first)
    assert int(ablation["parameters"]) == sum(leaf.size for leaf in jax.tree.leaves(networks[0]))
    lengths = load_result(whole, "longer-lengths").sel(length=8)
    assert lengths["optimum_regret"] > 0
    other = load_result(whole, "other-lengths").sel(length=4)
    np.testing.assert_array_equal(other["own"], other["transferred"])


def test_trajectories_lose_what_their_predictions_say(whole):
    result = load_result(whole, "trajectory")
    true, said = result["probability"], result["prediction"]
    bits = true * np.log2(true / said) + (1 - true) * np.log2((1 - true) / (1 - said))
    np.testing.assert_allclose(bits.transpose(*result["regret"].dims), result["regret"], atol=1e-4)
    np.testing.assert_allclose(result["regret"].cumsum("time"), result["cumulative_regret"])
    moves = result["probability"].diff("time") != 0
    assert not (moves & (result["switches"].isel(time=slice(1, None)) == 0)).any()


def test_sampled_switches_agree_with_their_law(whole):
    result = load_result(whole, "priors")
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


def test_heat_map_is_ordered_by_switches(whole):
    result = load_result(whole, "length-512")
    assert (np.diff(result["switch_count"]) >= 0).all()
    assert result["difference"].dims == ("architecture", "sequence", "time")
    assert result.sizes["time"] == result.attrs["test_length"] == 16
    assert (result["probability"] == result["probability"][0]).all()


def test_nothing_is_done_twice(whole):
    before = {path: path.stat().st_mtime_ns for path in (whole / "results").glob("*.nc")}
    log = carried_out(whole)
    assert (log.begun, log.trained) == ([], set())
    assert before == {path: path.stat().st_mtime_ns for path in (whole / "results").glob("*.nc")}


@pytest.mark.parametrize("damage", ["deleted", "cut", "one bit", "other description"])
def test_one_missing_result_is_one_study_to_do(whole, damage):
    path = result_path(whole, "longer-lengths")
    before = evaluation.load(path)
    if damage == "deleted":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "one bit":
        path.write_bytes(flipped(path.read_bytes(), -20))
    else:
        evaluation.save(before.assign_attrs(description={"study": "longer-lengths"}), path)
    assert state_of(STUDIES["longer-lengths"], TINY, whole) == "partly"  # its networks are there
    log = carried_out(whole)
    assert (log.begun, log.trained) == (["longer-lengths"], set())
    assert len(log.notes) == (damage in ("cut", "one bit"))
    assert all(str(path) in note and "computed again" in note for note in log.notes)
    assert same(evaluation.load(path), before)


@pytest.fixture
def command(monkeypatch):
    """The two commands at the tiny scale, as the command line calls them."""
    monkeypatch.setitem(sizes.SCALES, "tiny", TINY)
    monkeypatch.setattr(commands, "_compile_quickly", lambda: None)
    app = typer.Typer()
    app.command()(commands.reproduce)
    app.command()(commands.figure)

    def run(*arguments):
        return app(args=[str(each) for each in arguments], standalone_mode=False)

    return run


def flipped(data, place):
    """A file's bytes with one bit the other way."""
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


def test_figure_refuses_a_damaged_result(command, whole):
    path = result_path(whole, "memory")
    before = path.read_bytes()
    for damaged in (flipped(before, len(before) // 2), b"", before[:100]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"memory\.nc is"):
            command("figure", "memory", "--out", whole)
    path.write_bytes(before)
    evaluation.save(evaluation.load(path).drop_vars("bound"), path)
    with pytest.raises(ValueError, match=r"memory\.nc lacks .*bound"):
        command("figure", "memory", "--out", whole)
    path.write_bytes(before)


_KILLED = """
import os, signal, sys
sys.path[:0] = {paths!r}
from pathlib import Path
import conftest
import test_reproduce
from switchpoint.experiments import Watcher, reproduce

class Killer(Watcher):
    def doing(self, text, done):
        if text == "evaluating memoryless of lin on lin 8":
            os.kill(os.getpid(), signal.SIGKILL)

reproduce(test_reproduce.TINY, Path({out!r}), {only!r}, Killer())
"""


def test_killed_half_way_it_goes_on_to_the_same_results(whole, tmp_path):
    only = ["priors", "memory"]
    tests = str(Path(__file__).parent)
    paths = [tests, str(Path(sp.__file__).parents[1])]
    script = _KILLED.format(paths=paths, out=str(tmp_path), only=only)
    environment = {**os.environ, "PYTEST_XDIST_WORKER": "killed"}  # shares the compilations
    status = subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode
    assert status == -signal.SIGKILL
    assert [state_of(STUDIES[name], TINY, tmp_path) for name in only] == ["done", "partly"]
    parts = sorted((tmp_path / "parts" / "memory").glob("*.nc"))
    parts[-1].write_bytes(flipped(parts[-1].read_bytes(), -5))
    before = read_json(parts[0].parent / "seconds.json", **TIMES)
    log = carried_out(tmp_path, only)
    assert (log.begun, log.trained) == (["memory"], set())
    (note,) = log.notes
    assert str(parts[-1]) in note
    for name in only:
        assert same(load_result(tmp_path, name), load_result(whole, name))
    # What the killed process took is counted.
    provenance = load_result(tmp_path, "memory").attrs["provenance"]
    assert before["training_seconds"] > 0
    assert provenance["training_seconds"] == round(before["training_seconds"], 3)
    assert provenance["wall_seconds"] > before["seconds"] > 0


TIMES = {"work": str, "seconds": float, "training_seconds": float}


def test_an_unknown_study_is_refused(tmp_path):
    with pytest.raises(ValueError, match="study must be one of"):
        reproduce(TINY, tmp_path, ["figure-3"])


def test_list_shows_cost_and_state(command, whole, tmp_path, capsys):
    command("reproduce", "--scale", "tiny", "--out", whole, "--list")
    rows = capsys.readouterr().out
    assert all(name in rows for name in STUDIES)
    assert rows.count("done") == len(STUDIES)
    command("reproduce", "--scale", "tiny", "--out", tmp_path / "new", "--list")
    assert capsys.readouterr().out.count("to do") == len(STUDIES)
    assert not (tmp_path / "new").exists()


def test_reproduce_draws_and_figure_draws_again(command, whole, capsys):
    command("reproduce", "--scale", "tiny", "--out", whole, "--only", "memory")
    printed = capsys.readouterr()
    assert "all studies are done" in printed.out
    assert printed.out.splitlines()[-1].startswith(str(whole / "index.html"))
    pictures = sorted((whole / "figures").glob("*.png"))
    assert pictures
    before = {path: path.stat().st_mtime_ns for path in pictures}
    command("reproduce", "--scale", "tiny", "--out", whole, "--only", "memory")
    assert before == {path: path.stat().st_mtime_ns for path in pictures}
    command("figure", "memory", "--out", whole)
    drawn = [Path(line) for line in capsys.readouterr().out.splitlines() if "memory" in line]
    assert any(path.suffix == ".png" for path in drawn)
    assert any(
        before.get(path) != path.stat().st_mtime_ns for path in drawn if path.suffix == ".png"
    )


def test_changed_settings_do_not_reuse_other_results(command, whole, capsys):
    options = ("--set", "sequences = 20", "--set", "longer_lengths=[8]", "--list")
    command("reproduce", "--scale", "tiny", "--out", whole, *options)
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.split()}
    assert {name for name in STUDIES if rows[name].rstrip().endswith("done")} == {
        "trajectory",
        "other-lengths",
        "priors",
        "length-512",
    }
    command("reproduce", "--scale", "tiny", "--out", whole, "--first-seed", 7, "--list")
    assert capsys.readouterr().out.count("done") == 1  # priors, which trains nothing


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("sequences", "NAME=VALUE"),
        ("=3", "NAME=VALUE"),
        ("sequences=many", "TOML"),
        ("sequences=3\nseed=4", "TOML"),
        ("longer_lengths=" + "[" * 10**5, "TOML"),
        ("sequenzes=30", "did you mean 'sequences'"),
        ('period="x"', "period must be a whole number"),
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
        command("figure", "memory", "--out", tmp_path)


QUICK = Path(__file__).parent / "quick"
"""What `switchpoint reproduce --scale quick` left; made anew where a study is changed."""


def test_findings_hold_at_quick_scale():
    for name, study in STUDIES.items():
        assert state_of(study, sizes.SCALES["quick"], QUICK) == "done", name
    results = {name: load_result(QUICK, name) for name in STUDIES}
    judged = findings(results)
    assert judged
    assert [finding.claim for finding in judged if finding.holds is not True] == []
    saved = json.loads((QUICK / "results" / "findings.json").read_text())
    assert saved == [finding.fields() for finding in judged]
