"""A study from pieces: the same numbers as of whole runs, resumable, nothing filled in."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from test_reproduce import CELL, TINY, same

import switchpoint as sp
from switchpoint import evaluation
from switchpoint.evaluation import regrets
from switchpoint.experiments import STUDIES, Watcher, load_result, reproduce
from switchpoint.experiments.assembled import Pieces
from switchpoint.experiments.pieces import carry_out, piece_of
from switchpoint.experiments.plans import ablation_run, length_runs, main_run
from switchpoint.experiments.scales import SOURCES, Ablation
from switchpoint.experiments.stopwatch import Stopwatch
from switchpoint.report import write_report
from switchpoint.report.origin import _seeds

SCALE = replace(TINY, ablations=(Ablation("core", {"model": "lstm", **CELL}),))
BOTH = {"lstm": SCALE.architectures["lstm"], "rnn": CELL}
RUN = main_run(SCALE, "lstm")
ALL_OF_LSTM = ["mean-regret", "on-distribution", "off-distribution", "longer-lengths", "ablations"]


class Log(Watcher):
    def __init__(self):
        self.said = []

    def doing(self, text, _):
        self.said.append(text)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The studies of the LSTM, from a run of all members."""
    out = tmp_path_factory.mktemp("whole")
    reproduce(SCALE, out, ALL_OF_LSTM)
    return out


CUTS = [(("ptw", "lin"), range(2)), (("regular", "uniform"), range(1)), (SOURCES[2:], range(1, 2))]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """The same networks in three pieces."""
    work, out = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("out")
    for priors, seeds in CUTS:
        paths = carry_out(SCALE, RUN, piece_of(RUN, priors, seeds), work, out, Watcher())
        assert all(path.stat().st_size < 16 * 2**20 for path in paths)
    return work, out


def test_studies_from_pieces_are_those_of_whole_runs(whole, pieces, tmp_path):
    reproduce(SCALE, tmp_path, ALL_OF_LSTM, networks=Pieces(pieces[1], SCALE.seed))
    assert not (tmp_path / "runs").exists()
    for name in ALL_OF_LSTM:
        ours, theirs = load_result(tmp_path, name), load_result(whole, name)
        assert ours.attrs["description"] == theirs.attrs["description"]
        for variable in theirs.data_vars:
            if theirs[variable].dtype.kind == "f":
                np.testing.assert_allclose(ours[variable], theirs[variable], atol=2e-4)
    assert set(load_result(whole, "on-distribution").attrs["provenance"]) & {"networks"} == set()
    made = load_result(tmp_path, "on-distribution").attrs["provenance"]["networks"]
    assert set(made) == {"lstm.ptw_lin.0-1", "lstm.regular_uniform.0-0", "lstm.regular_uniform.1-1"}
    for each in made.values():
        assert each["device"] == jax.devices()[0].device_kind
        assert each["training_seconds"] > 0
        assert {"commit", "jax", "finished", "measuring_seconds"} <= set(each)


def test_seeds_that_were_not_run_are_named_and_nothing_is_filled_in(pieces, whole, tmp_path):
    for path in pieces[1].iterdir():
        if ".1-1." not in path.name:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    studies = ["on-distribution", "longer-lengths"]
    reproduce(SCALE, tmp_path / "report", studies, networks=Pieces(tmp_path, SCALE.seed))
    some, all_there = (load_result(out, studies[0]) for out in (tmp_path / "report", whole))
    assert some.attrs["not_run"] == {"lstm": {"regular": [1], "uniform": [1]}}
    assert "not_run" not in all_there.attrs
    excess = some["excess"].sel(architecture="lstm")
    present = excess.notnull()
    for source in SOURCES:
        there = 1 if source in ("regular", "uniform") else 2
        assert present.sel(source=source).values.tolist() == [True, there == 2]
    np.testing.assert_allclose(
        some["excess_median"].sel(source="regular", architecture="lstm"),
        all_there["excess"].sel(source="regular", architecture="lstm", seed=0),
        atol=2e-4,
    )
    # A study of networks that are all there lacks nothing.
    assert "not_run" not in load_result(tmp_path / "report", studies[1]).attrs
    text = write_report(tmp_path / "report").read_text()
    assert "Not run: LSTM on Regular, seed 1; LSTM on Random Uniform, seed 1." in text


def test_ablations_do_without_networks_that_were_not_run(pieces, tmp_path):
    other = Ablation("core", {"model": "lstm", **CELL, "hidden": 5})
    never = Ablation("core", {"model": "lstm", **CELL, "hidden": 6})
    scale = replace(SCALE, ablations=(*SCALE.ablations, other, never))
    with pytest.raises(ValueError, match="no piece that is for ablations alone"):
        Pieces(pieces[1], SCALE.seed).check_study(STUDIES["ablations"], scale)
    for path in pieces[1].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    run = ablation_run(scale, other)
    piece = piece_of(run, ("ptw",), range(1))
    carry_out(scale, run, piece, tmp_path / "work", tmp_path, Watcher())
    some = Pieces(tmp_path, SCALE.seed)
    some.check_study(STUDIES["ablations"], scale)
    reproduce(scale, tmp_path / "report", ["ablations"], networks=some)
    found = load_result(tmp_path / "report", "ablations")
    assert found["hidden"].values.tolist() == [CELL["hidden"], 5]
    lacking = ablation_run(scale, never).name
    assert found.attrs["not_run"][lacking] == {"ptw": list(range(scale.ablation_seeds))}


def test_lengths_leave_out_architectures_that_were_not_run(pieces, tmp_path):
    """Their own lengths are missing, though the main run is there."""
    with pytest.raises(ValueError, match="no piece that is for other-lengths alone"):
        Pieces(pieces[1], SCALE.seed).check_study(STUDIES["other-lengths"], SCALE)
    for path in pieces[1].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    scale = replace(SCALE, other_architectures=("lstm", "rnn"), architectures=BOTH)
    for run in length_runs(replace(scale, other_architectures=("lstm",))):
        if run != main_run(scale, "lstm"):
            piece = piece_of(run, ("ptw",), range(SCALE.seeds))
            carry_out(scale, run, piece, tmp_path / "work", tmp_path, Watcher())
    reproduce(scale, tmp_path / "report", ["other-lengths"], networks=Pieces(tmp_path, SCALE.seed))
    found = load_result(tmp_path / "report", "other-lengths")
    assert found["architecture"].values.tolist() == ["lstm"]
    assert {name.split("-")[0] for name in found.attrs["not_run"]} == {"rnn"}
    assert np.isfinite(found["own_mean"]).all()


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([1], "seed 1"), ([3, 4, 5], "seeds 3 to 5"), ([0, 2], "seeds 0 and 2")],
)
def test_seeds_are_named_as_people_do(numbers, text):
    assert _seeds(numbers) == text


def test_a_network_without_any_piece_is_refused(pieces, tmp_path):
    for path in pieces[1].iterdir():
        if ".regular_uniform." not in path.name:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    some = Pieces(tmp_path, SCALE.seed)
    with pytest.raises(ValueError, match="there is no piece of lstm on regular"):
        some.check(RUN)
    with pytest.raises(ValueError, match="there is no piece of lstm on regular"):
        reproduce(SCALE, tmp_path / "report", ["on-distribution"], networks=some)
    assert not (tmp_path / "report" / "results" / "on-distribution.nc").exists()


def test_what_is_no_piece_is_refused_by_name(pieces, tmp_path):
    one = evaluation.load(next(pieces[1].glob("*.nc")))
    whole = one.attrs
    for about in ({**whole, "config": "none"}, {**whole, "config": {"steps": "x"}}, {"config": {}}):
        evaluation.save(one.drop_attrs().assign_attrs(about), tmp_path / "piece.nc")
        with pytest.raises(ValueError, match=r"piece\.nc is no piece of a training run"):
            Pieces(tmp_path, SCALE.seed)


def test_pieces_of_another_configuration_are_refused(pieces):
    other = replace(SCALE, architectures={"lstm": {**CELL, "steps": 5}})
    with pytest.raises(ValueError, match="another configuration of lstm"):
        Pieces(pieces[1], SCALE.seed).check(main_run(other, "lstm"))
    with pytest.raises(ValueError, match="must be measured with the seed 1"):
        Pieces(pieces[1], 1)


def test_networks_outlive_a_measurement_that_fails(pieces, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("out of memory")

    piece = piece_of(RUN, ("ptw",), range(1))
    monkeypatch.setattr("switchpoint.experiments.pieces.regrets", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        carry_out(SCALE, RUN, piece, tmp_path / "work", tmp_path / "out", Watcher())
    there = {path.name for path in (tmp_path / "out").iterdir()}
    assert there == {"lstm.ptw.0-0.jsonl", "lstm.ptw.0-0.0.safetensors"}
    first = sp.load_members(pieces[1] / "lstm.ptw_lin.0-1.0.safetensors")[0]
    (again,) = sp.load_members(tmp_path / "out" / "lstm.ptw.0-0.0.safetensors")
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_the_tables_say_what_the_results_do(pieces, tmp_path):
    reproduce(SCALE, tmp_path, ["on-distribution"], networks=Pieces(pieces[1], SCALE.seed))
    result = load_result(tmp_path, "on-distribution")
    table = Path(__file__).parent.parent / "study" / "table.py"
    lines = printed(table, tmp_path / "results")
    (lstm,) = [line for line in lines if line.startswith("| lstm |")]
    own = result.sel(architecture="lstm")
    for source in SOURCES:
        seeds = own["excess"].sel(source=source).values
        assert f"{np.median(seeds):.3f} (" in lstm
        assert f"), {seeds.min():.3f} to {seeds.max():.3f} |" in lstm
    made = result.attrs["provenance"]["networks"]
    minutes = sum(each["training_seconds"] for each in made.values()) / 60
    assert sum(line.split(" | ")[0].removeprefix("| ") in made for line in lines) == 3
    assert any(line.startswith(f"| all |  |  | {minutes:.1f} |") for line in lines)


def test_a_finished_piece_is_not_done_again(pieces, tmp_path):
    work, out = pieces
    priors, seeds = CUTS[0]
    log = Log()
    piece = piece_of(RUN, priors, seeds)
    carry_out(SCALE, RUN, piece, work, tmp_path, log)
    assert log.said == []
    assert same(
        evaluation.load(tmp_path / f"{piece.name}.nc"), evaluation.load(out / f"{piece.name}.nc")
    )
    (work / piece.name / "measured" / "lin_on_ptw_8-30.nc").unlink()
    carry_out(SCALE, RUN, piece, work, tmp_path, log)
    assert set(log.said) == {"measuring lin_on_ptw_8"}


def test_only_priors_and_seeds_of_the_run_make_a_piece():
    piece = piece_of(RUN, ("lin",), range(1, 2))
    assert [(m.prior, m.seed) for m in piece.config.members()] == [("lin", 1)]
    assert piece.config.period is None
    assert piece.config.steps == RUN.config.steps
    with pytest.raises(ValueError, match="prior of lstm must be one of ptw, lin"):
        piece_of(RUN, ("geometric",), range(1))
    with pytest.raises(ValueError, match="seeds of lstm must be among 0 to 1, got 0 to 2"):
        piece_of(RUN, ("lin",), range(3))


def test_members_at_once_have_the_regret_of_evaluate(pieces):
    networks = sp.load_members(pieces[0] / "lstm.ptw_lin.0-1")[:3]
    source = sp.Source(sp.PTW(3))
    expected = sp.evaluate({"all": networks}, source, 8, 270)["regret"].values[0]
    np.testing.assert_allclose(regrets(networks, source, 8, 270, 0), expected, atol=1e-5)


def test_a_stopwatch_goes_on_and_counts_no_idle_time(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    first = Stopwatch(tmp_path / "seconds", Watcher())
    clock[0] += 7
    first.doing("x", 0.5)  # then it is killed
    clock[0] += 100
    second = Stopwatch(tmp_path / "seconds", Watcher())
    second.doing("x", 0.6)
    clock[0] += 2
    assert second.stop() == pytest.approx(9)
    idle = Stopwatch(tmp_path / "seconds", Watcher())
    clock[0] += 50
    assert idle.stop() == pytest.approx(9)


def test_a_stopwatch_tells_training_from_the_rest_and_one_work_from_another(tmp_path, monkeypatch):
    clock, trained = [100.0], [5.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def begun(work, trained):
        stopwatch = Stopwatch(tmp_path / "seconds", Watcher(), work, lambda: trained[0])
        stopwatch.begin("memory")
        return stopwatch

    first = begun("a study", trained)
    clock[0], trained[0] = 110, 11.0
    first.doing("training x", 0.5)  # then it is killed, and another process trains from the start
    second = begun("a study", [0.0])
    clock[0] += 3
    assert second.stop() == pytest.approx(4 + 3)
    assert second.training_seconds == pytest.approx(6)
    assert begun("another", [0.0]).stop() == 0


def test_a_damaged_stopwatch_is_named_and_starts_anew(tmp_path):
    path, watcher, said = tmp_path / "seconds", Watcher(), []
    watcher.note = said.append
    path.write_text("[" * 10**5)
    stopwatch = Stopwatch(path, watcher)
    assert (stopwatch.seconds, len(said)) == (0, 1)
    assert str(path) in said[0]


def printed(*command):
    """The lines that a script prints."""
    environment = {**os.environ, "PYTHONPATH": str(Path(sp.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, *command], env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.splitlines()


def test_the_scripts_explain_themselves():
    listed = printed(Path(__file__).parent.parent / "study" / "piece.py", "--list")
    (lstm,) = [line for line in listed if line.startswith("lstm:")]
    assert "40 members" in lstm
    assert "on-distribution" in lstm


def test_bad_seeds_are_refused_in_words():
    study = Path(__file__).parent.parent / "study" / "piece.py"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        printed(study, "lstm", "--seeds", "first")
    assert caught.value.returncode == 2
    assert caught.value.stderr.endswith("as 0-4, got 'first'\n")


def test_jumps_are_found_in_the_reports(tmp_path):
    rows = [
        {"step": step, "excess": [*of_ptw, *of_lin]}
        for step, of_ptw, of_lin in (
            (5, (2.0, 1.0), (0.5, 0.5)),
            (10, (1.0, 3.0), (0.75, 0.25)),
            (15, (1.25, 0.5), (0.5, 0.5)),
        )
    ]
    path = tmp_path / "lstm.ptw_lin.3-4.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    script = Path(__file__).parent.parent / "study" / "jumps.py"
    assert printed(script, path) == [
        "lstm on ptw, seed 4: +2.00 by step 10, ended at 0.500",
        "lstm on ptw, seed 3: +0.25 by step 15, ended at 1.250",
    ]
    assert printed(script, path, "--prior", "lin")[0].startswith("lstm on lin, seed 4: +0.25 by")
