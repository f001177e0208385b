"""The interface of a switching-point prior: the distribution P(length | start)."""

import functools
from abc import abstractmethod
from typing import Any, ClassVar, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from switchpoint import _checks
from switchpoint._namespace import Numbers
from switchpoint._parameters import Parametric
from switchpoint._random import constants_of_fast_draws, uniform
from switchpoint.priors import statistics

Positions: TypeAlias = Numbers
"""Whole numbers of any shape, on the host also as floats: starts, runs and lengths broadcast
against each other."""


class Prior(Parametric):
    """The law of a segment's length L, given the position s (from 0) where it starts.

    It is stated by the hazard h(s, r) = P(L = r | s, L >= r), from which follow

        P(L > r | s) = product over i = 1..r of (1 - h(s, i)),
        P(L = r | s) = h(s, r) P(L > r - 1 | s)

    and the law of whole partitions: segments are independent given where they start, and the last
    one is cut off by the end of the sequence. A prior of your own is a subclass with one method,
    `hazard_after`, and any parameters:

        class Memoryless(sp.Prior):
            rate: float

            def hazard_after(self, start, run):
                return jnp.full(jnp.shape(run), self.rate)

    Sampler, exact predictor, posterior, stream, saved states and statistics follow from it.
    Parameters become NumPy scalars, which are traced, so another value does not recompile; those
    that determine shapes or branches must be static fields (`equinox.field(static=True)`).
    `survival_after`, `log_survival` and `max_length` may be overridden where a closed form saves
    work or digits. A hazard that also works on NumPy arrays, such as `0.5 / run`, is not compiled
    in a `Stream`. With a class attribute `name`, `prior_from_name` knows it.

    >>> import jax.numpy as jnp
    >>> import switchpoint as sp
    >>> class Memoryless(sp.Prior):
    ...     rate: float
    ...     def hazard_after(self, start, run):
    ...         return jnp.full(jnp.shape(run), self.rate)
    >>> Memoryless(0.5).switch_probability(3).tolist()
    [0.0, 0.5, 0.5]
    """

    name: ClassVar[str] = ""
    """The name in commands and configurations, if there is one."""

    @abstractmethod
    def hazard_after(self, start: Positions, run: Positions) -> Numbers:
        """P(L = run | start, L >= run), for run >= 1, elementwise on broadcast arrays.

        It may have fewer axes than its arguments if it does not depend on them.
        """

    def survival_after(self, start: Positions, run: Positions) -> Numbers:
        """P(L > run | start, L >= run) = 1 - hazard, for run >= 1.

        Override this if the hazard can come close to 1, where the difference loses its digits.
        """
        return 1 - self.hazard_after(start, run)

    def log_survival_after(self, start: Positions, run: Positions) -> Numbers:
        """ln of `survival_after`; -inf, with derivative 0, where that is 0."""
        survival = self.survival_after(start, run)
        there = survival > 0
        return jnp.where(there, jnp.log(jnp.where(there, survival, 1.0)), -jnp.inf)

    @classmethod
    def defaults(cls, length: int) -> dict[str, Any]:
        """Parameters that depend on the length of sequences, by the names of the constructor."""
        del length
        return {}

    @property
    def memoryless(self) -> bool:
        """Whether the hazard is one constant, so that all segments survive alike."""
        return False

    @property
    def max_length(self) -> int | None:
        """The longest segment with positive probability; None if unbounded."""
        return None

    @property
    def max_sequence(self) -> int | None:
        """The longest sequence that the prior is defined for; None if unbounded."""
        return None

    def log_survival(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        """ln P(L > run | start), for run >= 0, elementwise on broadcast arrays."""
        start, run = jnp.broadcast_arrays(start, run)

        def add(i: Int[Array, ""], total: Float[Array, "..."]) -> Float[Array, "..."]:
            survival = self.survival_after(start, jnp.broadcast_to(i, run.shape))
            return total + jnp.where(i <= run, jnp.log(survival), 0)

        end = jnp.max(run, initial=0) + 1
        return lax.fori_loop(jnp.ones((), run.dtype), end, add, jnp.zeros(run.shape))

    def log_pmf(self, start: Positions, length: Positions) -> Float[Array, "..."]:
        """ln P(L = length | start), for length >= 1, elementwise on broadcast arrays."""
        length = jnp.asarray(length)
        return self.log_survival(start, length - 1) + jnp.log(self.hazard_after(start, length))

    def sample_switches(
        self, key: PRNGKeyArray, batch: int, length: int
    ) -> Bool[Array, "batch time"]:
        """Partitions drawn from the prior: True where a new segment starts, False at 0."""
        key, batch = _checks.random_key(key), _checks.positive_int("batch", batch)
        self.check_length(length)
        constants, general = eqx.partition(self, constants_of_fast_draws)
        return _sample_switches(general, constants, key, batch, length)

    def sample_starts(self, key: PRNGKeyArray, batch: int, length: int) -> Int[Array, "batch time"]:
        """Partitions drawn from the prior: the start of the segment of each symbol."""
        self.check_length(length)

        def step(
            start: Int[Array, " batch"], now: tuple[Int[Array, ""], Float[Array, " batch"]]
        ) -> tuple[Int[Array, " batch"], Int[Array, " batch"]]:
            time, coin = now
            run = time - start
            survival = self.survival_after(start, run)
            # Uniform numbers are finest near 0, so that is where the rarer outcome belongs.
            ends = jnp.where(
                survival < 2**-16, coin >= survival, coin < self.hazard_after(start, run)
            )
            start = jnp.where(ends, time, start)
            return start, start

        times = jnp.arange(1, length, dtype=jnp.int32)
        coins = uniform(key, (length - 1, batch))
        first = jnp.zeros(batch, jnp.int32)
        # Launches dominate on a GPU, where many steps in one launch cost as much as one.
        unroll = 1 if jax.default_backend() == "cpu" else 32
        _, later = lax.scan(step, first, (times, coins), unroll=unroll)
        return jnp.concatenate([first[None], later]).T

    def switch_probability(self, length: int) -> Float[np.ndarray, " time"]:
        """P(a segment starts at t) for t = 0..length-1, in float64; 0 at t = 0.

        The first segment's start is not a switching point.
        """
        return statistics.switch_probability(statistics.next_start_table(self, length)[0])

    def switch_count_pmf(self, length: int) -> Float[np.ndarray, " count"]:
        """P(k switching points in a sequence of `length`) for k = 0..length-1, in float64."""
        return statistics.switch_count_pmf(*statistics.next_start_table(self, length))

    def check_length(self, length: int) -> None:
        """Raise a `ValueError` if the prior is not defined for sequences of `length`."""
        length = _checks.positive_int("length", length)
        if self.max_sequence is not None and length > self.max_sequence:
            raise ValueError(
                f"length must be at most {self.max_sequence} for {self!r}, got {length}"
            )

    def check_hazards(self) -> None:
        """Raise a `ValueError` if `hazard_after` returns anything but probabilities.

        Evaluates many starts and runs, unless the parameters are traced. For users' own priors.
        """
        runs = np.unique(np.concatenate([np.arange(1, 257), 2 ** np.arange(9, 21)]))
        run, start = (each.astype(np.int32) for each in np.meshgrid(runs, [0, 1, 2, 7, 64, 1000]))
        hazards = self.hazard_after(start, run)
        if isinstance(hazards, jax.core.Tracer):
            return
        name = f"{type(self).__name__}.hazard_after"
        if jnp.shape(hazards) not in ((), run.shape):
            raise ValueError(
                f"{name} must work elementwise and return an array of shape {run.shape} here, "
                f"got {jnp.shape(hazards)}"
            )
        hazards = np.broadcast_to(hazards, run.shape)
        bad = ~((hazards >= 0) & (hazards <= 1))
        if bad.any():
            at = tuple(np.argwhere(bad)[0])
            raise ValueError(
                f"{name} must return probabilities from 0 to 1, got {float(hazards[at]):.6g} "
                f"for start {start[at]} and run {run[at]}"
            )


@functools.partial(jax.jit, static_argnames=("constants", "batch", "length"))
def _sample_switches(
    general: Prior, constants: Prior, key: PRNGKeyArray, batch: int, length: int
) -> Bool[Array, "batch time"]:
    return switches_at(eqx.combine(general, constants).sample_starts(key, batch, length))


def switches_at(starts: Int[Array, "batch time"]) -> Bool[Array, "batch time"]:
    """True where a new segment starts, False at 0, from the start of each symbol's segment."""
    return (starts == jnp.arange(starts.shape[-1])) & (starts > 0)
