"""Streams of very many keys, and change points of very many series, on a Ray cluster."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from switchpoint import _checks
from switchpoint._files import make_directory, read_json, write_json
from switchpoint._formats import FORMAT, NEWEST
from switchpoint.adapters import requires
from switchpoint.detection import detect
from switchpoint.executors import ATTEMPTS, join_driver, package_version, worker_settings
from switchpoint.streams import Change, Streams

with requires("ray", "ray"):
    import ray
    from ray.exceptions import RayActorError

_SUFFIX = ".states"
_SETTINGS = "streams.json"


class Shard:
    """The streams of some keys, in an actor.

    `incarnation` counts the actors that had these keys. Each writes a file of its own, so that one
    that is cut off from the cluster but alive cannot overwrite the snapshot of its successor.
    """

    def __init__(
        self, driver: Any, predictor: Any, options: dict[str, Any], directory: str, incarnation: int
    ) -> None:
        join_driver(*driver)
        make_directory(Path(directory), "directory")
        self._path = Path(directory) / f"{incarnation}{_SUFFIX}"
        earlier = [path for path in _snapshots(Path(directory)) if _number(path) < incarnation]
        if earlier:
            self._streams = Streams.load(earlier[-1], predictor=predictor)
        else:
            self._streams = Streams(predictor, **options)

    def offset(self) -> int | None:
        """The offset of the last batch that was observed."""
        return self._streams.notes.get("offset")

    def update(self, offset: int, keys: Any, values: Any, now: float) -> list[tuple[Any, Change]]:
        """Observe a batch, unless the snapshot has it already: the alarms."""
        last = self.offset()
        if last is not None and offset <= last:
            return []
        changes = self._streams.update(keys, values, now).changes
        self._streams.notes["offset"] = offset
        return changes

    def save(self, offset: int) -> int:
        """Write a snapshot of all batches up to this one: the number of keys."""
        self._streams.notes["offset"] = offset
        self._streams.save(self._path)
        for path in _snapshots(self._path.parent):
            if _number(path) < _number(self._path):
                path.unlink(missing_ok=True)
        return len(self._streams)


class RayStreams:
    """`Streams` on a Ray cluster, for more keys than one machine can take.

    Keys are hashed over `actors`, each of which holds the `Streams` of its keys. Batches come with
    increasing offsets, as from Kafka. Every `snapshot_every` batches the actors write their states
    to `directory`, which all nodes must reach, and until then this process keeps the batches. An
    actor that is lost, alone or with its node, is replaced by one that loads the last snapshot and
    observes the batches since: every alarm is returned once, and is the one that there would have
    been without the loss.

        import ray
        from switchpoint.adapters.ray import RayStreams

        ray.init("auto")
        streams = RayStreams(predictor, "/shared/states", actors=16, alarm=sp.Alarm())
        for offset, keys, values, now in batches(after=streams.offset):
            for key, change in streams.update(offset, keys, values, now):
                ...

    If this process is lost, another one with the same directory resumes at `offset`, the last batch
    that all snapshots have, or None. The alarms of batches after that are returned again; they are
    the same, so that (key, change.position) identifies each.

    - `actors`: as many as before, if the directory has states;
    - `cpus`: the cores that Ray reserves for an actor;
    - `options`: those of `Streams`: `alarm`, `outliers`, `idle`.
    """

    def __init__(
        self,
        predictor: Any,
        directory: str | PathLike[str],
        *,
        actors: int = 2,
        snapshot_every: int = 100,
        cpus: float = 1.0,
        **options: Any,
    ) -> None:
        actors = _checks.positive_int("actors", actors)
        self._every = _checks.positive_int("snapshot_every", snapshot_every)
        Streams(predictor, **options)  # which refuses what is wrong here, in one sentence
        self._directory = Path(directory).absolute()
        make_directory(self._directory, "directory")
        settings = self._directory / _SETTINGS
        if not settings.exists():
            write_json(settings, {FORMAT: NEWEST, "actors": actors}, "directory")
        elif (before := read_json(settings, actors=int)["actors"]) != actors:
            raise ValueError(f"actors must be {before}, as before in {directory}, got {actors}")
        driver = ray.put((package_version(), worker_settings()))
        self._arguments = driver, predictor, options
        self._actor = ray.remote(Shard).options(num_cpus=cpus, scheduling_strategy="SPREAD")
        self._shards = [self._start(i) for i in range(actors)]
        self._pending: list[list[tuple[Any, ...]]] = [[] for _ in self._shards]
        """By shard, the batches since the last snapshot."""
        self._batches = 0
        offsets = ray.get([shard.offset.remote() for shard in self._shards])
        self.offset: int | None = None if None in offsets else min(offsets)
        """The last batch that was observed."""

    def update(self, offset: int, keys: Any, values: Any, now: float) -> list[tuple[Any, Change]]:
        """Observe values[i] of keys[i] at the time `now`: the alarms, as pairs (key, change).

        The offset must be larger than that of the batch before.
        """
        if self.offset is not None and offset <= self.offset:
            raise ValueError(f"offset must be larger than {self.offset}, got {offset}")
        names, xs = np.asarray(keys, object), np.asarray(values, np.float64)
        shards = pd.util.hash_array(names.astype(str).astype(object)) % len(self._shards)
        results = {}
        for shard in np.unique(shards).tolist():
            own = shards == shard
            self._pending[shard].append((offset, names[own].tolist(), xs[own], now))
            results[shard] = self._shards[shard].update.remote(*self._pending[shard][-1])
        changes = []
        for shard, result in results.items():
            changes += self._result(shard, result)
        self.offset, self._batches = offset, self._batches + 1
        if self._batches % self._every == 0:
            self.snapshot()
        return changes

    def snapshot(self) -> int:
        """Write the states of all actors now: the number of keys."""
        if self.offset is None:
            return 0
        results = [shard.save.remote(self.offset) for shard in self._shards]
        keys = 0
        for shard, result in enumerate(results):
            keys += self._result(shard, result, save=True)
            self._pending[shard].clear()
        return keys

    def close(self) -> None:
        """Write the states, and end the actors."""
        self.snapshot()
        for shard in self._shards:
            ray.kill(shard)

    def _start(self, shard: int) -> Any:
        directory = self._directory / str(shard)
        incarnation = 1 + max(map(_number, _snapshots(directory)), default=0)
        return self._actor.remote(*self._arguments, str(directory), incarnation)

    def _result(self, shard: int, result: Any, save: bool = False) -> Any:
        """The result of the last call of a shard; if its actor is lost, that of another one."""
        for attempt in range(ATTEMPTS):
            try:
                return ray.get(result)
            except RayActorError:
                if attempt == ATTEMPTS - 1:
                    raise
            actor = self._shards[shard] = self._start(shard)
            for batch in self._pending[shard]:
                result = actor.update.remote(*batch)  # the last one is that of the call
            if save:
                result = actor.save.remote(self.offset)
        raise AssertionError


def detect_dataset(dataset: Any, group_by: str, **options: Any) -> Any:
    """The change points of each series of a Ray dataset, in parallel, as another dataset.

    `dataset` has a row for each observation, such as that of `ray.data.read_parquet`; rows of a
    series have the same `group_by`, and are in order. The result has a row for each change point:
    the columns of `sp.detect(table, group_by=group_by).changepoints`. `options` are those of
    `sp.detect`.

        import ray
        from switchpoint.adapters.ray import detect_dataset

        series = ray.data.read_parquet("/shared/metrics/")
        detect_dataset(series, "host").write_parquet("/shared/changes/")

    A series that cannot be analysed has one row with the reason in the column `error`, which is
    None in all others.
    """
    return dataset.groupby(group_by).map_groups(
        _changes, fn_args=(group_by, options), batch_format="pandas"
    )


def _changes(table: pd.DataFrame, group_by: str, options: dict[str, Any]) -> pd.DataFrame:
    """The change points of one series."""
    try:
        return detect(table, group_by=group_by, **options).changepoints.assign(error=None)
    except ValueError as error:
        return pd.DataFrame({group_by: table[group_by].iloc[:1], "error": [str(error)]})


def _snapshots(directory: Path) -> list[Path]:
    """The snapshots of a shard, the newest last."""
    return sorted(directory.glob(f"*{_SUFFIX}"), key=_number)


def _number(path: Path) -> int:
    return int(path.name.removesuffix(_SUFFIX))
