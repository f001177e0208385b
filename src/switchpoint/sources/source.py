"""A source: a prior over switching points and a model of the segments."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from switchpoint import _checks
from switchpoint._random import constants_of_fast_draws, uniform
from switchpoint.priors import Prior
from switchpoint.priors.base import switches_at
from switchpoint.segments import Bernoulli, Segment


class Draw(eqx.Module):
    """Sequences drawn from a source, with the ground truth that is hidden from predictors."""

    symbols: Int[Array, "*batch time"]
    """The symbols, 0..alphabet-1."""

    probs: Float[Array, "*batch time alphabet"]
    """The distribution each symbol was drawn from."""

    switches: Bool[Array, "*batch time"]
    """True where a new segment starts; False at 0."""


class Source(eqx.Module):
    """Piecewise stationary sequences: segment lengths from `prior`, symbols from `segment`."""

    prior: Prior
    segment: Segment = Bernoulli()

    def __check_init__(self) -> None:
        if not isinstance(self.prior, Prior):
            raise ValueError(
                f"prior must be a Prior, such as switchpoint.PTW(8), got {self.prior!r}"
            )
        if not isinstance(self.segment, Segment):
            raise ValueError(
                "segment must be a Segment, such as switchpoint.Bernoulli() or "
                f"switchpoint.Categorical(3), got {self.segment!r}"
            )
        if type(self.prior).__module__.partition(".")[0] != "switchpoint":
            self.prior.check_hazards()

    def sample(self, key: PRNGKeyArray, batch: int, length: int) -> Draw:
        """`batch` independent sequences of `length` symbols."""
        key = _checks.random_key(key)
        batch = _checks.positive_int("batch", batch)
        self.prior.check_length(length)
        constants, general = eqx.partition(self, constants_of_fast_draws)
        return _sample(general, constants, key, batch, length)


@functools.partial(jax.jit, static_argnames=("constants", "batch", "length"))
def _sample(general: Source, constants: Source, key: PRNGKeyArray, batch: int, length: int) -> Draw:
    source: Source = eqx.combine(general, constants)
    key_prior, key_segment, key_symbol = jax.random.split(key, 3)
    starts = source.prior.sample_starts(key_prior, batch, length)
    # Time first: every operation then runs along the batch, contiguous in memory.
    fresh = source.segment.sample(key_segment, (length, batch))
    probs = jnp.take_along_axis(fresh, starts.T[:, :, None], axis=0, mode="promise_in_bounds")
    below = jnp.cumsum(probs[..., :-1], axis=-1)  # P(symbol <= k), all but the last, which is 1
    coins = uniform(key_symbol, (length, batch))
    symbols = jnp.sum(coins[..., None] >= below, axis=-1, dtype=jnp.int32)
    return Draw(symbols.T, jnp.swapaxes(probs, 0, 1), switches_at(starts))
