"""`switchpoint train`: every field is an option, and the options become the configuration."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from switchpoint import training
from switchpoint.cli import main
from switchpoint.cli.train import train
from switchpoint.training.config import TrainConfig
from switchpoint.training.metrics_log import EvalRecord

app = typer.Typer(rich_markup_mode="markdown", add_completion=False, pretty_exceptions_enable=False)
app.command()(train)


class Engine:
    """Stands in for the training: remembers what it was asked for, and ends at once."""

    def __init__(self):
        self.calls = []
        self.has_all_cores = False
        self.step = None

    def use_all_cores(self):
        self.has_all_cores = True

    def __call__(self, config, **others):
        self.calls.append((config, others))
        members = config.members()
        bits = tuple(1.25 + member.index for member in members)
        report = EvalRecord(
            step=self.step or config.steps,
            loss=tuple(0.5 + member.index / 10 for member in members),
            excess=bits,
            excess_error=tuple(excess / 100 for excess in bits),
            diverged=(1,) if len(members) > 2 else (),
        )
        path = Path(others["out"], "model.safetensors")
        return SimpleNamespace(members=members, reports=(report,), path=path)


@pytest.fixture
def engine(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    engine = Engine()
    monkeypatch.setattr(training, "train", engine)
    # The real one would stay in force for the tests that come after.
    monkeypatch.setattr(training, "use_all_cores", engine.use_all_cores)
    return engine


def run(*arguments):
    app(args=[str(each) for each in arguments], prog_name="switchpoint", standalone_mode=False)


def configured(engine, *arguments):
    """The configuration that a command line stands for."""
    run(*arguments, "--out", "run", "--quiet")
    return engine.calls[-1][0]


def option_of(name):
    return "--" + name.replace("_", "-")


def arguments_for(settings):
    """The options with these settings."""
    for name, value in settings.items():
        for each in value if isinstance(value, list) else [value]:
            yield from (option_of(name), each)


# --- options are fields ----------------------------------------------------------------------

SETTINGS = [
    {
        "model": "stack-rnn",
        "hidden": 5,
        "readout": 0,
        "stack_depth": 3,
        "stack_width": 2,
        "prior": ["geometric", "ptw", "regular", "uniform"],
        "depth": 7,
        "split": 0.25,
        "period": 9,
        "longest": 11,
        "hazard": 0.125,
        "alpha": 2.0,
        "beta": 3.0,
        "length": 64,
        "seeds": 3,
        "first_seed": 12,
        "learning_rate": [0.5, 0.25],
        "steps": 70,
        "batch": 6,
        "schedule": "constant",
        "warmup": 13,
        "clip_norm": 0.75,
        "optimizer": "adam",
        "b2": 0.625,
        "tbptt_length": 16,
        "min_length": 17,
        "report_every": 19,
        "validation": 23,
    },
    {
        "model": "transformer",
        "layers": 2,
        "positions": "alibi",
        "context": 6,
        "width": 24,
        "heads": 3,
        "matrix_decay": 0.25,
    },
    {"model": "lru", "state_size": 6},
    {"model": "markov", "order": 4, "alphabet": 3, "concentration": 1.5},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings["model"])
def test_options_are_the_fields(engine, settings):
    assert configured(engine, *arguments_for(settings)) == TrainConfig(**settings)


def test_these_settings_cover_every_field():
    covered = set().union(*SETTINGS) | {"pmf"}  # which comes from a file, see below
    assert covered == set(TrainConfig.model_fields)
    for settings in SETTINGS:
        config, defaults = TrainConfig(**settings), TrainConfig(model=settings["model"])
        assert config.differences(defaults).keys() >= settings.keys() - {"model"}


def test_the_pmf_is_read_from_a_file(engine, tmp_path):
    (tmp_path / "law.txt").write_text("0.25, 0.25\n0.5\n")
    config = configured(engine, "--prior", "renewal", "--pmf", "law.txt")
    assert config == TrainConfig(prior="renewal", pmf=(0.25, 0.25, 0.5))
    (tmp_path / "bad.txt").write_text("0.25 0.25")
    with pytest.raises(ValueError, match=r"bad.txt: pmf must sum to one, got a sum of 0.5"):
        run("--prior", "renewal", "--pmf", "bad.txt", "--out", "run")


def test_options_win_over_the_file(engine, tmp_path):
    (tmp_path / "run.toml").write_text(
        'model = "rnn"\nhidden = 32\nprior = ["lin", "ptw"]\nlearning_rate = [0.1, 0.2]\nseeds = 4'
    )
    config = configured(
        engine, "--config", "run.toml", "--hidden", 16, "--learning-rate", 0.5, "--seeds", 1
    )
    assert config == TrainConfig(
        model="rnn", hidden=16, prior=("lin", "ptw"), learning_rate=(0.5,), seeds=1
    )


def test_the_budget_and_the_kernels_are_no_fields(engine, capsys):
    assert configured(engine) == TrainConfig()
    assert (engine.calls[-1][1]["minutes"], engine.calls[-1][1]["kernels"]) == (None, "auto")
    assert configured(engine, "--minutes", 2.5, "--kernels", "plain") == TrainConfig()
    assert (engine.calls[-1][1]["minutes"], engine.calls[-1][1]["kernels"]) == (2.5, "plain")
    engine.step = 7
    capsys.readouterr()
    run("--out", "run", "--minutes", 1)
    assert f"after 7 of {TrainConfig().steps:,} steps" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_quiet_shows_damaged_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "use_all_cores", lambda: None)
    settings = {"model": "memoryless", "length": 4, "batch": 2, "steps": 2, "validation": 2}
    command = ["train", *map(str, arguments_for(settings)), "--out", "run", "--quiet"]
    assert main(command) == 0
    assert main(command) == 0  # it is complete, and that is no fault
    assert capsys.readouterr().err == ""
    (checkpoint,) = Path("run/checkpoints").iterdir()
    checkpoint.write_bytes(b"")
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert out == "run/model.safetensors\n"
    assert str(checkpoint) in err
    assert "starting again from step 0" in err


# --- output ----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
def test_help_explains_every_field(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    run("--help")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    flat = re.sub(r"[\s│]+", " ", " ".join(lines))
    for name, field in TrainConfig.model_fields.items():
        assert f" {option_of(name)} " in flat
        assert field.description.rstrip(".") in flat
    assert re.search("--kernels BACKEND .* on a CPU .* slow.* agree to about 0.002", flat)
    for default in ["256", "auto", "cosine", "by model"]:
        assert f"[default: {default}]" in flat
    panels = [line.split()[1] for line in lines if line.startswith("╭")]
    assert panels == ["Options", "Model", "Data", "Optimizer", "Run"]
