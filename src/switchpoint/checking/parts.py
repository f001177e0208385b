"""One call that tells an author what is wrong with a part of their own."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from switchpoint import _checks
from switchpoint.checking.families import check_family, drawn_segments, joined, probability_integral
from switchpoint.checking.laws import check_law
from switchpoint.checking.predictors import Values, check_predictor, is_finite
from switchpoint.checking.report import Collector, Report, require, require_uniform
from switchpoint.exact import ExactPredictor, bayes_optimal
from switchpoint.predictor import Predictor
from switchpoint.priors import Geometric, Prior
from switchpoint.segments import Discrete, Segment
from switchpoint.sources import AbstractSource, Draw, Source

_BATCH = 2
_FEWEST = 10  # observations that all checks need
_DRAWS, _DRAWN = 10_000, 24
_HAZARD = 0.1  # of the prior that a segment model is checked under


def check(thing: Any, values: Any = None, *, length: int = 60, seed: int = 0) -> Report:
    """Check a prior, a segment model, a source, a network or any other predictor.

        print(sp.check(Volatility()))  # a table: ok or FAILED, with the numbers that decide
        sp.check(Volatility()).raise_if_failed()  # in a test

    The report has `ok`, the `findings` and those that `failed`. What is checked, as it applies:

    - the law: hazards are probabilities; `survival_after`, `log_survival`, `log_pmf` and
      `max_length` agree with them; predictive distributions have total probability 1;
    - the statistics: `merge` is associative, `empty` neutral; `run_log_density` and `translate`
      agree with one observation after another;
    - the sampler: draws follow the law, and the predictive (their probability integral
      transforms are uniform; a correct one fails with a probability below 1e-4);
    - the predictor, of the source with a standard prior or segment: causal; one observation at a
      time, chunks, whole sequences, `jit` and `vmap` agree; missing values have log density 0;
      gradients equal finite differences in double precision.

    `values`, (time,) or (sequences, time), are observations to check with; by default they are
    drawn, `length` of them. An exception in the code that is checked is a failed finding. Takes
    some seconds, most of which is compilation.

    >>> import switchpoint as sp
    >>> report = sp.check(sp.neural.Memoryless(2, length=10), length=10)
    >>> report.ok, report.failed
    (True, ())
    """
    length, seed = _checks.positive_int("length", length), _checks.seed(seed)
    if length < _FEWEST:
        raise ValueError(f"length must be at least {_FEWEST}, got {length}")
    findings = Collector()
    if isinstance(thing, Prior):
        _check_source(findings, Source(thing), values, length, seed, parts="prior")
    elif isinstance(thing, Segment):
        source = findings.make("source", Source, Geometric(_HAZARD), thing)
        if source is not None:
            _check_source(findings, source, values, length, seed, parts="segment")
    elif isinstance(thing, Source):
        _check_source(findings, thing, values, length, seed, parts="prior segment draws")
    elif isinstance(thing, AbstractSource):
        _check_sampler(findings, thing, values, length, seed)
    elif isinstance(thing, Predictor):
        given = findings.make("values", _predictable, thing, values, length, seed)
        if given is not None:
            check_predictor(findings, thing, given)
    else:
        raise ValueError(
            "thing must be a Prior, a Segment, a Source, a Network or another Predictor, such as "
            f"switchpoint.Geometric(0.1), got {_checks.shown(thing)}"
        )
    subject = _checks.one_line(thing)
    subject = subject if len(subject) <= 80 else type(thing).__name__
    return Report(subject, tuple(findings.findings))


def _check_source(
    findings: Collector, source: Source, values: Any, length: int, seed: int, *, parts: str
) -> None:
    """The findings about those parts of a source, and about its exact predictor."""
    longest = source.prior.max_sequence
    length = length if longest is None else min(length, longest)
    if "prior" in parts:
        check_law(findings, source.prior, seed)
    sequences = values
    if "segment" in parts:
        draws = findings.make("sampler", drawn_segments, source.segment, seed)
        if draws is None:
            return
        if values is None:
            sequences = joined(draws, length)
            sequences = sequences.astype(np.int32) if source.segment.finite else sequences
        sequences = _batch(sequences, source.segment)
        check_family(findings, source.segment, sequences[0], draws)
    elif values is None:
        sequences = np.random.default_rng(seed).integers(0, 2, (_BATCH, length))
    sequences = _batch(sequences, source.segment)
    if not source.overrides_sample:
        predictor = findings.make("source", bayes_optimal, source)
        if predictor is not None:
            check_predictor(findings, predictor, sequences)
    if "draws" in parts:
        findings.run("draws", check_draws, source, length, seed)


def _check_sampler(
    findings: Collector, source: AbstractSource, values: Any, length: int, seed: int
) -> None:
    """The findings about the draws of a source that is no prior with a segment, and its optimum."""
    findings.run("draws", check_draws, source, length, seed)
    if not source.overrides_sample:
        if values is None:
            values = source.sample(jax.random.key(seed), _BATCH, length).values
        check_predictor(findings, bayes_optimal(source), _batch(values, source.segment))


def _predictable(predictor: Predictor[Any], values: Any, length: int, seed: int) -> Values:
    """Given sequences of a predictor, or drawn ones."""
    if values is not None:
        return _batch(values, predictor)
    rng, longest = np.random.default_rng(seed), None
    if isinstance(predictor, ExactPredictor):
        longest = predictor.prior.max_sequence
    shape = _BATCH, length if longest is None else min(length, longest)
    if is_finite(predictor):
        return rng.integers(0, predictor.alphabet, shape)
    first: Any = predictor.predict(predictor.init())
    keys = jax.random.split(jax.random.key(seed), shape)
    return np.asarray(jax.vmap(jax.vmap(first.sample))(keys))


def _batch(values: Any, part: Any) -> Values:
    """Given sequences with an axis of sequences, which are long enough."""
    values, axes = np.asarray(values), 1 + len(part.event_shape)
    values = values[None] if values.ndim == axes else values
    if values.ndim != 1 + axes or values.shape[1] < _FEWEST:
        raise ValueError(
            f"values must be one sequence or an array of them, of at least {_FEWEST} observations, "
            f"got shape {values.shape}"
        )
    return values


def check_draws(source: AbstractSource, length: int, seed: int) -> str:
    """Require that draws have the right shape, and symbols follow their true probabilities."""
    key_draw, key_coin = jax.random.split(jax.random.key(seed))
    length = min(length, _DRAWN)
    draw = source.sample(key_draw, _DRAWS, length)
    require(isinstance(draw, Draw), f"sample returned {_checks.shown(draw)}, not a Draw")
    shape = draw.switches.shape
    require(shape == (_DRAWS, length), f"sample returned shape {shape}, not {(_DRAWS, length)}")
    require(not draw.switches[:, 0].any(), "switches are True at 0, where the first segment starts")
    if draw.symbol_probs is None:
        require(jnp.isfinite(draw.log_density).all(), "true log densities are not all finite")
        return "true log densities are all finite"
    coins = jax.random.uniform(key_coin, draw.switches.shape)
    ranks = jax.vmap(jax.vmap(probability_integral))(Discrete(draw.probs), draw.symbols, coins)
    return require_uniform(np.asarray(ranks), "symbols against their true probabilities")
