"""Training runs as tasks: measurements of any machine, records, a zoo, and what they cost."""

import shutil

import numpy as np
import pytest
from test_studies import TINY, Log, load, same

from switchpoint import evaluation
from switchpoint.paper import STUDIES, commands, reproduce
from switchpoint.paper.base import Measurement
from switchpoint.paper.networks import training_cost
from switchpoint.paper.results import recorded_result, result_path
from switchpoint.paper.scale import TestSet
from switchpoint.paper.store import MeasurementStore
from switchpoint.paper.tasks import measurements_by_run, train_and_measure
from switchpoint.zoo import Zoo

MEASURED = ["on-distribution", "longer-lengths"]
"""Studies that use their networks' measurements alone."""


@pytest.mark.slow
def test_measurements_of_other_machines_need_no_networks(tiny_studies, tmp_path):
    """Copies of the files are enough; a run without them is trained."""
    shutil.copytree(tiny_studies / "measurements", tmp_path / "measurements")
    log = Log()
    reproduce(TINY, tmp_path, MEASURED, log)
    assert log.trained == set()
    assert not (tmp_path / "runs").exists()
    for name in MEASURED:
        assert same(load(tmp_path, name), load(tiny_studies, name))
    for path in (tmp_path / "measurements" / "trained").glob("lstm-*.nc"):
        path.unlink()
    shutil.rmtree(tmp_path / "results")
    reproduce(TINY, tmp_path, MEASURED[:1], log)
    assert log.trained == {"lstm"}
    networks = load(tmp_path, "on-distribution").attrs["provenance"]["networks"]
    assert networks == {"lstm": {**training_cost(tmp_path / "runs" / "lstm"), "members": 8}}
    assert networks["lstm"]["training_seconds"] > 0
    assert {"commit", "jax", "device", "finished", "measuring_seconds"} <= set(networks["lstm"])


@pytest.mark.slow
def test_results_are_recorded_for_the_scale_that_shows_them(
    tiny_studies, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(commands.SCALES, "full", TINY)
    for name in MEASURED:  # recording in parts adds to what is there
        part = tmp_path / name
        shutil.copytree(tiny_studies / "results", part / "results")
        for path in (part / "results").iterdir():
            if path.stem != name:
                path.unlink()
        commands.record(part, tmp_path / "recorded")
        assert capsys.readouterr().out == f"{tmp_path / 'recorded' / name}.nc\n"
    for name in MEASURED:
        recorded = recorded_result(tmp_path / "recorded", name)
        assert recorded.read_bytes() == result_path(tiny_studies, name).read_bytes()
    assert len(list((tmp_path / "recorded").glob("*.nc"))) == 2
    monkeypatch.setitem(commands.SCALES, "full", TINY.replace(first_seed=1))
    with pytest.raises(ValueError, match="is not a result of scale full"):
        commands.record(tiny_studies, tmp_path / "recorded")
    with pytest.raises(ValueError, match="there are no results in"):
        commands.record(tmp_path / "none", tmp_path / "recorded")


@pytest.mark.slow
def test_a_zoo_is_built_from_the_networks_of_the_main_runs(
    tiny_studies, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(commands.SCALES, "full", TINY)
    commands.build_zoo(tiny_studies, tmp_path / "zoo", 50)
    assert "4 networks" in capsys.readouterr().out
    card = Zoo(tmp_path / "zoo").card("lstm-lin")
    assert card["chosen"]["candidates"] == 2
    cost = training_cost(tiny_studies / "runs" / "lstm")
    assert card["provenance"]["training"] == cost


@pytest.mark.slow
def test_networks_are_not_trained_again_after_a_measurement_that_fails(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("out of memory")

    wanted = measurements_by_run(TINY, [STUDIES["memory"]])["memoryless"]
    run = wanted[0].run
    task = TINY, run, wanted, tmp_path / "runs", tmp_path / "measurements"
    with monkeypatch.context() as patch:
        patch.setattr("switchpoint.paper.context.regrets", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            train_and_measure(*task, Log())
    log = Log()
    train_and_measure(*task, log)
    assert log.trained == set()
    store = MeasurementStore(tmp_path / "measurements")
    assert all(set(store.find(each, TINY.seed)) == set(run.seeds) for each in wanted)


def test_a_file_that_is_no_measurement_is_refused_by_name(tmp_path):
    measurement = Measurement(None, "optimum", TestSet("ptw", 8, 3))
    MeasurementStore(tmp_path / "store").add(measurement, 0, {0: np.arange(3.0)})
    (path,) = (tmp_path / "store").iterdir()
    for attributes, words in (({"kind": "sweep"}, "is not a measurement"), ({"format": 7}, "7")):
        evaluation.save(evaluation.load(path).assign_attrs(attributes), tmp_path / path.name)
        with pytest.raises(ValueError, match=rf"{path.name}.* {words}"):
            MeasurementStore(tmp_path / "none").read(tmp_path / path.name)


def test_measurements_are_taken_once_for_all_studies():
    wanted = measurements_by_run(TINY, STUDIES.values())["lstm"]
    tests = {(each.trained_on, each.test.source, each.test.length) for each in wanted}
    assert len(tests) == len(wanted)
    assert ("ptw", "ptw", 16) in tests  # longer-lengths
    assert ("lin", "regular", 8) in tests  # off-distribution
    assert ("lin", "ptw", 16) not in tests
