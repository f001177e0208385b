"""Executors and tasks: each task is run once, even if workers die."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import pytest
from filelock import FileLock

from switchpoint._progress import Progress
from switchpoint.executors import (
    ATTEMPTS,
    FailedTasksError,
    LocalExecutor,
    ProcessExecutor,
    Task,
    open_executor,
    run_tasks,
)


class Log(Progress):
    def __init__(self):
        self.notes, self.updates = [], []

    def note(self, text):
        self.notes.append(text)

    def update(self, text, done):
        self.updates.append((text, done))


# Functions of tasks, which other processes import from this module.


def append(path, text, progress):
    progress.update("appending", 0.5)
    with path.open("a") as file:
        file.write(text)


def run_once(directory, progress):
    """Do nothing where it is done, and take a while elsewhere, as a run does."""
    done = directory / "done"
    if not done.exists():
        append(directory / "log", "x", progress)
        time.sleep(0.2)
        done.touch()


def fail(path, times, error, progress):
    append(path, "x", progress)
    if len(path.read_text()) <= times:
        raise error(f"failure {len(path.read_text())} of {times}")


def refuse(progress):
    progress.note("about to refuse")
    raise ValueError("the input is wrong")


def die(path, times, progress):
    count_devices(progress)
    append(path, "x", progress)
    if len(path.read_text()) <= times:
        os.kill(os.getpid(), signal.SIGKILL)


def count_devices(progress):
    progress.note(f"{jax.local_device_count()} devices")


def test_a_local_task_that_fails_is_named_and_the_rest_continues(tmp_path):
    log = Log()
    tasks = [
        Task("fails", fail, (tmp_path / "fails", 99, RuntimeError), cost=3.0),
        Task("works", append, (tmp_path / "works", "y")),
    ]
    results = run_tasks(LocalExecutor(), tasks, tmp_path / "locks", log)
    assert results.done == ["works"]
    with pytest.raises(FailedTasksError, match=r"1 of 2 tasks failed: fails .*failure 1 of 99"):
        results.check()
    assert ("appending", 0.875) in log.updates  # half of the last quarter
    assert [done for _, done in log.updates] == sorted(done for _, done in log.updates)


def test_any_object_with_submit_is_an_executor(tmp_path):
    log = Log()
    with ThreadPoolExecutor(2) as threads:
        tasks = [
            Task("error", fail, (tmp_path / "error", 1, KeyError)),
            Task("note", count_devices, ()),
        ]
        results = run_tasks(threads, tasks, tmp_path, log)
    assert set(results.failed) == {"error"}
    assert f"note: {jax.local_device_count()} devices" in log.notes
    assert log.updates[-1] == ("2 of 2 tasks ended", 1.0)


@pytest.mark.parametrize("executor", [LocalExecutor(), ThreadPoolExecutor(1)])
def test_an_input_error_stops_at_once(tmp_path, executor):
    tasks = [Task("refused", refuse, ()), Task("later", append, (tmp_path / "x", "y"))]
    with pytest.raises(ValueError, match="the input is wrong"):
        run_tasks(executor, tasks, tmp_path)
    assert executor.__class__ is not LocalExecutor or not (tmp_path / "x").exists()


def test_two_drivers_share_tasks_and_repeat_none(tmp_path):
    names = [f"run-{number}" for number in range(6)]
    for name in names:
        (tmp_path / name).mkdir()
    tasks = [Task(name, run_once, (tmp_path / name,)) for name in names]

    def drive(tasks):
        with ThreadPoolExecutor(2) as threads:
            return set(run_tasks(threads, tasks, tmp_path / "locks").done)

    with ThreadPoolExecutor(2) as drivers:
        both = list(drivers.map(drive, [tasks, tasks[::-1]]))
    assert both == [set(names), set(names)]
    assert {(tmp_path / name / "log").read_text() for name in names} == {"x"}


def test_a_task_of_another_process_is_run_after_the_others(tmp_path):
    lock, order = FileLock(tmp_path / "first.lock", thread_local=False), []

    def note(name, progress):
        del progress
        order.append(name)
        lock.release()

    lock.acquire()
    tasks = [Task(name, note, (name,)) for name in ("first", "second")]
    assert set(run_tasks(LocalExecutor(), tasks, tmp_path).done) == {"first", "second"}
    assert order == ["second", "first"]


@pytest.mark.slow
def test_a_process_that_dies_is_replaced_and_affects_no_other_task(tmp_path):
    with open_executor("processes", jobs=1) as pool:
        tasks = [
            Task("dies", die, (tmp_path / "dies", 1)),
            Task("always", die, (tmp_path / "always", 99)),
        ]
        log = Log()
        results = run_tasks(pool, tasks, tmp_path, log)
    assert results.done == ["dies"]
    assert f"dies: {jax.local_device_count()} devices" in log.notes  # as many as in this process
    assert list(results.failed) == ["always"]
    assert (tmp_path / "always").read_text() == "x" * ATTEMPTS


@pytest.mark.slow
def test_closing_an_executor_ends_its_processes():
    pool = ProcessExecutor(2)
    pid = pool.submit(os.getpid).result()
    waiting = [pool.submit(time.sleep, 60) for _ in range(3)]
    time.sleep(0.5)
    begun = time.monotonic()
    pool.close()
    assert time.monotonic() - begun < 10
    assert all(future.cancelled() or future.exception() for future in waiting)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_unreachable_cluster_is_named():
    pytest.importorskip("ray")
    with (
        pytest.raises(ValueError, match=r"127.0.0.1:1.*ray start --head"),
        open_executor("ray", ray_address="127.0.0.1:1"),
    ):
        pass
