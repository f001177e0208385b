"""Independent tasks on an executor: each done once, whoever dies meanwhile."""

import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from switchpoint._claims import (
    Claim,
    ClaimState,
    Watch,
    claim_path,
    claimed,
    held_claims,
    read_claim,
)
from switchpoint._files import check_writable, make_directory
from switchpoint._numbers import duration, join_and
from switchpoint._progress import Progress
from switchpoint.executors import Executor, LocalExecutor

ATTEMPTS = 3
"""How often a task may fail before the others go on without it."""

_POLL = 0.5  # seconds between two looks at the futures
_LOOK = 2.0  # seconds between two looks at the claims
_SHOWN = 3  # running tasks that are named


class FailedTasksError(ValueError):
    """Some tasks failed `ATTEMPTS` times; the others are done."""


@dataclass(frozen=True)
class Task:
    """A piece of work: a function of a module, called with these arguments and a `Progress`.

    It must be one that can be called again at any time: what is done it leaves as it is, and what
    was begun it continues. What it makes is in files; it returns little.
    """

    name: str
    function: Callable[..., object]
    arguments: tuple[Any, ...]
    cost: float = 1.0
    """What it takes, in any unit that is the same for all tasks."""


@dataclass
class _TaskState:
    """The state of a task."""

    task: Task
    failures: int = 0
    ended: set[str] = field(default_factory=set)
    """Attempts that are known to have ended, whose claims are void."""
    attempt: str = ""
    other: Watch = field(default_factory=Watch)
    """Of the claim of another process."""


class WorkQueue:
    """Tasks that are submitted to an executor until each is done, or has failed too often.

    `claims` is a directory, made here, that all workers share, and every process that has these
    tasks: none does what another is doing.
    """

    def __init__(
        self,
        executor: Executor,
        claims: Path,
        listener: Progress | None = None,
        noun: str = "shard",
    ) -> None:
        make_directory(claims, "directory")
        self._executor, self._claims, self._noun = executor, claims, noun
        self._listener = listener or Progress()
        self.local = isinstance(executor, LocalExecutor)
        """Whether tasks are done in this process, one after another."""
        self._tasks: dict[str, _TaskState] = {}
        self._waiting: dict[Future[Finished | None], _TaskState] = {}
        self._finished: SimpleQueue[Future[Finished | None]] = SimpleQueue()
        self._later: list[tuple[float, _TaskState]] = []
        self.results: dict[str, Any] = {}
        """What the tasks that are done have returned."""
        self._begun = self._looked = time.monotonic()
        self.failed: dict[str, BaseException] = {}
        """The last error of each task that has failed too often."""
        self.seconds = 0.0
        """Time spent on tasks and on waiting for them."""

    def add(self, tasks: Iterable[Task]) -> None:
        """Submit tasks, unless tasks of these names have been."""
        begun = time.monotonic()
        for task in tasks:
            if task.name not in self._tasks:
                if not self._tasks:
                    check_writable(claim_path(self._claims, "any"))
                self._tasks[task.name] = _TaskState(task)
                self._submit(self._tasks[task.name])
        self.seconds += time.monotonic() - begun

    def finish(self, names: Collection[str]) -> None:
        """Wait until the tasks of these names are done or have failed.

        A `ValueError`, which any attempt would raise again, is raised at once.
        """
        begun, left = time.monotonic(), deque(names)
        try:
            while left:
                if left[0] in self.results or left[0] in self.failed:
                    left.popleft()
                    continue
                with suppress(Empty):
                    future = self._finished.get(timeout=_POLL)
                    if future in self._waiting:
                        self._settle(future, self._waiting.pop(future))
                now = time.monotonic()
                for at, progress in list(self._later):
                    if at <= now:
                        self._later.remove((at, progress))
                        self._submit(progress)
                if now - self._looked > _LOOK:
                    self._looked = now
                    self._listener.update(*self.status())
        finally:
            self.seconds += time.monotonic() - begun

    def cancel(self) -> None:
        """Submit nothing more, and drop what has not begun."""
        self._later.clear()
        for future in self._waiting:
            future.cancel()
        self._waiting.clear()

    def check(self) -> None:
        """Raise a `FailedTasksError` that names the tasks that have failed."""
        if self.failed:
            reasons = [f"{name} ({_reason(error)})" for name, error in self.failed.items()]
            count = f"{len(reasons)} of {len(self._tasks)} {self._noun}s"
            raise FailedTasksError(
                f"{count} failed {ATTEMPTS} times: {'; '.join(reasons)}; the same command tries "
                "them again"
            ) from next(iter(self.failed.values()))

    def status(self) -> tuple[str, float]:
        """Which tasks are done, run where, and have failed, with the time left; the share done."""
        over = self.results.keys() | self.failed.keys()
        left = [name for name in self._tasks if name not in over]
        active = held_claims(self._claims)
        running = [name for name in left if name in active]
        states = {name: self._claim(name) for name in running[:_SHOWN]}
        named = [f"{name} on {each.where}, {each.done:.0%}" for name, each in states.items()]
        if len(running) > _SHOWN:
            named.append(f"{len(running) - _SHOWN} more")
        costs = {name: each.task.cost for name, each in self._tasks.items()}
        total = sum(costs.values()) or 1.0
        share = sum(costs[name] for name in costs if name not in left)
        share += sum(costs[name] * each.done for name, each in states.items())
        text = f"{len(self.results)} of {len(self._tasks)} {self._noun}s done"
        text += f"; running: {join_and(named)}" if named else ""
        text += f"; failed: {', '.join(self.failed)}" if self.failed else ""
        if share and left:
            elapsed = time.monotonic() - self._begun
            text += f"; about {duration(round(elapsed * (total / share - 1)))} left"
        return text, share / total

    def _submit(self, progress: _TaskState) -> None:
        task, progress.attempt = progress.task, secrets.token_hex(8)
        # In this process, progress is shown as it is made.
        listener = self._listener if self.local else None
        path = claim_path(self._claims, task.name)
        about = path, progress.attempt, tuple(progress.ended), listener
        future = self._executor.submit(attempt, *about, task.function, *task.arguments)
        self._waiting[future] = progress
        future.add_done_callback(self._finished.put)

    def _settle(self, future: "Future[Finished | None]", progress: _TaskState) -> None:
        """Take note of the end of an attempt."""
        name = progress.task.name
        error = future.exception()
        error = getattr(error, "cause", None) or error  # Ray wraps what a worker raised
        if error is None:
            finished = future.result()
            if finished is None:  # another process is at it, which may die
                if progress.other.expired(state := self._claim(name)):
                    progress.ended.add(state.owner)
                self._later.append((time.monotonic() + _LOOK, progress))
                return
            self.results[name] = finished.result
            for text in finished.notes:
                self._listener.note(f"{name}: {text}")
            if not self.local:
                count = f"{len(self.results)} of {len(self._tasks)} {self._noun}s"
                self._listener.note(f"{name}: done on {finished.where}, {count}")
        elif isinstance(error, ValueError) or not isinstance(error, Exception):
            self.cancel()
            raise error
        else:
            progress.ended.add(progress.attempt)
            progress.failures += 1
            if progress.failures < ATTEMPTS:
                self._listener.note(f"{name}: {_reason(error)}; submitted again")
                self._later.append((time.monotonic() + _POLL, progress))
            else:
                self.failed[name] = error
                self._listener.note(f"{name}: failed {ATTEMPTS} times, last by {_reason(error)}")

    def _claim(self, name: str) -> ClaimState:
        return read_claim(claim_path(self._claims, name))


@dataclass(frozen=True)
class Finished:
    """What an attempt that did a task leaves."""

    result: Any
    notes: tuple[str, ...]
    """What the user should know, where it could not be shown at once."""
    where: str
    """The machine and the process."""


class _ClaimListener(Progress):
    """Writes progress into a claim, which other processes read, and keeps notes."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self.notes: list[str] = []

    def update(self, text: str, done: float) -> None:
        self._claim.update(text, done)

    def note(self, text: str) -> None:
        self.notes.append(text)


def attempt(
    claim: Path,
    owner: str,
    ended: Collection[str],
    listener: Progress | None,
    function: Callable[..., object],
    *arguments: Any,
) -> Finished | None:
    """Carry out a task in this process; None where another process is at it."""
    with claimed(claim, owner, ended) as own:
        if own is None:
            return None
        remote = _ClaimListener(own)
        result = function(*arguments, listener or remote)
        return Finished(result, tuple(remote.notes), own.where)


def _reason(error: BaseException) -> str:
    """An error in one line."""
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
