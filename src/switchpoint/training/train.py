"""A training run from its first step, or from its last checkpoint, to its last step."""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Mapping
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
from switchpoint.neural.blocks import HEADS, WIDTH, has_kernels
from switchpoint.neural.kernels.backend import check_backend
from switchpoint.sources import AbstractSource
from switchpoint.training.checkpoints import run_lock
from switchpoint.training.config import Member, TrainConfig
from switchpoint.training.custom import MakeNetwork, custom_config
from switchpoint.training.metrics_log import EvalRecord
from switchpoint.training.program import Program, TrainState
from switchpoint.training.progress import Choice, RunProgress, run_progress
from switchpoint.training.run_directory import RunDirectory, make_card
from switchpoint.training.tensorboard import EventWriter
from switchpoint.training.validation import Validation


@dataclass(frozen=True)
class TrainedEnsemble:
    """The networks of a run, and how they were trained.

    See `train` for an example.
    """

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
        return self.networks[best_member(make_card(self.config, self.reports[-1]), prior)]


def train(
    config: TrainConfig,
    out: str | PathLike[str] | None = None,
    *,
    source: AbstractSource | Mapping[str, AbstractSource] | None = None,
    network: MakeNetwork | Network | None = None,
    minutes: float | None = None,
    progress: Choice = None,
    tensorboard: bool = False,
    kernels: str = "auto",
    checkpoint_seconds: float = 30.0,
    device_seconds: float = 3.0,
) -> TrainedEnsemble:
    """Train the ensemble that `config` describes, on data drawn during the run.

    A step draws `config.batch` sequences x of length n for each member from its source, and
    descends along the gradient of the log loss -1/n sum_t ln q(x_t | x_<t), whose minimum over all
    q is the exact Bayes predictor. Every `config.report_every` steps, the members' excess regret
    over that predictor is measured on sequences that no member is trained on. A run is one
    compiled program of O(members x steps x batch x n) work, divided among the devices.

    With a directory `out`, the run survives being killed: the same call resumes from the last
    checkpoint, and ends with the same networks and metrics as if nothing had happened.

    `source`, any source or several by name, replaces the prior and the segment of `config`.
    `network` replaces its model: a network to start from, such as `load("lstm-ptw")` for
    fine-tuning, or a function of a key that makes one. Settings that `config` was not given follow
    the recipe of its class. Networks of your own classes are loaded by `load(out, like=network)`.

    `minutes` is a budget of time for this call. When it is spent, the run stops after the current
    step, is measured and saved, and returns the networks as they are; the same call resumes. The
    learning rate follows the schedule of all `config.steps` nevertheless.

    `progress` is True to show the progress, "warnings" for warnings about damaged files, False for
    nothing, or an object with `update(text, done)` and `note(text)`. By default it is True on a
    terminal and in a notebook, and "warnings" elsewhere.

    `kernels` is the backend that trains: `fused`, `plain`, or `auto`, which is `fused` on a GPU.
    It is not part of the configuration: a run may resume on another backend, with slightly
    different numerics. Networks are returned with the backend `auto`, as `load` returns them.

    A checkpoint is written every `checkpoint_seconds`, and the device computes for about
    `device_seconds` before the host shows progress and reacts to signals; results depend on
    neither.

    >>> import switchpoint as sp
    >>> config = sp.TrainConfig(model="memoryless", length=8, steps=20, batch=4, validation=10)
    >>> run = sp.train(config, progress=False)
    >>> run.reports[-1].step, len(run.reports[-1].excess)  # bits per sequence above the optimum
    (20, 1)
    >>> run.best().log_probs([0, 1, 1]).shape
    (3, 2)
    """
    deadline = time.monotonic() + 60 * (
        math.inf if minutes is None else _checks.positive_float("minutes", minutes)
    )
    check_backend(kernels)
    if source is not None or network is not None:
        config = custom_config(config, source, network)
    if kernels == "fused":
        _check_kernels(config.options())
    if tensorboard and out is None:
        raise ValueError("tensorboard needs a directory: give out as well")
    with contextlib.ExitStack() as stack:
        if out is not None:
            make_directory(Path(out))
            stack.enter_context(run_lock(Path(out)))
        program = Program(config, kernels)
        directory = None if out is None else RunDirectory(Path(out), config)
        validation = Validation(config, program.mesh)
        shown = stack.enter_context(run_progress(progress))
        state, records = _start(program, directory, shown)
        members, step = config.members(), int(state.step)
        interrupts = stack.enter_context(_Interrupts())
        if directory is not None:
            stack.callback(directory.checkpoints.close)
        events = None
        if directory is not None and tensorboard:
            events = EventWriter(directory.path / "tensorboard", members, step)
            stack.callback(events.close)

        def evaluate() -> EvalRecord:
            """Add a record of the members as they are."""
            last = records[-1] if records else None
            record = validation.record(state, last.step if last else 0)
            for index in sorted(set(record.diverged) - set(last.diverged if last else ())):
                at = int(np.asarray(state.diverged_at).ravel()[index])
                label = members[index].label
                shown.note(f"member {label} diverged: at step {at} its loss was not finite")
            records.append(record)
            shown.report(members, record, config.steps)
            return record

        shown.begin(len(members), step, config.steps)
        pace, saved_at = Pace(device_seconds), time.monotonic()
        where = "" if directory is None else "; the same command continues from there"
        while step < config.steps:
            scheduled = min(step - step % config.report_every + config.report_every, config.steps)
            until = min(step + pace.steps_until(deadline), scheduled)
            state = program.advance(state, until)
            jax.block_until_ready(state.step)
            pace.measured(until - step)
            step = until
            shown.step(step, config.steps, len(members), pace.steps_per_second)
            if step == scheduled:
                record = evaluate()
                state = eqx.tree_at(lambda s: s.loss, state, jnp.zeros_like(state.loss))
                if directory is not None:
                    directory.append(record)
                if events is not None:
                    events.report(record)
                pace.restart()
            over = time.monotonic() >= deadline
            due = over or time.monotonic() - saved_at > checkpoint_seconds
            if directory is not None and (due or interrupts or step == config.steps):
                directory.save(step, state)
                saved_at = time.monotonic()
            if interrupts:
                interrupts.stop(f"stopped after step {step}{where}")
            if over and step < config.steps:
                shown.note(f"out of time after step {step} of {config.steps}{where}")
                break
        if not records or records[-1].step < step:
            # Not on schedule, so neither the metrics nor the state have it: a run that resumes
            # is the same as one that was never stopped.
            evaluate()
        networks = _networks(state, len(members))
        path = None if directory is None else directory.save_networks(networks, records[-1])
        return TrainedEnsemble(config, members, networks, tuple(records), path)


def _check_kernels(options: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for a Transformer that has no kernels."""
    if "heads" not in options:
        return
    width, heads, positions = (options[name] for name in ("width", "heads", "positions"))
    if not has_kernels(width, heads, positions):
        raise ValueError(
            f"kernels 'fused' are for Transformers of width {WIDTH} with {HEADS} heads and no "
            f"rotary positions, got width {width}, {heads} heads and positions {positions!r}; "
            "take 'plain' or 'auto'"
        )


def _networks(state: TrainState, count: int) -> tuple[Network, ...]:
    networks = state.networks.with_backend("auto")
    flat = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(count, *leaf.shape[2:]), networks)
    return tuple(jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), flat) for i in range(count))


def _start(
    program: Program, directory: RunDirectory | None, progress: RunProgress
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


class Pace:
    """The number of steps until control returns to the host, from the measured speed."""

    def __init__(self, seconds: float) -> None:
        self.steps_per_second = 0.0
        self._seconds = seconds
        self.steps = 1
        self._compiled = False
        self.restart()

    def steps_until(self, deadline: float) -> int:
        """The next number of steps, at least one, to end in time."""
        left = max(0.0, deadline - time.monotonic()) * self.steps_per_second
        return max(1, int(min(self.steps, left))) if self.steps_per_second else self.steps

    def restart(self) -> None:
        """Time counts from now."""
        self._begun = time.monotonic()

    def measured(self, steps: int) -> None:
        """Adapt to the time that `steps` steps have taken."""
        seconds = max(time.monotonic() - self._begun, 1e-6)
        if self._compiled:  # the first time includes compilation
            self.steps_per_second = steps / seconds
            wanted = int(self.steps_per_second * self._seconds)
            self.steps = max(1, min(wanted, 4 * self.steps))
        self._compiled = True
        self.restart()


class _Interrupts:
    """True once SIGINT or SIGTERM has asked the run to stop.

    Signals that are ignored or that other code handles are left alone, as are all outside the
    main thread, where Python cannot handle them. A signal that comes too late to stop the run is
    raised again at the end, for the caller.
    """

    def __init__(self) -> None:
        self._signal: int | None = None
        self._stopping = False
        self._before: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self._signal is not None

    def __enter__(self) -> "_Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._signal is not None and not self._stopping:
            signal.raise_signal(self._signal)

    def _ask(self, number: int, _: Any) -> None:
        """Stop at the next opportunity; asked twice, stop now unless a checkpoint is written."""
        if self._signal is not None and not self._stopping:
            raise KeyboardInterrupt
        self._signal = number

    def stop(self, message: str) -> NoReturn:
        """Raise the exception of the signal: Ctrl-C, or the end of the process."""
        self._stopping = True
        terminated = self._signal == signal.SIGTERM
        error = SystemExit(128 + signal.SIGTERM) if terminated else KeyboardInterrupt()
        error.add_note(message)
        raise error
