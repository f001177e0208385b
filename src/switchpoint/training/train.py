"""A training run from its first step, or from where it was stopped, to its last."""

import contextlib
import json
import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from switchpoint import _checks
from switchpoint._files import atomic_write
from switchpoint._tensors import DamagedError
from switchpoint.neural import Network, best_member, save_networks
from switchpoint.neural.blocks import HEADS, WIDTH
from switchpoint.neural.kernels.backend import BACKENDS
from switchpoint.neural.storage import MODEL_FILE
from switchpoint.sources import Source
from switchpoint.training.card import card_of
from switchpoint.training.checkpoints import Checkpoint, Checkpoints, remove_temporaries
from switchpoint.training.config import TrainConfig
from switchpoint.training.custom import CustomConfig, MakeNetwork
from switchpoint.training.fields import one_of
from switchpoint.training.lock import run_lock
from switchpoint.training.members import Member
from switchpoint.training.metrics import MetricsFile, MetricsLines
from switchpoint.training.program import Program, TrainState
from switchpoint.training.progress import Progress, progress_of
from switchpoint.training.report import Report
from switchpoint.training.tensorboard import EventWriter
from switchpoint.training.validation import Validation

_TRIP_SECONDS = 3.0  # of device time between two looks at the outside world
_CHECKPOINT_SECONDS = 30.0
_METRICS = "metrics"  # the array of a checkpoint that has the reports so far, as in their file


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
    *,
    source: Source | Mapping[str, Source] | None = None,
    network: MakeNetwork | None = None,
    minutes: float | None = None,
    progress: bool | Progress | None = None,
    tensorboard: bool = False,
    kernels: str = "auto",
) -> TrainedEnsemble:
    """Train the ensemble that `config` describes, on data drawn as it goes.

    With a directory `out`, the run survives being killed: the same call resumes from the last
    checkpoint, and ends with the same networks and metrics as if nothing had happened.

    `source`, any source or several by name, replaces the prior and the segment of `config`.
    `network`, a function of a key that makes a network, replaces its model; settings that `config`
    was not given follow the recipe of custom networks. `load(out, like=network)` gives such
    networks back.

    `minutes` is a budget of time for this call. When it is spent, the run stops after the step in
    hand, is measured and saved, and the networks as they are come back; the same call resumes. The
    learning rate follows the schedule of all `config.steps` nevertheless.

    `progress` shows how the run goes: by default on a terminal and in a notebook, with True
    anywhere, with False not even warnings.

    `kernels` is the backend that trains: `fused`, `plain`, or `auto`, which is `fused` on a GPU.
    It is not part of the configuration: a run may resume on another backend, with slightly
    different numerics. Networks come back with the backend `auto`, as `load` gives them.
    """
    deadline = time.monotonic() + 60 * (
        math.inf if minutes is None else _checks.positive_float("minutes", minutes)
    )
    backend = one_of(*BACKENDS)("kernels", kernels)
    shown = progress_of(progress)
    if source is not None or network is not None:
        config = CustomConfig(config, source, network)
    sizes = config.width, config.heads
    if backend == "fused" and sizes not in ((None, None), (WIDTH, HEADS)):
        raise ValueError(
            f"kernels 'fused' are for Transformers of width {WIDTH} with {HEADS} heads, got width "
            f"{config.width} and {config.heads} heads; take 'plain' or 'auto'"
        )
    if out is None:
        if tensorboard:
            raise ValueError("tensorboard needs a directory: give out as well")
        return _run(Program(config, backend), None, shown, tensorboard, deadline)
    directory = Path(out)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"out cannot be made: {directory} ({error.strerror})") from error
    with run_lock(directory):
        program = Program(config, backend)
        return _run(program, _RunDirectory(directory, config), shown, tensorboard, deadline)


def _run(
    program: Program,
    directory: "_RunDirectory | None",
    progress: Progress,
    tensorboard: bool,
    deadline: float,
) -> TrainedEnsemble:
    config, members = program.config, program.config.members()
    validation = Validation(config, program.mesh)
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
        where = "" if directory is None else "; the same command continues from there"
        while step < config.steps:
            until = min(step + pace.steps_until(deadline), _next_report(config, step))
            state = program.advance(state, until)
            jax.block_until_ready(state.step)
            pace.measured(until - step)
            step = until
            progress.tick(step, pace.steps_per_second)
            if step == _next_report(config, step - 1):
                report = _report(validation, state, reports)
                _note_frozen(progress, members, reports, report, state)
                reports.append(report)
                state = eqx.tree_at(lambda s: s.loss, state, jnp.zeros_like(state.loss))
                progress.report(report)
                if directory is not None:
                    directory.metrics.append(report)
                if events is not None:
                    events.report(report)
                pace.restart()
            over = time.monotonic() >= deadline
            due = over or time.monotonic() - saved_at > _CHECKPOINT_SECONDS
            if directory is not None and (due or interrupted or step == config.steps):
                directory.save(step, state)
                saved_at = time.monotonic()
            if interrupted:
                interrupted.end(f"stopped after step {step}{where}")
            if over and step < config.steps:
                progress.note(f"out of time after step {step} of {config.steps}{where}")
                break
        if not reports or reports[-1].step < step:
            # Not on schedule: neither the metrics nor the state know of it, and a run that goes
            # on is the same as one that was never stopped.
            report = _report(validation, state, reports)
            _note_frozen(progress, members, reports, report, state)
            reports.append(report)
            progress.report(report)
        networks = _networks(state, len(members))
        path = None
        if directory is not None:
            path = directory.path / MODEL_FILE
            save_networks(path, networks, card_of(config, reports[-1]))
        return TrainedEnsemble(config, members, networks, tuple(reports), path)


class _RunDirectory:
    """The files of a run."""

    def __init__(self, path: Path, config: TrainConfig) -> None:
        remove_temporaries(path)
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints", config.to_dict())
        self.metrics = MetricsFile(path / "metrics.jsonl")
        self._config = config
        self._config_path = path / "config.json"

    def restore(self, progress: Progress) -> tuple[list[np.ndarray] | None, list[Report]]:
        """The state to go on from, None at the beginning, and the reports up to there."""
        lines = self.metrics.lines()
        restored = self.checkpoints.restore(lambda found: self._lacking(found, lines))
        found = restored.checkpoint
        for warning in (*([lines.damage] if lines.damage else []), *restored.notes):
            progress.warning(warning)
        if found is None:
            if restored.notes:
                progress.warning("no checkpoint can be used: starting again from step 0")
            self.metrics.replace(b"")
            self._write_config()
            return None, []
        progress.note(f"going on from step {found.step} ({found.path.name})")
        known = self._metrics(found, lines)
        if not lines.content.startswith(known.content):
            progress.warning(f"{self.metrics.path} lacked reports: repaired from {found.path}")
        self.metrics.replace(known.content)
        if self._write_config():
            progress.warning(f"{self._config_path} was not whole: repaired from {found.path}")
        leaves = [found.arrays[name] for name in sorted(found.arrays) if name != _METRICS]
        return leaves, list(known.reports)

    def _metrics(self, found: Checkpoint, lines: MetricsLines) -> MetricsLines:
        """The reports up to a checkpoint; those of earlier versions hold none, the file does."""
        if _METRICS not in found.arrays:
            return lines.up_to(found.step)
        return MetricsLines.of(found.arrays[_METRICS].tobytes(), found.path)

    def _lacking(self, found: Checkpoint, lines: MetricsLines) -> str | None:
        """What is missing for a run to go on from a checkpoint."""
        step, reports = found.step, self._metrics(found, lines).reports
        last = step if step == self._config.steps else step - step % self._config.report_every
        if (reports[-1].step if reports else 0) == last:
            return None
        return f"the report of step {last} is missing in {self.metrics.path}"

    def _write_config(self) -> bool:
        """Write the settings where they are not there; whether that was so."""
        settings = self._config.to_dict()
        try:
            there = json.loads(self._config_path.read_bytes()) == settings
        except (OSError, ValueError):
            there = False
        if not there:
            with atomic_write(self._config_path, "out") as file:
                file.write((json.dumps(settings, indent=2) + "\n").encode())
        return not there

    def save(self, step: int, state: TrainState) -> None:
        """Begin to write a checkpoint of a state, which may be donated meanwhile."""
        copies = jax.tree.map(jnp.copy, state)
        leaves = jax.tree.leaves(copies)
        arrays = {f"{i:04d}": leaf for i, leaf in enumerate(leaves)}
        metrics = np.frombuffer(self.metrics.content, np.uint8)
        self.checkpoints.save(step, {**arrays, _METRICS: metrics})


def _started(
    program: Program, directory: _RunDirectory | None, progress: Progress
) -> tuple[TrainState, list[Report]]:
    """The state to begin with, and the reports up to there."""
    if directory is None:
        return program.start(), []
    leaves, reports = directory.restore(progress)
    try:
        return program.start() if leaves is None else program.restored(leaves), reports
    except DamagedError as error:
        where = directory.checkpoints.directory
        raise ValueError(f"the newest checkpoint in {where} is not of this run: {error}") from error


def _next_report(config: TrainConfig, step: int) -> int:
    """The first step after `step` that has a report."""
    return min(step - step % config.report_every + config.report_every, config.steps)


def _report(validation: Validation, state: TrainState, reports: list[Report]) -> Report:
    """How the members stand; `reports` are those before."""
    steps = int(state.step) - (reports[-1].step if reports else 0)
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
    networks = state.networks.with_backend("auto")
    flat = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(count, *leaf.shape[2:]), networks)
    return tuple(jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), flat) for i in range(count))


class _Pace:
    """How many steps the next trip should have, from how long the last ones took."""

    def __init__(self) -> None:
        self.steps = 1
        self.steps_per_second = 0.0
        self._compiled = False
        self.restart()

    def steps_until(self, deadline: float) -> int:
        """How many steps the next trip should have, one at least, to end in time."""
        left = max(0.0, deadline - time.monotonic()) * self.steps_per_second
        return max(1, int(min(self.steps, left))) if self.steps_per_second else self.steps

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
