"""The exact predictor of a mixture of sources: their optima, weighted by their evidence."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from switchpoint import _checks
from switchpoint._labels import keeps_labels, labels_of
from switchpoint._parameters import simplex
from switchpoint.exact.posterior import Partitions, Posterior
from switchpoint.predictor import Predictor
from switchpoint.segments import MixtureGeneral, Segment
from switchpoint.segments._special import log_probs


class MixtureState(eqx.Module):
    """The states of the predictors of all sources, and the posterior of the sources.

    log_weights: (components,)
        ln P(source | x_<t).
    states
        The state of the predictor of each source.

    `MixturePredictor` makes it, and has the formulas.
    """

    log_weights: Float[Array, " components"]
    states: tuple[Any, ...]


class MixturePosterior(Posterior):
    """The posterior under a mixture of sources: that of each, weighted by its own.

    The fields are those of `Posterior`, averaged over the sources: `switch_filtered` and
    `run_length_mean` by P(source | x_<=t), all others by P(source | x). `map_switches` and
    `map_log_prob` are of the most probable pair of a source and a partition.

    component_probs: (components,)
        P(source | x).

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> hazards = sp.SourceMixture([sp.Source(sp.Geometric(h)) for h in (0.001, 0.05)])
    >>> posterior = sp.bayes_optimal(hazards).posterior([0] * 20 + [1] * 20)
    >>> print(np.asarray(posterior.component_probs).round(2))
    [0.07 0.93]
    """

    component_probs: Float[Array, "*batch components"] | None = None


class MixturePredictor(Predictor[MixtureState]):
    """The Bayes optimum of a `SourceMixture`.

    With the optimum p_k of each source and the prior w_k:

        p(x_t | x_<t) = sum_k P(k | x_<t) p_k(x_t | x_<t),   P(k | x_<t) ~ w_k p_k(x_<t)

    `bayes_optimal` makes it. Costs and states are the sums of those of the sources.

    >>> import switchpoint as sp
    >>> periods = sp.SourceMixture([sp.Source(sp.RegularPeriodic(n)) for n in (4, 5)])
    >>> bayes = sp.bayes_optimal(periods)
    >>> print(bayes.posterior([0, 0, 0, 0, 0, 1, 1, 1, 1, 1]).component_probs.round(2))
    [0.06 0.94]
    """

    predictors: tuple[Any, ...]
    weights: Float[np.ndarray | Array, " components"] = simplex()

    def __init__(self, predictors: Any, weights: Any) -> None:
        self.predictors = tuple(predictors)
        self.weights = _checks.mixture_weights(
            "weights", weights, len(self.predictors), "predictors"
        )

    @property
    def segment(self) -> Segment:
        """That of the first predictor, which has the observations of all."""
        return self.predictors[0].segment

    @property
    def alphabet(self) -> int:
        return self.segment.alphabet

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.segment.event_shape

    def init(self, length: int | None = None) -> MixtureState:
        states = tuple(each.init(length) for each in self.predictors)
        return MixtureState(self._log_prior, states)

    def predict(self, state: MixtureState) -> Any:
        """ln P(x_t = k | x_<t); without an alphabet, the distribution of x_t given x_<t."""
        return self._mixed(state.log_weights, self._predictions(state))

    def update(self, state: MixtureState, x: Any) -> MixtureState:
        predictions = self._predictions(state)
        states = tuple(
            each.update(one, x) for each, one in zip(self.predictors, state.states, strict=True)
        )
        logs = jnp.stack([self._log_density_of(each, x) for each in predictions])
        return MixtureState(jax.nn.log_softmax(state.log_weights + logs), states)

    @keeps_labels("log_density")
    def extend(
        self, state: MixtureState, values: Any
    ) -> tuple[MixtureState, Float[Array, "time *alphabet"]]:
        values = _unlabelled(values)
        pairs = zip(self.predictors, state.states, strict=True)
        states, parts = zip(*(each.extend(one, values) for each, one in pairs), strict=True)
        logs = jnp.stack(parts)
        before, after = self._weights(state.log_weights, self._densities(logs, values))
        mixed = _mixed_logs(before, logs)
        return MixtureState(after[:, -1], tuple(states)), mixed

    @keeps_labels("log_probs")
    def log_probs(self, symbols: Any) -> Float[Array, "*batch time alphabet"]:
        symbols = _unlabelled(symbols)
        logs = jnp.stack([each.log_probs(symbols) for each in self.predictors])
        before, _ = self._weights(self._log_prior, self._densities(logs, symbols))
        return _mixed_logs(before, logs)

    @keeps_labels("log_density")
    def log_density(self, values: Any) -> Float[Array, "*batch time"]:
        """ln p(x_t | x_<t) for every t, t = 0 included, as that of an `ExactPredictor`."""
        logs = self._log_densities(values)
        before, _ = self._weights(self._log_prior, logs)
        return _mixed_logs(before, logs)

    def component_probs(self, values: Any) -> Float[np.ndarray, "*batch time components"]:
        """P(source | x_<=t) after each observation; values are those of `log_density`."""
        _, after = self._weights(self._log_prior, self._log_densities(values))
        return np.moveaxis(np.exp(np.asarray(after, np.float64)), 0, -1)

    def posterior(self, values: Any) -> MixturePosterior:
        """The exact posterior over switching points and sources, of a sequence or a batch."""
        parts = [each.posterior(values) for each in self.predictors]
        _, after = self._weights(self._log_prior, self._log_densities(values))
        log_final, filtered = after[..., -1], jnp.exp(after)
        final = jnp.exp(log_final)
        names = [
            each.name for each in dataclasses.fields(Posterior) if not each.name.startswith("_")
        ]
        fields = [name for name in names if getattr(parts[0], name) is not None]
        whole = {name: jnp.stack([getattr(part, name) for part in parts]) for name in fields}
        pairs = log_final + whole["map_log_prob"]
        best, switches = pairs.argmax(0), whole["map_switches"]
        averaged = {
            name: _mean(filtered if name in ("switch_filtered", "run_length_mean") else final, each)
            for name, each in whole.items()
        }
        if not self.segment.finite:
            gaps = whole["level_mean"] - averaged["level_mean"]
            averaged["level_std"] = jnp.sqrt(_mean(final, whole["level_std"] ** 2 + gaps**2))
        averaged |= {
            "log_marginal": _mixed_logs(self._log_prior, whole["log_marginal"]),
            "map_switches": jnp.take_along_axis(switches, _like(best, switches[0])[None], 0)[0],
            "map_log_prob": pairs.max(0),
        }
        flat = final.reshape(len(parts), -1)
        return MixturePosterior(
            **averaged,
            component_probs=jnp.moveaxis(final, 0, -1),
            _partitions=MixturePartitions(
                tuple(part._partitions for part in parts), flat, filtered.reshape(*flat.shape, -1)
            ),
            _batch=parts[0]._batch,
            _labels=parts[0]._labels,
        )

    @property
    def _log_prior(self) -> Float[Array, " components"]:
        return jnp.asarray(log_probs(self.weights), float)

    def _predictions(self, state: MixtureState) -> list[Any]:
        pairs = zip(self.predictors, state.states, strict=True)
        return [each.predict(one) for each, one in pairs]

    def _mixed(self, log_weights: Float[Array, " components"], predictions: list[Any]) -> Any:
        if self.segment.finite:
            return jax.nn.logsumexp(log_weights[:, None] + jnp.stack(predictions), 0)
        return MixtureGeneral(log_weights, tuple(predictions))

    def _log_density_of(self, prediction: Any, x: Any) -> Float[Array, ""]:
        """ln p(x) by a prediction, 0 if it is missing."""
        traced = isinstance(x, jax.core.Tracer)
        x = x if traced else np.asarray(x, np.float64)
        missing = (jnp if traced else np).isnan(x).all()
        known = jnp.where(missing, 0.0, x) if traced or missing else x
        if self.segment.finite:
            logs = prediction[jnp.asarray(known, jnp.int32)]
        else:
            logs = prediction.log_density(known)
        return jnp.where(missing, 0.0, logs)

    def _log_densities(self, values: Any) -> Float[Array, "components *batch time"]:
        values = _unlabelled(values)
        return jnp.stack([each.log_density(values) for each in self.predictors])

    def _densities(self, logs: Array, values: Any) -> Float[Array, "components *batch time"]:
        """ln p(x_t) of the values, of all symbols if there is an alphabet."""
        if not self.segment.finite:
            return logs
        x = jnp.asarray(values, float)
        at = jnp.broadcast_to(jnp.where(jnp.isnan(x), 0, x).astype(jnp.int32), logs.shape[:-1])
        found = jnp.take_along_axis(logs, at[..., None], -1)[..., 0]
        return jnp.where(jnp.isnan(x), 0.0, found)

    @staticmethod
    def _weights(
        log_prior: Float[Array, " components"], logs: Float[Array, "components *batch time"]
    ) -> tuple[Array, Array]:
        """ln P(source | x_<t) and ln P(source | x_<=t).

        Sums are of differences between the sources, which are small.
        """
        gains = jnp.cumsum(logs - logs.max(0), -1)
        gains = jnp.pad(gains, [(0, 0)] * (logs.ndim - 1) + [(1, 0)])
        weights = jax.nn.log_softmax(_like(log_prior, gains) + gains, 0)
        return weights[..., :-1], weights[..., 1:]


class MixturePartitions(Partitions):
    """The posterior distribution of partitions under each source, mixed."""

    parts: tuple[Partitions, ...]
    final: Float[Array, "components flat"]
    """P(source | x)."""
    filtered: Float[Array, "components flat time"]
    """P(source | x_<=t)."""

    def sample(self, key: PRNGKeyArray, count: int) -> Bool[Array, "count flat time"]:
        key, *keys = jax.random.split(key, 1 + len(self.parts))
        pairs = zip(self.parts, keys, strict=True)
        draws = jnp.stack([part.sample(each, count) for part, each in pairs])
        logs = jnp.log(self.final).T
        which = jax.random.categorical(key, logs, shape=(count, len(logs)))
        return jnp.take_along_axis(draws, which[None, ..., None], 0)[0]

    def run_lengths(self, most: int) -> Float[Array, "flat time lengths"]:
        return _mean(self.filtered, [part.run_lengths(most) for part in self.parts])

    def switch_counts(self, most: int) -> Float[Array, "flat counts"]:
        return _mean(self.final, [part.switch_counts(most) for part in self.parts])

    def without_switch(self, windows: Bool[Array, "windows time"]) -> Float[Array, "flat windows"]:
        return _mean(self.final, [part.without_switch(windows) for part in self.parts])


def _mean(weights: Array, parts: Any) -> Array:
    """The mean over sources, along the first axis."""
    parts = jnp.asarray(parts)
    return (_like(weights, parts) * parts).sum(0)


def _mixed_logs(log_weights: Array, logs: Float[Array, "components ..."]) -> Float[Array, "..."]:
    """ln sum_i w_i p_i; exactly 0 where every p_i is 1, as for a missing observation."""
    mixed = jax.nn.logsumexp(_like(log_weights, logs) + logs, 0)
    return jnp.where((logs == 0).all(0), 0.0, mixed)


def _like(array: Array, other: Array) -> Array:
    """The array with further axes, so that it broadcasts against another."""
    return array.reshape(*array.shape, *(1,) * (other.ndim - array.ndim))


def _unlabelled(values: Any) -> Any:
    return values if labels_of(values) is None else values.to_numpy()
