"""Partition Tree Weighting: segments are nodes of a binary tree over time."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import wadler_lindig as wl
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from switchpoint import _checks
from switchpoint._namespace import Numbers, floor_log2, log_sigmoid, namespace, sigmoid
from switchpoint._parameters import Parameter, describe
from switchpoint._random import uniform
from switchpoint.priors.base import Positions, Prior
from switchpoint.priors.log_odds import (
    log_odds_of,
    log_one_minus_exp,
    probability_of,
    shown_probability,
)

MAX_DEPTH = 62
"""The deepest tree: sequences of up to 2^62 symbols."""


class PTW(Prior):
    """Partition Tree Weighting (Veness, White, Bowling and Gyoergy, 2013).

    Every node of a binary tree of `depth` levels over time splits into halves with probability
    p = `split`; a node of 2^v symbols that does not split is a segment. So the length of a segment
    depends on its start s alone. With v = depth at s = 0, else the number of trailing zero bits of
    s,

        P(L = 2^(v-j) | s) = (1 - p) p^j for j < v,    P(L = 1 | s) = p^v

    At most depth + 1 starts are alive at any time: exact prediction costs O(depth) per observation.

    - `depth`, from 1 to 62: sequences have at most 2^depth symbols, of any length;
    - `split`, in (0, 1): 1/2 in the paper.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> print(np.exp(sp.PTW(2).log_pmf(0, np.array([1, 2, 4]))).round(3))
    [0.25 0.25 0.5 ]
    """

    name = "ptw"
    depth: int = eqx.field(static=True)
    split_log_odds: Parameter

    def __init__(self, depth: int, split: ArrayLike = 0.5) -> None:
        self.depth = _checks.positive_int("depth", depth)
        if self.depth > MAX_DEPTH:
            raise ValueError(f"depth must be at most {MAX_DEPTH}, got {self.depth}")
        self.split_log_odds = log_odds_of("split", split, below_one=True)

    @classmethod
    def defaults(cls, length: int) -> dict[str, Any]:
        return {"depth": max(1, (length - 1).bit_length()), "split": 0.5}

    @property
    def split(self) -> Parameter:
        """The probability that a node splits."""
        return probability_of(self.split_log_odds)

    @property
    def log_split(self) -> Numbers:
        """The logarithm of `split`."""
        return log_sigmoid(self.split_log_odds)

    def hazard_after(self, start: Positions, run: Positions) -> Numbers:
        level, splits, at_edge = self._at(start, run)
        xp = namespace(splits, self.split_log_odds)
        here = xp.exp(splits * self.log_split)
        stops = sigmoid(-self.split_log_odds)
        above = -xp.expm1((splits + 1) * self.log_split)
        ends = xp.where(level == 0, here, stops * here / above)
        return xp.where(at_edge, xp.where(splits > 0, ends, 1.0), 0.0)

    def survival_after(self, start: Positions, run: Positions) -> Numbers:
        level, splits, at_edge = self._at(start, run)
        xp = namespace(splits, self.split_log_odds)
        here = -xp.expm1(splits * self.log_split)
        above = -xp.expm1((splits + 1) * self.log_split)
        return xp.where(at_edge, xp.where(level == 0, here, here / above), 1.0)

    @property
    def max_length(self) -> int:
        return 2**self.depth

    @property
    def max_sequence(self) -> int:
        return 2**self.depth

    def log_survival(self, start: Positions, run: Positions) -> Float[Array, "..."]:
        # P(L > r) = P(fewer than v - floor(log2 r) splits above)
        _, splits, _ = self._at(start, jnp.maximum(run, 1))
        return jnp.where(jnp.asarray(run) < 1, 0.0, log_one_minus_exp(splits * self.log_split))

    def sample_starts(self, key: PRNGKeyArray, batch: int, length: int) -> Int[Array, "batch time"]:
        """Segment starts drawn from the prior, with one vector operation per level of the tree."""
        self.check_length(length)
        levels = levels_within(self.depth, length)
        key_top, key_tree = jax.random.split(key)
        # Above these levels only the leftmost node matters: it must have split.
        alive = uniform(key_top, (1, batch)) < self.split ** (self.depth - levels)
        coins = self._coins(key_tree, (2**levels, batch))  # row = midpoint of a node
        starts = jnp.zeros((1, batch), jnp.int32)
        for level in range(levels):
            width = 2 ** (levels - level)
            splits = alive & coins[width // 2 :: width]
            midpoints = jnp.arange(width // 2, 2**levels, width, dtype=jnp.int32)[:, None]
            right = jnp.where(splits, midpoints, starts)
            starts = jnp.stack([starts, right], axis=1).reshape(-1, batch)
            alive = jnp.stack([splits, splits], axis=1).reshape(-1, batch)
        return starts[:length].T

    def _coins(self, key: PRNGKeyArray, shape: tuple[int, int]) -> Bool[Array, "nodes batch"]:
        """Whether each node splits; a fair coin is one random bit."""
        if not isinstance(self.split_log_odds, float) or self.split != 0.5:
            return uniform(key, shape) < self.split
        nodes, batch = shape
        words = jax.random.bits(key, (-(-nodes // 32), 1, batch), jnp.uint32)
        bits = (words >> jnp.arange(32, dtype=jnp.uint32)[:, None]) & 1
        return bits.reshape(-1, batch)[:nodes] == 1

    def _at(self, start: Any, run: Any) -> tuple[Any, Any, Any]:
        """The height of a node of `run` symbols, the splits above it, and whether there is one."""
        xp = namespace(start, run)
        start, run = xp.asarray(start), xp.asarray(run)
        if xp is np:
            start, run = start.astype(np.int64), run.astype(np.int64)
        level = floor_log2(run)
        lowest = xp.where(start == 0, 1, start & -start)
        height = xp.where(start == 0, self.depth, floor_log2(lowest))
        return level, xp.maximum(height - level, 0).astype(float), run == 1 << level

    def __pdoc__(self, **options: Any) -> wl.AbstractDoc:
        return describe(
            self, {"depth": self.depth, "split": shown_probability(self.split_log_odds)}, **options
        )


def levels_within(depth: int, length: int) -> int:
    """The number of levels of a tree of `depth` with midpoints inside a sequence of `length`."""
    return min(depth, (length - 1).bit_length())


def trailing_zeros(number: Positions) -> Int[Array, "..."]:
    """The number of trailing zero bits of a positive number."""
    number = jnp.asarray(number)
    return lax.population_count((number & -number) - 1)
