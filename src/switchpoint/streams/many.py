"""Many streams with one predictor: the states of all keys are the rows of one array."""

import math
import os
import secrets
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float, Int

from switchpoint import _checks
from switchpoint._tensors import DamagedError
from switchpoint.exact import ForwardPredictor, PTWPredictor
from switchpoint.exact.forward import ForwardState
from switchpoint.exact.streams import absorb_each
from switchpoint.segments import Segment
from switchpoint.segments.values import checked_values
from switchpoint.streams.alarms import Alarm, Change
from switchpoint.streams.compiled import CompiledEngine
from switchpoint.streams.engine import Slots
from switchpoint.streams.forward import Hypotheses
from switchpoint.streams.outliers import WithOutliers
from switchpoint.streams.stream import Stream, _alone

Key: TypeAlias = str | int
Rows: TypeAlias = Float[np.ndarray, "rows numbers"]

_CHUNKS = (16, 256, 4096)  # rows of a compiled step
_FIRST_CAPACITY = 1024
_WRAP = 2**31
_SLACK = 1e-9  # by which the probability of an alarm may differ from that of its stream


class Row(NamedTuple):
    """The state of a key."""

    state: ForwardState
    log_joint: Float[Array, " hypotheses"]
    """ln P(the current segment started there | all so far), before a new one may start."""
    spreads: Float[Array, " hypotheses"]
    """How far the starts that share a hypothesis reach to either side of their middle."""
    replaced: Float[Array, "2 3"]
    """Slots that the last observation changed, or -1, and the start and spread they had before."""
    gap: Float[Array, " 2"]
    """Begin and end of the last run of missing observations."""
    log_evidence: Float[Array, ""]
    after: Float[Array, ""]
    """The position after the last alarm."""
    missing: Float[Array, ""]
    """The number of missing observations within the horizon of the alarm."""


class Updates(NamedTuple):
    """The result of `Streams.update`.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.01)), max_hypotheses=30)
    >>> updates = sp.Streams(bayes).update(["a", "b", "a"], [0, 1, 0])
    >>> np.exp(updates.log_density).round(2).tolist(), updates.changes
    ([0.5, 0.5, 0.75], [])
    """

    log_density: Float[np.ndarray, " observations"]
    """ln p(x | all of its key before), in nats."""
    changes: list[tuple[Key, Change]]
    """The alarms, in the order of the observations: the key and the change."""


class Streams:
    """The streams of many keys, with one exact predictor, updated together.

    Every key has the state of a `Stream` of its own, in double precision, and the same numbers up
    to rounding; a key begins with its first observation. The states of all keys are the rows of one
    array, and a compiled step updates those of a batch at once.

        >>> import switchpoint as sp
        >>> bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.01)), max_hypotheses=30)
        >>> streams = sp.Streams(bayes, alarm=sp.Alarm(one_in=10_000))
        >>> for x in [0] * 50 + [1] * 20:
        ...     for key, change in streams.update(["steady", "jumps"], [0, x]).changes:
        ...         print(key, change.position, change.began)
        jumps 52 50
        >>> len(streams), streams.stream("steady").position
        (2, 70)

    The predictor must have a bounded number H of hypotheses: under `PTW` H = depth + 1, under other
    priors that of `max_hypotheses` or the longest segment. With statistics of s numbers, a key
    takes 8 (H (s + 4) + 15) bytes, and an update O(H) time.

    - `alarm`: a rule for each key, with the settings of this one;
    - `outliers`: as in `Stream`;
    - `idle`: a key that was not updated for longer than this is dropped, in the unit of `now`.

    Keys are strings or whole numbers. Like a `Stream`, it takes one call at a time.
    """

    _busy = False

    def __init__(
        self,
        predictor: Any,
        *,
        alarm: Alarm | None = None,
        outliers: float | None = None,
        idle: float | None = None,
    ) -> None:
        recursion = _bounded(predictor)
        self.predictor, self.alarm = predictor, alarm
        self._one = Stream(predictor, outliers=outliers)  # takes over the state of any key
        self.outliers = self._one.outliers
        if isinstance(self._one._engine, CompiledEngine):
            raise ValueError(
                f"Streams needs probabilities of switches that a float can hold, got {predictor!r}"
            )
        self.idle = None if idle is None else _checks.positive_float("idle", idle)
        self._odds = math.inf if alarm is None else alarm.threshold(self._one)
        if self.outliers is not None:
            segment = WithOutliers(recursion.segment, self.outliers)
            recursion = ForwardPredictor(recursion.prior, segment, recursion.max_hypotheses)
        with jax.enable_x64(True):
            self._recursion = jax.tree.map(jnp.asarray, recursion)
            fresh, unravel = ravel_pytree(_fresh_row(recursion))
            # Where each field of `Row` is among the numbers of a row.
            places = unravel(jnp.arange(fresh.size, dtype=float))
        self._first = np.asarray(fresh)
        self._at: Any = jax.tree.map(lambda leaf: np.asarray(leaf, np.intp), places)
        self.notes: dict[str, Any] = {}
        """Saved with the states, as JSON has it; nothing else depends on it."""
        self._table: Rows = np.empty((0, len(self._first)))
        self._seen = np.empty(0)
        """When each row was updated last."""
        self._rows: dict[Key, int] = {}
        self._batch: tuple[Any, Any] = (), np.empty(0, np.intp)
        """The keys of the last batch, often those of the next, and their rows."""
        self._keys: list[Key | None] = []
        """By row."""
        self._free: list[int] = []
        self._gaps: dict[int, deque[int]] = {}
        """By row, the positions of the missing observations within the horizon of the alarm."""
        self._longest = 0
        """No key has more observations."""
        self._token: str | None = None
        """That of the file that was saved or loaded last."""
        self._changed = np.zeros(0, bool)
        """The rows that are not in that file."""
        self._dropped: set[Key] = set()
        """The keys that are in it and no longer here."""

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[Key]:
        return iter(self._rows)

    @_alone
    def update(self, keys: Any, values: Any, now: float | None = None) -> Updates:
        """Observe values[i] of keys[i], for each i; those of one key in this order.

        Values are (n,), or (n, columns) for a source of several columns; NaN is missing. If one is
        refused, none is observed. `now` is the time of the batch, by default that of the clock in
        seconds; keys that are idle by then are dropped.
        """
        names = keys.tolist() if isinstance(keys, np.ndarray) else list(keys)
        with jax.enable_x64(True):
            xs = np.asarray(_values(self.predictor.segment, values, len(names)), np.float64)
        log_density = np.zeros(len(xs))
        if not names:
            return Updates(log_density, [])
        count = len(self)
        rows = self._rows_of(names)
        rounds = list(_rounds(rows))
        try:
            self._check_length(rows, len(rounds))
        except ValueError:
            for key in list(self._rows)[count:]:
                self._drop(key)
            raise
        changes: list[tuple[int, Key, Change]] = []
        for order in rounds:
            for chunk, logs, alarms in self._each_chunk(order, rows[order], xs[order]):
                log_density[chunk] = logs
                changes += [(int(chunk[i]), names[chunk[i]], change) for i, change in alarms]
        now = time.time() if now is None else now
        self._seen[rows] = now
        self._changed[rows] = True
        if self.idle is not None:
            idle = [key for key, row in self._rows.items() if self._seen[row] < now - self.idle]
            for key in idle:
                self._drop(key)
        changes.sort(key=lambda each: each[0])
        return Updates(log_density, [(key, change) for _, key, change in changes])

    @_alone
    def drop(self, key: Key) -> None:
        """Forget a key; with its next observation it begins anew."""
        if key not in self._rows:
            raise ValueError(f"key must be one that was observed, got {key!r}")
        self._drop(key)

    @_alone
    def stream(self, key: Key) -> Stream:
        """A `Stream` in the state of a key, which it does not change."""
        if key not in self._rows:
            raise ValueError(f"key must be one that was observed, got {key!r}")
        stream = Stream(self.predictor, outliers=self.outliers)
        self._restore(stream, self._table[self._rows[key]])
        return stream

    @_alone
    def save(self, path: str | PathLike[str]) -> None:
        """Write all states to an SQLite file.

        The whole file is written atomically. If the last `save` or `load` was of the file as it is,
        only the states that have changed since are written, in one transaction: a process that is
        killed leaves the file as it was before.
        """
        from switchpoint.streams.storage import (  # late: the zoo is slow
            saved_token,
            update_states,
            write_states,
        )

        file, before = Path(path), self._token
        self._token = None  # until the file is written
        token = secrets.token_hex(16)
        if before is not None and saved_token(file) == before:
            states = self._states(np.flatnonzero(self._changed))
            update_states(file, self._card(token), states, self._dropped)
        else:
            write_states(file, self._card(token), self._all_states())
        self._token, self._changed[:], self._dropped = token, False, set()

    @classmethod
    def load(cls, path: str | PathLike[str], *, predictor: Any = None) -> "Streams":
        """Streams that continue where others were saved.

        A predictor with classes of your own is not in the file: pass an equal one.
        """
        return cls._from(Path(path), predictor)

    @_alone
    def dumps(self) -> bytes:
        """All states, and the predictor, as the content of a file that `save` writes."""
        from switchpoint.streams.storage import states_to_bytes

        return states_to_bytes(self._card(None), self._all_states())

    @classmethod
    def loads(cls, content: bytes, *, predictor: Any = None) -> "Streams":
        """Streams that continue where others were when `dumps` was called."""
        return cls._from(content, predictor)

    def __reduce__(self) -> Any:
        return _loads, (self.dumps(), self.predictor)

    def _all_states(self) -> Iterator[tuple[Any, Any, Any]]:
        return self._states(np.fromiter(self._rows.values(), np.intp, len(self)))

    def _card(self, token: str | None) -> dict[str, Any]:
        alarm = None if self.alarm is None else [self.alarm.one_in, self.alarm.horizon]
        options = {"outliers": self.outliers, "idle": self.idle, "alarm": alarm}
        return {
            "predictor": self.predictor,
            "options": options,
            "notes": self.notes,
            "numbers": len(self._first),
            "token": token,
        }

    def _states(self, rows: Any) -> Iterator[tuple[Any, Any, Any]]:
        for row in rows.tolist():
            gaps = list(self._gaps.get(row, ()))
            yield self._keys[row], (self._seen.item(row), gaps), self._table[row]

    @classmethod
    def _from(cls, source: Path | bytes, predictor: Any) -> "Streams":
        from switchpoint.streams.storage import read_states

        with read_states(source, predictor) as (card, states):
            options = card["options"]
            alarm = None if options["alarm"] is None else Alarm(*options["alarm"])
            streams = cls(card["predictor"], **{**options, "alarm": alarm})
            streams.notes = card["notes"]
            if card["numbers"] != len(streams._first):
                raise DamagedError(f"its states have {card['numbers']} numbers")
            saved = list(states)
        if saved:
            names, others, numbers = zip(*saved, strict=True)
            rows = streams._rows_of(names)
            streams._table[rows] = numbers
            streams._seen[rows] = [seen for seen, _ in others]
            streams._longest = int(streams._positions(rows).max())
            streams._gaps = {
                row: deque(gaps)
                for row, (_, gaps) in zip(rows.tolist(), others, strict=True)
                if gaps
            }
        streams._token, streams._changed[:] = card["token"], False
        return streams

    def _rows_of(self, names: Sequence[Any]) -> Int[np.ndarray, " observations"]:
        """The row of each key; new keys begin."""
        if names == self._batch[0]:
            return self._batch[1]
        rows: list[Any] = list(map(self._rows.get, names))
        if None in rows:
            new = {key: None for key, row in zip(names, rows, strict=True) if row is None}
            plain = [key.item() if isinstance(key, np.generic) else key for key in new]
            for key in plain:
                if not isinstance(key, str | int):
                    raise ValueError(f"keys must be strings or whole numbers, got {key!r}")
            self._reserve(len(plain))
            for key in plain:
                row = self._free.pop()
                self._rows[key], self._keys[row] = row, key
                self._dropped.discard(key)
                self._table[row] = self._first
            rows = list(map(self._rows.get, names))
        self._batch = names, np.array(rows, np.intp)
        return self._batch[1]

    def _reserve(self, count: int) -> None:
        """Have free rows for this many keys."""
        capacity, more = len(self._table), count - len(self._free)
        if more > 0:
            more = max(more, capacity, _FIRST_CAPACITY)
            self._table = np.concatenate([self._table, np.empty((more, len(self._first)))])
            self._seen = np.append(self._seen, np.zeros(more))
            self._changed = np.append(self._changed, np.zeros(more, bool))
            self._keys += [None] * more
            self._free = [*range(capacity + more - 1, capacity - 1, -1), *self._free]

    def _drop(self, key: Key) -> None:
        row, self._batch = self._rows.pop(key), ((), np.empty(0, np.intp))
        self._keys[row], self._changed[row] = None, False
        self._dropped.add(key)
        self._gaps.pop(row, None)
        self._free.append(row)

    def _check_length(self, rows: Int[np.ndarray, " observations"], most: int) -> None:
        """Raise a `ValueError` if a key gets too many observations: each at most `most`."""
        prior, self._longest = self.predictor.prior, self._longest + most
        if self._longest > (prior.max_sequence or math.inf):
            unique, counts = np.unique(rows, return_counts=True)
            prior.check_length(int((self._positions(unique) + counts).max()))

    def _positions(self, rows: Any) -> Any:
        clock = self._at.state.time
        return self._table[rows, clock.low] + _WRAP * self._table[rows, clock.high]

    def _each_chunk(self, order: Any, rows: Any, xs: Any) -> Iterator[tuple[Any, Any, Any]]:
        """Update different rows: the order, log densities and alarms of one chunk after another.

        Chunks are computed by one thread for each core.
        """
        chunks: list[tuple[Any, Any, Any]] = []
        for begin in range(0, len(rows), _CHUNKS[-1]):
            part = slice(begin, begin + _CHUNKS[-1])
            where = rows[part]
            if where[-1] - where[0] == len(where) - 1:  # sorted, and without a gap
                where = slice(where[0], where[-1] + 1)
            chunks.append((part, where, xs[part]))
        threads = min(os.cpu_count() or 1, len(chunks))
        with ThreadPoolExecutor(threads) as pool:
            run = map if threads == 1 else pool.map
            results = run(lambda chunk: self._compute(*chunk[1:]), chunks)
            for (part, where, values), result in zip(chunks, results, strict=True):
                yield order[part], *self._settle(rows[part], where, values, *result)

    def _compute(self, where: Any, xs: Any) -> tuple[Any, Any, Any, Any]:
        """The rows before and after observations, the log densities and the probabilities."""
        rows = before = self._table[where]
        size = next(size for size in _CHUNKS if size >= len(rows))
        if (fill := size - len(rows)) > 0:
            rows = np.concatenate([rows, np.broadcast_to(self._first, (fill, len(self._first)))])
            xs = np.concatenate([xs, np.zeros((fill, *xs.shape[1:]))])
        horizon = 0 if self.alarm is None else self.alarm.horizon
        with jax.enable_x64(True):
            result = _step(self._recursion, rows, xs, horizon)
            after, logs, probabilities = (np.asarray(each)[: len(before)] for each in result)
        return before, after, logs, probabilities

    def _settle(
        self, rows: Any, where: Any, xs: Any, before: Rows, after: Rows, logs: Any, probs: Any
    ) -> tuple[Any, list[tuple[int, Change]]]:
        """Store the result of a chunk: its log densities, and its alarms."""
        probabilities = np.array(probs)
        missing = np.isnan(xs).reshape(len(xs), -1).all(-1)
        if missing.any():
            after = after.copy()
            self._merge_gaps(before, after, missing, probabilities)
        self._table[where] = after
        alarms = []
        if self.alarm is not None:
            for i in np.flatnonzero(probabilities >= self._odds / (1 + self._odds) - _SLACK):
                change = self._alarm(int(rows[i]), xs[i])
                alarms += [(int(i), change)] if change is not None else []
            self._count_missing(rows, missing)
        return logs, alarms

    def _merge_gaps(self, before: Rows, after: Rows, missing: Any, probabilities: Any) -> None:
        """Observe missing values as a `Stream` does where no slot is free: it merges starts."""
        engine = self._one._engine
        if not isinstance(engine, Hypotheses) or engine.most > len(self._at.log_joint):
            return
        full = (before[:, self._at.state.log_weights] > -math.inf).all(1)
        for i in np.flatnonzero(missing & full):
            self._restore(self._one, before[i])
            self._one.update(None)
            self._pack(engine, after[i])
            probabilities[i] = engine.probability_since(self._since(after[i]))

    def _since(self, numbers: Any) -> int:
        """The first start that counts for the alarm, given the row after an observation."""
        row = jax.tree.map(lambda at: numbers[at], self._at)
        horizon = 0 if self.alarm is None else self.alarm.horizon
        return int(max(1, row.after, _position(row) - horizon - row.missing))

    def _alarm(self, row: int, x: Any) -> Change | None:
        """The alarm of a key, by the rule of its stream."""
        assert self.alarm is not None
        numbers = self._table[row]
        self._restore(self._one, numbers)
        rule = Alarm(self.alarm.one_in, self.alarm.horizon)
        rule._after, rule._gaps = int(numbers[self._at.after]), deque(self._gaps.get(row, ()))
        change = rule.check(self._one, x)
        if change is not None:
            numbers[self._at.after] = rule._after
            numbers[self._at.missing] = 0
            self._gaps.pop(row, None)
        return change

    def _count_missing(self, rows: Any, missing: Any) -> None:
        """Keep the positions of missing observations for as long as they are in the horizon."""
        if not self._gaps and not missing.any():
            return
        for row, gap in zip(rows.tolist(), missing.tolist(), strict=True):
            if not gap and row not in self._gaps:
                continue
            numbers = self._table[row]
            gaps = self._gaps.setdefault(row, deque())
            if gap:
                gaps.append(int(numbers[self._at.state.time.low]) - 1)
            since = self._since(numbers)
            while gaps and gaps[0] < since:
                gaps.popleft()
            numbers[self._at.missing] = len(gaps)
            if not gaps:
                del self._gaps[row]

    def _restore(self, stream: Stream, numbers: Any) -> None:
        """Put a stream into the state of a row."""
        row: Any = jax.tree.map(lambda at: numbers[at], self._at)
        engine, position = stream._engine, _position(row)
        starts = position - (position - row.state.starts) % _WRAP - row.spreads % 1
        last_starts, last_spreads = starts.copy(), row.spreads.copy()
        for slot, start, spread in row.replaced[row.replaced[:, 0] >= 0]:
            last_starts[int(slot)], last_spreads[int(slot)] = start, spread
        slots = Slots(
            starts,
            row.spreads,
            np.exp(row.log_joint),
            row.state.log_weights,
            last_starts,
            last_spreads,
            [np.asarray(leaf) for leaf in jax.tree.leaves(row.state.statistics)],
        )
        used = np.isfinite(row.state.log_weights) | np.isfinite(row.log_joint)
        engine.position, engine.log_evidence = position, float(row.log_evidence)
        engine.adopt(jax.tree.map(lambda leaf: leaf[used], slots), row.gap)

    def _pack(self, engine: Hypotheses, numbers: Any) -> None:
        """Write the state of an engine whose slots are all in use into a row."""
        at, slots = self._at, engine.slots()
        starts = np.ceil(slots.starts)
        changed = np.flatnonzero(slots.starts != slots.last_starts)  # at most two
        replaced = np.full((2, 3), -1.0)
        last = slots.last_starts[changed], slots.last_spreads[changed]
        replaced[: len(changed)] = np.column_stack([changed, *last])
        with np.errstate(divide="ignore"):
            numbers[at.log_joint] = np.log(slots.joint / slots.joint.sum())
        numbers[at.state.starts] = starts % _WRAP
        numbers[at.state.log_weights] = slots.log_weights
        numbers[at.spreads], numbers[at.gap] = slots.spreads, engine.gap
        numbers[at.replaced] = replaced
        for leaf, where in zip(slots.statistics, jax.tree.leaves(at.state.statistics), strict=True):
            numbers[where] = leaf


def _loads(content: bytes, predictor: Any) -> Streams:
    return Streams.loads(content, predictor=predictor)


def _position(row: Row) -> int:
    return int(row.state.time.low) + _WRAP * int(row.state.time.high)


def _bounded(predictor: Any) -> ForwardPredictor:
    """The recursion over a bounded number of starts that predicts as this predictor does."""
    if isinstance(predictor, PTWPredictor):  # at most depth + 1 starts are alive
        return ForwardPredictor(predictor.prior, predictor.segment, predictor.prior.depth + 1)
    most = predictor._most_needed() if isinstance(predictor, ForwardPredictor) else None
    if most is None:
        raise ValueError(
            "predictor must be exact and have a bounded number of hypotheses, as has "
            f"switchpoint.bayes_optimal(source, max_hypotheses=100), got {_checks.shown(predictor)}"
        )
    return ForwardPredictor(predictor.prior, predictor.segment, most)


def _values(segment: Segment, values: Any, count: int) -> Any:
    """Checked values, one for each key."""
    array = _checks.numbers(values, "values", len(segment.event_shape))
    if array.shape != (count, *segment.event_shape):
        raise ValueError(
            f"values must be one for each key, of shape {(count, *segment.event_shape)}, got shape "
            f"{array.shape}"
        )
    return checked_values(segment, array) if count else array


def _rounds(
    rows: Int[np.ndarray, " observations"],
) -> Iterator[Int[np.ndarray, " keys"]]:
    """The first observations of all rows, then the second ones, and so on; each sorted by row."""
    order = rows.argsort(kind="stable")
    starts = np.append(True, np.diff(rows[order]) > 0)
    if starts.all():
        yield order
        return
    times = np.arange(len(rows))
    rank = times - np.maximum.accumulate(np.where(starts, times, 0))
    by_rank = rank.argsort(kind="stable")
    yield from np.split(order[by_rank], np.cumsum(np.bincount(rank))[:-1])


def _fresh_row(recursion: ForwardPredictor) -> Row:
    """The row of a key before its first observation."""
    state = recursion.init()
    # The origin of the values stays 0: double precision has digits enough.
    state = eqx.tree_at(lambda s: s.offset, state, jnp.zeros_like(state.offset))
    nothing = jnp.zeros(())
    none = jnp.zeros_like(state.log_weights)
    replaced, gap = jnp.full((2, 3), -1.0), jnp.zeros(2)
    return Row(state, state.log_weights, none, replaced, gap, nothing, nothing, nothing)


@jax.jit
def _step(
    recursion: ForwardPredictor,
    rows: Float[Array, "keys numbers"],
    xs: Float[Array, "keys *event"],
    horizon: Int[ArrayLike, ""],
) -> tuple[Float[Array, "keys numbers"], Float[Array, " keys"], Float[Array, " keys"]]:
    """Observe one value per key: the rows, the log densities, and the probabilities of an alarm."""
    _, unravel = ravel_pytree(_fresh_row(recursion))

    def of_key(numbers: Any, x: Any) -> Any:
        row: Row = unravel(numbers)
        before, missing = row.state, jnp.isnan(x).all()
        state, evidence = recursion._observe(before, x)
        log_density = jnp.where(missing, 0.0, evidence)
        # The same as in `_observe`, and computed once.
        logs, _ = absorb_each(recursion.segment, before.statistics, x)
        log_joint = before.log_weights + logs - evidence
        position = state.time.low + float(_WRAP) * state.time.high
        lengths = state.time.since(before.starts) + row.spreads % 1
        # A switch since the last alarm, or within the horizon; never the first start of all.
        gaps = row.missing + missing
        last = jnp.minimum(position - jnp.maximum(row.after, 1), horizon + gaps)
        shares = (last + 1 - (lengths - row.spreads)) / (2 * row.spreads + 1)
        probability = jnp.sum(jnp.exp(log_joint) * jnp.clip(shares, 0, 1))
        newest = state.starts != before.starts
        slot = jnp.where(newest.any(), newest.argmax(), -1)
        replaced = jnp.stack([slot, (position - lengths)[slot], row.spreads[slot]])
        begin = jnp.where(row.gap[1] == position - 1, row.gap[0], position - 1)
        after = Row(
            state,
            log_joint,
            jnp.where(newest, 0.0, row.spreads),
            jnp.stack([replaced, jnp.full(3, -1.0)]),
            jnp.where(missing, jnp.stack([begin, position]), row.gap),
            row.log_evidence + log_density,
            row.after,
            row.missing,
        )
        return ravel_pytree(after)[0], log_density, probability

    return jax.vmap(of_key)(rows, xs)
