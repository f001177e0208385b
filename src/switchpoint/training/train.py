"""A training run from its first step, or from where it was stopped, to its last."""

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from switchpoint._files import replacing
from switchpoint.neural import Network, best_member, save_networks
from switchpoint.neural.kernels.choice import PATHS
from switchpoint.neural.storage import MODEL_FILE
from switchpoint.training.card import card_of
from switchpoint.training.checkpoints import Checkpoints
from switchpoint.training.config import TrainConfig
from switchpoint.training.fields import one_of
from switchpoint.training.lock import run_lock
from switchpoint.training.members import Member
from switchpoint.training.metrics import MetricsFile, read_reports
from switchpoint.training.program import Program, TrainState
from switchpoint.training.progress import Progress, SilentProgress
from switchpoint.training.report import Report
from switchpoint.training.tensorboard import EventWriter
from switchpoint.training.validation import Validation

_TRIP_SECONDS = 3.0  # of device time between two looks at the outside world
_CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class TrainedEnsemble:
    """What a run leaves: its networks, and how they came about."""

    config: TrainConfig
    members: tuple[Member, ...]
    networks: tuple[Network, ...]
    """One for each member."""
    reports: tuple[Report, ...]
    """All of them, in order; the last is about the networks as they are."""
    path: Path | None
    """The file of the networks, where the run has a directory."""

    def best(self, prior: str | None = None) -> Network:
        """The network with the lowest excess on the validation sequences, of one prior or all."""
        return self.networks[best_member(card_of(self.config, self.reports[-1]), prior)]


def train(
    config: TrainConfig,
    out: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    tensorboard: bool = False,
    kernels: str = "auto",
) -> TrainedEnsemble:
    """Train the ensemble that `config` describes, on data drawn as it goes.

    With a directory `out`, the run survives being killed: the same call goes on from the last
    checkpoint, and ends with the same networks and metrics as if nothing had happened.

    `kernels` is the path that computes: `fused`, `plain`, or `auto`, which is `fused` on a GPU.
    It is no part of what a run is: a run may go on with another path, and ends close by.
    """
    kernels = one_of(*PATHS)("kernels", kernels)
    progress = SilentProgress() if progress is None else progress
    if out is None:
        if tensorboard:
            raise ValueError("tensorboard needs a directory: give out as well")
        return _run(Program(config, kernels), None, progress, tensorboard)
    directory = Path(out)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"out cannot be made: {directory} ({error.strerror})") from error
    with run_lock(directory):
        program = Program(config, kernels)
        return _run(program, _RunDirectory(directory, config), progress, tensorboard)


def _run(
    program: Program, directory: "_RunDirectory | None", progress: Progress, tensorboard: bool
) -> TrainedEnsemble:
    config, members = program.config, program.config.members()
    validation = Validation(config, program.mesh, program.kernels)
    state, reports = _started(program, directory, progress)
    step = int(state.step)
    with contextlib.ExitStack() as stack:
        interrupted = stack.enter_context(_interrupts())
        stack.callback(progress.close)
        if directory is not None:
            stack.callback(directory.checkpoints.close)
        events = None
        if directory is not None and tensorboard:
            events = EventWriter(directory.path / "tensorboard", members, step)
            stack.callback(events.close)
        progress.start(members, step, config.steps)
        pace, saved_at = _Pace(), time.monotonic()
        while step < config.steps:
            until = min(step + pace.steps, _next_report(config, step))
            state = program.advance(state, until)
            jax.block_until_ready(state.step)
            pace.measured(until - step)
            step = until
            progress.tick(step, pace.steps_per_second)
            if step == _next_report(config, step - 1):
                since = step - (reports[-1].step if reports else 0)
                report = _report(validation, state, since)
                _note_frozen(progress, members, reports, report, state)
                reports.append(report)
                state = eqx.tree_at(lambda s: s.loss, state, jnp.zeros_like(state.loss))
                progress.report(report)
                if directory is not None:
                    directory.metrics.append(report)
                if events is not None:
                    events.report(report)
                pace.restart()
            due = time.monotonic() - saved_at > _CHECKPOINT_SECONDS
            if directory is not None and (due or interrupted or step == config.steps):
                directory.save(step, state)
                saved_at = time.monotonic()
            if interrupted:
                where = "" if directory is None else "; the same command continues from there"
                interrupted.end(f"stopped after step {step}{where}")
        networks = _networks(state, len(members))
        path = None
        if directory is not None:
            path = directory.path / MODEL_FILE
            save_networks(path, networks, card_of(config, reports[-1]))
        return TrainedEnsemble(config, members, networks, tuple(reports), path)


class _RunDirectory:
    """The files of a run."""

    def __init__(self, path: Path, config: TrainConfig) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints", config.to_dict())
        self.metrics = MetricsFile(path / "metrics.jsonl")
        self._config = config

    def restore(self, progress: Progress) -> tuple[int, dict[str, np.ndarray] | None]:
        """The step and the arrays to go on from; 0 and None at the beginning."""
        restored = self.checkpoints.restore()
        for note in restored.notes:
            progress.note(note)
        if restored.checkpoint is None:
            self.metrics.rewind(0)
            with replacing(self.path / "config.json", "out") as file:
                file.write((json.dumps(self._config.to_dict(), indent=2) + "\n").encode())
            return 0, None
        found = restored.checkpoint
        progress.note(f"going on from step {found.step} ({found.path.name})")
        self.metrics.rewind(found.step)
        return found.step, found.arrays

    def reports(self, step: int) -> list[Report]:
        """The reports up to `step`, the last of which must not be missing."""
        path, every = self.metrics.path, self._config.report_every
        found = read_reports(path) if path.exists() else []
        last = step if step == self._config.steps else step - step % every
        if (found[-1].step if found else 0) != last:
            raise ValueError(
                f"{path} must end with the report of step {last}, where the run goes on, "
                f"got {f'that of step {found[-1].step}' if found else 'none'}"
            )
        return found

    def save(self, step: int, state: TrainState) -> None:
        """Begin to write a checkpoint of a state, which may be donated meanwhile."""
        copies = jax.tree.map(jnp.copy, state)
        leaves = jax.tree.leaves(copies)
        self.checkpoints.save(step, {f"{i:04d}": leaf for i, leaf in enumerate(leaves)})


def _started(
    program: Program, directory: _RunDirectory | None, progress: Progress
) -> tuple[TrainState, list[Report]]:
    """The state to begin with, and the reports up to there."""
    if directory is None:
        return program.start(), []
    _, arrays = directory.restore(progress)
    if arrays is None:
        return program.start(), []
    state = program.restored([arrays[name] for name in sorted(arrays)])
    return state, directory.reports(int(state.step))


def _next_report(config: TrainConfig, step: int) -> int:
    """The first step after `step` that has a report."""
    return min(step - step % config.report_every + config.report_every, config.steps)


def _report(validation: Validation, state: TrainState, steps: int) -> Report:
    excess = validation.excess(state.networks)
    frozen = np.flatnonzero(np.asarray(state.frozen_at).ravel() >= 0)
    return Report(
        step=int(state.step),
        loss=tuple(float(loss) / steps for loss in np.asarray(state.loss).ravel()),
        excess=tuple(float(mean) for mean in excess.mean),
        excess_error=tuple(float(error) for error in excess.error),
        frozen=tuple(int(index) for index in frozen),
    )


def _note_frozen(
    progress: Progress,
    members: tuple[Member, ...],
    reports: list[Report],
    report: Report,
    state: TrainState,
) -> None:
    known = set(reports[-1].frozen) if reports else set()
    for index in sorted(set(report.frozen) - known):
        step = int(np.asarray(state.frozen_at).ravel()[index])
        progress.note(
            f"member {members[index].label} is frozen: at step {step} its loss was not finite"
        )


def _networks(state: TrainState, count: int) -> tuple[Network, ...]:
    flat = jax.tree.map(
        lambda leaf: np.asarray(leaf).reshape(count, *leaf.shape[2:]), state.networks
    )
    return tuple(jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), flat) for i in range(count))


class _Pace:
    """How many steps the next trip should have, from how long the last ones took."""

    def __init__(self) -> None:
        self.steps = 1
        self.steps_per_second = 0.0
        self._compiled = False
        self.restart()

    def restart(self) -> None:
        """Time goes on now."""
        self._begun = time.monotonic()

    def measured(self, steps: int) -> None:
        """A trip of so many steps has ended."""
        seconds = max(time.monotonic() - self._begun, 1e-6)
        if self._compiled:  # the first trip was mostly compilation
            self.steps_per_second = steps / seconds
            wanted = int(self.steps_per_second * _TRIP_SECONDS)
            self.steps = max(1, min(wanted, 4 * self.steps))
        self._compiled = True
        self.restart()


class _Interrupted:
    """Becomes true when SIGINT or SIGTERM has asked the run to stop."""

    def __init__(self) -> None:
        self._signal: int | None = None
        self._ending = False

    def __bool__(self) -> bool:
        return self._signal is not None

    def ask(self, number: int, _: Any) -> None:
        """Stop after this trip; asked twice, stop at once unless a checkpoint is being saved."""
        if self._signal is not None and not self._ending:
            raise KeyboardInterrupt
        self._signal = number

    def end(self, message: str) -> NoReturn:
        """Raise what the signal stands for: Ctrl-C, or the end of the process."""
        self._ending = True
        ended = self._signal == signal.SIGTERM
        stop = SystemExit(128 + signal.SIGTERM) if ended else KeyboardInterrupt()
        stop.add_note(message)
        raise stop


@contextlib.contextmanager
def _interrupts() -> Iterator[_Interrupted]:
    """SIGINT and SIGTERM ask the run to stop while this lasts.

    Not a signal that is ignored, nor one that another program handles, and none outside the
    main thread, where Python cannot listen.
    """
    interrupted = _Interrupted()
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, interrupted.ask)
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
