"""Generated command lines, most of them wrong: each ends with a status and at most one line."""

import io
import os
import random
import sys

import numpy as np
import pytest
from typer.main import get_command

from switchpoint.cli import main
from switchpoint.cli.app import PANELS, load_command
from switchpoint.paper import commands as paper_commands

NUMBERS = ["0", "1", "2", "3", "-1", "0.5", "-0.0", "1e-320", "1e999", "nan", "-inf", "1_0", "٣",
           "2147483648", "4294967296", "9" * 20, "9" * 400, "0x10", "1e3", "+2"]  # fmt: skip
TEXTS = ["", " ", "-", "--", "ü", "\u202e", "\x1b[31m", "a\nb", "[/x]", "[bold]", "{}", "%s", "\\",
         "=", "=x", "x=", "kt=lin", "a" * 5000, "\udcff", "😀", "lin", "ptw", "regular", "uniform",
         "geometric", "renewal", "kt", "oracle", "optimum", "lstm-ptw", "lstm-pwt", "csv", "json",
         "zoo", "memory", "auto", "lstm", "adam"]  # fmt: skip
PATHS = ["none", "none/x.csv", ".", "..", "loop", "loop.csv", "loop.png", "folder.csv",
         "bits.txt", "bits.txt/x.csv",
         "empty.txt", "noise.npy", "noise.npz", "noise.safetensors", "deep.toml", "noise.toml",
         "table.csv", "numbers.csv", "noise.parquet", "half.npy", "pmf.txt",
         "a" * 300 + ".csv", "new.csv", "new.npz", "new.nc",
         "new.png", "new.gif", "ü.json", "\x1b[31m.csv", os.devnull]  # fmt: skip
# What a command needs before anything else can be wrong.
USUAL = {"detect": ["numbers.csv"], "watch": ["numbers.csv"], "predict": ["bits.txt"],
         "compress": ["bits.txt"], "decompress": ["noise.npy"], "prior": ["lin"],
         "train": ["--out", "run"], "sweep": ["sweep.toml"]}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files of all kinds; and the numerical work is left out, so that a line takes no time."""

    def enough(*_, **__):
        raise ValueError("the work would begin now")

    for name in ("detect.detect_changes", "watch._first_lines", "sample.Source", "predict.analyse",
                 "compress.make_archive", "evaluate.evaluation.evaluate", "zoo.check",
                 "train.training.train", "sweep.training.sweep"):  # fmt: skip
        monkeypatch.setattr(f"switchpoint.cli.{name}", enough)
    for name in ("StudyRunner.run", "build"):
        monkeypatch.setattr(f"switchpoint.paper.commands.{name}", enough)
    monkeypatch.setattr("switchpoint.cli.train.training.use_all_cores", lambda: None)
    monkeypatch.chdir(tmp_path)
    noise = random.Random(0).randbytes(500)
    for kind in ("npy", "npz", "parquet", "safetensors", "toml"):
        (tmp_path / f"noise.{kind}").write_bytes(noise)
    (tmp_path / "deep.toml").write_text("steps = " + "[" * 5000)
    (tmp_path / "sweep.toml").write_text("[sweep]\nlearning_rate = [0.1, 0.2]\n")
    (tmp_path / "bits.txt").write_text("0110100110010110")
    (tmp_path / "table.csv").write_text("a,b\n0,1\n1,0\n")
    (tmp_path / "numbers.csv").write_text("year,x\n2000,1.5\n2001,\n2002,-3e5\n")
    (tmp_path / "pmf.txt").write_text("0.5 0.5")
    (tmp_path / "empty.txt").touch()
    np.save(tmp_path / "half.npy", np.array([0, 0.5]))
    (tmp_path / "folder.csv").mkdir()
    for name in ("loop", "loop.csv", "loop.png"):
        (tmp_path / name).symlink_to(name)
    return tmp_path


def kind_of(parameter):
    """The type of a parameter as text; Typer keeps it here or there, by its version."""
    return str(getattr(parameter, "type_descriptor", getattr(parameter, "type", ""))).lower()


def value_for(parameter, chance):
    """A value that might be meant for a parameter, by its name, or any other."""
    likely = {"int": NUMBERS, "float": NUMBERS, "path": PATHS, "str": TEXTS}
    fitting = [values for name, values in likely.items() if name in kind_of(parameter)]
    if fitting and chance.random() < 0.8:
        return chance.choice(fitting[0])
    return chance.choice(chance.choice([NUMBERS, TEXTS, PATHS]))


def command_line(chance, commands):
    """A command with some of its own options, and now and then with others."""
    slow = set(commands) - {"detect", "sample", "predict", "train", "evaluate", "prior"}
    (name,) = chance.choices(list(commands), [0.2 if each in slow else 1 for each in commands])
    arguments = [name]
    if chance.random() < 0.9:
        arguments += USUAL.get(name, [])
    parameters = commands[name]
    weights = [4 if "path" in kind_of(each) else 1 for each in parameters]
    for parameter in chance.choices(parameters, weights, k=chance.choice([0, 1, 1, 1, 2, 2, 4])):
        option = next((each for each in parameter.opts if each.startswith("--")), None)
        if option is not None and chance.random() < 0.95:
            arguments.append(option)
        if option is None or not getattr(parameter, "is_flag", False):
            arguments.append(value_for(parameter, chance))
    if chance.random() < 0.1:
        odd = [*TEXTS, "--nothing", "--help", "-h", "--out", "--no-cache", "-x", "--version"]
        arguments.insert(chance.randrange(len(arguments) + 1), chance.choice(odd))
    return arguments


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def try_lines(folder, capsys, monkeypatch, count, seed):
    commands = {name: load_command(name).params for panel in PANELS.values() for name in panel}
    paper = get_command(paper_commands.app).commands
    commands |= {name: command.params for name, command in paper.items()}
    chance, before, statuses = random.Random(seed), contents(folder), []
    for index in range(count):
        line = command_line(chance, commands)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"0110")))
        options = {"application": "switchpoint.paper.commands"} if line[0] in paper else {}
        status = main(list(line), **options)
        err = capsys.readouterr().err
        what = f"line {index}: {line}: {status} {err}"
        assert status in (0, 1, 2), what
        assert "Traceback" not in err, what
        if status == 2:
            assert err.startswith("switchpoint: "), what
            assert err.count("\n") == 1, what
            assert err[:-1].isprintable(), what
            assert contents(folder) == before, what
        before = contents(folder)
        assert not list(folder.rglob(".*.tmp")), what
        statuses.append(status)
    assert statuses.count(2) > count / 2
    assert statuses.count(0) > 0


@pytest.mark.slow
def test_generated_command_lines(folder, capsys, monkeypatch):
    try_lines(folder, capsys, monkeypatch, 60, seed=26)


@pytest.mark.fuzz
def test_many_generated_command_lines(folder, capsys, monkeypatch):
    count = int(os.environ.get("SWITCHPOINT_FUZZ", "5000"))
    try_lines(folder, capsys, monkeypatch, count, seed=int(os.environ.get("SWITCHPOINT_SEED", "0")))
