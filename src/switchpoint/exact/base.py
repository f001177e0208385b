"""The interface of exact predictors, and their loop over the observations of a sequence."""

import functools
from abc import abstractmethod
from dataclasses import replace
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from switchpoint import _checks
from switchpoint._batching import in_chunks
from switchpoint._labels import keeps_labels, labels_of
from switchpoint.exact.hypotheses import Sequences
from switchpoint.exact.posterior import Posterior
from switchpoint.exact.streams import (
    check_statistics,
    mixture,
    relative_value,
    relative_values,
)
from switchpoint.predictor import Predictor, check_capacity
from switchpoint.priors import Prior
from switchpoint.segments import Dirichlet, Segment
from switchpoint.segments.base import Statistics
from switchpoint.segments.values import checked_values, rounded_off, typical_value

State = TypeVar("State", bound=Any)

_PART = 64  # observations
_CHOICE = "choice of a hypothesis"


def remembered(choice: Array) -> Array:
    """A choice that reverse-mode differentiation stores: rounding would change a near tie."""
    return checkpoint_name(choice, _CHOICE)


class SegmentPredictor(Predictor[State]):
    """A predictor of observations whose segments are of one family.

    A subclass says which hypotheses about the current segment a state holds, and how an observation
    changes them. Whole sequences are then a loop of that, unless a subclass has a faster way.
    """

    segment: eqx.AbstractVar[Segment]

    @abstractmethod
    def _hypotheses(self, state: State) -> tuple[Float[Array, " hypotheses"], Statistics]:
        """The logarithms of the weights of all hypotheses, and the statistics under each."""

    @abstractmethod
    def _observe(self, state: State, x: Float[Array, "*event"]) -> tuple[State, Float[Array, ""]]:
        """The state after a value relative to the offset, and the log density of that value."""

    @property
    def alphabet(self) -> int:
        return self.segment.alphabet

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.segment.event_shape

    def predict(self, state: State) -> Any:
        """ln P(x_t = k | x_<t); without an alphabet, the distribution of x_t given x_<t."""
        prediction = self._predict(state)
        rest = rounded_off(self.segment)
        if not rest.any():
            return prediction
        xp: Any = jnp if isinstance(prediction.offset, jax.core.Tracer) else np
        offset = xp.asarray(prediction.offset, float) + rest
        return replace(prediction, offset=xp.asarray(offset))

    def update(self, state: State, x: Any) -> State:
        relative, state = relative_value(self.segment, state, x)
        return self._update(self._with_capacity_for(state, 1), relative)

    @keeps_labels("log_density")
    def extend(self, state: State, values: Any) -> tuple[State, Float[Array, "time *alphabet"]]:
        """The state after a chunk, and ln P(x_t = k | x_<t) for each x_t in it.

        Where there is no alphabet, ln p(x_t | x_<t), which is 0 if x_t is missing. Values are
        (time,), or (time, columns) for `Independent`. For a batch of states, `jax.vmap` it.
        """
        relative, state = relative_values(self.segment, state, values)
        state, logs = self._extend(self._with_capacity_for(state, len(relative)), relative)
        if not self.segment.finite:
            xp: Any = np if isinstance(relative, np.ndarray) else jnp
            missing = xp.isnan(relative).reshape(len(relative), -1).all(-1)
            if xp is jnp or missing.any():
                logs = jnp.where(missing, 0.0, logs)
        return state, logs

    @keeps_labels("log_probs")
    def log_probs(self, symbols: Any) -> Float[Array, "*batch time alphabet"]:
        sequences, batch = self._symbols(symbols)
        log_probs = self._log_probs(sequences)
        return log_probs.reshape(*batch, *log_probs.shape[1:])

    @keeps_labels("log_density")
    def log_density(self, values: Any) -> Float[Array, "*batch time"]:
        """ln p(x_t | x_<t) for every t, t = 0 included; for symbols the density is P(x_t | x_<t).

        Values are (..., time), or (..., time, columns) for `Independent`. A NaN is a missing
        observation: its log density is 0, and it changes no other.
        """
        sequences, batch = self._observations(values)
        logs = self._log_density(sequences)
        if not sequences.counted_by(self.segment):
            gaps = jnp.isnan(sequences.values)
            logs = jnp.where(gaps.reshape(*gaps.shape[:2], -1).all(-1), 0.0, logs)
        return logs.reshape(*batch, -1)

    @abstractmethod
    def _check_length(self, length: int) -> None:
        """Raise a `ValueError` if sequences of this length are not predicted."""

    def _check_shape(self, batch: tuple[int, ...], time: int) -> None:
        """Raise a `ValueError` if a batch of sequences of this length is not predicted."""
        del batch
        self._check_length(time)

    def _with_capacity_for(self, state: State, count: int) -> State:
        """The state with capacity for this many observations more."""
        if isinstance(state.time.low, jax.core.Tracer):
            check_capacity(getattr(state, "grows", False))
            return state
        length = int(state.time) + count
        self._check_length(length)
        return self._reserve(state, length)

    def _reserve(self, state: State, length: int) -> State:
        """The state with capacity for this many observations in all."""
        del length
        return state

    def _checked_hypotheses(self, state: State) -> tuple[Float[Array, " hypotheses"], Statistics]:
        log_weights, statistics = self._hypotheses(state)
        check_statistics(self.segment, statistics, len(log_weights))
        return log_weights, statistics

    @jax.jit
    def _predict(self, state: State) -> Any:
        """`predict`, of values minus `rounded_off(segment)`."""
        return mixture(self.segment, *self._checked_hypotheses(state), state.offset)

    @jax.jit
    def _update(self, state: State, x: Float[Array, "*event"]) -> State:
        """`update` by a value relative to the offset."""
        self._checked_hypotheses(state)
        return self._observe(state, x)[0]

    def _extend(self, state: State, values: Any) -> tuple[State, Array]:
        """`extend` by values relative to the offset; missing ones may have any density."""
        return self._extend_by_steps(state, values)

    @jax.jit
    def _extend_by_steps(
        self, state: State, values: Float[Array, "time *event"]
    ) -> tuple[State, Float[Array, "time *alphabet"]]:
        self._checked_hypotheses(state)

        def step(state: State, x: Float[Array, "*event"]) -> tuple[State, Array]:
            after, log_density = self._observe(state, x)
            return after, self._predict(state) if self.segment.finite else log_density

        return lax.scan(step, state, values)

    def _log_probs(self, sequences: Sequences) -> Float[Array, "flat time alphabet"]:
        """`log_probs` of a flat batch of symbols."""
        return self._loop(sequences, "_predict")

    def _log_density(self, sequences: Sequences) -> Float[Array, "flat time"]:
        """`log_density` of a flat batch; missing observations may have any."""
        return self._loop(sequences)

    @functools.partial(jax.jit, static_argnames="result")
    def _loop(self, sequences: Sequences, result: str | None = None) -> Array:
        """The named method's result before every observation; by default its log density."""
        return in_chunks(jax.vmap(functools.partial(self._loop_over_one, result)), sequences)

    def _loop_over_one(self, result: str | None, sequence: Sequences) -> Float[Array, "time ..."]:
        """`_loop` of a sequence without the axis of the batch."""
        values = sequence.values.astype(float)
        state = self.init(length=len(values))
        translate = jax.vmap(self.segment.translate, in_axes=(0, None))
        state = eqx.tree_at(
            lambda s: (s.offset, s.statistics),
            state,
            (sequence.offset, translate(state.statistics, sequence.offset)),
        )

        def step(state: State, x: Float[Array, "*event"]) -> tuple[State, Any]:
            after, log_density = self._observe(state, x)
            return after, log_density if result is None else getattr(self, result)(state)

        # Reverse-mode differentiation stores one state per part, and recomputes the others.
        count = -(-len(values) // _PART)
        padding = ((0, count * _PART - len(values)), *((0, 0),) * (values.ndim - 1))
        parts = jnp.pad(values, padding, constant_values=jnp.nan)
        run = jax.checkpoint(
            lambda state, xs: lax.scan(step, state, xs),
            prevent_cse=False,
            policy=jax.checkpoint_policies.save_only_these_names(_CHOICE),
        )
        results = lax.scan(run, state, parts.reshape(count, _PART, *values.shape[1:]))[1]
        return results.reshape(-1, *results.shape[2:])[: len(values)]

    def _symbols(self, values: Any) -> tuple[Sequences, tuple[int, ...]]:
        """Symbols, none of which is missing, as a flat batch."""
        symbols = _checks.symbols(values, self.alphabet)
        *batch, time = symbols.shape
        self._check_shape(tuple(batch), time)
        rows = symbols.reshape(-1, time)
        return Sequences(rows, jnp.zeros(len(rows)), complete=True), tuple(batch)

    def _observations(self, values: Any) -> tuple[Sequences, tuple[int, ...]]:
        """Symbols if they are independent and none is missing, and otherwise `_values`."""
        if isinstance(self.segment, Dirichlet):
            if isinstance(values, jax.core.Tracer):
                complete = jnp.issubdtype(values.dtype, jnp.integer)
            else:
                complete = not _checks.has_missing(values)
            if complete:
                return self._symbols(values)
        return self._values(values)

    def _values(self, values: Any) -> tuple[Sequences, tuple[int, ...]]:
        """Values as a flat batch."""
        array = checked_values(self.segment, values)
        event = self.segment.event_shape
        *batch, time = array.shape[: array.ndim - len(event)]
        self._check_shape(tuple(batch), time)
        flat = (array - rounded_off(self.segment)).reshape(-1, time, *event)
        offset = typical_value(self.segment, flat)
        relative = jnp.asarray(flat - offset[:, None], float)
        complete = not isinstance(flat, jax.core.Tracer) and not np.isnan(flat).any()
        return Sequences(relative, jnp.asarray(offset, float), bool(complete)), tuple(batch)


class ExactPredictor(SegmentPredictor[State]):
    """The Bayes optimum of a source: it predicts observations and infers switching points.

    `bayes_optimal` makes it, a `PTWPredictor` or a `ForwardPredictor`, which have the formulas and
    the cost.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> bayes = sp.bayes_optimal(sp.Source(sp.Geometric(0.1), sp.Gaussian(scale=0.5)))
    >>> isinstance(bayes, sp.ExactPredictor)
    True
    >>> values = [0.1, -0.2, 0.0, 5.1, 4.9, 5.2]
    >>> print(np.asarray(bayes.log_density(values)).round(1))
    [ -1.   -0.6  -0.5 -13.7  -1.4  -1.3]
    >>> bayes.posterior(values).map_switches.nonzero()[0].tolist()
    [3]
    """

    prior: eqx.AbstractVar[Prior]

    def posterior(self, values: Any) -> Posterior:
        """The exact posterior over switching points of a sequence, or of a batch of them."""
        posterior = self._posterior(*self._observations(values))
        rest = rounded_off(self.segment)
        if posterior.level_mean is not None and rest.any():
            posterior = replace(posterior, level_mean=posterior.level_mean + rest)
        labels = labels_of(values)
        return posterior if labels is None else replace(posterior, _labels=labels)

    @abstractmethod
    def _posterior(self, sequences: Sequences, batch: tuple[int, ...]) -> Posterior:
        """`posterior` of a flat batch of this shape."""

    def _check_length(self, length: int) -> None:
        self.prior.check_length(length)
