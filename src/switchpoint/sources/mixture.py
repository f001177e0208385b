"""A source that is one of several, drawn once per sequence."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint import _checks
from switchpoint._parameters import Parametric, simplex
from switchpoint.segments import Segment
from switchpoint.segments.values import observations_in_words
from switchpoint.sources.source import AbstractSource, Draw


class SourceMixture(AbstractSource, Parametric):
    """Sequences from one of several sources, which is drawn once for each sequence.

    Generative model: with w = `weights`, each sequence draws its source k ~ w, then x ~ source k:

        P(x) = sum_k w_k P_k(x)

    So a hazard, a period or a noise level may be unknown, but the same throughout a sequence. (A
    `Mixture` draws the kind of every segment.) `bayes_optimal` mixes the exact predictors by their
    evidence, and has the posterior over the sources. Sampling and prediction cost the sum of those
    of the sources.

    - `sources`: sources of the same observations;
    - `weights`: P(source), by default equal.

    >>> import switchpoint as sp
    >>> hazards = sp.SourceMixture([sp.Source(sp.Geometric(h)) for h in (0.01, 0.1)])
    >>> bayes = sp.bayes_optimal(hazards)
    >>> bayes.component_probs([0, 0, 1, 1, 0, 0, 1, 1])[-1].round(3)
    array([0.46, 0.54])
    """

    sources: tuple[AbstractSource, ...]
    weights: Float[np.ndarray | Array, " sources"] = simplex()

    def __init__(self, sources: Any, weights: Any = None) -> None:
        self.sources = tuple(sources)
        if not self.sources:
            raise ValueError("sources must be at least one Source, got none")
        for source in self.sources:
            if not isinstance(source, AbstractSource):
                raise ValueError(
                    f"sources must be sources, such as switchpoint.Source(switchpoint.LIN()), got "
                    f"{source!r}"
                )
            kinds = [observations_in_words(each.segment) for each in (source, self.sources[0])]
            if kinds[0] != kinds[1]:
                raise ValueError(
                    f"sources must have the same observations, got {kinds[0]} of {source!r} and "
                    f"{kinds[1]} of {self.sources[0]!r}"
                )
        self.weights = _checks.mixture_weights("weights", weights, len(self.sources), "sources")

    @property
    def segment(self) -> Segment:
        """That of the first source, which has the observations of all."""
        return self.sources[0].segment

    @property
    def oracle_segment(self) -> Segment | None:
        others = [repr(source.oracle_segment) for source in self.sources]
        return self.sources[0].oracle_segment if len(set(others)) == 1 else None

    @property
    def overrides_sample(self) -> bool:
        own = type(self).sample is not SourceMixture.sample
        return own or any(source.overrides_sample for source in self.sources)

    def check_length(self, length: int) -> None:
        for source in self.sources:
            source.check_length(length)

    def sample(self, key: PRNGKeyArray, batch: int, length: int) -> Draw:
        """`batch` independent sequences of `length` observations."""
        key = _checks.random_key(key)
        key, *keys = jax.random.split(key, 1 + len(self.sources))
        pairs = zip(self.sources, keys, strict=True)
        draws = [source.sample(each, batch, length) for source, each in pairs]
        which = jax.random.choice(key, len(draws), (batch,), p=jnp.asarray(self.weights))

        def chosen(*leaves: Array) -> Array:
            at = which.reshape(1, batch, *(1,) * (leaves[0].ndim - 1))
            return jnp.take_along_axis(jnp.stack(leaves), at, 0)[0]

        return jax.tree.map(chosen, *draws)
