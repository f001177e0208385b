"""Sweeps: what varies, how it is packed, and results that are those of single runs."""

import numpy as np
import pytest

import switchpoint as sp
from switchpoint import evaluation
from switchpoint._progress import Progress
from switchpoint.cli.main import main
from switchpoint.training import TrainConfig, read_sweep, sweep, train
from switchpoint.training.packing import pack
from switchpoint.training.sweep import Sweep

SETTINGS = {"model": "rnn", "readout": 0, "length": 4, "batch": 4, "steps": 20, "warmup": 0}
SETTINGS |= {"validation": 20, "report_every": 10, "seeds": 2}
AXES = {"hidden": [4, 8], "learning_rate": [0.01, 0.03], "clip_norm": [0.1, 1.0]}


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def text_of(axes):
    settings = (f"{n} = {value!r}".replace("'", '"') for n, value in SETTINGS.items())
    return [*settings, "[sweep]", *(f"{name} = {values}" for name, values in axes.items())]


def test_a_grid_has_every_combination(tmp_path):
    plan = read_sweep(write(tmp_path / "grid.toml", *text_of(AXES)))
    assert len(plan.configs) == 8
    found = {(c.hidden, c.learning_rate, c.clip_norm) for c in plan.configs}
    assert found == {(h, (lr,), clip) for h in (4, 8) for lr in (0.01, 0.03) for clip in (0.1, 1.0)}
    assert all(config.steps == 20 for config in plan.configs)


def test_draws_are_of_their_ranges_and_the_same_for_a_seed(tmp_path):
    lines = [
        "draws = 200",
        "learning_rate = {low = 1e-4, high = 1e-2, log = true}",
        "hidden = {low = 4, high = 9}",
        'optimizer = ["adam", "muon"]',
    ]
    settings = [line for line in text_of({}) if "hidden" not in line]
    path = write(tmp_path / "draws.toml", *settings, *lines)
    points = read_sweep(path).points()
    rates = np.array([point["learning_rate"] for point in points])
    assert len(points) == 200
    assert 1e-4 <= rates.min() < rates.max() <= 1e-2
    # Half of them are below the geometric mean; five standard deviations of a fair coin.
    assert abs(np.mean(rates < 1e-3) - 0.5) < 5 * 0.5 / 200**0.5
    assert {point["hidden"] for point in points} == set(range(4, 10))
    assert {point["optimizer"] for point in points} == {"adam", "muon"}
    assert read_sweep(path).points() == points
    assert read_sweep(path, draws=7).points() == points[:7]
    other = write(tmp_path / "other.toml", *settings, "seed = 1", *lines)
    assert read_sweep(other).points() != points


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["steps = 5"], [r"bad\.toml", r"\[sweep\]"]),
        (["steps = 5", "[sweep]", "learning_rat = [1.0]"], ["line 3", "learning_rate"]),
        (["[sweep]", "hidden = 8"], ["line 2", "hidden", "8"]),
        (["[sweep]", "hidden = {low = 9, high = 4}"], ["line 2", "low < high"]),
        (["[sweep]", "hidden = {low = 4, high = 9}"], ["hidden", "draws"]),
        (["[sweep]", "hidden = [8, -1]"], ["line 2", "hidden", "-1"]),
        (["hidden = 8", "[sweep]", "hidden = [4]"], ["line 1", "both"]),
        (["[sweep]", "draws = 100000000000", "hidden = [4]"], ["line 2", "draws", "10000"]),
        (["[other]", "hidden = [4]", "[sweep]", "seeds = [1]"], ["line 1", "other"]),
        (["[sweep"], [r"bad\.toml", "TOML"]),
    ],
)
def test_a_bad_file_is_named_with_the_line(tmp_path, capsys, lines, words):
    path = write(tmp_path / "bad.toml", *lines)
    for word in words:
        with pytest.raises(ValueError, match=word):
            read_sweep(path)
    assert main(["sweep", str(path), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_members_that_share_shapes_share_a_program():
    configs = Sweep(settings=SETTINGS, axes=AXES).configs
    programs = pack(configs, 40)
    assert [program.hidden for program in programs] == [4, 8]
    for program in programs:
        members = program.members()
        assert [member.index for member in members] == list(range(8))
        assert len({member.label for member in members}) == 8
        assert {member.settings for member in members} == {
            (("clip_norm", 0.1),),
            (("clip_norm", 1.0),),
        }
    assert [len(program.members()) for program in pack(configs, 4)] == [4, 4, 4, 4]
    assert len(pack(configs, 1)) == len(configs)  # a configuration is not divided
    assert len({program.digest() for program in pack(configs, 2)}) == len(configs)


class Log(Progress):
    def __init__(self):
        self.trained = []

    def update(self, text, _):
        self.trained.append(text)


@pytest.mark.slow
def test_a_sweep_is_single_runs_sorted_and_is_not_done_twice(tmp_path, capsys):
    axes = {"learning_rate": [0.01, 0.03], "hidden": [4]}
    path = write(tmp_path / "sweep.toml", *text_of(axes))
    log = Log()
    result = sweep(path, tmp_path / "out", listener=log, tensorboard=True)
    assert log.trained
    excess = result["excess"].values
    assert len(excess) == 4
    assert np.all(np.diff(excess) >= 0)
    np.testing.assert_array_equal(result["excess_by_step"].sel(step=20), excess)
    assert result["step"].values.tolist() == [10, 20]
    for rate in (0.01, 0.03):
        alone = train(TrainConfig(**SETTINGS, hidden=4, learning_rate=rate), progress=False)
        own = result.isel(member=result["learning_rate"].values == rate).sortby("seed")
        np.testing.assert_allclose(own["excess"], alone.reports[-1].excess, rtol=1e-3)
    assert evaluation.load(tmp_path / "out" / "sweep.nc").identical(result)
    (program,) = (tmp_path / "out" / "programs").iterdir()
    assert len(sp.load_members(program)) == 4
    assert list((program / "tensorboard").iterdir())
    log.trained.clear()
    before = (tmp_path / "out" / "sweep.nc").read_bytes()
    assert main(["sweep", str(path), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "4 in 1 program" in printed
    assert printed.index(f"{excess[0]:.3f}") < printed.index(f"{excess[-1]:.3f}")
    assert (tmp_path / "out" / "sweep.nc").read_bytes() == before
    again = sweep(path, tmp_path / "out", listener=log)
    assert log.trained == []
    assert again.identical(result)
