"""Executors: where independent tasks run, and how a set of tasks is run on one.

An executor is anything with `submit(function, *arguments)` that returns a
`concurrent.futures.Future`. There are three by name: `local`, which runs everything in this
process, `processes`, several processes on this machine, and `ray`, a Ray cluster. Workers compute
with the settings of this process (see `worker_settings`), so that they get the same bits on the
same kind of device.
"""

import hashlib
import importlib
import itertools
import multiprocessing
import os
import pickle
import platform
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    CancelledError,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
)
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
from filelock import FileLock, Timeout

from switchpoint import _checks
from switchpoint._files import check_writable, make_directory
from switchpoint._progress import Part, Progress

T = TypeVar("T")

EXECUTORS = ("local", "processes", "ray")
"""The names of the executors."""

ATTEMPTS = 3
"""Attempts at a task whose worker dies or which raises one of `RETRIED`, except by `local`."""

RETRIED = (OSError, RuntimeError)
"""Errors of machines, file systems and devices; a `ValueError` would only be raised again."""

_CONNECT_SECONDS = 5.0  # for an answer from the address of a cluster
_END_SECONDS = 20.0  # for the last checkpoint of a worker that is asked to stop


@runtime_checkable
class Executor(Protocol):
    """An object that runs functions somewhere: the interface of `concurrent.futures`."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        """Schedule a function that can be imported from its module, and return its future."""


class LocalExecutor:
    """Runs each function in this process, before `submit` returns."""

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:  # not an interrupt, which is raised here
            future.set_exception(error)
        return future


class ProcessExecutor:
    """Runs functions in `jobs` processes of this machine at a time, each with one of its GPUs.

    Every function has a process of its own, which may die without affecting the others. The
    processes are spawned, since JAX does not survive a fork.
    """

    def __init__(self, jobs: int | None = None) -> None:
        gpus = jax.local_device_count() if jax.default_backend() == "gpu" else 0
        jobs = jobs or gpus or 2
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))
        devices = itertools.cycle(visible.split(","))
        self._settings = SimpleQueue[dict[str, Any]]()
        for _ in range(jobs):
            device = {"CUDA_VISIBLE_DEVICES": next(devices)} if gpus else {}
            self._settings.put({**worker_settings(), **device})
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="worker")
        # Workers end when the other side of this pipe is closed, or the process that has it ends.
        self._driver, self._open = multiprocessing.Pipe(duplex=False)

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        return self._threads.submit(self._call, function, *arguments)

    def close(self) -> None:
        """Stop the processes, each after it has written its checkpoint."""
        self._open.close()
        self._threads.shutdown(cancel_futures=True)

    def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        settings = self._settings.get()
        spawn = multiprocessing.get_context("spawn")
        try:
            for attempt in itertools.count(1):
                if self._open.closed:
                    break
                try:
                    with ProcessPoolExecutor(
                        1, spawn, start_worker, (settings, self._driver)
                    ) as pool:
                        return pool.submit(function, *arguments).result()
                except RETRIED:
                    if attempt == ATTEMPTS:
                        raise
            raise CancelledError("the executor is closed")
        finally:
            self._settings.put(settings)


def start_worker(settings: Mapping[str, Any], driver: Connection) -> None:
    """Prepare a process that works for another one, and that ends when the other one says so."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides

    def end_with_driver() -> None:
        driver.poll(None)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_END_SECONDS)
        os._exit(1)

    threading.Thread(target=end_with_driver, daemon=True).start()
    apply_settings(settings)


class RayExecutor:
    """Runs functions on a Ray cluster: each on one GPU where it has GPUs, else on cores.

    `address` is that of a cluster; without one it is that of RAY_ADDRESS, or a cluster of this
    machine alone. A session that is connected to Ray already is used as it is.
    """

    def __init__(self, address: str | None = None) -> None:
        try:
            self._ray = ray = importlib.import_module("ray")
        except ImportError as error:
            raise ValueError(
                "Ray is not installed; get it with pip install 'switchpoint[ray]', here and on "
                "every worker"
            ) from error
        self._started = not ray.is_initialized()
        if self._started:
            _connect(ray, address)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if any(node.get("GPU") for node in nodes):
            needs: dict[str, Any] = {"num_gpus": 1}
        else:
            largest = max((int(node.get("CPU", 0)) for node in nodes), default=1)
            needs = {"num_cpus": max(1, min(jax.local_device_count(), largest))}
        # Sent by value, so that a worker without this package can say so.
        self._run = ray.remote(**needs, max_retries=ATTEMPTS - 1, retry_exceptions=[*RETRIED])(
            lambda *call: __import__("switchpoint.executors", fromlist=["run_checked"]).run_checked(
                *call
            )
        )
        self._settings = ray.put((package_version(), worker_settings()))

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        future: Future[T] = self._run.remote(
            self._settings, pickle.dumps((function, arguments))
        ).future()
        return future

    def close(self) -> None:
        """Leave the cluster, where this executor joined it."""
        if self._started:
            self._ray.shutdown()


def run_checked(driver: tuple[Mapping[str, str], Mapping[str, Any]], call: bytes) -> Any:
    """Call a function as a driver of this version and with these settings does."""
    join_driver(*driver)
    function, arguments = pickle.loads(call)
    return function(*arguments)


def join_driver(version: Mapping[str, str], settings: Mapping[str, Any]) -> None:
    """Compute with the settings of a driver, if this process has its version of the package."""
    here = package_version()
    if odd := [key for key in version if version[key] != here.get(key)]:
        differences = ", ".join(f"{key} {here.get(key)}, not {version[key]}" for key in odd)
        raise ValueError(
            f"the Ray worker on {platform.node()} cannot be used: it has {differences}; install "
            "the version of the driver on every worker"
        )
    apply_settings(settings)


def _connect(ray: Any, address: str | None) -> None:
    """Connect to a cluster, or start one; a `ValueError` if that is impossible."""
    handler = signal.getsignal(signal.SIGTERM)  # Ray replaces it
    try:
        if (place := _host_and_port(address)) is not None:
            socket.create_connection(place, _CONNECT_SECONDS).close()
        with warnings.catch_warnings():
            # It starts programs, which do not run any of our code after the fork.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # of many kinds
        where = f"no Ray cluster answers at {address}" if address else "Ray cannot be started"
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{where} ({reason}); ray start --head starts one and prints its address"
        ) from error
    finally:
        if callable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _host_and_port(address: str | None) -> tuple[str, int] | None:
    """The two parts of an address; None if Ray finds the cluster by itself."""
    if address is None or address in ("auto", "local") or "/" in address:
        return None
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise ValueError(f"ray-address must be HOST:PORT, as 10.0.0.1:6379, got {address!r}")
    return host, int(port)


@contextmanager
def open_executor(
    executor: str | Executor = "local", *, jobs: int | None = None, ray_address: str | None = None
) -> Iterator[Executor]:
    """The executor of this name, closed afterwards; or the given one, left as it is.

    `jobs` is the number of processes of `processes`: one for each GPU by default, or two where
    there is none. `ray_address` is the address of a cluster.
    """
    check_executor(executor, jobs=jobs, ray_address=ray_address)
    if not isinstance(executor, str):
        yield executor
    elif executor == "local":
        yield LocalExecutor()
    else:
        opened = ProcessExecutor(jobs) if executor == "processes" else RayExecutor(ray_address)
        with closing(opened):
            yield opened


def check_executor(
    executor: str | Executor, *, jobs: int | None = None, ray_address: str | None = None
) -> None:
    """Raise a `ValueError` for arguments of `open_executor` that no machine could accept."""
    if callable(getattr(executor, "submit", None)):
        return
    _checks.one_of("executor", executor, EXECUTORS)
    for option, value, owner in (("jobs", jobs, "processes"), ("ray-address", ray_address, "ray")):
        if value is not None and executor != owner:
            message = f"{option} is for the executor {owner!r}, got {value} for {executor!r}"
            raise ValueError(message)
    _host_and_port(ray_address)


def worker_settings() -> dict[str, Any]:
    """The settings that decide the bits of a result on a given kind of device.

    The flags of XLA, and on a CPU the number of devices that JAX makes of its cores.
    """
    settings: dict[str, Any] = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
    if jax.default_backend() == "cpu":
        settings["jax_num_cpu_devices"] = jax.local_device_count()
    for name in ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"):
        settings[name] = jax.config.values[name]
    return settings


def apply_settings(settings: Mapping[str, Any]) -> None:
    """Compute as the process with these settings does; once, before anything is computed."""
    os.environ.update({name: value for name, value in settings.items() if name.isupper()})
    # Several processes may share a GPU, and none may take most of its memory for itself.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    for name, value in settings.items():
        if not name.isupper() and jax.config.values[name] != value:
            with suppress(RuntimeError):  # something has been computed: it was set before
                jax.config.update(name, value)


@lru_cache(maxsize=1)
def package_version() -> dict[str, str]:
    """The versions of this package and of JAX, and a digest of the sources."""
    from switchpoint import __version__  # not yet defined while the package is imported

    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    versions = {"switchpoint": __version__, "jax": jax.__version__}
    return {**versions, "sources": digest.hexdigest()[:12]}


@dataclass(frozen=True)
class Task:
    """A function of a module, to be called with these arguments and a `Progress`.

    It must be idempotent and resumable. Its results are in files.
    """

    name: str
    function: Callable[..., object]
    arguments: tuple[Any, ...]
    cost: float = 1.0
    """Its expected duration, in any unit that is the same for all tasks."""


class FailedTasksError(ValueError):
    """Some tasks failed; the others are done."""


@dataclass
class TaskResults:
    """The names of the tasks that are done, and the errors of those that failed."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, BaseException] = field(default_factory=dict)

    def check(self) -> None:
        """Raise a `FailedTasksError` that names the tasks that failed."""
        if self.failed:
            reasons = [f"{name} ({_one_line(error)})" for name, error in self.failed.items()]
            total = len(self.done) + len(self.failed)
            raise FailedTasksError(
                f"{len(reasons)} of {total} tasks failed: {'; '.join(reasons)}; the same command "
                "tries them again"
            ) from next(iter(self.failed.values()))


def run_tasks(
    executor: Executor, tasks: Sequence[Task], locks: Path, progress: Progress | None = None
) -> TaskResults:
    """Run tasks on an executor; a task that fails does not stop the others.

    A `ValueError`, which any attempt would raise again, is raised at once. Each task runs under a
    file lock in the directory `locks`, which all workers must share. One that another process is
    running comes last, and waits for it, so that several drivers can share the tasks.
    """
    results, whole = TaskResults(), progress or Progress()
    local = isinstance(executor, LocalExecutor)
    total, spent = sum(task.cost for task in tasks), 0.0
    if tasks:
        make_directory(locks, "directory")
        check_writable(locks / "any.lock", "directory")
    waiting = list(tasks)
    futures: dict[Future[list[str] | None], Task] = {}

    def settle(future: Future[list[str] | None]) -> None:
        nonlocal spent
        task, error = futures.pop(future), future.exception()
        error = getattr(error, "cause", None) or error  # Ray wraps errors of workers
        if error is None:
            notes = future.result()
            if notes is None:
                waiting.append(task)
                return
            results.done.append(task.name)
            for text in notes:
                whole.note(f"{task.name}: {text}")
        elif isinstance(error, ValueError | ImportError) or not isinstance(error, Exception):
            raise error
        else:
            results.failed[task.name] = error
            whole.note(f"{task.name}: failed, {_one_line(error)}")
        spent += task.cost

    try:
        for patience in (0.0, -1.0):  # seconds to wait for a lock; below 0, until it is free
            todo, waiting = waiting, []
            for task in todo:
                part = Part(whole, spent / total, task.cost / total) if local else None
                lock = locks / f"{task.name}.lock"
                future = executor.submit(run_task, task, lock, part, patience)
                futures[future] = task
                if local:
                    settle(future)
            for future in as_completed(list(futures)):
                settle(future)
                ended = len(results.done) + len(results.failed)
                whole.update(f"{ended} of {len(tasks)} tasks ended", spent / total)
            if waiting:
                whole.update(f"waiting for another process: {waiting[0].name}", spent / total)
    finally:
        for future in futures:
            future.cancel()
    return results


def run_task(
    task: Task, lock: Path, progress: Progress | None, patience: float
) -> list[str] | None:
    """Run a task in this process; None if another one runs it for longer than `patience`.

    Returns the messages that there was no `progress` to show at once.
    """
    silent, notes = Progress(), list[str]()
    silent.note = notes.append  # type: ignore[method-assign, assignment]
    try:
        with FileLock(lock, timeout=patience):
            task.function(*task.arguments, progress or silent)
    except Timeout:
        return None
    return [] if progress else [*notes, f"done on {platform.node()} ({os.getpid()})"]


def _one_line(error: BaseException) -> str:
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
