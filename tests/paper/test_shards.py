"""A study from shards: the same numbers as of whole runs, from measurements of any machine."""

import shutil

import numpy as np
import pytest
from test_studies import TINY, Log, load, same

from switchpoint import evaluation
from switchpoint.paper import STUDIES, commands, reproduce
from switchpoint.paper.base import divide, main_run
from switchpoint.paper.cost import Stopwatch, training_cost
from switchpoint.paper.results import recorded_result, result_path
from switchpoint.paper.shards import Shard, measurements_by_run, train_and_measure
from switchpoint.paper.store import MeasurementStore
from switchpoint.zoo import Zoo
from switchpoint.zoo.manifest import SOURCES

RUN = main_run(TINY, "lstm")
LSTM_STUDIES = ["mean-regret", "on-distribution", "off-distribution", "longer-lengths", "ablations"]
MEASURED = ["on-distribution", "longer-lengths"]
"""Studies that use their networks' measurements alone."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """The studies from networks in two shards."""
    out = tmp_path_factory.mktemp("shards")
    reproduce(TINY, out, LSTM_STUDIES, shard_members=4)
    return out


@pytest.mark.slow
def test_studies_from_shards_are_those_of_whole_runs(tiny_studies, shards):
    parts = {"lstm.ptw_lin.0-1", "lstm.regular_uniform.0-1"}
    assert {path.name for path in (shards / "runs").iterdir()} == parts
    for name in LSTM_STUDIES:
        ours, theirs = load(shards, name), load(tiny_studies, name)
        assert ours.attrs["plan"] == theirs.attrs["plan"]
        for variable in theirs.data_vars:
            if theirs[variable].dtype.kind == "f":
                np.testing.assert_allclose(ours[variable], theirs[variable], atol=2e-4)
    networks = load(shards, "on-distribution").attrs["provenance"]["networks"]
    assert set(networks) == parts
    for name, each in networks.items():
        assert each == {**training_cost(shards / "runs" / name), "members": 4}
        assert each["training_seconds"] > 0
        assert {"commit", "jax", "device", "finished", "measuring_seconds"} <= set(each)


@pytest.mark.slow
def test_measurements_of_other_machines_need_no_networks(shards, tmp_path):
    """Copies of the files are enough; a shard without them is trained."""
    shutil.copytree(shards / "measurements", tmp_path / "measurements")
    log = Log()
    reproduce(TINY, tmp_path, MEASURED, log)
    assert log.trained == set()
    assert not (tmp_path / "runs").exists()
    for name in MEASURED:
        assert same(load(tmp_path, name), load(shards, name))
    for path in (tmp_path / "measurements" / "trained").glob("lstm.ptw_lin*.nc"):
        path.unlink()
    shutil.rmtree(tmp_path / "results")
    reproduce(TINY, tmp_path, MEASURED, log, shard_members=4)
    assert log.trained == {"lstm.ptw_lin.0-1"}


@pytest.mark.slow
def test_results_are_recorded_for_the_scale_that_shows_them(shards, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(commands.SCALES, "full", TINY)
    for name in MEASURED:  # recording in parts adds to what is there
        part = tmp_path / name
        shutil.copytree(shards / "results", part / "results")
        for path in (part / "results").iterdir():
            if path.stem != name:
                path.unlink()
        commands.record(part, tmp_path / "recorded")
        assert capsys.readouterr().out == f"{tmp_path / 'recorded' / name}.nc\n"
    for name in MEASURED:
        recorded = recorded_result(tmp_path / "recorded", name)
        assert recorded.read_bytes() == result_path(shards, name).read_bytes()
    assert len(list((tmp_path / "recorded").glob("*.nc"))) == 2
    monkeypatch.setitem(commands.SCALES, "full", TINY.replace(first_seed=1))
    with pytest.raises(ValueError, match="is not a result of scale full"):
        commands.record(shards, tmp_path / "recorded")
    with pytest.raises(ValueError, match="there are no results in"):
        commands.record(tmp_path / "none", tmp_path / "recorded")


@pytest.mark.slow
def test_a_zoo_is_built_from_the_networks_of_the_main_runs(shards, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(commands.SCALES, "full", TINY)
    commands.build_zoo(shards, tmp_path / "zoo", 50)
    assert "4 networks" in capsys.readouterr().out
    card = Zoo(tmp_path / "zoo").card("lstm-lin")
    assert card["chosen"]["candidates"] == 2
    cost = training_cost(shards / "runs" / "lstm.ptw_lin.0-1")
    assert card["provenance"]["training"] == cost


@pytest.mark.slow
def test_networks_are_not_trained_again_after_a_measurement_that_fails(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("out of memory")

    shard = Shard.of(TINY, RUN, divide(RUN, 1)[0], measurements_by_run(TINY, STUDIES.values()))
    directories = tmp_path / "runs", tmp_path / "measurements"
    with monkeypatch.context() as patch:
        patch.setattr("switchpoint.paper.context.regrets", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            train_and_measure(shard, *directories, Log())
    log = Log()
    train_and_measure(shard, *directories, log)
    assert log.trained == set()
    assert shard.is_measured(MeasurementStore(directories[1]))


def test_a_file_that_is_no_measurement_is_refused_by_name(tiny_studies, tmp_path):
    path = next((tiny_studies / "measurements" / "trained").glob("*.nc"))
    for attributes, words in (({"kind": "sweep"}, "is not a measurement"), ({"format": 7}, "7")):
        evaluation.save(evaluation.load(path).assign_attrs(attributes), tmp_path / path.name)
        with pytest.raises(ValueError, match=rf"{path.name}.* {words}"):
            MeasurementStore(tmp_path / "none").read(tmp_path / path.name)


def test_a_shard_takes_every_measurement_of_the_studies_once():
    part = divide(RUN, 2)[0]
    assert [(m.prior, m.seed) for m in part.config.members()] == [("ptw", 0), ("ptw", 1)]
    assert part.config.period is None
    assert part.config.steps == RUN.config.steps
    wanted = measurements_by_run(TINY, STUDIES.values())
    asked = [Shard.of(TINY, RUN, each, wanted).measurements for each in divide(RUN, 2)[:2]]
    tests = {(each.trained_on, each.test.source, each.test.length) for own in asked for each in own}
    assert len(tests) == sum(map(len, asked))
    assert ("ptw", "ptw", 16) in tests  # longer-lengths
    assert ("lin", "regular", 8) in tests  # off-distribution
    assert ("lin", "ptw", 16) not in tests


def test_the_division_of_a_run_depends_on_the_number_of_members_alone():
    def cut(members):
        return [(part.config.prior, [*part.seeds]) for part in divide(RUN, members)]

    assert divide(RUN) == divide(RUN, 8) == [RUN]
    assert cut(4) == [(SOURCES[:2], [0, 1]), (SOURCES[2:], [0, 1])]
    assert cut(3) == cut(2) == [((source,), [0, 1]) for source in SOURCES]
    assert cut(1) == [((source,), [seed]) for source in SOURCES for seed in (0, 1)]
    assert len({part.name for part in divide(RUN, 1)}) == 8


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
