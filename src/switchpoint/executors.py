"""Executors: where independent pieces of work run.

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
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax

T = TypeVar("T")

EXECUTORS = ("local", "processes", "ray")
"""The executors that have a name."""

_CONNECT_SECONDS = 5.0  # for an answer from the address of a cluster
_SAME_VERSION = "install the version of the driver on every worker"
_END_SECONDS = 20.0  # in which a worker that is told to stop may write a checkpoint


@runtime_checkable
class Executor(Protocol):
    """What runs functions somewhere: the interface of `concurrent.futures`."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        """Begin to run a function, which its module has under its name; its result to come."""


class WorkerDiedError(RuntimeError):
    """The process that ran a function ended before the function did."""


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
    """Runs functions in `jobs` processes of this machine, each with one of its GPUs.

    The processes are spawned, since JAX does not survive a fork. One that dies takes nothing with
    it but the function it was running, whose future raises `WorkerDiedError`.
    """

    def __init__(self, jobs: int | None = None) -> None:
        gpus = jax.local_device_count() if jax.default_backend() == "gpu" else 0
        jobs = jobs or gpus or 2
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))
        self._gpus = visible.split(",") if gpus else []
        self._settings = worker_settings()
        self._own = threading.local()
        self._slots = itertools.count()
        self._workers: list[_Worker] = []
        self._closed = False
        # A thread for each process, which waits for it.
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="worker")

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        return self._threads.submit(self._call, function, arguments)

    def close(self) -> None:
        """Stop the processes, each after it has written its checkpoint."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            worker.join()

    def _call(self, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        worker: _Worker | None = getattr(self._own, "worker", None)
        if worker is None or not worker.process.is_alive():
            if self._closed:
                raise WorkerDiedError("the executor is closed")
            if worker is None:
                self._own.slot = next(self._slots)
            settings = dict(self._settings)
            if self._gpus:
                settings["CUDA_VISIBLE_DEVICES"] = self._gpus[self._own.slot % len(self._gpus)]
            worker = self._own.worker = _Worker(settings)
            self._workers.append(worker)
        return worker.call(function, arguments)


class _Worker:
    """A process that runs one function after another."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, dict(settings)), daemon=True)
        self.process.start()
        other.close()  # so that the end of the process is the end of the pipe

    def call(self, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        """The function's result; raises what it raises, and `WorkerDiedError`."""
        try:
            self._connection.send((function, arguments))
            wait([self._connection])
            succeeded, result = self._connection.recv()
        except (EOFError, OSError) as error:
            self.process.join()
            status = self.process.exitcode
            raise WorkerDiedError(f"process {self.process.pid} ended with {status}") from error
        if not succeeded:
            raise result
        return result

    def stop(self) -> None:
        """Ask the process to stop."""
        with suppress(OSError, ValueError):
            self.process.terminate()

    def join(self) -> None:
        """Wait for the process, and end it where it does not stop by itself."""
        self.process.join(_END_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _serve(connection: Connection, settings: Mapping[str, Any]) -> None:
    """Run what comes through the pipe, until its other end is closed."""
    apply_settings(settings)
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            function, arguments = connection.recv()
            try:
                answer: tuple[bool, Any] = True, function(*arguments)
            except Exception as error:
                answer = False, _portable(error)
            connection.send(answer)


def _portable(error: Exception) -> Exception:
    """An error that another process can read: the same one, unless its class forbids it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class RayExecutor:
    """Runs functions on a Ray cluster: each on one GPU where it has GPUs, else on cores.

    `address` is that of a cluster; without one it is what RAY_ADDRESS says, or a cluster of this
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
        self._own = not ray.is_initialized()
        if self._own:
            _check_cluster(address)
            try:
                with _signal_handler_kept(), warnings.catch_warnings():
                    # It starts programs, which do not run any of our code after the fork.
                    warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
                    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            except Exception as error:  # of many kinds
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise ValueError(_no_cluster(address, reason)) from error
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if any(node.get("GPU") for node in nodes):
            needs: dict[str, Any] = {"num_gpus": 1}
        else:
            largest = max((int(node.get("CPU", 0)) for node in nodes), default=1)
            needs = {"num_cpus": max(1, min(jax.local_device_count(), largest))}
        # Sent by value, so that workers need nothing of ours to understand it. Lost work is
        # submitted again by whoever submitted it, who counts the attempts.
        self._run = ray.remote(**needs, max_retries=0)(
            lambda *call: __import__("switchpoint.executors", fromlist=["run_checked"]).run_checked(
                *call
            )
        )
        self._settings = ray.put(worker_settings())
        self._version = ray.put(package_version())
        try:
            self._check_versions()
        except BaseException:
            self.close()
            raise

    def submit(self, function: Callable[..., T], /, *arguments: Any) -> Future[T]:
        name = function.__module__, function.__qualname__
        ref = self._run.remote(self._version, self._settings, *name, *arguments)
        return ref.future()

    def close(self) -> None:
        """Leave the cluster, where this executor joined it."""
        if self._own:
            self._ray.shutdown()

    def _check_versions(self) -> None:
        """Raise a `ValueError` where a node has another version of the package, or none.

        Nodes that join later check it with each function they run.
        """
        ray = self._ray
        affinity = importlib.import_module("ray.util.scheduling_strategies")
        asked = {
            node["NodeManagerHostname"]: self._run.options(
                num_cpus=0,
                num_gpus=0,
                scheduling_strategy=affinity.NodeAffinitySchedulingStrategy(
                    node["NodeID"], soft=True
                ),
            ).remote(self._version, self._settings, __name__, "package_version")
            for node in ray.nodes()
            if node["Alive"]
        }
        for host, ref in asked.items():
            try:
                ray.get(ref)
            except Exception as error:
                reason = getattr(error, "cause", None) or error
                text = (str(reason).splitlines() or [""])[-1]
                if isinstance(reason, ImportError):
                    text = f"switchpoint is not installed there ({text}); {_SAME_VERSION}"
                raise ValueError(f"the Ray worker on {host} cannot be used: {text}") from error


def run_checked(
    version: Mapping[str, str], settings: Mapping[str, Any], module: str, name: str, *arguments: Any
) -> Any:
    """Call a function of a module as a driver of this version and with these settings does."""
    here = package_version()
    if odd := [key for key in version if version[key] != here.get(key)]:
        differences = ", ".join(f"{key} {here.get(key)}, not {version[key]}" for key in odd)
        raise ValueError(f"it has {differences}; {_SAME_VERSION}")
    apply_settings(settings)
    return getattr(importlib.import_module(module), name)(*arguments)


@contextmanager
def _signal_handler_kept() -> Iterator[None]:
    """Keep the program's own handler of SIGTERM, which Ray replaces when it starts."""
    handler = signal.getsignal(signal.SIGTERM)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    terminated = False
    try:
        yield
    except SystemExit:  # raised by Ray's handler
        terminated = True
        raise
    finally:
        signal.signal(signal.SIGTERM, handler)
        if terminated:
            signal.raise_signal(signal.SIGTERM)


def _check_cluster(address: str | None) -> None:
    """Raise a `ValueError` where nothing answers at the address of a cluster."""
    try:
        if (place := _host_and_port(address)) is not None:
            socket.create_connection(place, _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ValueError(_no_cluster(address, getattr(error, "strerror", None) or error)) from error


def _host_and_port(address: str | None) -> tuple[str, int] | None:
    """The two parts of an address; None if Ray finds the cluster by itself."""
    if address is None or address in ("auto", "local") or "/" in address:
        return None
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise ValueError(f"ray-address must be HOST:PORT, as 10.0.0.1:6379, got {address!r}")
    return host, int(port)


def _no_cluster(address: str | None, reason: object) -> str:
    where = f"no Ray cluster answers at {address}" if address else "Ray cannot be started"
    return f"{where} ({reason}); ray start --head starts one and prints its address"


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
        return
    if executor == "local":
        yield LocalExecutor()
        return
    made = ProcessExecutor(jobs) if executor == "processes" else RayExecutor(ray_address)
    try:
        yield made
    finally:
        made.close()


def check_executor(
    executor: str | Executor, *, jobs: int | None = None, ray_address: str | None = None
) -> None:
    """Raise a `ValueError` for arguments of `open_executor` that no machine could accept."""
    if not isinstance(executor, str):
        if not callable(getattr(executor, "submit", None)):
            raise ValueError(
                f"executor must be one of {', '.join(EXECUTORS)}, or have submit(function, "
                f"*arguments), got {executor!r}"
            )
        return
    if executor not in EXECUTORS:
        raise ValueError(f"executor must be one of {', '.join(EXECUTORS)}, got {executor!r}")
    if jobs is not None and executor != "processes":
        raise ValueError(f"jobs is for the executor 'processes', got {jobs} for {executor!r}")
    if ray_address is not None and executor != "ray":
        raise ValueError(
            f"ray-address is for the executor 'ray', got {ray_address} for {executor!r}"
        )
    _host_and_port(ray_address)


def worker_settings() -> dict[str, Any]:
    """What decides the bits that this process computes, beyond the kind of its device.

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
