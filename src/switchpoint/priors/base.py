"""The contract of a switching-point prior: one law, P(length | start)."""

from abc import abstractmethod
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from switchpoint import _checks
from switchpoint._random import uniform
from switchpoint.priors import statistics

Positions: TypeAlias = Int[ArrayLike, "..."]
"""Whole numbers in any shape: starts, runs and lengths broadcast against each other."""


class Prior(eqx.Module):
    """How long a segment lasts, given the position (from 0) where it starts.

    A prior of your own is a subclass with one method, `hazard_after`:

        class Memoryless(sp.Prior):
            def hazard_after(self, start, run):
                return jnp.full(jnp.shape(run), 0.01)

    Sampler, exact predictor, posterior and statistics follow from it. `log_survival` and
    `max_length` may be given too, where a closed form saves work.
    """

    @abstractmethod
    def hazard_after(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        """P(L = run | start, L >= run), for run >= 1, elementwise on broadcast arrays."""

    @property
    def max_length(self) -> int | None:
        """The longest segment that has positive probability; None where there is none."""
        return None

    @property
    def max_sequence(self) -> int | None:
        """The longest sequence the law is defined for; None where it has no end."""
        return None

    def log_survival(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        """ln P(L > run | start), for run >= 0, elementwise on broadcast arrays."""
        start, run = jnp.broadcast_arrays(start, run)

        def add(i: Int[Array, ""], total: Float[Array, "..."]) -> Float[Array, "..."]:
            hazard = self.hazard_after(start, jnp.broadcast_to(i, run.shape))
            return total + jnp.where(i <= run, jnp.log1p(-hazard), 0)

        longest = jnp.max(run, initial=0)
        return lax.fori_loop(jnp.ones((), run.dtype), longest + 1, add, jnp.zeros(run.shape))

    def log_pmf(self, start: Positions, length: Positions) -> Float[Array, "..."]:
        """ln P(L = length | start), for length >= 1, elementwise on broadcast arrays."""
        length = jnp.asarray(length)
        return self.log_survival(start, length - 1) + jnp.log(self.hazard_after(start, length))

    @eqx.filter_jit
    def sample_switches(
        self, key: PRNGKeyArray, batch: int, length: int
    ) -> Bool[Array, "batch time"]:
        """Partitions drawn from the prior: True where a new segment starts, False at 0."""
        return switches_at(self.sample_starts(key, batch, length))

    def sample_starts(self, key: PRNGKeyArray, batch: int, length: int) -> Int[Array, "batch time"]:
        """Partitions drawn from the prior: where the segment of each symbol starts."""
        self.check_length(length)

        def step(
            start: Int[Array, " batch"], now: tuple[Int[Array, ""], Float[Array, " batch"]]
        ) -> tuple[Int[Array, " batch"], Int[Array, " batch"]]:
            time, coin = now
            ends = coin < self.hazard_after(start, time - start)
            start = jnp.where(ends, time, start)
            return start, start

        times = jnp.arange(1, length, dtype=jnp.int32)
        coins = uniform(key, (length - 1, batch))
        first = jnp.zeros(batch, jnp.int32)
        # A GPU spends its time on launches, and many steps in one launch cost as much as one.
        unroll = 1 if jax.default_backend() == "cpu" else 32
        _, later = lax.scan(step, first, (times, coins), unroll=unroll)
        return jnp.concatenate([first[None], later]).T

    def switch_probability(self, length: int) -> Float[np.ndarray, " time"]:
        """P(a segment starts at t) for t = 0..length-1, in float64; 0 at t = 0.

        The first segment's start is not a switching point.
        """
        self.check_length(length)
        return statistics.switch_probability(self._pmf_table(length)[0])

    def switch_count_law(self, length: int) -> Float[np.ndarray, " count"]:
        """P(k switching points in a sequence of `length`) for k = 0..length-1, in float64."""
        self.check_length(length)
        return statistics.switch_count_law(*self._pmf_table(length))

    def check_length(self, length: int) -> None:
        """Raise a `ValueError` where the law is not defined for sequences of `length`."""
        length = _checks.positive_int("length", length)
        if self.max_sequence is not None and length > self.max_sequence:
            raise ValueError(
                f"length must be at most {self.max_sequence} for {self!r}, got {length}"
            )

    def _pmf_table(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """P(next start is e | start s) as a (start, e) table, and P(no further start | s)."""
        with jax.enable_x64(True):
            return statistics.next_start_table(self, length)


def switches_at(starts: Int[Array, "batch time"]) -> Bool[Array, "batch time"]:
    """True where a new segment starts, False at 0, from where each symbol's segment starts."""
    return (starts == jnp.arange(starts.shape[-1])) & (starts > 0)
