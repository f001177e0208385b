"""The scale zoo: shipped networks measured here, beside recorded results of all seeds."""

from dataclasses import replace

import numpy as np
import pytest
from test_reproduce import TINY

import switchpoint as sp
from switchpoint import evaluation
from switchpoint.experiments import (
    SCALES,
    STUDIES,
    load_result,
    reproduce,
    result_path,
    state_of,
)
from switchpoint.experiments.drawn import Drawn
from switchpoint.experiments.scales import changed
from switchpoint.experiments.shipped import RECORDED, Shipped, record
from switchpoint.report import write_report
from switchpoint.zoo import Zoo, build

RUN_AT_FULL = ["on-distribution", "longer-lengths", "memory"]
MADE = ["trajectory", "mean-regret", "on-distribution", "longer-lengths", "memory"]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A zoo of LSTMs and some results, made at the tiny scale in place of the full one."""
    directory = tmp_path_factory.mktemp("shipped")
    reproduce(TINY, directory / "full", RUN_AT_FULL)
    build([directory / "full" / "runs" / "lstm"], Zoo(directory / "zoo"), 50)
    return Shipped(directory / "zoo", directory / "full" / "results")


@pytest.fixture(scope="module")
def scale(shipped):
    return replace(TINY, name="zoo", seeds=1, sequences=20, longer_sequences=10, shipped=shipped)


@pytest.fixture(scope="module")
def out(scale, tmp_path_factory):
    directory = tmp_path_factory.mktemp("report")
    only = [*MADE, "other-lengths"]
    made = reproduce(scale, directory, only)
    assert [outcome.study.name for outcome in made] == MADE
    assert not (directory / "runs").exists()
    return directory


def test_recorded_seeds_stand_beside_what_is_measured_here(out, shipped):
    result, recorded = load_result(out, "on-distribution"), shipped.result("on-distribution")
    for name in recorded.data_vars:
        np.testing.assert_array_equal(result[name], recorded[name])
    assert result.sizes["seed"] == 2
    network, source = Zoo(shipped.zoo).network("lstm-lin"), sp.Source(sp.LIN())
    predictors = {"net": network, "optimum": sp.bayes_optimal(source)}
    expected = sp.summarise(sp.evaluate(predictors, source, 8, 20), "optimum").isel(member=0)
    cell = result.sel(source="lin", architecture="lstm")
    for name in ("regret", "regret_error", "excess", "excess_error"):
        value = float(expected[name].sel(predictor="net"))
        assert float(cell[f"here_{name}"]) == pytest.approx(value, abs=1e-9)
    about = result.attrs["recorded"]
    assert (about["sequences"], about["here_sequences"], about["scale"]) == (30, 20, "tiny")
    assert (result.attrs["scale"], result.attrs["sequences"]) == ("zoo", 30)
    assert about["provenance"]["command"] == ""
    lengths = load_result(out, "longer-lengths")
    assert lengths["here_excess"].dims == ("length", "architecture")
    assert lengths.attrs["recorded"]["here_sequences"] == 10


def test_what_needs_other_networks_is_the_recorded_result(out, shipped):
    result, recorded = load_result(out, "memory"), shipped.result("memory")
    assert result.drop_attrs().identical(recorded.drop_attrs())
    assert result.attrs["recorded"]["here_sequences"] is None
    assert result.attrs["description"] != recorded.attrs["description"]


def test_what_was_not_recorded_is_not_run(out, scale):
    assert state_of(STUDIES["other-lengths"], scale, out) == "not run"
    assert not result_path(out, "other-lengths").exists()
    assert {state_of(STUDIES[name], scale, out) for name in MADE} == {"done"}


def test_without_recorded_results_the_networks_are_measured_alone(scale, shipped, tmp_path):
    bare = replace(scale, shipped=replace(shipped, recorded=tmp_path / "none"))
    made = reproduce(bare, tmp_path, ["on-distribution", "memory"])
    (result,) = [outcome.result for outcome in made]
    assert result.sizes["seed"] == 1
    assert "here_excess" not in result
    assert "recorded" not in result.attrs


def test_other_networks_or_results_are_other_work(out, scale, shipped, tmp_path):
    changed = tmp_path / "recorded"
    changed.mkdir()
    for path in shipped.recorded.glob("*.nc"):
        (changed / path.name).write_bytes(path.read_bytes())
    other = replace(scale, shipped=replace(shipped, recorded=changed))
    assert state_of(STUDIES["on-distribution"], other, out) == "done"
    one = evaluation.load(changed / "memory.nc")
    evaluation.save(one.assign_attrs(title="another"), changed / "memory.nc")
    assert state_of(STUDIES["on-distribution"], other, out) == "to do"


def test_what_the_shipped_files_fix_cannot_be_changed(scale, tmp_path):
    for name, value in (("period", 3), ("seeds", 2), ("first_seed", 5), ("orders", [0, 1])):
        with pytest.raises(ValueError, match=f"{name} cannot be changed at scale zoo"):
            changed(scale, {name: value})
    with pytest.raises(ValueError, match=r"longer_lengths .* 8, 16, got 12"):
        changed(scale, {"longer_lengths": [8, 12]})
    assert changed(scale, {"longer_lengths": [16], "sequences": 5}).longer_lengths == (16,)
    with pytest.raises(ValueError, match="trained with period 2, got 3"):
        reproduce(replace(scale, period=3), tmp_path, ["mean-regret"])


def test_a_recorded_result_that_is_not_the_one_of_the_manifest_is_refused(shipped, tmp_path):
    for path in shipped.recorded.glob("*.nc"):
        record(path, tmp_path)
    copied = replace(shipped, recorded=tmp_path)
    assert copied.result("memory").identical(shipped.result("memory"))
    evaluation.save(copied.result("memory").assign_attrs(title="another"), tmp_path / "memory.nc")
    with pytest.raises(ValueError, match=r"memory\.nc is damaged"):
        copied.result("memory")
    (tmp_path / "on-distribution.nc").unlink()
    with pytest.raises(ValueError, match=r"on-distribution\.nc is missing"):
        copied.result("on-distribution")
    assert copied.result("ablations") is None  # was never recorded
    (tmp_path / "manifest.json").write_text("null")
    with pytest.raises(ValueError, match=r"manifest\.json is damaged"):
        copied.result("longer-lengths")


@pytest.mark.parametrize("study", [path.stem for path in RECORDED.glob("*.nc")])
def test_the_packaged_results_are_those_of_their_manifest(study):
    assert Shipped().result(study) is not None


def test_the_report_tells_recorded_from_measured(out):
    drawn = Drawn(out)
    for name in MADE:
        drawn.draw(name, load_result(out, name))
    page = write_report(out).read_text()
    assert "Dots, bands and numbers of all seeds are recorded results (30 sequences" in page
    assert "measured on this machine on 20 sequences" in page
    assert "measured on this machine on 10 sequences" in page
    assert "zoo, here: " in page
    assert "Recorded results, not computed on this machine" in page
    assert page.count("Not run: no results of it are recorded.") == len(STUDIES) - len(MADE)
    assert "switchpoint reproduce --scale full --only other-lengths" in page
    assert "on-distribution, recorded" in page


def test_an_incomplete_zoo_is_refused_before_anything_is_done(tmp_path):
    empty = replace(SCALES["zoo"], shipped=Shipped(tmp_path / "zoo", tmp_path))
    with pytest.raises(ValueError, match=r"needs 20 trained networks .* 20 of them are not there"):
        reproduce(empty, tmp_path / "out")


REFERENCE = {"ptw": 12.16, "lin": 28.30, "regular": 25.04, "uniform": 13.12}
"""The optimum's regret by an independent program, on 20,000 other sequences in float64."""


def test_the_packaged_results_agree_with_the_reference_and_reach_the_goal():
    found = evaluation.load(RECORDED / "on-distribution.nc")
    assert found.sizes["seed"] == 10
    assert found["excess"].notnull().all()
    optimum = found["exact_regret"].sel(exact="optimum")
    error = found["exact_regret_error"].sel(exact="optimum")
    for source, bits in REFERENCE.items():
        # The reference has twice the sequences, and so half the variance.
        assert abs(optimum.sel(source=source) - bits) < 3 * 1.5**0.5 * error.sel(source=source)
    assert (found["excess_median"] < 0.01 * optimum).all()
    lin = found["exact_regret"].sel(source="uniform", exact="lin")
    assert (found["regret"].sel(source="uniform").max() < lin - 2).item()


def test_the_packaged_results_are_of_the_full_scale():
    assert {path.stem for path in RECORDED.glob("*.nc")} >= {
        "on-distribution",
        "off-distribution",
        "longer-lengths",
        "regret-by-index",
        "other-lengths",
        "ablations",
        "memory",
    }
    for path in RECORDED.glob("*.nc"):
        found = evaluation.load(path)
        assert found.attrs["description"] == STUDIES[path.stem].description(SCALES["full"])
        made = found.attrs["provenance"]
        if STUDIES[path.stem].runs(SCALES["full"]):
            assert all(each["commit"] for each in made["networks"].values())
    zoo, full = SCALES["zoo"], SCALES["full"]
    assert (zoo.length, zoo.period) == (full.length, full.period)
    assert set(zoo.longer_lengths) < set(full.longer_lengths)
    assert zoo.shipped is not None
