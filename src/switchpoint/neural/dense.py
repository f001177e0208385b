"""Dense layers and perceptrons."""

from collections.abc import Mapping
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

WIDTH = 128
"""The width of a hidden layer, as in the paper."""


class Dense(eqx.Module):
    """x W + b."""

    muon_matrices: ClassVar[Mapping[str, int]] = {"weight": 1}

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, key: PRNGKeyArray) -> None:
        self.weight = fan_in_normal(key, inputs, outputs)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        return x @ self.weight + self.bias


class Perceptron(eqx.Module):
    """Hidden layers of ReLU units, then a linear layer; without hidden layers, a linear map."""

    layers: tuple[Dense, ...]

    def __init__(self, inputs: int, hidden_layers: int, outputs: int, key: PRNGKeyArray) -> None:
        sizes = [inputs, *[WIDTH] * hidden_layers, outputs]
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(map(Dense, sizes[:-1], sizes[1:], keys))

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)


def fan_in_normal(key: PRNGKeyArray, inputs: int, outputs: int) -> Float[Array, "inputs outputs"]:
    """Weights from a normal distribution truncated at two deviations, scaled by inputs^-1/2."""
    return jax.random.truncated_normal(key, -2, 2, (inputs, outputs)) * inputs**-0.5
