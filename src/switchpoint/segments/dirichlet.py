"""Symbols of a finite alphabet, with an unknown distribution."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray

from switchpoint import _checks
from switchpoint._namespace import Numbers
from switchpoint._parameters import Parameter, checked_field
from switchpoint._random import uniform
from switchpoint.segments._special import gamma_ratio, log
from switchpoint.segments.base import Segment
from switchpoint.segments.distributions import Discrete

_SMALLEST, _LARGEST = 1e-15, 1e15  # between which single precision represents all ratios
_LARGEST_COUNT = 2**30


class Dirichlet(Segment):
    """Independent symbols within a segment, whose distribution is drawn once per segment.

    Generative model, with a = `pseudo_counts`:

        p ~ Dirichlet(a_0, ..., a_{K-1}),    x_t | p ~ Categorical(p)

    Statistic: the counts n_k of the symbols. Predictive:

        P(x_{n+1} = k) = (n_k + a_k) / sum over j of (n_j + a_j)

    Counts are differences of prefix sums, so a prediction takes O(K) time for each hypothesis. See
    Murphy (2022), "Probabilistic Machine Learning", 4.6.

    A model of your own is a subclass with `pseudo_counts`; everything else follows from them. The
    exact algorithms rely on that (counts are differences of prefix sums), so `predictive`, `probs`
    and `sample` cannot be overridden.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> class Rare(sp.segments.Dirichlet):
    ...     @property
    ...     def pseudo_counts(self):
    ...         return (8.0, 1.0, 1.0)
    >>> bayes = sp.bayes_optimal(sp.Source(sp.LIN(), Rare()))
    >>> print(np.exp(bayes.predict(bayes.init())).round(1))
    [0.8 0.1 0.1]
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("predictive", "probs", "sample"):
            if name in cls.__dict__:
                raise TypeError(
                    f"{cls.__name__}.{name} cannot be overridden: exact prediction relies on "
                    "independent symbols under a Dirichlet prior; change `pseudo_counts` instead"
                )

    @property
    @abstractmethod
    def pseudo_counts(self) -> Sequence[Any] | Float[np.ndarray | Array, " alphabet"]:
        """The Dirichlet parameters, one per symbol, each above 0."""

    @property
    def alphabet(self) -> int:
        return len(self.pseudo_counts)

    def probs(self, counts: Num[Array, "*batch alphabet"]) -> Float[Array, "*batch alphabet"]:
        """P(next symbol = k | the symbol counts of this segment so far)."""
        pseudo = jnp.asarray(self.pseudo_counts)
        return (counts + pseudo) / (counts.sum(-1, keepdims=True) + pseudo.sum())

    def statistic(self, x: Num[Array, ""]) -> Int[Array, " alphabet"]:
        return jax.nn.one_hot(x.astype(jnp.int32), self.alphabet, dtype=jnp.int32)

    def merge(self, before: Numbers, after: Numbers) -> Num[Array, " alphabet"]:
        """The sum; counts about to overflow an int32 are halved."""
        counts = before + after
        return jnp.where(counts.max() >= _LARGEST_COUNT, counts // 2, counts)

    def predictive(self, statistics: Num[Array, " alphabet"]) -> Discrete:
        return Discrete(self.probs(statistics))

    def run_log_density(self, before: Numbers, run: Numbers) -> tuple[Numbers, Numbers]:
        counts, more = before + jnp.asarray(self.pseudo_counts, float), run.astype(float)
        total, number = counts.sum(-1), more.sum(-1)
        factors, rests = gamma_ratio(counts, more)
        factor, rest = gamma_ratio(total, number)
        each = rests - log(factors) + more * log(counts / total[..., None])
        return log(factor) - rest, each.sum(-1)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape alphabet"]:
        """Symbol distributions of segments, drawn from the Dirichlet prior."""
        pseudo = self.pseudo_counts
        concrete = not any(isinstance(each, jax.core.Tracer) for each in (pseudo, *pseudo[:2]))
        if concrete and tuple(pseudo) == (0.5, 0.5):
            # The arcsine distribution: draw the smaller probability, accurate near 0.
            twice = 2 * uniform(key, shape)
            rare = jnp.sin(jnp.minimum(twice, 2 - twice) * float(np.pi / 4)) ** 2
            return jnp.stack(
                [jnp.where(twice < 1, 1 - rare, rare), jnp.where(twice < 1, rare, 1 - rare)],
                axis=-1,
            )
        keys = jax.random.split(key, self.alphabet)
        if concrete and len(set(pseudo)) == 1:
            logs = jax.vmap(lambda key: _log_gamma_draw(key, float(pseudo[0]), shape))(keys)
        else:
            logs = jax.vmap(lambda key, each: jax.random.loggamma(key, each, shape))(
                keys, jnp.asarray(pseudo, float)
            )
        return jax.nn.softmax(jnp.moveaxis(logs, 0, -1), axis=-1)

    def emission(
        self, parameters: Float[Array, " alphabet"], statistics: Num[Array, " alphabet"]
    ) -> Discrete:
        del statistics
        return Discrete(parameters)


def _checked_pseudo_count(name: str, value: Any) -> float:
    number = _checks.positive_float(name, value)
    if not _SMALLEST <= number <= _LARGEST:
        raise ValueError(f"{name} must be from {_SMALLEST:g} to {_LARGEST:g}, got {number:g}")
    return number


def pseudo_count() -> Any:
    """A field for a Dirichlet parameter, by default 1/2."""
    return checked_field(_checked_pseudo_count, 0.5)


class Bernoulli(Dirichlet):
    """Bits with an unknown probability of a 1.

    Generative model: p ~ Beta(alpha, beta) once per segment, x_t | p ~ Bernoulli(p). Statistic: the
    numbers n_0 of zeros and n_1 of ones. Predictive:

        P(x_{n+1} = 1) = (n_1 + alpha) / (n_0 + n_1 + alpha + beta)

    The default Beta(1/2, 1/2) makes it the estimator of Krichevsky and Trofimov (1981), KT.

    - `alpha`, `beta`, from 1e-15 to 1e15: pseudo-counts of ones and of zeros.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> bayes = sp.bayes_optimal(sp.Source(sp.PTW(2), sp.Bernoulli()))
    >>> print(np.exp(bayes.log_density([1, 1, 0])).round(3))
    [0.5   0.688 0.318]
    """

    alpha: Parameter = pseudo_count()
    beta: Parameter = pseudo_count()

    @property
    def pseudo_counts(self) -> tuple[Parameter, ...]:
        return (self.beta, self.alpha)


class Categorical(Dirichlet):
    """Symbols 0..size-1 with an unknown distribution.

    Generative model: p ~ Dirichlet(concentration, ..., concentration) once per segment,
    x_t | p ~ Categorical(p). Statistic: the counts n_k, with sum n. Predictive:

        P(x_{n+1} = k) = (n_k + concentration) / (n + size concentration)

    - `size` >= 2: the alphabet;
    - `concentration`, from 1e-15 to 1e15: the pseudo-count of every symbol.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> bayes = sp.bayes_optimal(sp.Source(sp.LIN(), sp.Categorical(3)))
    >>> print(np.exp(bayes.log_density([2, 2, 0])).round(3))
    [0.333 0.467 0.218]
    """

    size: int = eqx.field(static=True)
    concentration: Parameter = pseudo_count()

    def __init__(self, size: int, concentration: Parameter = 0.5) -> None:
        self.size = checked_size(size)
        self.concentration = concentration

    @property
    def alphabet(self) -> int:
        return self.size

    @property
    def pseudo_counts(self) -> Float[np.ndarray | Array, " alphabet"]:
        concrete = isinstance(self.concentration, float)
        return (np if concrete else jnp).full(self.size, self.concentration)


def as_dirichlet(segment: Segment) -> Dirichlet:
    """The segment model, if it is one of independent symbols."""
    if not isinstance(segment, Dirichlet):
        raise ValueError(
            "segment must be a model of independent symbols, such as switchpoint.Bernoulli(), "
            f"got {segment!r}"
        )
    return segment


def make_segment(
    alphabet: int,
    alpha: float | None = None,
    beta: float | None = None,
    concentration: float | None = None,
) -> Dirichlet:
    """`Bernoulli(alpha, beta)` for an alphabet of 2, `Categorical(alphabet, concentration)` above.

    Parameters that are None default to 0.5; those of the other model are refused.

    >>> from switchpoint.segments import make_segment
    >>> make_segment(2), make_segment(3, concentration=1.0)
    (Bernoulli(alpha=0.5, beta=0.5), Categorical(size=3, concentration=1.0))
    """
    if alphabet < 2:
        raise ValueError(f"alphabet must be at least 2, got {alphabet}")
    bits = alphabet == 2
    given = {"alpha": alpha, "beta": beta, "concentration": concentration}
    for name, value in given.items():
        if value is not None and bits == (name == "concentration"):
            wanted = "alphabets above 2" if bits else "an alphabet of 2"
            takes = "alpha and beta" if bits else "concentration"
            raise ValueError(
                f"{name} is for {wanted}, got {value} (an alphabet of {alphabet} takes {takes})"
            )
    known = {name: value for name, value in given.items() if value is not None}
    return Bernoulli(**known) if bits else Categorical(alphabet, **known)


def checked_size(size: int) -> int:
    """The size of an alphabet, which is at least 2."""
    size = _checks.positive_int("size", size)
    if size < 2:
        raise ValueError(f"size must be at least 2, got {size}")
    return size


def _log_gamma_draw(
    key: PRNGKeyArray, shape_parameter: float, shape: tuple[int, ...]
) -> Float[Array, "..."]:
    """The logarithm of a Gamma variable, cheap where that is a square or an exponential."""
    if shape_parameter == 0.5:
        tiny = float(np.finfo(np.float32).tiny)
        return jnp.log(jnp.maximum(0.5 * jax.random.normal(key, shape) ** 2, tiny))
    if shape_parameter == 1.0:
        return jnp.log(jax.random.exponential(key, shape))
    return jax.random.loggamma(key, shape_parameter, shape)
