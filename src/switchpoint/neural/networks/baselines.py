"""Baselines with too little memory, which by Theorem 4.2 is never optimal."""

from collections.abc import Mapping
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from switchpoint import _checks
from switchpoint.neural.dense import Perceptron
from switchpoint.neural.model import Model, Option, adam_recipe
from switchpoint.neural.network import Network


class Memoryless(Network[Int[Array, ""]]):
    """One distribution for each position, independent of the past: the paper's Definition 4.1.

    Its memory is the number of tokens read. Beyond its length it repeats the last position.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> network = sp.neural.Memoryless(2, length=4)  # of logits 0, before it is trained
    >>> np.exp(network.log_probs([0, 1, 1])).round(2).tolist()
    [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]
    """

    models: ClassVar[Mapping[str, Model]] = {
        "memoryless": Model(
            {}, adam_recipe(1e-2, 2_000, 100), takes_length=True, takes_values=False
        )
    }
    muon_matrices: ClassVar[Mapping[str, int]] = {"table": 0}  # logits, not a linear map

    alphabet_size: int = eqx.field(static=True)
    length: int = eqx.field(static=True)
    table: Float[Array, "length alphabet"]

    def __init__(self, alphabet: int, length: int, *, key: PRNGKeyArray | None = None) -> None:
        del key
        self.alphabet_size = alphabet
        self.length = _checks.positive_int("length", length)
        self.table = jnp.zeros((self.length, alphabet))

    def memory(self, batch: int, capacity: int) -> Int[Array, ""]:
        del batch, capacity
        return jnp.zeros((), jnp.int32)

    def read(
        self, memory: Int[Array, ""], tokens: Int[Array, "batch time"]
    ) -> tuple[Int[Array, ""], Float[Array, "batch time alphabet"]]:
        batch, time = tokens.shape
        positions = jnp.minimum(memory + jnp.arange(time, dtype=jnp.int32), self.length - 1)
        logits = self.table[positions]
        return memory + time, jnp.broadcast_to(logits, (batch, *logits.shape))


class Markov(Network[Int[Array, "batch order"]]):
    """A perceptron applied to the last `order` symbols, which are its memory.

    With hidden layers of width w, a symbol costs O(w (order x alphabet + w)).

    >>> import jax
    >>> import switchpoint as sp
    >>> network = sp.neural.Markov(2, order=3, key=jax.random.key(0))
    >>> network.memory(batch=1, capacity=0).tolist()  # three start tokens
    [[2, 2, 2]]
    """

    models: ClassVar[Mapping[str, Model]] = {
        "markov": Model(
            {"order": Option(8, "the number of past symbols that it sees")},
            adam_recipe(1e-2, 2_000, 100),
            takes_values=False,
        )
    }

    alphabet_size: int = eqx.field(static=True)
    order: int = eqx.field(static=True)
    perceptron: Perceptron

    def __init__(self, alphabet: int, *, key: PRNGKeyArray, order: int = 8) -> None:
        self.alphabet_size = alphabet
        self.order = _checks.positive_int("order", order)
        self.perceptron = Perceptron(self.order * (alphabet + 1), 2, alphabet, key)

    def memory(self, batch: int, capacity: int) -> Int[Array, "batch order"]:
        del capacity
        return jnp.full((batch, self.order), self.alphabet, jnp.int32)  # all are start tokens

    def read(
        self, memory: Int[Array, "batch order"], tokens: Int[Array, "batch time"]
    ) -> tuple[Int[Array, "batch order"], Float[Array, "batch time alphabet"]]:
        seen = jnp.concatenate([memory, tokens], axis=1)
        windows = jnp.stack(
            [seen[:, lag + 1 : lag + 1 + tokens.shape[1]] for lag in range(self.order)], axis=-1
        )
        hot = jax.nn.one_hot(windows, self.alphabet + 1)
        logits = self.perceptron(hot.reshape(*tokens.shape, -1))
        return seen[:, tokens.shape[1] :], logits
