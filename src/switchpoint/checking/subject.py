"""The parts of what is checked, and the observations that they are checked with."""

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from switchpoint.exact import ExactPredictor, bayes_optimal
from switchpoint.priors import Geometric, Prior, RegularPeriodic
from switchpoint.segments import Segment
from switchpoint.sources import AbstractSource, Source

_BATCH = 2
FEWEST = 10  # observations that all checks need
_DRAWS, _SEGMENT = 10_000, 5
_HAZARD = 0.1  # of the prior that a segment model is checked under

Values = Shaped[np.ndarray, "batch time *event"]


class Subject:
    """A prior, a segment model, a source, or a predictor, with what follows from it.

    A prior has a source of bits, a segment model one with a constant hazard, and a source whose
    optimum is known a predictor. Parts that there are not are None.
    """

    def __init__(self, thing: Any, values: Any, length: int, seed: int) -> None:
        self.thing, self.length, self.seed = thing, length, seed
        source = isinstance(thing, Source)
        self.prior: Any = thing.prior if source else self._if(Prior)
        self.segment: Any = thing.segment if source else self._if(Segment)
        self.sampler: Any = self._if(AbstractSource)
        self.densities: dict[str, Any] | None = None
        self._given = None if values is None else self._batched(np.asarray(values))

    @cached_property
    def source(self) -> AbstractSource | None:
        """The source of a prior or of a segment model, or the source itself."""
        if isinstance(self.thing, Prior):
            return Source(self.thing)
        if isinstance(self.thing, Segment):
            return Source(Geometric(_HAZARD), self.thing)
        return self.sampler

    @cached_property
    def predictor(self) -> Any:
        """The optimum of the source, if it is known, or the predictor itself."""
        if self.source is None:
            return self.thing
        return None if self.source.overrides_sample else bayes_optimal(self.source)

    @cached_property
    def draws(self) -> Float[Array, "draws time *event"]:
        """Many short segments."""
        source = Source(RegularPeriodic(_SEGMENT), self.segment)
        draw = source.sample(jax.random.key(self.seed), _DRAWS, _SEGMENT)
        return jnp.asarray(draw.values, float)

    @cached_property
    def values(self) -> Values:
        """The given sequences with an axis of sequences, or drawn ones."""
        return self._batched(self._drawn()) if self._given is None else self._given

    @cached_property
    def whole(self) -> Float[Array, "..."]:
        """The predictions of the values."""
        return self.predicted(self.predictor, self.values)

    @property
    def finite(self) -> bool:
        """Whether the predictor predicts symbols."""
        return getattr(self.predictor, "alphabet", None) is not None

    def predicted(self, predictor: Any, values: Any) -> Float[Array, "..."]:
        """ln P(x_t = k | x_<t), or ln p(x_t | x_<t) where there is no alphabet."""
        return predictor.log_probs(values) if self.finite else predictor.log_density(values)

    def _drawn(self) -> Shaped[np.ndarray, "..."]:
        if self.segment is not None:
            draws = np.asarray(self.draws)
            draws = draws.astype(np.int32) if self.segment.finite else draws
            return np.resize(draws, (_BATCH, self._longest(self.prior), *draws.shape[2:]))
        if self.sampler is not None:
            return np.asarray(
                self.sampler.sample(jax.random.key(self.seed), _BATCH, self.length).values
            )
        predictor = self.predictor
        prior = predictor.prior if isinstance(predictor, ExactPredictor) else None
        shape = _BATCH, self._longest(prior)
        if self.finite:
            return np.random.default_rng(self.seed).integers(0, predictor.alphabet, shape)
        first: Any = predictor.predict(predictor.init())
        keys = jax.random.split(jax.random.key(self.seed), shape)
        return np.asarray(jax.vmap(jax.vmap(first.sample))(keys))

    def _batched(self, values: Shaped[np.ndarray, "..."]) -> Values:
        """Sequences with an axis of sequences, which are long enough."""
        observed = getattr(self.thing, "segment", self.thing)
        axes = 1 + len(getattr(observed, "event_shape", ()))
        values = values[None] if values.ndim == axes else values
        if values.ndim != 1 + axes or values.shape[1] < FEWEST:
            raise ValueError(
                f"values must be one sequence or an array of them, of at least {FEWEST} "
                f"observations, got shape {values.shape}"
            )
        return values

    def _longest(self, prior: Prior | None) -> int:
        """The length of sequences, which a prior may bound."""
        longest = None if prior is None else prior.max_sequence
        return self.length if longest is None else min(self.length, longest)

    def _if(self, kind: type) -> Any:
        return self.thing if isinstance(self.thing, kind) else None
