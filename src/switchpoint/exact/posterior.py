"""What the data say about the switching points."""

from abc import abstractmethod
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from switchpoint import _checks


class Partitions(eqx.Module):
    """The posterior law of the partitions of a flat batch of sequences."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, count: int) -> Bool[Array, "count flat time"]:
        """`count` partitions of every sequence."""

    @abstractmethod
    def switch_counts(self, most: int) -> Float[Array, "flat counts"]:
        """P(k switches | x) for k = 0..most."""

    @abstractmethod
    def without_switch(self, windows: Bool[Array, "windows time"]) -> Float[Array, "flat windows"]:
        """P(no switch where the window is true | x), for each window."""


@dataclass(frozen=True)
class SwitchInterval:
    """Where one switch of the most probable partition may have been."""

    position: int
    """Where the most probable partition has it."""
    probability: float
    """P(a switch at this very position | x)."""
    begin: int
    end: int
    """The interval begin..end, both included."""
    interval_probability: float
    """P(at least one switch in the interval | x)."""


class Posterior(eqx.Module):
    """The posterior over switching points of sequences x, under a source.

    A switching point at t means that a new segment starts with x_t. Nothing switches at
    t = 0: the first segment starts there for certain, and all switch fields are 0 there.

    None of these is P(run length = 0) of on-line change-point papers, which under a constant
    hazard is that hazard whatever the data say. `switch_filtered` has seen x_t itself, and
    `switch_smoothed` everything, so both rise where the data speak of a change.
    """

    log_marginal: Float[Array, "*batch"]
    """ln P(x): of the whole sequence under the source, all partitions summed."""

    switch_filtered: Float[Array, "*batch time"]
    """P(a segment starts at t | x_<=t): the alarm one can raise on seeing x_t, not later.

    One symbol says little, so this stays small even at real switches; look back with
    `switch_smoothed` to find where they were."""

    switch_smoothed: Float[Array, "*batch time"]
    """P(a segment starts at t | all of x): where the switches were, with hindsight."""

    run_length_mean: Float[Array, "*batch time"]
    """E[how many symbols the current segment has, x_t included | x_<=t]; at least 1.

    It falls when the data up to t suggest a recent switch."""

    probs_smoothed: Float[Array, "*batch time alphabet"]
    """E[the source's distribution of x_t | all of x]: the estimate of `Draw.probs`."""

    map_switches: Bool[Array, "*batch time"]
    """The single most probable partition given x: True where one of its segments starts.

    Not the same as the places where `switch_smoothed` is high: many different partitions
    can share a likely switch, and none of them be likely itself."""

    map_log_prob: Float[Array, "*batch"]
    """ln P(the partition `map_switches` | all of x)."""

    _partitions: Partitions
    _batch: tuple[int, ...] = eqx.field(static=True)

    def sample(self, key: PRNGKeyArray, n: int) -> Bool[Array, "n *batch time"]:
        """`n` partitions drawn from P(partition | all of x): True where a segment starts."""
        key, n = _checks.random_key(key), _checks.positive_int("n", n)
        draws = self._partitions.sample(key, n)
        return draws.reshape(n, *self._batch, draws.shape[-1])

    def switch_count_pmf(self, most: int = 64) -> Float[Array, "*batch counts"]:
        """P(there are k switches | all of x) for k = 0..most, or up to all there can be.

        What is missing from a sum of 1 is the probability of more than `most`.
        """
        most = min(_checks.whole_number("most", most), self.map_switches.shape[-1] - 1)
        return self._partitions.switch_counts(most).reshape(*self._batch, most + 1)

    def switch_within(self, begin: int, end: int) -> Float[Array, "*batch"]:
        """P(at least one switch at begin..end, both included | all of x)."""
        time = self.map_switches.shape[-1]
        if not 0 <= begin <= end < time:
            raise ValueError(
                f"begin and end must be from 0 to {time - 1} and in order, got {begin} and {end}"
            )
        window = (np.arange(time) >= begin) & (np.arange(time) <= end)
        return 1 - self._partitions.without_switch(jnp.asarray(window[None])).reshape(self._batch)

    def switch_intervals(self, level: float = 0.9) -> list[SwitchInterval]:
        """The switches of the most probable partition of one sequence, with their uncertainty.

        Each interval is grown from its switch towards the likelier neighbour, no further than the
        switches beside it, until it has a switch with probability `level`. Where that cannot be
        reached, the probability it has says so.
        """
        if self._batch:
            raise ValueError(f"intervals are for one sequence, got a batch of {self._batch}")
        level = _checks.probability("level", level)
        marginals = np.asarray(self.switch_smoothed, np.float64)
        positions = np.flatnonzero(self.map_switches).tolist()
        bounds = list(zip([0, *positions], [*positions[1:], len(marginals)], strict=False))
        wanted = [
            grown_interval(marginals, at, low + 1, high - 1, share)
            for at, (low, high) in zip(positions, bounds, strict=False)
            for share in _SHARES * level
        ]
        if not wanted:
            return []
        times = np.arange(len(marginals))
        windows = np.stack([(times >= begin) & (times <= end) for begin, end in wanted])
        none = self._partitions.without_switch(jnp.asarray(windows))[0]
        reached = 1 - np.asarray(none, np.float64)
        intervals = []
        for index, at in enumerate(positions):
            own = range(index * len(_SHARES), (index + 1) * len(_SHARES))
            best = next((i for i in own if reached[i] >= level), own[-1])
            intervals.append(
                SwitchInterval(at, float(marginals[at]), *wanted[best], float(reached[best]))
            )
        return intervals


# Expected numbers of switches, of which some intervals have more than one.
_SHARES = np.array([1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6, 2.0, 3.0])


def grown_interval(
    marginals: Float[np.ndarray, " time"], at: int, low: int, high: int, share: float
) -> tuple[int, int]:
    """The interval around `at`, inside low..high, that has this expected number of switches."""
    begin = end = at
    total = marginals[at]
    while total < share and (begin > low or end < high):
        before = marginals[begin - 1] if begin > low else -1.0
        after = marginals[end + 1] if end < high else -1.0
        if before > after:
            begin -= 1
        else:
            end += 1
        total += max(before, after)
    return begin, end


class Summaries(eqx.Module):
    """The fields of a `Posterior` for a flat batch, before it has its shape."""

    log_marginal: Float[Array, " flat"]
    switch_filtered: Float[Array, "flat time"]
    switch_smoothed: Float[Array, "flat time"]
    run_length_mean: Float[Array, "flat time"]
    probs_smoothed: Float[Array, "flat time alphabet"]
    map_switches: Bool[Array, "flat time"]
    map_log_prob: Float[Array, " flat"]

    def shaped(self, batch: tuple[int, ...], partitions: Partitions) -> Posterior:
        """The posterior of a batch of that shape."""

        def shape(field: Array) -> Array:
            return field.reshape(*batch, *field.shape[1:])

        return Posterior(
            log_marginal=shape(self.log_marginal),
            switch_filtered=shape(self.switch_filtered),
            switch_smoothed=shape(self.switch_smoothed),
            run_length_mean=shape(self.run_length_mean),
            probs_smoothed=shape(self.probs_smoothed),
            map_switches=shape(self.map_switches),
            map_log_prob=shape(self.map_log_prob),
            _partitions=partitions,
            _batch=batch,
        )
