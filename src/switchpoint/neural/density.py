"""Networks on real values: they read features of the values and predict mixtures of Gaussians."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from switchpoint import _checks
from switchpoint.neural.network import Network
from switchpoint.segments.distributions import MixtureSameFamily, Normal, Product

_FEATURES = 3  # of each column
_FARTHEST = 6.0  # scales; only the logarithm distinguishes values beyond
_LOG_SCALES = (-7.0, 7.0)


class ValueSpec(NamedTuple):
    """The values that a network is for, and the number of Gaussians it mixes.

    See `DensityNetwork` for an example.
    """

    location: tuple[float, ...]
    """A typical value of each column."""
    scale: tuple[float, ...]
    """How widely each column spreads around it."""
    scalar: bool = True
    """Whether an observation is a number, not a vector of columns."""
    components: int = 8

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "ValueSpec":
        """The specification with these fields, as a card has them."""
        lists: Any = {name: tuple(v) for name, v in fields.items() if isinstance(v, list)}
        return cls(**{**fields, **lists})

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of an observation."""
        return () if self.scalar else (len(self.location),)

    @property
    def inputs(self) -> int:
        """The number of features that the network reads."""
        return _FEATURES * len(self.location) + 1

    @property
    def outputs(self) -> int:
        """The parameters of the mixture: weights, and a mean and a scale for each column."""
        return self.components * (1 + 2 * len(self.location))


class DensityNetwork(Network[Any]):
    """A network whose tokens are features of values, and whose logits parametrise a mixture.

    A NaN is a missing observation: a feature marks it, and its log density is 0.

    With d columns and k components, the density of standardised values z is
    sum_i w_i prod_j N(z_j; m_ij, s_ij^2). The body outputs k (1 + 2 d) numbers: log weights, means
    and log scales. `network_from_name` makes one.

    >>> import jax
    >>> import switchpoint as sp
    >>> spec = sp.neural.ValueSpec(location=(0.0,), scale=(1.0,), components=2)
    >>> key = jax.random.key(0)
    >>> network = sp.neural.network_from_name("lstm", None, 16, key, spec, hidden=4)
    >>> log_density = network.log_density([0.3, float("nan"), -0.2])
    >>> log_density.shape, float(log_density[1])
    ((3,), 0.0)
    """

    alphabet_size: None = eqx.field(static=True)
    spec: ValueSpec = eqx.field(static=True)
    body: Network[Any]

    def __init__(self, spec: ValueSpec, body: Network[Any]) -> None:
        self.alphabet_size = None
        self.spec = spec
        self.body = body

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.spec.event_shape

    @property
    def outputs(self) -> int:
        return self.spec.outputs

    @property
    def memory_limit(self) -> int | None:
        return self.body.memory_limit

    def memory(self, batch: int, capacity: int) -> Any:
        return self.body.memory(batch, capacity)

    def read(
        self, memory: Any, tokens: Float[Array, "batch time features"]
    ) -> tuple[Any, Float[Array, "batch time outputs"]]:
        return self.body.read(memory, tokens)

    def read_states(self, tokens: Float[Array, "batch time features"]) -> Any:
        return self.body.read_states(tokens)

    def grow(self, memory: Any, tokens: int = 1) -> Any:
        return self.body.grow(memory, tokens)

    def with_backend(self, backend: str) -> "DensityNetwork":
        return DensityNetwork(self.spec, self.body.with_backend(backend))

    def start_token(self) -> Float[Array, " features"]:
        return jnp.zeros(self.spec.inputs).at[-1].set(1)

    def to_tokens(self, values: Float[Array, "*batch_event"]) -> Float[Array, "*batch features"]:
        z = self._standardised(values)
        gap = jnp.isnan(z)
        z = jnp.where(gap, 0.0, z)
        parts = [jnp.clip(z, -_FARTHEST, _FARTHEST), jnp.arcsinh(z), gap.astype(z.dtype)]
        return jnp.concatenate([*parts, jnp.zeros_like(z[..., :1])], axis=-1)

    def observed(
        self, outputs: Float[Array, "*batch outputs"], values: Float[Array, "*batch_event"]
    ) -> Float[Array, "*batch"]:
        log_weights, means, log_scales = self._mixture(outputs)
        z = self._standardised(values)[..., None, :]
        gap = jnp.isnan(z)
        distance = (jnp.where(gap, 0.0, z) - means) * jnp.exp(-log_scales)
        unit = jnp.log(jnp.asarray(self.spec.scale)) + 0.5 * math.log(2 * math.pi)
        columns = jnp.where(gap, 0.0, -0.5 * distance**2 - log_scales - unit)
        log_density = jax.nn.logsumexp(log_weights + columns.sum(-1), axis=-1)
        return jnp.where(gap.all((-1, -2)), 0.0, log_density)

    def predict(self, state: Any) -> Any:
        """The distribution of the next observation."""
        log_weights, means, log_scales = self._mixture(state.prediction)
        location, scale = jnp.asarray(self.spec.location), jnp.asarray(self.spec.scale)
        columns = [
            Normal(means[:, i] * scale[i], (jnp.exp(log_scales[:, i]) * scale[i]) ** 2)
            for i in range(len(self.spec.location))
        ]
        if self.spec.scalar:
            return MixtureSameFamily(log_weights, columns[0], location[0])
        return MixtureSameFamily(log_weights, Product(tuple(columns)), location)

    def log_probs(self, symbols: Any) -> Any:
        del symbols
        raise ValueError("a network on real values has no alphabet: use log_density, not log_probs")

    def _checked_one(self, value: Any) -> Any:
        return self._checked(value)

    def _prediction(self, outputs: Float[Array, " outputs"]) -> Float[Array, " outputs"]:
        return outputs

    def _checked(self, values: Any) -> Float[Array, "..."]:
        if isinstance(values, jax.core.Tracer):
            return values
        array = _checks.numbers(values, "values", len(self.spec.event_shape))
        if array.shape[array.ndim - len(self.spec.event_shape) :] != self.spec.event_shape:
            raise ValueError(
                f"values must have {len(self.spec.location)} columns, got shape {array.shape}"
            )
        if np.isinf(array).any():
            at = tuple(int(each) for each in np.argwhere(np.isinf(array))[0])
            raise ValueError(
                f"values must be finite, or NaN where missing, got {array[at]}{_checks.place(at)}"
            )
        return jnp.asarray(array, float)

    def _standardised(self, values: Float[Array, "..."]) -> Float[Array, "... columns"]:
        columns = values[..., None] if self.spec.scalar else values
        return (columns - jnp.asarray(self.spec.location)) / jnp.asarray(self.spec.scale)

    def _mixture(self, outputs: Float[Array, "*batch outputs"]) -> tuple[Array, Array, Array]:
        """The log weights, and the means and log scales of each column, of standardised values."""
        components, columns = self.spec.components, len(self.spec.location)
        logits, rest = jnp.split(outputs, [components], axis=-1)
        pairs = rest.reshape(*rest.shape[:-1], 2, components, columns)
        # Apart from the beginning, so that the components take different parts.
        means = pairs[..., 0, :, :] + jnp.linspace(-1.5, 1.5, components)[:, None]
        return jax.nn.log_softmax(logits), means, jnp.clip(pairs[..., 1, :, :], *_LOG_SCALES)
