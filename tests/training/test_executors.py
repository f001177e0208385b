"""Executors, claims and the queue of tasks: every task is done once, whoever dies meanwhile."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from switchpoint import _claims, _work, executors
from switchpoint._claims import ClaimState, Watch, claimed, held_claims, read_claim
from switchpoint._work import FailedTasksError, Task, WorkQueue
from switchpoint.cli.main import main
from switchpoint.executors import ProcessExecutor, WorkerDiedError, open_executor
from switchpoint.paper import SCALES, ProgressReporter
from switchpoint.paper.base import main_run
from switchpoint.paper.networks import divide
from switchpoint.zoo.manifest import SOURCES


class Log(ProgressReporter):
    def __init__(self):
        self.notes, self.updates = [], []

    def note(self, text):
        self.notes.append(text)

    def update(self, text, done):
        self.updates.append((text, done))


# What tasks do: functions of a module, which other processes find by their names.


def append(path, text, listener):
    listener.update("appending", 0.5)
    with path.open("a") as file:
        file.write(text)
    return text


def once(directory, listener):
    """As a shard does: nothing where it is done, and slowly."""
    done = directory / "done"
    if not done.exists():
        append(directory / "log", "x", listener)
        time.sleep(0.2)
        done.touch()


def fail(path, times, listener):
    count = len(append(path, "x", listener) and path.read_text())
    if count <= times:
        raise RuntimeError(f"failure {count} of {times}")


def refuse(listener):
    listener.note("about to refuse")
    raise ValueError("the input is wrong")


def die_once(path, listener):
    if not path.exists():
        append(path, "x", listener)
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def finish(queue, tasks):
    queue.add(tasks)
    queue.finish([task.name for task in tasks])


# Claims.


def test_a_claim_is_held_by_one_and_gone_afterwards(tmp_path):
    path = tmp_path / "shard.claim"
    with claimed(path, "first") as first, claimed(path, "second") as second:
        assert second is None
        first.update("training", 0.25)
        first.write()
        state = read_claim(path)
        assert (state.owner, state.pid, state.text, state.done) == (
            "first",
            os.getpid(),
            "training",
            0.25,
        )
        assert held_claims(tmp_path) == {"shard"}
    assert held_claims(tmp_path) == set()
    with claimed(path, "third") as third:
        assert third is not None


def test_of_many_who_want_a_claim_one_has_it(tmp_path):
    path, count = tmp_path / "shard.claim", 8
    for _ in range(20):
        barrier, having = threading.Barrier(count), []

        def want(number, barrier=barrier, having=having):
            barrier.wait()
            with claimed(path, str(number)) as own:
                if own is not None:
                    having.append(number)
                    assert len(having) == 1
                    time.sleep(0.002)
                    having.remove(number)

        with ThreadPoolExecutor(count) as threads:
            list(threads.map(want, range(count)))
        assert held_claims(tmp_path) == set()


HOLDER = """
import sys, time
from pathlib import Path
from switchpoint._claims import claimed
with claimed(Path(sys.argv[1]), "dead"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_the_claim_of_a_killed_process_is_free_at_once_on_its_machine(tmp_path):
    path = tmp_path / "shard.claim"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    with claimed(path, "early") as own:
        assert own is None
    holder.kill()
    holder.communicate()
    assert read_claim(path).owner == "dead"
    with claimed(path, "next") as own:
        assert own is not None


def test_the_claim_of_another_machine_is_respected_until_it_shows_no_life(tmp_path, monkeypatch):
    """Its lock may be invisible here, as on some shared file systems."""
    path = tmp_path / "shard.claim"
    path.write_text(json.dumps({"owner": "far", "machine": "another", "beat": 7}))
    with claimed(path, "mine") as own:
        assert own is None
    clock = [100.0]
    monkeypatch.setattr(_claims.time, "monotonic", lambda: clock[0])
    watch, state = Watch(), read_claim(path)
    assert not watch.expired(state)
    clock[0] += _claims.EXPIRY - 1
    assert not watch.expired(replace(state, beat=8))  # a sign of life
    clock[0] += _claims.EXPIRY - 1
    assert not watch.expired(replace(state, beat=8))
    clock[0] += 2
    assert watch.expired(replace(state, beat=8))
    monkeypatch.setattr(_claims, "_SETTLE", 0.0)
    with claimed(path, "mine", ended={"far"}) as own:
        assert own is not None
        assert read_claim(path).owner == "mine"


def test_a_claim_without_locks_is_exclusive_all_the_same(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError("no locks here")

    monkeypatch.setattr(_claims.fcntl, "flock", no_locks)
    path = tmp_path / "shard.claim"
    with claimed(path, "first") as first, claimed(path, "second") as second:
        assert (first is None, second is None) == (False, True)
    with claimed(path, "third") as third:
        assert third is not None


def test_an_owner_that_lost_its_claim_leaves_the_other_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(_claims, "_BEAT", 0.01)
    path = tmp_path / "shard.claim"
    with claimed(path, "slow"):
        path.write_text(json.dumps({"owner": "other", "machine": "another"}))
        time.sleep(0.1)
        assert read_claim(path).owner == "other"
    assert read_claim(path).owner == "other"


def test_a_claim_that_cannot_be_read_says_nothing(tmp_path):
    path = tmp_path / "shard.claim"
    for content in ("", "{", "[1]", '{"unknown": 1}'):
        path.write_text(content)
        assert read_claim(path) == ClaimState()


# The queue.


@pytest.fixture
def quickly(monkeypatch):
    for name in ("_POLL", "_LOOK"):
        monkeypatch.setattr(_work, name, 0.02)


@pytest.mark.usefixtures("quickly")
def test_a_task_that_fails_is_tried_three_times_and_the_rest_goes_on(tmp_path):
    log = Log()
    with ThreadPoolExecutor(2) as threads:  # anything with `submit` serves
        queue = WorkQueue(threads, tmp_path, log)
        tasks = [
            Task("twice", fail, (tmp_path / "twice", 2)),
            Task("always", fail, (tmp_path / "always", 99)),
            Task("never", append, (tmp_path / "never", "y")),
        ]
        finish(queue, tasks)
    assert set(queue.results) == {"twice", "never"}
    assert queue.results["never"] == "y"
    assert (tmp_path / "always").read_text() == "xxx"
    assert (tmp_path / "twice").read_text() == "xxx"
    assert any("twice" in note and "failure 1" in note for note in log.notes)
    with pytest.raises(FailedTasksError, match=r"1 of 3 shards .*always.*failure 3 of 99"):
        queue.check()
    assert held_claims(tmp_path) == set()


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("kind", ["local", "threads"])
def test_an_error_of_the_input_is_raised_at_once(tmp_path, kind):
    executor = executors.LocalExecutor() if kind == "local" else ThreadPoolExecutor(1)
    queue = WorkQueue(executor, tmp_path)
    with pytest.raises(ValueError, match="the input is wrong"):
        finish(queue, [Task("refused", refuse, ()), Task("later", append, (tmp_path / "x", "y"))])


@pytest.mark.usefixtures("quickly")
def test_two_drivers_do_nothing_twice_and_both_end(tmp_path):
    names = [f"shard-{number}" for number in range(6)]
    for name in names:
        (tmp_path / name).mkdir()
    tasks = [Task(name, once, (tmp_path / name,)) for name in names]

    def drive(order):
        with ThreadPoolExecutor(2) as threads:
            queue = WorkQueue(threads, tmp_path)
            finish(queue, order)
            return set(queue.results)

    with ThreadPoolExecutor(2) as drivers:
        both = list(drivers.map(drive, [tasks, tasks[::-1]]))
    assert both == [set(names), set(names)]
    assert {(tmp_path / name / "log").read_text() for name in names} == {"x"}


@pytest.mark.usefixtures("quickly")
def test_the_status_says_what_runs_where(tmp_path):
    release, begun = threading.Event(), threading.Event()

    def wait_for_release(listener):
        listener.update("training", 0.5)
        begun.set()
        release.wait(10)

    with ThreadPoolExecutor(1) as threads:
        queue = WorkQueue(threads, tmp_path)
        tasks = [Task("first", append, (tmp_path / "x", "y")), Task("second", wait_for_release, ())]
        queue.add(tasks)
        queue.finish(["first"])
        begun.wait(10)
        text, done = queue.status()
        release.set()
        queue.finish(["second"])
    assert "1 of 2 shards done" in text
    assert f"second on {os.uname().nodename} ({os.getpid()})" in text
    assert "left" in text
    assert 0.5 <= done < 1
    assert queue.status() == ("2 of 2 shards done", 1.0)


# Executors.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"executor": "slurm"}, "local, processes, ray"),
        ({"executor": "local", "jobs": 2}, "jobs"),
        ({"executor": "processes", "ray_address": "a:1"}, "ray-address"),
        ({"executor": "ray", "ray_address": "nowhere"}, "HOST:PORT"),
        ({"executor": "ray", "ray_address": "127.0.0.1:1"}, "127.0.0.1:1.*ray start --head"),
    ],
)
def test_executors_that_cannot_be_are_refused(options, words):
    with pytest.raises(ValueError, match=words), open_executor(**options):
        pass


def test_without_ray_the_message_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    arguments = [
        "--scale",
        "quick",
        "--only",
        "memory",
        "--executor",
        "ray",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(["reproduce", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "pip install 'switchpoint[ray]'" in error


COMMANDS = {
    "reproduce": ["--scale", "quick", "--only", "memory"],
    "sweep": ["sweep.toml"],
    "shard": ["lstm", "--scale", "quick"],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sweep.toml").write_text("steps = 10\nwarmup = 0\n[sweep]\nlearning_rate = [0.1]\n")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_store_that_cannot_be_written_is_refused(command, folder, capsys):
    Path("file").touch()
    assert main([command, *COMMANDS[command], "--out", "file/out"]) == 2
    error = capsys.readouterr().err
    assert "file/out" in error
    assert error.count("cannot be made") == 1
    assert sorted(path.name for path in folder.iterdir()) == ["file", "sweep.toml"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--executor slurm", "'slurm'"),
        ("--executor local --jobs 3", "jobs"),
        ("--ray-address 10.0.0.1:6379", "ray-address"),
        ("--executor ray --ray-address nowhere", "'nowhere'"),
        ("--executor ray --ray-address 127.0.0.1:1", "127.0.0.1:1"),
    ],
)
def test_a_refused_command_leaves_nothing_behind(command, options, words, folder, capsys):
    assert main([command, *COMMANDS[command], *options.split()]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["sweep.toml"]


@pytest.mark.slow
def test_a_worker_process_that_dies_takes_nothing_with_it(tmp_path):
    log = Log()
    pool = ProcessExecutor(1)
    try:
        with pytest.raises(WorkerDiedError, match="ended with 7"):
            pool.submit(os._exit, 7).result()
        queue = WorkQueue(pool, tmp_path, log)
        tasks = [
            Task("dies", die_once, (tmp_path / "mark",)),
            Task("lives", worker_pid, (jax.local_device_count(),)),
        ]
        finish(queue, tasks)
    finally:
        pool.close()
    assert queue.results["dies"] == queue.results["lives"] != os.getpid()
    (note,) = [note for note in log.notes if "submitted again" in note]
    assert note.startswith("dies")


def worker_pid(devices, _):
    assert jax.local_device_count() == devices  # as many as in the process of the test
    return os.getpid()


def test_the_division_of_a_run_depends_on_the_number_of_members_alone():
    run = main_run(SCALES["quick"], "lstm")

    def cut(members):
        return [(part.config.prior, [*part.seeds]) for part in divide(run, members)]

    assert divide(run) == divide(run, 8) == [run]
    assert cut(4) == [(SOURCES[:2], [0, 1]), (SOURCES[2:], [0, 1])]
    assert cut(3) == cut(2) == [((source,), [0, 1]) for source in SOURCES]
    assert cut(1) == [((source,), [seed]) for source in SOURCES for seed in (0, 1)]
    names = [part.name for part in divide(run, 1)]
    assert len(set(names)) == len(names)
