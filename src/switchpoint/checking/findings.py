"""One call that tells an author what is wrong with a part of their own."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from switchpoint import _checks
from switchpoint.checking.distributions import probability_integral, uniform_finding
from switchpoint.checking.families import check_family
from switchpoint.checking.laws import check_law
from switchpoint.checking.predictors import (
    Values,
    check_missing,
    check_predictor,
    is_finite,
)
from switchpoint.checking.report import Collector, Report, compared
from switchpoint.exact import ExactPredictor, bayes_optimal
from switchpoint.predictor import Predictor
from switchpoint.priors import PTW, Geometric, Prior
from switchpoint.segments import Discrete, Segment
from switchpoint.segments.values import checked_values
from switchpoint.sources import Draw, Source

_BATCH = 2
_FEWEST = 10  # observations that all checks need
_DRAWS, _DRAWN = 10_000, 24
_HAZARD, _DEPTH = 0.1, 20  # of the priors that a segment model is checked under


def check(thing: Any, values: Any = None, *, length: int = 100, seed: int = 0) -> Report:
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
      time, chunks, whole sequences, batches, `jit` and `vmap` agree; missing values have log
      density 0; gradients are finite, and in double precision equal to finite differences.

    `values`, (time,) or (sequences, time), are observations to check with; by default they are
    drawn, `length` of them. An exception in the code that is checked is a failed finding. Takes
    some seconds, most of which is compilation.
    """
    length, seed = _checks.positive_int("length", length), _checks.seed(seed)
    if length < _FEWEST:
        raise ValueError(f"length must be at least {_FEWEST}, got {length}")
    findings = Collector()
    if isinstance(thing, Prior):
        check_law(findings, thing, seed)
        symbols = _symbols(values, 2, _at_most(length, thing), seed)
        _check_optimum(findings, lambda: Source(thing), symbols)
    elif isinstance(thing, Segment):
        _check_segment(findings, thing, values, length, seed)
    elif isinstance(thing, Source):
        _check_source(findings, thing, values, length, seed)
    elif isinstance(thing, Predictor):
        _check_predictor(findings, thing, values, length, seed)
    else:
        raise ValueError(
            "thing must be a Prior, a Segment, a Source, a Network or another Predictor, such as "
            f"switchpoint.Geometric(0.1), got {_checks.shown(thing)}"
        )
    subject = _checks.one_line(thing)
    subject = subject if len(subject) <= 80 else type(thing).__name__
    return Report(subject, tuple(findings.findings))


def _check_segment(
    findings: Collector, segment: Segment, values: Any, length: int, seed: int
) -> None:
    prior = Geometric(_HAZARD)
    sequences = findings.make("values", lambda: _values(values, prior, segment, length, seed))
    if sequences is None:
        return
    check_family(findings, segment, sequences[0], seed)
    _check_optimum(findings, lambda: Source(prior, segment), sequences)
    tree = findings.make("PTW", lambda: bayes_optimal(Source(PTW(_DEPTH), segment)))
    if tree is not None:
        check_missing(findings, "missing values, PTW", tree, sequences)


def _check_source(findings: Collector, source: Source, values: Any, length: int, seed: int) -> None:
    prior, segment = source.prior, source.segment
    check_law(findings, prior, seed)
    length = _at_most(length, prior)
    sequences = findings.make("values", lambda: _values(values, prior, segment, length, seed))
    if sequences is None:
        return
    check_family(findings, segment, sequences[0], seed)
    if not source.overrides_sample:
        _check_optimum(findings, lambda: source, sequences)
    findings.run("draws", _draws, source, length, seed)


def _check_predictor(
    findings: Collector, predictor: Predictor[Any], values: Any, length: int, seed: int
) -> None:
    def sequences() -> Values:
        if isinstance(predictor, ExactPredictor):
            most = _at_most(length, predictor.prior)
            return _values(values, predictor.prior, predictor.segment, most, seed)
        if is_finite(predictor):
            return _symbols(values, predictor.alphabet, length, seed)
        if values is not None:
            return _batch(
                _checks.numbers(values, "values", len(predictor.event_shape)), predictor.event_shape
            )
        first: Any = predictor.predict(predictor.init())
        keys = jax.random.split(jax.random.key(seed), (_BATCH, length))
        return np.asarray(jax.vmap(jax.vmap(first.sample))(keys))

    made = findings.make("values", sequences)
    if made is not None:
        check_predictor(findings, predictor, made)


def _check_optimum(findings: Collector, source: Callable[[], Source], values: Values) -> None:
    predictor = findings.make("source", lambda: bayes_optimal(source()))
    if predictor is not None:
        check_predictor(findings, predictor, values)


def _values(values: Any, prior: Prior, segment: Segment, length: int, seed: int) -> Values:
    """Given sequences of a segment model, or drawn ones."""
    if segment.finite:
        return _symbols(values, segment.alphabet, length, seed)
    if values is not None:
        return _batch(np.asarray(checked_values(segment, values)), segment.event_shape)
    draw = Source(prior, segment).sample(jax.random.key(seed), _BATCH, length)
    return np.asarray(draw.values)


def _symbols(values: Any, alphabet: int, length: int, seed: int) -> Values:
    """Given symbols, or random ones."""
    if values is not None:
        return _batch(np.asarray(_checks.symbols(values, alphabet, "values")), ())
    return np.random.default_rng(seed).integers(0, alphabet, (_BATCH, length), dtype=np.int32)


def _batch(values: np.ndarray, event: tuple[int, ...]) -> Values:
    """Given sequences with an axis of sequences, which are long enough."""
    values = values[None] if values.ndim == 1 + len(event) else values
    if values.ndim != 2 + len(event) or values.shape[1] < _FEWEST:
        raise ValueError(
            f"values must be one sequence or an array of them, of at least {_FEWEST} observations, "
            f"got shape {values.shape}"
        )
    return values


def _at_most(length: int, prior: Prior) -> int:
    return length if prior.max_sequence is None else min(length, prior.max_sequence)


def _draws(source: Source, length: int, seed: int) -> tuple[bool, str]:
    """Whether draws are of the right shape, and the symbols follow their true probabilities."""
    key_draw, key_coin = jax.random.split(jax.random.key(seed))
    length = min(length, _DRAWN)
    draw = source.sample(key_draw, _DRAWS, length)
    if not isinstance(draw, Draw):
        return False, f"sample returned {_checks.shown(draw)}, not a Draw"
    if draw.switches.shape != (_DRAWS, length):
        return False, f"sample returned shape {draw.switches.shape}, not {(_DRAWS, length)}"
    if bool(draw.switches[:, 0].any()):
        return False, "switches are True at 0, where the first segment starts"
    if draw.symbol_probs is None:
        finite = bool(jnp.isfinite(draw.log_density).all())
        return finite, f"true log densities are {'all' if finite else 'not all'} finite"
    total = draw.probs.sum(-1)
    finding = compared(total, jnp.ones_like(total), 1e-5, "the sums of the true probs and 1")
    if not finding[0]:
        return finding
    coins = jax.random.uniform(key_coin, draw.switches.shape)
    ranks = jax.vmap(jax.vmap(probability_integral))(Discrete(draw.probs), draw.symbols, coins)
    return uniform_finding(np.asarray(ranks), "symbols against their true probabilities")
