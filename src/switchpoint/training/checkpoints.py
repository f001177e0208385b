"""The state of a training run on disk: whole or absent, and written while training goes on."""

import json
import os
import re
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array

from switchpoint._tensors import DamagedError, read_tensors, write_tensors

_KIND = "checkpoint"
_NAME = re.compile(r"step-(\d{9,})\.safetensors")
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")  # as `_files.replacing` names them
# What safetensors both writes and reads back as NumPy arrays.
_DTYPES = frozenset(
    ["bool", "bfloat16", "float16", "float32", "float64", "complex64"]
    + [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
)
_LONGEST_VALUE = 40  # characters of a setting in a message


@dataclass(frozen=True)
class Checkpoint:
    """The arrays that a run had after `step` steps, and the file they were in."""

    path: Path
    step: int
    arrays: dict[str, np.ndarray]


@dataclass(frozen=True)
class Restored:
    """What a directory of checkpoints had to give.

    `checkpoint` is the newest whole one, None where there is none; `notes` has a line for
    each damaged file that was passed over.
    """

    checkpoint: Checkpoint | None
    notes: tuple[str, ...]


class Checkpoints:
    """The last `keep` checkpoints of the run with these settings, in a directory of their own.

    `config` is made of what JSON can hold. Only one process may use the directory at a time.
    """

    directory: Path
    _config: dict[str, Any]
    _keep: int
    _thread: ThreadPoolExecutor
    _writing: "Future[None] | None"

    def __init__(self, directory: Path, config: Mapping[str, Any], keep: int = 3) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._config = json.loads(json.dumps(dict(config)))  # as it will be read: no tuples
        self._keep = keep
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoints")
        self._writing = None

    def save(self, step: int, arrays: Mapping[str, Array | np.ndarray]) -> None:
        """Begin to write a checkpoint, and return while a thread fetches and writes the arrays.

        The arrays must stay as they are: not donated, not changed. Waits where the checkpoint
        before is still being written, and raises what went wrong with it. Checkpoints of
        later steps are deleted: a run that comes by here has not been able to use them.
        """
        self._finish()
        for name, array in arrays.items():
            if str(array.dtype) not in _DTYPES:
                raise ValueError(
                    f"array {name!r} must have a dtype that safetensors holds, got {array.dtype}"
                )
        self._writing = self._thread.submit(self._write, step, dict(arrays))

    def close(self) -> None:
        """Wait until the last checkpoint is on disk; raises what went wrong with it."""
        self._thread.shutdown()
        self._finish()

    def restore(self) -> Restored:
        """The newest whole checkpoint, past any that is damaged.

        Raises a `ValueError` where it comes from a run with other settings.
        """
        notes = []
        for step, path in sorted(self._files(), reverse=True):
            try:
                config, arrays = _read(path, step)
            except DamagedError as damage:
                notes.append(f"passed over the checkpoint {path}: {damage}")
                continue
            self._check_config(config)
            return Restored(Checkpoint(path, step, arrays), tuple(notes))
        return Restored(None, tuple(notes))

    def _finish(self) -> None:
        """Wait for the write that is going on, if any."""
        if self._writing is not None:
            wait([self._writing])  # an interrupt comes here, and nothing is forgotten
            written, self._writing = self._writing, None
            written.result()

    def _write(self, step: int, arrays: Mapping[str, Array | np.ndarray]) -> None:
        """The thread's work."""
        about = {"kind": _KIND, "step": step, "config": self._config}
        path = self.directory / f"step-{step:09d}.safetensors"
        write_tensors(path, about, arrays, "checkpoint")
        _sync_directory(self.directory)
        self._clean(step)

    def _clean(self, step: int) -> None:
        """Delete what the checkpoint of `step`, just written, makes useless."""
        files = sorted(self._files(), reverse=True)
        kept = [path for at, path in files if at <= step][: self._keep]
        for _, path in files:
            if path not in kept:
                path.unlink()
        for path in self.directory.iterdir():
            if _TEMPORARY.fullmatch(path.name):
                path.unlink()  # left by a kill

    def _files(self) -> list[tuple[int, Path]]:
        """The checkpoints by their names: (step, path)."""
        matches = [(_NAME.fullmatch(path.name), path) for path in self.directory.iterdir()]
        return [(int(match[1]), path) for match, path in matches if match and path.is_file()]

    def _check_config(self, config: Mapping[str, Any]) -> None:
        missing = "nothing"
        differences = [
            f"{name} {_shown(config.get(name, missing))}, "
            f"not {_shown(self._config.get(name, missing))}"
            for name in sorted({*config, *self._config})
            if config.get(name, missing) != self._config.get(name, missing)
        ]
        if differences:
            raise ValueError(
                f"the run in {self.directory} was made with {'; '.join(differences)} "
                "(take another --out, or the same settings)"
            )


def _read(path: Path, step: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The configuration and the arrays in a file, proved whole."""
    about, arrays = read_tensors(path, _KIND)
    if not isinstance(about.get("config"), dict):
        raise DamagedError("it does not say of what run it is")
    if about.get("step") != step:
        raise DamagedError(f"it is the checkpoint of step {about.get('step')} under another name")
    return about["config"], arrays


def _sync_directory(directory: Path) -> None:
    """Bring the directory's names to disk; without this a power cut could undo the rename."""
    if os.name == "nt":
        return  # Windows opens no directories
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
