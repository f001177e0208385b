"""The state of a training run on disk: whole or absent, and written while training goes on."""

import itertools
import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array

from switchpoint._tensors import DamagedError, read_tensors, write_tensors

_KIND = "checkpoint"
_NAME = re.compile(r"step-(\d{9,})\.safetensors")
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")  # as `_files.atomic_write` names them
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

    `checkpoint` is the newest whole one that fits, None where there is none; `notes` has a line
    for each file that was passed over.
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
        remove_temporaries(directory)
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

    def restore(self, unfit: Callable[[Checkpoint], str | None] = lambda _: None) -> Restored:
        """The newest whole checkpoint, past any that is damaged or `unfit`, which says why.

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
            found = Checkpoint(path, step, arrays)
            reason = unfit(found)
            if reason is None:
                return Restored(found, tuple(notes))
            notes.append(f"passed over the checkpoint {path}: {reason}")
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
        self._clean(step)

    def _clean(self, step: int) -> None:
        """Delete what the checkpoint of `step`, just written, makes useless."""
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
        missing = "nothing"
        differences = [
            "{} {}, not {}".format(name, *_shown(before.get(name, missing), now.get(name, missing)))
            for name in sorted({*before, *now})
            if before.get(name, missing) != now.get(name, missing)
        ]
        if differences:
            raise ValueError(
                f"the run in {self.directory} was made with {'; '.join(differences)} "
                "(take another --out, or the same settings)"
            )


def remove_temporaries(directory: Path) -> None:
    """Delete the unfinished files that killed processes left in `directory`."""
    for path in directory.iterdir():
        if _TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _read(path: Path, step: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The configuration and the arrays in a file, proved whole."""
    about, arrays = read_tensors(path, _KIND)
    if not isinstance(about.get("config"), dict):
        raise DamagedError("it does not say of what run it is")
    if about.get("step") != step:
        raise DamagedError(f"it is the checkpoint of step {about.get('step')} under another name")
    return about["config"], arrays


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without nesting: those of a mapping are called `leaves weight`."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= {f"{name} {inner}": each for inner, each in value.items()}
        else:
            flat[name] = value
    return flat


def _shown(*values: Any) -> list[str]:
    """The values as text; long ones are cut to the part in which they differ."""
    texts = [str(value) for value in values]
    if max(map(len, texts)) <= _LONGEST_VALUE:
        return texts
    same = (len(set(letters)) == 1 for letters in zip(*texts, strict=False))
    start = max(0, sum(itertools.takewhile(bool, same)) - _LONGEST_VALUE // 2)
    end = start + _LONGEST_VALUE
    return [
        ("..." if start else "") + text[start:end] + ("..." if text[end:] else "") for text in texts
    ]
