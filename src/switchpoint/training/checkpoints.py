"""The state of a training run on disk: complete or absent, and written during training."""

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout
from jaxtyping import Array

from switchpoint._checks import shown
from switchpoint._formats import FORMAT, NEWEST, check_format
from switchpoint._tensors import DamagedError, read_tensors, write_tensors

_KIND = "checkpoint"
_NAME = re.compile(r"step-(\d{9,})\.safetensors")
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")  # as `_files` names them


@contextmanager
def run_lock(directory: Path) -> Iterator[None]:
    """Keep every other process out of `directory`, which must exist; raises if one is in it.

    The lock belongs to the process, so a killed one leaves nothing locked. File systems without
    locks have none.
    """
    lock = FileLock(directory / ".lock", blocking=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise ValueError(f"another process is training in {directory}") from error
    except NotImplementedError:
        pass
    try:
        yield
    finally:
        lock.release()


class Checkpoint(NamedTuple):
    """The arrays that a run had after `step` steps, and the file they were in."""

    path: Path
    step: int
    arrays: dict[str, np.ndarray]


class Checkpoints:
    """The last `keep` checkpoints of the run with these settings, in a directory.

    `config` is what `TrainConfig.to_dict` returns. Only one process may use the directory.
    """

    def __init__(self, directory: Path, config: Mapping[str, Any], keep: int = 3) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        remove_temporaries(directory)
        self.directory = directory
        self._config = json.loads(json.dumps(dict(config)))  # lists for tuples
        self._keep = keep
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoints")
        self._writing: Future[None] | None = None

    def save(self, step: int, arrays: Mapping[str, Array | np.ndarray]) -> None:
        """Begin to write a checkpoint, and return while a thread fetches and writes the arrays.

        The arrays must stay as they are: not donated, not changed. Waits if the previous
        checkpoint is still being written, and raises what went wrong with it. Checkpoints of
        later steps are deleted: a run that is at this step could not use them.
        """
        self._finish()
        self._writing = self._thread.submit(self._write, step, dict(arrays))

    def close(self) -> None:
        """Wait until the last checkpoint is on disk; raises what went wrong with it."""
        self._thread.shutdown()
        self._finish()

    def restore(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest intact checkpoint, if any, and a note for each one that was skipped.

        Raises a `ValueError` if it comes from a run with other settings or a newer version.
        """
        notes = list[str]()
        for step, path in sorted(self._files(), reverse=True):
            try:
                about, arrays = read_tensors(path, _KIND)
                check_format(about, str(path))
                if not isinstance(about.get("config"), dict):
                    raise DamagedError("it does not have the settings of its run")
                if about.get("step") != step:
                    raise DamagedError(
                        f"it is the checkpoint of step {about.get('step')} under another name"
                    )
            except DamagedError as damage:
                notes.append(f"skipped the checkpoint {path}: {damage}")
                continue
            self._check_config(about["config"])
            return Checkpoint(path, step, arrays), notes
        return None, notes

    def _finish(self) -> None:
        """Wait for the write that is under way, if any."""
        if self._writing is not None:
            wait([self._writing])  # an interrupt is raised here, and nothing is forgotten
            written, self._writing = self._writing, None
            written.result()

    def _write(self, step: int, arrays: Mapping[str, Array | np.ndarray]) -> None:
        """Write a checkpoint, and delete those that it makes useless."""
        about = {"kind": _KIND, FORMAT: NEWEST, "step": step, "config": self._config}
        path = self.directory / f"step-{step:09d}.safetensors"
        write_tensors(path, about, arrays, "checkpoint")
        files = sorted(self._files(), reverse=True)
        kept = [path for at, path in files if at <= step][: self._keep]
        for _, path in files:
            if path not in kept:
                path.unlink()

    def _files(self) -> list[tuple[int, Path]]:
        """The checkpoints by their names: (step, path)."""
        matches = [(_NAME.fullmatch(path.name), path) for path in self.directory.iterdir()]
        return [(int(match[1]), path) for match, path in matches if match and path.is_file()]

    def _check_config(self, config: Mapping[str, Any]) -> None:
        before, now = _flat(config), _flat(self._config)
        differences = [
            f"{name}: {shown(before.get(name))}, now {shown(now.get(name))}"
            for name in sorted({*before, *now})
            if before.get(name) != now.get(name)
        ]
        if differences:
            raise ValueError(
                f"the run in {self.directory} has other settings: {'; '.join(differences)} "
                "(take another --out, or the same settings)"
            )


def remove_temporaries(directory: Path) -> None:
    """Delete the unfinished files that killed processes left in `directory`."""
    for path in directory.iterdir():
        if _TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without nesting: those of a mapping are called `leaves weight`."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        inner = value if isinstance(value, Mapping) else None
        flat |= {name: value} if inner is None else {f"{name} {k}": v for k, v in inner.items()}
    return flat
