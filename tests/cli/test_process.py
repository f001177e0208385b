"""The process of a command: how it starts, is stopped, loses its streams, and ends."""

import os
import random
import signal
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import switchpoint as sp
from switchpoint._progress import Progress
from switchpoint.cli import main, process
from switchpoint.training import train

BITS = "01101110000000010000111101111111"
# What the console script does; a signal before `main` is imported is Python's.
BEGIN = "import re, sys; from switchpoint.cli import main; print('begun', flush=True); main()"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(sp.__file__).parents[1])}
STEP = "switchpoint.streams.forward.FamilyHypotheses.step"
TRAIN = ["train", "--model", "memoryless", "--length", "8", "--batch", "2", "--validation", "2",
         "--report-every", "20"]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bits.txt").write_text(BITS)
    return tmp_path


@pytest.fixture(autouse=True)
def _foreground():
    """Ctrl-C is not ignored, as it is in the background of a shell; children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def start(*arguments):
    """A command in a process of its own, from the moment when Python is ready to import it."""
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN, *arguments],
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == "begun\n"
    return process


def shell(line):
    """Run a line of shell in which `switchpoint` is the command."""
    line = f'switchpoint() {{ "{sys.executable}" -m switchpoint "$@"; }}; {line}'
    done = subprocess.run(
        ["bash", "-c", line], env=ENVIRONMENT, text=True, capture_output=True, check=False
    )
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    return done


# --- signals --------------------------------------------------------------------------------


@pytest.mark.slow
def test_interrupts_at_random_times():
    """One line and status 130, while modules are imported, programs compiled, numbers computed."""
    commands = [
        ["sample", "--alphabet", "60", "--length", "64", "--batch", "17000", "--out", "x.csv"],
        ["evaluate", "lin", "--sequences", "100000"],
        ["predict", "bits.txt", "--model", "transformer-ptw", "--out", "rows.csv"],
        [*TRAIN, "--steps", "1000000"],
    ]
    times = random.Random(16)
    trials = [(commands[i % 4], i, times.uniform(0.02, 4.0)) for i in range(6)]

    def interrupted(trial):
        command, index, delay = trial
        more = ["--out", f"run{index}", "--quiet"] if command[0] == "train" else []
        with start(*command, *more) as process:
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        return process.returncode, err

    with ThreadPoolExecutor(4) as pool:
        for trial, (status, err) in zip(trials, pool.map(interrupted, trials), strict=True):
            assert (status, err.count("\n")) == (130, 1), f"{trial}: {err}"
            assert err.startswith("switchpoint: "), f"{trial}: {err}"
    assert not list(Path().glob(".*.tmp"))


class Stopping(Progress):
    """Sends a signal to this process when the second step is done."""

    def __init__(self, number):
        self.number = number

    def update(self, text, done):
        if text.startswith("step 2 ") and done < 1:
            os.kill(os.getpid(), self.number)


def train_until(monkeypatch, number):
    monkeypatch.setattr("switchpoint.training.use_all_cores", lambda: None)
    stopping = partial(train, device_seconds=0)
    progress = {"progress": Stopping(number)}
    monkeypatch.setattr("switchpoint.training.train", lambda *a, **o: stopping(*a, **o | progress))
    return main([*TRAIN, "--steps", "6", "--out", "run"])


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_training_run_is_saved(monkeypatch, capsys, number, status):
    before = signal.getsignal(number)
    assert train_until(monkeypatch, number) == status
    err = capsys.readouterr().err
    assert err.startswith("switchpoint: stopped after step 2; ")
    assert err.count("\n") == 1
    assert Path("run/checkpoints/step-000000002.safetensors").exists()
    assert signal.getsignal(number) is before


@pytest.mark.slow
def test_an_ignored_interrupt_stays_ignored(monkeypatch):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `nohup` does
    assert train_until(monkeypatch, signal.SIGINT) == 0
    assert Path("run/model.safetensors").exists()
    listen = (
        "import signal; from switchpoint.cli.process import SIGNALS; SIGNALS.listen(); "
        "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    )
    command = [sys.executable, "-c", listen]
    assert subprocess.check_output(command, env=ENVIRONMENT) == b"True\n"


# --- streams --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_command_without_streams_writes_its_file_whole():
    done = shell("switchpoint sample --length 8 --out draws.csv <&- >&- 2>&-")
    assert done.returncode == 0
    rows = Path("draws.csv").read_text()
    assert rows.startswith("sequence,t,symbol,switch,p0,p1\n0,0,")
    assert rows.count("\n") == 9


@pytest.mark.slow
def test_a_reader_that_goes_away_does_not_lose_the_summary(capsys, monkeypatch):
    def write(_):
        raise BrokenPipeError

    monkeypatch.setattr(sys.stdout, "write", write)
    assert main(["predict", "bits.txt", "--prior", "ptw"]) == 1
    assert "code length" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "status", "error"),
    [
        ("switchpoint --help >&-", 0, ""),
        ("switchpoint --help 2>&-", 0, ""),
        ("switchpoint perdict 2>&-", 2, ""),
        ("switchpoint perdict <&- >&-", 2, "perdict"),
        ("switchpoint --help > /dev/full", 2, "No space left"),
        ("(switchpoint sample --batch 999; echo status $? >&2) | head -c 9", 0, "status 1"),
        ("(switchpoint --help; echo status $? >&2) | true", 0, "status 1"),
        ("(switchpoint perdict 2>&1 >/dev/null; echo status $? >&2) | true", 0, "status 2"),
    ],
)
def test_streams_that_take_nothing(line, status, error):
    done = shell(line)
    assert done.returncode == status
    assert error in done.stderr
    assert done.stderr.count("\n") == bool(error)


def test_a_closed_standard_error_is_ignored():
    code = (
        "import sys; from switchpoint.cli.process import open_streams; open_streams(); "
        "[print('x' * 2**16, file=sys.stderr, flush=True) for _ in range(9)]; print('done')"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stderr.close()
        assert process.stdout.read() == b"done\n"
    assert process.returncode == 0


# --- start ----------------------------------------------------------------------------------


def test_the_version_and_the_help_take_no_jax():
    code = (
        "import sys; from switchpoint.cli import main; status = main(sys.argv[1:]); "
        "print(status, 'jax' in sys.modules, 'numpy' in sys.modules, file=sys.stderr)"
    )
    for arguments, printed in (
        (["--version"], sp.__version__),
        (["--help"], "number of switches"),
        ([], "switchpoint reproduce"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=ENVIRONMENT, text=True, capture_output=True, check=True,
        )  # fmt: skip
        assert printed in " ".join(done.stdout.replace("│", " ").split())
        assert done.stderr == "0 False False\n"


def test_the_package_has_every_name_it_lists():
    for name in (*sp.__all__, "evaluation", "neural", "priors", "training", "zoo"):
        assert getattr(sp, name) is not None
        assert name in dir(sp)
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = sp.nothing


def test_shells_complete_commands():
    asked = {"_SWITCHPOINT_COMPLETE": "complete_bash", "COMP_WORDS": "switchpoint pr"}
    done = subprocess.run(
        [sys.executable, "-m", "switchpoint"],
        env={**ENVIRONMENT, **asked, "COMP_CWORD": "1"},
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["predict", "prior"]
    assert done.stderr == ""


def cache_used(**settings):
    """Where programs would be kept by a command with this environment."""
    code = "import os; from switchpoint.cli.process import use_compilation_cache as use; use(); " \
        "print(os.environ.get('JAX_COMPILATION_CACHE_DIR', ''))"  # fmt: skip
    hidden = {"JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME"}
    environment = {name: value for name, value in ENVIRONMENT.items() if name not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, **settings}, text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="the directories are those of Linux")
def test_where_programs_are_kept(folder):
    assert cache_used(XDG_CACHE_HOME=str(folder / "a")) == str(folder / "a/switchpoint/jax")
    assert cache_used(HOME=str(folder)) == str(folder / ".cache/switchpoint/jax")
    assert (folder / ".cache/switchpoint/jax").is_dir()
    assert cache_used(HOME=os.devnull) == ""  # nothing can be made there
    assert cache_used(JAX_COMPILATION_CACHE_DIR="mine") == "mine"


def test_the_cache_can_be_switched_off(monkeypatch, capsys):
    calls = []
    monkeypatch.setattr("switchpoint.cli.app.use_compilation_cache", lambda: calls.append(1))
    assert main(["--no-cache", "prior", "lin", "--length", "4"]) == 0
    monkeypatch.setenv("SWITCHPOINT_CACHE", "0")
    assert main(["prior", "lin", "--length", "4"]) == 0
    assert calls == []
    monkeypatch.delenv("SWITCHPOINT_CACHE")
    assert main(["prior", "lin", "--length", "4"]) == 0
    assert calls == [1]
    assert capsys.readouterr().err == ""


def test_the_cache_has_a_limit(folder):
    for age, name in enumerate(("new", "middle", "old")):
        (folder / name).write_bytes(bytes(10))
        os.utime(folder / name, (1000 - age, 1000 - age))
    (folder / "empty").touch()
    (folder / "bits.txt").unlink()
    process.shrink_cache(folder, 25)
    assert {path.name for path in folder.iterdir()} == {"new", "middle"}


# --- errors ---------------------------------------------------------------------------------


def failing(monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr("switchpoint.cli.prior.length_law", fail)
    return main(["prior", "lin", "--length", "4"])


@pytest.mark.parametrize(
    ("line", "function", "most"),
    [
        ("prior lin --length 4", "switchpoint.cli.prior.length_law", 3),
        ("detect bits.csv", STEP, 7),
        ("detect --segment level bits.csv", STEP, 7),
    ],
)
def test_few_frames_are_before_the_computation(monkeypatch, line, function, most):
    seen = []

    def record(*_):
        seen.extend(frame.f_code for frame, _ in traceback.walk_stack(sys._getframe()))
        raise ValueError

    Path("bits.csv").write_text("x\n1\n2\n3\n")
    monkeypatch.setattr(function, record)
    assert main(line.split()) == 2
    root = str(Path(sp.__file__).parent)
    ours = [code.co_name for code in seen if code.co_filename.startswith(root)]
    assert ours[-1] == "main"
    assert len(ours) <= most


def test_an_unexpected_error_is_one_line_with_how_to_report_it(monkeypatch, capsys):
    assert failing(monkeypatch, KeyError("x" * 900)) == 70
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    for part in ("KeyError", "xxx", "report", "SWITCHPOINT_TRACEBACK=1"):
        assert part in err
    monkeypatch.setenv("SWITCHPOINT_TRACEBACK", "1")
    assert failing(monkeypatch, KeyError("x")) == 70
    assert "in fail" in capsys.readouterr().err
