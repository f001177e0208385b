"""The posterior over switching points."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from switchpoint import _checks
from switchpoint._labels import Labels


class Partitions(eqx.Module):
    """The posterior distribution of the partitions of a flat batch of sequences."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, count: int) -> Bool[Array, "count flat time"]:
        """`count` partitions of every sequence."""

    @abstractmethod
    def run_lengths(self, most: int) -> Float[Array, "flat time lengths"]:
        """P(the segment of x_t has r observations up to x_t | x_<=t) for r = 1..most."""

    @abstractmethod
    def switch_counts(self, most: int) -> Float[Array, "flat counts"]:
        """P(k switches | x) for k = 0..most."""

    @abstractmethod
    def without_switch(self, windows: Bool[Array, "windows time"]) -> Float[Array, "flat windows"]:
        """P(no switch inside the window | x), for each window."""


@dataclass(frozen=True)
class SwitchInterval:
    """One switch of the most probable partition, with an interval that probably contains one.

    position
        Its position in the most probable partition.
    probability
        P(a switch at exactly this position | x).
    begin, end
        The interval begin..end, both included.
    interval_probability
        P(at least one switch in the interval | x).

    See `Posterior.switch_intervals`, which finds them.
    """

    position: int
    probability: float
    begin: int
    end: int
    interval_probability: float


class Posterior(eqx.Module):
    """The posterior over switching points of sequences x = x_0..x_(n-1), under a source.

    S is the set of switching points: t is in S if a new segment starts with x_t. The first segment
    always starts at t = 0, which is not a switching point: all switch fields are 0 there. Shapes
    are those of one sequence; a batch comes before them.

    log_marginal: ()
        ln P(x) = ln sum_S P(S) P(x | S), the evidence of the whole sequence.
    switch_filtered: (n,)
        P(t in S | x_<=t): an alarm raised as soon as x_t is seen. One symbol is weak evidence, so
        this stays small even at true switches; `switch_smoothed` locates them in hindsight.
    switch_smoothed: (n,)
        P(t in S | x): where the switches were, in hindsight.
    run_length_mean: (n,)
        E[r_t | x_<=t], where r_t >= 1 is the number of observations in the segment of x_t up to
        and including x_t. It drops when the data up to t suggest a recent switch.
        `run_length_pmf()` has the whole distribution.
    map_switches: (n,), bool
        argmax_S P(S | x), the single most probable partition: True where one of its segments
        starts. Its switches are not always those where `switch_smoothed` is high: many partitions
        can share a likely switch while each is improbable.
    map_log_prob: ()
        max_S ln P(S | x), the log-probability of that partition.
    probs_smoothed: (n, alphabet), or None where there is no alphabet
        E[p_t | x], where p_t is the distribution that x_t was drawn from: an estimate of
        `Draw.probs`.
    level_mean: (n,) or (n, columns), or None where there is an alphabet
        E[m_t | x], where the level m_t is the mean of x_t given the parameters of its segment.
    level_std: like level_mean
        The standard deviation of m_t given x, which includes the uncertainty about S. A mean plus
        and minus two of these is a band around the level, not around the observations.

    None of these is the P(run length = 0) of the online change-point literature, which under a
    constant hazard equals that hazard regardless of the data. `switch_filtered` conditions on x_t
    itself, and `switch_smoothed` on all of x, so both rise where the data suggest a change.

    Computing them takes O(n depth) time for PTW, and O(n^2) for any other prior, with O(n) memory
    (Fearnhead and Liu, 2007, draw partitions as `sample` does).

        >>> import numpy as np
        >>> import switchpoint as sp
        >>> bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.1)))
        >>> posterior = bayes.posterior([0] * 8 + [1] * 8)
        >>> posterior.map_switches.nonzero()[0].tolist()
        [8]
        >>> print(np.asarray(posterior.switch_smoothed)[6:11].round(2))
        [0.06 0.12 0.85 0.12 0.06]
    """

    log_marginal: Float[Array, "*batch"]
    switch_filtered: Float[Array, "*batch time"]
    switch_smoothed: Float[Array, "*batch time"]
    run_length_mean: Float[Array, "*batch time"]
    map_switches: Bool[Array, "*batch time"]
    map_log_prob: Float[Array, "*batch"]
    probs_smoothed: Float[Array, "*batch time alphabet"] | None = None
    level_mean: Float[Array, "*batch_time_columns"] | None = None
    level_std: Float[Array, "*batch_time_columns"] | None = None
    _partitions: Partitions = eqx.field(kw_only=True)
    _batch: tuple[int, ...] = eqx.field(static=True, kw_only=True)
    _labels: Labels | None = eqx.field(static=True, kw_only=True, default=None)

    def sample(self, key: PRNGKeyArray, n: int) -> Bool[Array, "n *batch time"]:
        """`n` partitions drawn from P(partition | all of x): True where a segment starts."""
        key, n = _checks.random_key(key), _checks.positive_int("n", n)
        draws = self._partitions.sample(key, n)
        return draws.reshape(n, *self._batch, draws.shape[-1])

    def run_length_pmf(self, most: int | None = None) -> Float[Array, "*batch time lengths"]:
        """P(the segment of x_t has r observations up to and including x_t | x_<=t), r = 1..most.

        Entry [..., t, r - 1] is the probability that the segment of x_t started at t - r + 1, given
        the observations up to t alone. By default `most` is the length n of the sequence, and the
        result takes O(n^2) memory; otherwise a row falls short of 1 by the probability of a longer
        run. Time is O(n^2), and O(n (depth + most)) for PTW. It is exact for pruned predictors too.
        """
        time = self.map_switches.shape[-1]
        most = time if most is None else min(_checks.positive_int("most", most), time)
        observations = math.prod(self._batch) * time
        if observations * most > _MAX_NUMBERS:
            raise ValueError(
                f"most must be at most {_MAX_NUMBERS // observations} for {observations} "
                f"observations, got {most}: the result would be {observations * most} numbers"
            )
        return self._partitions.run_lengths(most).reshape(*self._batch, time, most)

    def switch_count_pmf(self, most: int = 64) -> Float[Array, "*batch counts"]:
        """P(there are k switches | all of x) for k = 0..most, or up to length - 1.

        The sum falls short of 1 by the probability of more than `most` switches.
        """
        most = min(_checks.whole_number("most", most), self.map_switches.shape[-1] - 1)
        return self._partitions.switch_counts(most).reshape(*self._batch, most + 1)

    def switch_within(self, begin: int, end: int) -> Float[Array, "*batch"]:
        """P(at least one switch at begin..end, both included | all of x)."""
        return 1 - self.no_switch_within(begin, end)

    def no_switch_within(self, begin: int, end: int) -> Float[Array, "*batch"]:
        """P(no switch at begin..end, both included | all of x), exact where it is tiny."""
        time = self.map_switches.shape[-1]
        if not 0 <= begin <= end < time:
            raise ValueError(
                f"begin and end must be from 0 to {time - 1} and in order, got {begin} and {end}"
            )
        window = (np.arange(time) >= begin) & (np.arange(time) <= end)
        return self._without_switch(window[None]).reshape(self._batch)

    def switch_intervals(self, level: float = 0.9) -> list[SwitchInterval]:
        """The switches of the most probable partition of one sequence, with their uncertainty.

        An interval is the shortest around its switch, between the adjacent ones, that contains a
        switch with probability `level`. If all the positions between them reach less, it is the
        shortest with that share of the probability that they reach. It takes two evaluations of
        the probability of no switch, in 10 windows for each switch.
        """
        if self._batch:
            raise ValueError(f"intervals are for one sequence, got a batch of {self._batch}")
        level = _checks.probability("level", level)
        marginals = np.asarray(self.switch_smoothed, np.float64)
        times = np.arange(len(marginals))

        def no_switch_within(windows: Int[np.ndarray, "windows 2"]) -> Float[np.ndarray, " w"]:
            inside = (times >= windows[:, :1]) & (times <= windows[:, 1:])
            return np.asarray(self._without_switch(inside)[0], np.float64)

        positions = np.flatnonzero(self.map_switches).tolist()
        return switch_intervals(marginals, positions, level, no_switch_within)[0]

    def to_frame(self) -> Any:
        """A row for each position of one sequence, and a column for each field.

        A DataFrame of pandas with the index of the values, or of polars if they were. Fields with
        several numbers for each position have a column for each: `probs_smoothed_0` and so on, or
        the name of the column that they are about.
        """
        if self._batch:
            raise ValueError(f"to_frame is for one sequence, got a batch of {self._batch}")
        import pandas as pd

        labels = self._labels or Labels("pandas", pd.RangeIndex(self.map_switches.shape[-1]))
        columns: dict[str, np.ndarray] = {}
        for name in _FRAME_FIELDS:
            array = np.asarray(getattr(self, name))
            if array.ndim == 2:
                named = name.startswith("level") and len(labels.names) == array.shape[1]
                keys = labels.names if named else range(array.shape[1])
                columns |= {f"{name}_{k}": each for k, each in zip(keys, array.T, strict=True)}
            elif array.ndim == 1:
                columns[name] = array
        return labels.frame(columns)

    def _without_switch(
        self, windows: Bool[np.ndarray, "windows time"]
    ) -> Float[Array, "flat windows"]:
        """P(no switch inside the window | x), for each window.

        For one sequence their number is rounded up, so that few programs serve all numbers.
        """
        count = len(windows)
        if not self._batch:
            windows = np.pad(windows, ((0, _round_up(count) - count), (0, 0)))
        return self._partitions.without_switch(jnp.asarray(windows))[:, :count]


_MAX_NUMBERS = 2**30  # 4 GiB in single precision

_FRAME_FIELDS = (
    "switch_filtered", "switch_smoothed", "run_length_mean", "map_switches",
    "probs_smoothed", "level_mean", "level_std",
)  # fmt: skip

# Expected numbers of switches relative to the level; an interval may contain more than one.
_SHARES = np.array([1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0])


def _round_up(windows: int) -> int:
    """A round number of windows: 16, 64, 256 and so on."""
    capacity = 16
    while capacity < windows:
        capacity *= 4
    return capacity


def switch_intervals(
    probability: Float[np.ndarray, " time"],
    positions: list[int],
    level: float,
    no_switch_within: Callable[[Int[np.ndarray, "windows 2"]], Float[np.ndarray, " windows"]],
) -> tuple[list[SwitchInterval], float]:
    """The switches at these positions with their intervals, and P(no switch at all | x).

    `probability` is P(a switch at t | x), and `no_switch_within` P(no switch at begin..end | x) of
    windows after the position 0. `Posterior.switch_intervals` says which intervals these are.
    """
    length = len(probability)
    if length < 2:
        return [], 1.0
    expected = np.append(0.0, np.cumsum(probability))
    edges = [0, *positions, length]
    lows, highs = [each + 1 for each in edges[:-2]], [each - 1 for each in edges[2:]]
    goals = np.full(len(positions), level)
    for _ in range(2):  # again, if some reach less than the level
        candidates = [
            [_shortest(expected, at, low, high, goal * share) for share in _SHARES] + [(low, high)]
            for at, low, high, goal in zip(positions, lows, highs, goals, strict=True)
        ]
        flat = [(1, length - 1), *(each for row in candidates for each in row)]
        none, *missed = no_switch_within(np.array(flat, int)).tolist()
        reached = 1 - np.reshape(missed, (len(positions), len(_SHARES) + 1))
        short = (reached[:, -1] < level) & (goals == level)
        if not short.any():
            break
        goals = np.where(short, level * reached[:, -1], goals)
    intervals = []
    for at, row, chances, goal in zip(positions, candidates, reached, goals, strict=True):
        best = int(np.argmax(chances >= goal * (1 - 1e-9)))
        chance = float(probability[at])
        intervals.append(SwitchInterval(at, chance, *row[best], float(chances[best])))
    return intervals, none


def _shortest(
    expected: Float[np.ndarray, " ends"], at: int, low: int, high: int, share: float
) -> tuple[int, int]:
    """The shortest interval in low..high around `at` with this expected number of switches."""
    begins = np.arange(low, at + 1)
    ends = np.searchsorted(expected[: high + 2], expected[begins] + share * (1 - 1e-9)) - 1
    ends = np.maximum(ends, at)
    if (ends > high).all():
        return low, high
    best = int(np.argmin(np.where(ends <= high, ends - begins, high + 1)))
    return int(begins[best]), int(ends[best])


def make_posterior(
    fields: Mapping[str, Array], batch: tuple[int, ...], partitions: Partitions
) -> Posterior:
    """The posterior of a batch of that shape, from the fields of a flat batch."""
    shaped: dict[str, Any] = {
        name: field.reshape(*batch, *field.shape[1:]) for name, field in fields.items()
    }
    return Posterior(**shaped, _partitions=partitions, _batch=batch)
