"""What the data say about the switching points."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from switchpoint import _checks


class PosteriorSampler(eqx.Module):
    """Draws partitions from the posterior of a flat batch of sequences."""

    @abstractmethod
    def __call__(self, key: PRNGKeyArray, count: int) -> Bool[Array, "count flat time"]:
        """`count` partitions of every sequence."""


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

    _sampler: PosteriorSampler
    _batch: tuple[int, ...] = eqx.field(static=True)

    def sample(self, key: PRNGKeyArray, n: int) -> Bool[Array, "n *batch time"]:
        """`n` partitions drawn from P(partition | all of x): True where a segment starts."""
        n = _checks.positive_int("n", n)
        draws = self._sampler(key, n)
        return draws.reshape(n, *self._batch, draws.shape[-1])


class Summaries(eqx.Module):
    """The fields of a `Posterior` for a flat batch, before it has its shape."""

    log_marginal: Float[Array, " flat"]
    switch_filtered: Float[Array, "flat time"]
    switch_smoothed: Float[Array, "flat time"]
    run_length_mean: Float[Array, "flat time"]
    probs_smoothed: Float[Array, "flat time alphabet"]
    map_switches: Bool[Array, "flat time"]
    map_log_prob: Float[Array, " flat"]

    def shaped(self, batch: tuple[int, ...], sampler: PosteriorSampler) -> Posterior:
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
            _sampler=sampler,
            _batch=batch,
        )
