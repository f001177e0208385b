"""A training run from its first step, or from where it was stopped, to its last."""

import contextlib
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
from switchpoint._files import make_directory
from switchpoint._tensors import DamagedError
from switchpoint.neural import Network, best_member
from switchpoint.neural.blocks import HEADS, WIDTH
from switchpoint.neural.kernels.backend import check_backend
from switchpoint.sources import Source
from switchpoint.training.checkpoints import run_lock
from switchpoint.training.config import Member, TrainConfig
from switchpoint.training.custom import MakeNetwork, custom_config
from switchpoint.training.metrics_log import EvalRecord
from switchpoint.training.program import Program, TrainState
from switchpoint.training.progress import Progress, progress_of
from switchpoint.training.run_directory import RunDirectory, card_of
from switchpoint.training.tensorboard import EventWriter
from switchpoint.training.validation import Validation

_TRIP_SECONDS = 3.0  # of device time between two looks at the outside world
_CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class TrainedEnsemble:
    """The networks of a run, and how they were trained."""

    config: TrainConfig
    members: tuple[Member, ...]
    networks: tuple[Network, ...]
    """One for each member."""
    reports: tuple[EvalRecord, ...]
    """All evaluations in order; the last is of the networks as they are."""
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
    network: MakeNetwork | Network | None = None,
    minutes: float | None = None,
    progress: bool | Progress | None = None,
    tensorboard: bool = False,
    kernels: str = "auto",
) -> TrainedEnsemble:
    """Train the ensemble that `config` describes, on data drawn as it goes.

    With a directory `out`, the run survives being killed: the same call resumes from the last
    checkpoint, and ends with the same networks and metrics as if nothing had happened.

    `source`, any source or several by name, replaces the prior and the segment of `config`.
    `network` replaces its model: a network to start from, such as `load("lstm-ptw")` for
    fine-tuning, or a function of a key that makes one. Settings that `config` was not given follow
    the recipe of its class. Networks of your own classes come back by `load(out, like=network)`.

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
    backend = check_backend(kernels)
    shown = progress_of(progress)
    if source is not None or network is not None:
        config = custom_config(config, source, network)
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
    make_directory(directory)
    with run_lock(directory):
        program = Program(config, backend)
        return _run(program, RunDirectory(directory, config), shown, tensorboard, deadline)


def _run(
    program: Program,
    directory: RunDirectory | None,
    progress: Progress,
    tensorboard: bool,
    deadline: float,
) -> TrainedEnsemble:
    config, members = program.config, program.config.members()
    validation = Validation(config, program.mesh)
    state, records = _started(program, directory, progress)
    step = int(state.step)

    def evaluate() -> EvalRecord:
        """Add a record of the members as they are."""
        known = records[-1].diverged if records else ()
        record = validation.record(state, records[-1].step if records else 0)
        for index in sorted(set(record.diverged) - set(known)):
            at = int(np.asarray(state.diverged_at).ravel()[index])
            progress.note(
                f"member {members[index].label} diverged: at step {at} its loss was not finite"
            )
        records.append(record)
        progress.report(record)
        return record

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
            scheduled = min(step - step % config.report_every + config.report_every, config.steps)
            until = min(step + pace.steps_until(deadline), scheduled)
            state = program.advance(state, until)
            jax.block_until_ready(state.step)
            pace.measured(until - step)
            step = until
            progress.tick(step, pace.steps_per_second)
            if step == scheduled:
                record = evaluate()
                state = eqx.tree_at(lambda s: s.loss, state, jnp.zeros_like(state.loss))
                if directory is not None:
                    directory.metrics.append(record)
                if events is not None:
                    events.report(record)
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
        if not records or records[-1].step < step:
            # Not on schedule, so neither the metrics nor the state have it: a run that resumes
            # is the same as one that was never stopped.
            evaluate()
        networks = _networks(state, len(members))
        path = None if directory is None else directory.save_networks(networks, records[-1])
        return TrainedEnsemble(config, members, networks, tuple(records), path)


def _started(
    program: Program, directory: RunDirectory | None, progress: Progress
) -> tuple[TrainState, list[EvalRecord]]:
    """The state to begin with, and the records up to there."""
    if directory is None:
        return program.start(), []
    leaves, records = directory.restore(progress)
    try:
        return program.start() if leaves is None else program.restored(leaves), records
    except DamagedError as error:
        where = directory.checkpoints.directory
        raise ValueError(
            f"the newest checkpoint in {where} does not belong to this run: {error}"
        ) from error


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
        """Start the clock of the next trip."""
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

    @property
    def unanswered(self) -> int | None:
        """The signal, unless `end` has raised what it stands for."""
        return None if self._ending else self._signal

    def ask(self, number: int, _: Any) -> None:
        """Stop after this trip; asked twice, stop now unless a checkpoint is being saved."""
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
    main thread, where Python cannot listen. One that comes too late to stop the run is raised
    again for the caller, who may have more to do.
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
        if interrupted.unanswered is not None:
            signal.raise_signal(interrupted.unanswered)
