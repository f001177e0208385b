"""Claims: files by which processes on several machines agree who works on what.

A claim is a file in a directory that all machines share. It is created exclusively, which is atomic
on local file systems and on NFS 3 and later, and its owner holds a lock on it for as long as the
process lives. Some shared file systems have no locks, or locks that other machines do not see, so
the owner also rewrites the file every few seconds. A claim may be taken over

- on the machine of its owner, as soon as the lock is free: the owner has ended;
- on any machine, when whoever started the owner knows that it has ended;
- on any machine, when its content has not changed for `EXPIRY` seconds of the observer's own clock,
  so that the clocks of machines need not agree.
"""

import json
import os
import platform
import secrets
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import fcntl

EXPIRY = 60.0
"""Seconds without a sign of life after which a claim may be taken over."""

_BEAT = 5.0  # seconds between signs of life
_SETTLE = 1.0  # seconds in which a rival's claim becomes visible on every machine
_PAUSE = 1.0  # seconds between two attempts to have a claim
_SUFFIX = ".claim"
_MAX_TEXT = 200  # characters of what the owner is doing
_BYTES = 2048  # of the file


@dataclass(frozen=True)
class ClaimState:
    """What the file of a claim says."""

    owner: str = ""
    """A random name of the attempt that owns it."""
    machine: str = ""
    host: str = ""
    pid: int = 0
    beat: int = 0
    """How often the owner has rewritten it."""
    text: str = ""
    """What the owner is doing."""
    done: float = 0.0
    """How much of the work is done, from 0 to 1."""

    @property
    def where(self) -> str:
        """The machine and the process of the owner."""
        return f"{self.host} ({self.pid})"


class Watch:
    """Observes a claim of another process, and tells when it shows no sign of life any more."""

    def __init__(self) -> None:
        self._seen: tuple[str, int] | None = None
        self._since = 0.0

    def expired(self, state: ClaimState) -> bool:
        """Whether the claim has been as it is now for `EXPIRY` seconds."""
        now = time.monotonic()
        if (state.owner, state.beat) != self._seen:
            self._seen, self._since = (state.owner, state.beat), now
        return now - self._since > EXPIRY


class Claim:
    """A claim that this process owns."""

    def __init__(self, path: Path, handle: int, owner: str) -> None:
        self._path, self._handle = path, handle
        self._state: dict[str, Any] = {
            "owner": owner,
            "machine": machine(),
            "host": platform.node(),
            "pid": os.getpid(),
        }
        self._text, self._done, self._beat = "", 0.0, 0
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.write()

    @property
    def where(self) -> str:
        """The machine and the process, which are ours."""
        return ClaimState(**self._state).where

    def update(self, text: str, done: float) -> None:
        """Note what is being done; it is written with the next sign of life."""
        self._text, self._done = text, done

    def write(self) -> None:
        """Rewrite the file in place, which keeps the lock."""
        with self._lock:
            self._beat += 1
            doing = {"beat": self._beat, "text": self._text[:_MAX_TEXT], "done": self._done}
            _write(self._handle, {**self._state, **doing})

    def keep_alive(self) -> None:
        """Rewrite the file until the claim is released, or another has taken it over."""
        while not self._ended.wait(_BEAT):
            with suppress(OSError):  # a file server that is away for a moment
                if read_claim(self._path).owner not in ("", self._state["owner"]):
                    return
                self.write()

    def release(self) -> None:
        """Remove the file, unless another has taken the claim over."""
        self._ended.set()
        with self._lock:
            if read_claim(self._path).owner == self._state["owner"]:
                self._path.unlink(missing_ok=True)
            os.close(self._handle)


@contextmanager
def claimed(path: Path, owner: str, ended: Collection[str] = ()) -> Iterator[Claim | None]:
    """The claim on `path`, held while the block runs; None where another process holds it.

    `owner` is a name that no other attempt has. `ended` are owners that have ended or have shown
    no sign of life; the empty name stands for one that never wrote its own.
    """
    handle = _taken(path, ended, owner)
    if handle is None:
        yield None
        return
    claim = Claim(path, handle, owner)
    beating = threading.Thread(target=claim.keep_alive, name=f"claim {path.name}", daemon=True)
    beating.start()
    try:
        yield claim
    finally:
        claim.release()
        beating.join()


@contextmanager
def exclusive(path: Path, waiting: Callable[[ClaimState], None]) -> Iterator[None]:
    """Hold the claim on `path` while the block runs, after waiting for whoever has it.

    `waiting` is called now and then with the state of the other's claim.
    """
    ended: set[str] = set()
    watch = Watch()
    while True:
        with claimed(path, secrets.token_hex(8), ended) as own:
            if own is not None:
                yield
                return
        state = read_claim(path)
        waiting(state)
        if watch.expired(state):
            ended.add(state.owner)
        time.sleep(_PAUSE)


def claim_path(directory: Path, name: str) -> Path:
    """The file of the claim on what is called `name`."""
    return directory / f"{name}{_SUFFIX}"


def read_claim(path: Path) -> ClaimState:
    """What a claim says; an empty state where there is none, or its owner is writing it."""
    try:
        content: Mapping[str, Any] = json.loads(path.read_bytes())
        return ClaimState(**content)
    except (OSError, ValueError, TypeError):
        return ClaimState()


def held_claims(directory: Path) -> set[str]:
    """The names that are claimed in a directory, by one reading of it."""
    with suppress(OSError):
        found = os.listdir(directory)
        return {name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX)}
    return set()


def machine() -> str:
    """What tells this machine, since it was started, from all others."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return platform.node()


def _taken(path: Path, ended: Collection[str], owner: str) -> int | None:
    """A handle to the file of a claim that is now ours; None where it is another's."""
    while True:
        created = True
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            created = False
            try:
                handle = os.open(path, os.O_RDWR)
            except FileNotFoundError:  # it was released just now
                continue
        locked = _lock(handle, patient=created)
        same = locked is not None and _same_file(handle, path)
        if locked is not None and same:
            state = read_claim(path)
            dead = locked and state.machine == machine()
            if created or dead or (state.owner in ended and _settled(path, handle, owner)):
                return handle
        os.close(handle)
        if locked is None or same:
            return None


def _settled(path: Path, handle: int, owner: str) -> bool:
    """Whether we have the claim of an owner that has ended.

    Another machine may take it over at the same time, without our seeing its lock: the last one
    to write has it.
    """
    _write(handle, {"owner": owner, "machine": machine()})
    time.sleep(_SETTLE)
    return read_claim(path).owner == owner


def _write(handle: int, content: Mapping[str, Any]) -> None:
    """Write a state over the one before, in one piece of constant length."""
    os.lseek(handle, 0, os.SEEK_SET)
    os.write(handle, json.dumps(content).encode().ljust(_BYTES))
    os.fsync(handle)  # so that other machines see it when they open the file


def _lock(handle: int, patient: bool) -> bool | None:
    """Whether the file is locked now; None where another process has locked it.

    False is a file system without locks. A `patient` process waits for one that is only looking.
    """
    if sys.platform == "win32":
        return False
    for attempt in range(20 if patient else 1):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.05 if patient and attempt < 19 else 0)
        except OSError:
            return False
    return None


def _same_file(handle: int, path: Path) -> bool:
    """Whether the open file is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False
