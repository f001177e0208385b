"""Sweeps: training runs that differ in any settings, packed into as few programs as possible."""

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import xarray as xr
from pydantic import Field, PlainValidator, model_validator

from switchpoint import _checks, evaluation
from switchpoint._progress import Part, Progress
from switchpoint._provenance import environment_info
from switchpoint._settings import Seed, SettingError, Settings, toml_settings
from switchpoint._text import name_of
from switchpoint.executors import Executor, Task, open_executor, run_tasks
from switchpoint.neural.kernels.backend import check_backend
from switchpoint.training.config import TrainConfig
from switchpoint.training.packing import PackedConfig, pack
from switchpoint.training.run_directory import METRICS_FILE, final_reports, is_trained
from switchpoint.training.train import train

MAX_DRAWS = 10_000
RESULT_FILE = "sweep.nc"
"""The results of a sweep, in its directory."""

MAX_MEMBERS = 40
"""Members of one program by default."""

_FORMAT = 1
_TABLE = "sweep"
_UNITS = {"excess": "bits", "excess_error": "bits", "loss": "bits per symbol"}


class Range(Settings):
    """Numbers to draw from: whole ones where both ends are, evenly or by their logarithm."""

    low: int | float
    high: int | float
    log: bool = False

    @model_validator(mode="after")
    def _check(self) -> "Range":
        if not self.low < self.high or (self.log and self.low <= 0):
            raise SettingError("low", "a range must have low < high, both positive with log = true")
        return self

    def draw(self, random: np.random.Generator) -> float:
        """A number of the range."""
        if self.log:
            value = math.exp(random.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = random.uniform(self.low, self.high)
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        return min(max(round(value), self.low), self.high) if whole else float(f"{value:.4g}")


def _axis(value: Any) -> list[Any] | Range:
    """The values of a setting that varies."""
    if isinstance(value, dict):
        return Range(**value)
    if isinstance(value, list | Range) and value:
        return value
    raise ValueError(
        "must be a list of values, or a range as {low = 1e-4, high = 1e-2, log = true}"
    )


class Sweep(Settings):
    """Settings that all runs have, and those that vary: every combination, or random draws.

    `settings` are fields of `TrainConfig`; `axes` has the values of each setting that varies, or
    for draws a range. With `draws`, that many combinations are drawn with the seed `seed`.

    >>> from switchpoint.training import Sweep
    >>> sizes = Sweep(settings={"model": "lstm", "length": 64}, axes={"hidden": [8, 16]})
    >>> [config.hidden for config in sizes.configs]
    [8, 16]
    """

    settings: dict[str, Any]
    axes: dict[str, Annotated[list[Any] | Range, PlainValidator(_axis)]]
    draws: Annotated[int, Field(ge=1, le=MAX_DRAWS)] | None = None
    seed: Seed = 0

    @model_validator(mode="after")
    def _check(self) -> "Sweep":
        for name, axis in self.axes.items():
            if name in self.settings:
                raise SettingError(name, f"{name} stands both in [sweep] and outside")
            if isinstance(axis, Range) and self.draws is None:
                raise SettingError(name, f"{name} is a range, which needs draws, their number")
        _ = self.configs
        return self

    @cached_property
    def configs(self) -> tuple[TrainConfig, ...]:
        """The configuration of each combination."""
        configs = []
        for point in self.points():
            try:
                configs.append(TrainConfig(**self.settings, **point))
            except SettingError as error:
                where = ", ".join(f"{name} = {value}" for name, value in point.items())
                raise SettingError(error.name, f"{error}{where and f' (at {where})'}") from error
        return tuple(configs)

    def points(self) -> list[dict[str, Any]]:
        """The values of the settings that vary, for each run."""
        if self.draws is None:
            values = [axis for axis in self.axes.values() if isinstance(axis, list)]
            return [dict(zip(self.axes, each, strict=True)) for each in itertools.product(*values)]
        random = np.random.default_rng(self.seed)
        points = [
            {
                name: axis.draw(random)
                if isinstance(axis, Range)
                else axis[int(random.integers(len(axis)))]
                for name, axis in self.axes.items()
            }
            for _ in range(self.draws)
        ]
        return [point for index, point in enumerate(points) if point not in points[:index]]


def read_sweep(path: str | PathLike[str], draws: int | None = None, **overrides: Any) -> Sweep:
    r"""The sweep in a TOML file: settings of a training run, and a table `[sweep]`.

    The table has a list of values, or a range `{low = 1e-4, high = 1e-2, log = true}`, for each
    setting that varies; `draws` and `seed` make it random. `draws` and `overrides` win over the
    file. A `ValueError` names the file, and the line of what is wrong.

    >>> import pathlib, tempfile
    >>> from switchpoint.training import read_sweep
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     file = pathlib.Path(directory, "rates.toml")
    ...     _ = file.write_text("[sweep]\nlearning_rate = [1e-3, 3e-3]\n")
    ...     [config.learning_rate for config in read_sweep(file, model="rnn").configs]
    [(0.001,), (0.003,)]
    """
    with toml_settings(Path(path)) as settings:
        table = settings.pop(_TABLE, None)
        if not isinstance(table, dict) or not table:
            raise ValueError(
                f"{name_of(Path(path))} must have a table [sweep] of the settings that vary, as "
                "learning_rate = [1e-3, 3e-3]"
            )
        random = {name: table[name] for name in ("draws", "seed") if name in table}
        axes = {name: axis for name, axis in table.items() if name not in random}
        random |= {} if draws is None else {"draws": draws}
        return Sweep(settings={**settings, **overrides}, axes=axes, **random)


def sweep(
    config: Sweep | str | PathLike[str],
    out: str | PathLike[str],
    *,
    executor: str | Executor = "local",
    jobs: int | None = None,
    ray_address: str | None = None,
    members: int = MAX_MEMBERS,
    tensorboard: bool = False,
    kernels: str = "auto",
    listener: Progress | None = None,
) -> xr.Dataset:
    """Train every run of a sweep, and return how far each member is from the optimum.

    `config` is a sweep or the path of its file. Members that differ only in learning rate, seeds,
    clip_norm, b2 and matrix_decay are trained in one program of at most `members` members, and
    programs are spread over the executor (see `switchpoint.executors`). Each has a directory below
    `out`, with checkpoints; the same call resumes, and repeats nothing. The dataset, which is
    also written to `sweep.nc`, is sorted by excess. It has the last excess, its standard error and
    the training loss of every member, and all of them by step.

    >>> import tempfile
    >>> from switchpoint.training import Sweep, sweep
    >>> settings = {"model": "memoryless", "length": 8, "steps": 20, "batch": 4, "validation": 10}
    >>> rates = Sweep(settings=settings, axes={"learning_rate": [1e-3, 1e-2]})
    >>> with tempfile.TemporaryDirectory() as out:
    ...     print(sorted(sweep(rates, out)["learning_rate"].values.tolist()))
    [0.001, 0.01]
    """
    plan = config if isinstance(config, Sweep) else read_sweep(config)
    check_backend(kernels)
    directory = Path(out).absolute()  # workers may have another working directory
    programs = pack(plan.configs, _checks.positive_int("members", members))
    paths = {each.digest(): directory / "programs" / _name(plan, each) for each in programs}
    todo = [program for program in programs if not is_trained(paths[program.digest()], program)]
    tasks = [
        Task(
            paths[each.digest()].name,
            train_program,
            (each.to_dict(), paths[each.digest()], tensorboard, kernels),
            float(len(each.members()) * each.steps * each.batch * each.length),
        )
        for each in todo
    ]
    with open_executor(executor, jobs=jobs, ray_address=ray_address) as opened:
        trained = run_tasks(opened, tasks, directory / "locks", listener)
    done = [each for each in programs if paths[each.digest()].name not in trained.failed]
    if done:
        result = _results(plan, [(each, paths[each.digest()]) for each in done])
        evaluation.save(result, directory / RESULT_FILE)
    trained.check()
    return result


def train_program(
    config: Mapping[str, Any],
    directory: Path,
    tensorboard: bool,
    kernels: str,
    listener: Progress,
) -> None:
    """Train the program that `to_dict` returned, unless that is done."""
    program = PackedConfig.from_dict(config)
    if not is_trained(directory, program):
        progress = Part(listener, 0.0, 1.0, f"training {directory.name}: ")
        train(program, directory, progress=progress, tensorboard=tensorboard, kernels=kernels)


def _name(plan: Sweep, program: PackedConfig) -> str:
    """The directory of a program: the settings that vary, and its digest."""
    of_members = {"model", "learning_rate", "seeds", "first_seed", *program.varied}
    settings = {name: getattr(program, name) for name in plan.axes if name not in of_members}
    words = [
        f"{name}-{'_'.join(map(str, value)) if isinstance(value, tuple) else value}"
        for name, value in settings.items()
    ]
    return "-".join([program.model, *words, program.digest()])


def _results(plan: Sweep, programs: Sequence[tuple[PackedConfig, Path]]) -> xr.Dataset:
    """The members of all programs, sorted by excess; those that diverged come last."""
    rows = []
    for program, path in programs:
        records = final_reports(path / METRICS_FILE, program)
        for member in program.members():
            settings = {name: getattr(program, name) for name in plan.axes} | dict(member.settings)
            settings |= {"learning_rate": member.learning_rate, "prior": member.prior}
            row = xr.Dataset(coords={"step": np.array([each.step for each in records], np.int32)})
            for name, unit in _UNITS.items():
                values = [getattr(each, name)[member.index] for each in records]
                row[name] = (), values[-1], {"units": unit}
                row[f"{name}_by_step"] = "step", values, {"units": unit}
            settings |= {"seed": member.seed, "program": path.name}
            cells = {n: _cell(v) for n, v in settings.items() if n not in ("seeds", "first_seed")}
            rows.append(row.assign_coords(cells))
    result = xr.concat(rows, "member", data_vars="all", coords="all", join="outer")
    return result.sortby("excess").assign_attrs(
        kind="sweep",
        format=_FORMAT,
        settings=[program.to_dict() for program, _ in programs],
        swept=list(plan.axes),
        provenance=environment_info(),
    )


def _cell(value: Any) -> Any:
    """A setting as netCDF holds it."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "none" if value is None else value
