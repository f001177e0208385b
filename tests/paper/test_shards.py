"""A study from shards: the same numbers as of whole runs, resumable, nothing filled in."""

import re

import equinox as eqx
import jax
import numpy as np
import pytest
import xarray as xr
from test_studies import CELL, TINY, load, same

import switchpoint as sp
from switchpoint import evaluation
from switchpoint._progress import Progress
from switchpoint.neural import load_with_card, read_card, save_networks
from switchpoint.paper import SCALES, STUDIES, commands, reproduce
from switchpoint.paper.base import main_run
from switchpoint.paper.networks import ShardNetworks, shard
from switchpoint.paper.pipeline import can_compute
from switchpoint.paper.progress import Stopwatch
from switchpoint.paper.recording import complete
from switchpoint.paper.report import write_report
from switchpoint.paper.results import read_result
from switchpoint.paper.scale import RECORDED, Ablation
from switchpoint.paper.shards import Shard, all_runs, measurements_by_run, train_shard
from switchpoint.paper.store import MeasurementStore
from switchpoint.zoo.building import candidates, lowest_excess
from switchpoint.zoo.manifest import SOURCES

SCALE = TINY
RUN = main_run(SCALE, "lstm")
LSTM_STUDIES = ["mean-regret", "on-distribution", "off-distribution", "longer-lengths", "ablations"]


class Log(Progress):
    def __init__(self):
        self.said, self.notes = [], []

    def update(self, text, _):
        self.said.append(text)

    def note(self, text):
        self.notes.append(text)


def networks(directory, scale=SCALE):
    return ShardNetworks(directory, all_runs(scale))


def make_shard(scale, run, part, work, out, log=None, best_only=False):
    return train_shard(scale, run, part, work, out, best_only, log or Progress())


def copy(source, target, *without):
    for path in source.iterdir():
        if path.is_file() and not any(text in path.name for text in without):
            (target / path.name).write_bytes(path.read_bytes())


CUTS = [(("ptw", "lin"), range(2)), (("regular", "uniform"), range(1)), (SOURCES[2:], range(1, 2))]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """The same networks in three shards."""
    work, out = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("out")
    for sources, seeds in CUTS:
        paths = make_shard(SCALE, RUN, shard(RUN, sources, seeds), work, out)
        assert all(path.stat().st_size < 16 * 2**20 for path in paths)
    return work, out


@pytest.mark.slow
def test_studies_from_shards_are_those_of_whole_runs(tiny_studies, shards, tmp_path):
    reproduce(SCALE, tmp_path, LSTM_STUDIES, networks=networks(shards[1]))
    assert not (tmp_path / "runs").exists()
    for name in LSTM_STUDIES:
        ours, theirs = load(tmp_path, name), load(tiny_studies, name)
        assert ours.attrs["plan"] == theirs.attrs["plan"]
        for variable in theirs.data_vars:
            if theirs[variable].dtype.kind == "f":
                np.testing.assert_allclose(ours[variable], theirs[variable], atol=2e-4)
    assert set(load(tiny_studies, "on-distribution").attrs["provenance"]) & {"networks"} == set()
    made = load(tmp_path, "on-distribution").attrs["provenance"]["networks"]
    assert set(made) == {"lstm.ptw_lin.0-1", "lstm.regular_uniform.0-0", "lstm.regular_uniform.1-1"}
    for each in made.values():
        assert each["device"] == jax.devices()[0].device_kind
        assert each["training_seconds"] > 0
        assert {"commit", "jax", "finished", "measuring_seconds"} <= set(each)


@pytest.mark.slow
def test_a_shard_may_leave_the_weights_of_its_best_networks_alone(shards, tmp_path):
    """The choice by validation stays the same, and so does everything that was measured."""
    work, whole = shards
    for sources, seeds in CUTS:
        part = shard(RUN, sources, seeds)
        _, _, *files = make_shard(SCALE, RUN, part, work, tmp_path, best_only=True)
        (found,) = map(read_card, files)
        assert [each["prior"] for each in found["members"]] == list(sources)
        ours, theirs = (evaluation.load(each / f"{part.name}.nc") for each in (tmp_path, whole))
        assert ours.drop_attrs().identical(theirs.drop_attrs())
    for source in SOURCES:
        ours, theirs = (networks(each).best(RUN, source) for each in (tmp_path, whole))
        assert eqx.tree_equal(ours, theirs)
    ours, theirs = (candidates(each.glob("*.safetensors")) for each in (tmp_path, whole))
    for name, rivals in theirs.items():
        assert lowest_excess(ours[name]).excess == lowest_excess(rivals).excess
        assert sum(each.among for each in ours[name]) == len(rivals)


@pytest.mark.slow
def test_missing_seeds_are_named_and_nothing_is_filled_in(shards, tmp_path):
    copy(shards[1], tmp_path, ".1-1.")
    studies = ["on-distribution", "longer-lengths"]
    reproduce(SCALE, tmp_path / "report", studies, networks=networks(tmp_path))
    some = load(tmp_path / "report", studies[0])
    assert some.attrs["missing_runs"] == {"lstm": {"regular": [1], "uniform": [1]}}
    present = some["excess"].sel(architecture="lstm").notnull()
    for source in SOURCES:
        both = source not in ("regular", "uniform")
        assert present.sel(source=source).values.tolist() == [True, both]
    one = some.sel(source="regular", architecture="lstm")
    assert float(one["excess_median"]) == float(one["excess"].sel(seed=0))
    # A study of networks that are all there lacks nothing.
    assert "missing_runs" not in load(tmp_path / "report", studies[1]).attrs
    text = write_report(tmp_path / "report").read_text()
    assert "Not run: LSTM on Regular, seed 1; LSTM on Random Uniform, seed 1." in text


@pytest.mark.slow
def test_a_study_that_allows_it_leaves_missing_runs_out(shards, tmp_path):
    other = Ablation(part="core", settings={"model": "lstm", **CELL, "hidden": 5})
    never = Ablation(part="core", settings={"model": "lstm", **CELL, "hidden": 6})
    scale = SCALE.replace(ablations=(*SCALE.ablations, other, never))
    study = STUDIES["ablations"]
    assert not can_compute(study, scale, networks(shards[1], scale))  # no run of its own
    copy(shards[1], tmp_path, ".regular_uniform.")
    assert not can_compute(STUDIES["on-distribution"], scale, networks(tmp_path, scale))
    copy(shards[1], tmp_path)
    runs = study.runs(scale)
    run, missing = runs["ablation-" + other.name.replace(" ", "-")], list(runs)[-1]
    make_shard(scale, run, shard(run, ("ptw",), range(1)), tmp_path / "work", tmp_path)
    some = networks(tmp_path, scale)
    assert can_compute(study, scale, some)
    reproduce(scale, tmp_path / "report", ["ablations"], networks=some)
    found = load(tmp_path / "report", "ablations")
    assert found["hidden"].values.tolist() == [CELL["hidden"], 5]
    assert found.attrs["missing_runs"][missing] == {"ptw": list(range(scale.ablation_seeds))}


@pytest.mark.slow
def test_parts_are_completed_to_the_result_of_all_shards_at_once(
    shards, tmp_path, monkeypatch, capsys
):
    """Recorded results keep the runs of earlier shards, which need not be there any more."""
    model = {"model": "lstm", **CELL}
    more = [Ablation(part="core", settings={**model, "hidden": hidden}) for hidden in (5, 6)]
    scale = SCALE.replace(ablations=(more[1], *SCALE.ablations, more[0]))
    study = STUDIES["ablations"]
    monkeypatch.setitem(SCALES, "tiny", scale)
    for module in ("commands", "pipeline", "recording"):
        monkeypatch.setattr(f"switchpoint.paper.{module}.STUDIES", {"ablations": study})
    recorded = tmp_path / "recorded"
    monkeypatch.setattr(commands, "RECORDED", recorded)
    first, second, all_at_once = (tmp_path / name for name in ("first", "second", "all"))
    for each in (first, second, all_at_once):
        each.mkdir()
    copy(shards[1], first)
    names = [f"ablation-lstm-hidden-{hidden}-readout-0" for hidden in (5, 6)]
    commands.train([names[0]], out=first, work=tmp_path / "work", scale="tiny")
    capsys.readouterr()
    commands.merge(first, tmp_path / "1", recorded, "tiny")
    assert capsys.readouterr().out == "ablations: done, without 1 of its runs\n"
    commands.train(scale="tiny")
    listed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in listed if "not recorded" in line] == [names[1]]

    commands.train(missing=True, out=second, work=tmp_path / "work", scale="tiny")
    assert {path.name.split(".")[0] for path in second.iterdir()} == {names[1]}
    capsys.readouterr()
    commands.merge(second, tmp_path / "2", recorded, "tiny")
    assert capsys.readouterr().out == "ablations: done\n"
    for each in (first, second):
        copy(each, all_at_once)
    commands.merge(all_at_once, tmp_path / "3", tmp_path / "others", "tiny")
    ours, theirs = (
        evaluation.load(each / "ablations.nc") for each in (recorded, tmp_path / "others")
    )
    assert ours.drop_attrs(deep=False).identical(theirs.drop_attrs(deep=False))
    assert ours["hidden"].values.tolist() == [6, CELL["hidden"], 5]
    assert "missing_runs" not in ours.attrs
    ours, theirs = (load(tmp_path / each, "ablations").attrs["provenance"] for each in "23")
    assert set(ours["networks"]) == set(theirs["networks"])
    capsys.readouterr()
    commands.train(missing=True, out=second, scale="tiny")
    assert capsys.readouterr().out == "Recorded results have all of these runs.\n"


@pytest.mark.parametrize("study", ["ablations", "other-lengths"])
def test_a_result_in_two_parts_is_completed_to_itself(study):
    """Cut along the first dimension of its grids; a seed that diverged stays so."""
    whole = read_result(RECORDED / f"{study}.nc", study)
    scale, dimension = SCALES["full"], {"ablations": "configuration"}.get(study, "architecture")
    labels = whole[dimension].values.tolist()
    name = "excess" if study == "ablations" else "own"
    whole = whole.copy(deep=True)
    whole[name][{dimension: 0, "seed": 3}] = np.nan
    missing = {name: {} for name in whole.attrs.get("missing_runs", {})}
    runs = {name: {} for name in STUDIES[study].runs(scale)}
    first = whole.sel({dimension: labels[1::-1]}).assign_attrs(missing_runs=runs)
    second = whole.assign({name: whole[name].fillna(0.0)}).assign_attrs(missing_runs=missing)
    strings = [name for name in first.data_vars if first[name].dtype.kind in "OU"]
    first = first.assign({name: first[name].astype(str) for name in strings})
    again = complete(STUDIES[study], scale, first, second)
    rest = labels[2:]
    assert again[dimension].values.tolist() == labels
    for part, expected in ((labels[:2], whole), (rest, second)):
        ours, theirs = (each.sel({dimension: part}).drop_attrs() for each in (again, expected))
        assert ours.broadcast_equals(theirs)
    assert again[name].dims == whole[name].dims
    numbers = [name for name in first.data_vars if name not in strings]
    assert all(again[name].dtype == whole[name].dtype for name in numbers)
    assert again.attrs.get("missing_runs", {}) == missing


def test_recorded_results_are_completed_by_whole_runs():
    scale = SCALE.replace(ablation_seeds=2)
    name = scale.ablations[0].name
    some = xr.Dataset(
        coords={"configuration": [name]}, attrs={"missing_runs": {"lstm": {"ptw": [1]}}}
    )
    with pytest.raises(ValueError, match=r"lack seeds 1 of lstm on ptw"):
        complete(STUDIES["ablations"], scale, some, some)


@pytest.mark.slow
def test_a_file_that_is_no_shard_is_refused_by_name(shards, tmp_path):
    one = evaluation.load(next(shards[1].glob("*.nc")))
    evaluation.save(one.drop_attrs().assign_attrs(rows=[]), tmp_path / "shard.nc")
    with pytest.raises(ValueError, match=r"shard\.nc is not a file of measurements"):
        MeasurementStore(tmp_path / "none").merge(tmp_path / "shard.nc")
    card, members = load_with_card(next(shards[1].glob("*.safetensors")))
    del card["run"]
    save_networks(tmp_path / "run.0.safetensors", members, card)
    with pytest.raises(ValueError, match=r"run\.0\.safetensors is of the run None"):
        networks(tmp_path)


@pytest.mark.slow
def test_shards_of_another_configuration_are_refused(shards):
    other = SCALE.replace(architectures={"lstm": {**CELL, "steps": 5}})
    with pytest.raises(ValueError, match="another configuration of lstm"):
        networks(shards[1], other)


@pytest.mark.slow
def test_networks_outlive_a_measurement_that_fails(shards, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("out of memory")

    part = shard(RUN, ("ptw",), range(1))
    monkeypatch.setattr("switchpoint.paper.context.regrets", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        make_shard(SCALE, RUN, part, tmp_path / "work", tmp_path / "out")
    there = {path.name for path in (tmp_path / "out").iterdir()}
    assert there == {"lstm.ptw.0-0.jsonl", "lstm.ptw.0-0.0.safetensors"}
    first = sp.load_members(shards[1] / "lstm.ptw_lin.0-1.0.safetensors")[0]
    (again,) = sp.load_members(tmp_path / "out" / "lstm.ptw.0-0.0.safetensors")
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.slow
def test_a_finished_shard_is_not_done_again(shards, tmp_path):
    work, out = shards
    sources, seeds = CUTS[0]
    log = Log()
    part = shard(RUN, sources, seeds)
    make_shard(SCALE, RUN, part, work, tmp_path, log)
    assert log.said == []
    ours, theirs = (evaluation.load(each / f"{part.name}.nc") for each in (tmp_path, out))
    assert same(ours, theirs)
    assert ours.attrs["rows"] == theirs.attrs["rows"]
    next((work / part.name / "measurements").glob("*.nc")).unlink()
    make_shard(SCALE, RUN, part, work, tmp_path, log)
    assert len(set(log.said)) == 1
    assert log.said[0].startswith("evaluating lstm")


def test_a_shard_takes_every_measurement_of_the_studies_once():
    part = shard(RUN, ("ptw", "lin"), range(1))
    asked = Shard.of(SCALE, RUN, part, measurements_by_run(SCALE)).measurements
    tests = {(each.trained_on, each.test.source, each.test.length) for each in asked}
    assert len(tests) == len(asked)
    assert ("ptw", "ptw", 16) in tests  # longer-lengths
    assert ("lin", "regular", 8) in tests  # off-distribution
    assert ("lin", "ptw", 16) not in tests


def test_only_sources_and_seeds_of_the_run_make_a_shard():
    part = shard(RUN, ("lin",), range(1, 2))
    assert [(m.prior, m.seed) for m in part.config.members()] == [("lin", 1)]
    assert part.config.period is None
    assert part.config.steps == RUN.config.steps
    with pytest.raises(ValueError, match="prior of lstm must be one of ptw, lin"):
        shard(RUN, ("geometric",), range(1))
    with pytest.raises(ValueError, match="seeds of lstm must be among 0 to 1, got 0 to 2"):
        shard(RUN, ("lin",), range(3))


@pytest.mark.slow
def test_the_commands_train_merge_and_build(shards, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(SCALES, "tiny", SCALE)
    monkeypatch.setattr(commands, "STUDIES", {"on-distribution": STUDIES["on-distribution"]})
    commands.train(scale="full")
    lines = [line for line in capsys.readouterr().out.splitlines() if "on-distribution" in line]
    members = [line.split(": ")[1] for line in lines if line.startswith("lstm")]
    assert sum(int(each.split(" members")[0]) for each in members) == 40
    for names, seeds, text in ((["lstm"], "first", "'first'"), (["rmm"], None, "'rmm'")):
        with pytest.raises(ValueError, match=text):
            commands.train(names, seeds=seeds, scale="tiny", out=tmp_path / "none")
    monkeypatch.setattr(
        "switchpoint.paper.pipeline.STUDIES", {"on-distribution": STUDIES["on-distribution"]}
    )
    merge = {"out": tmp_path / "full", "recorded": tmp_path / "recorded", "scale": "tiny"}
    commands.merge(shards[1], **merge)
    assert "on-distribution: done" in capsys.readouterr().out
    recorded = tmp_path / "recorded" / "on-distribution.nc"
    assert same(evaluation.load(recorded), load(tmp_path / "full", "on-distribution"))
    with pytest.raises(ValueError, match="no shards"):
        commands.merge(tmp_path / "recorded" / "none", **merge)
    (tmp_path / "some").mkdir()
    copy(shards[1], tmp_path / "some", ".regular_uniform.")
    commands.merge(tmp_path / "some", **{**merge, "out": tmp_path / "again"})
    assert "on-distribution: as recorded before" in capsys.readouterr().out
    files = sorted(shards[1].glob("*.safetensors"))
    commands.build_zoo(files, tmp_path / "zoo", 50)
    assert "4 networks" in capsys.readouterr().out


def test_a_list_of_runs_heeds_the_other_options(monkeypatch, capsys):
    monkeypatch.setattr(commands, "unrecorded_runs", lambda *_: {})
    for options, words in (
        ({"executor": "slurm"}, "'slurm'"),
        ({"ray_address": "10.0.0.1:6379"}, "ray-address"),
        ({"prior": ["geometry"]}, "'geometry'"),
        ({"seeds": "first"}, "'first'"),
        ({"seeds": "0-"}, "'0-'"),
        ({"seeds": "90-99"}, "90 to 99"),
    ):
        with pytest.raises(ValueError, match=words):
            commands.train(scale="quick", **options)
    assert capsys.readouterr().out == ""
    commands.train(scale="quick", seeds="1", prior=["lin"])
    printed = capsys.readouterr().out
    assert re.search(r"^lstm: 1 member x \d+ steps on lin;", printed, re.M)
    assert "ablation" not in printed  # which have ptw and seed 0 alone


def test_a_stopwatch_resumes_and_counts_no_idle_time(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    path = tmp_path / "seconds"
    for _ in range(2):  # the second process continues after the first is killed
        stopwatch = Stopwatch(path)
        clock[0] += 100
        stopwatch.update("x", 0.5)
        clock[0] += 7
        stopwatch.update("x", 0.6)
    assert Stopwatch(path).seconds == pytest.approx(14)
    idle = Stopwatch(path)
    clock[0] += 50
    idle.save()
    assert idle.seconds == pytest.approx(14)
    path.write_text("[" * 10**5)
    log = Log()
    assert Stopwatch(path, log).seconds == 0
    assert str(path) in log.notes[0]
