"""Streams on the host: what every predictor says, one observation at a time; saved states."""

import copy
import json
import math
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from family_reference import Enumeration
from reference import name
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from test_families import FAMILIES, PRIORS, Tabulated, documented_family, example
from test_predictors import EXACT, NETWORKS, OTHERS, predictor_of, random_symbols, sequences

import switchpoint as sp
from switchpoint import spec
from switchpoint.neural import ValueSpec, network_from_name
from switchpoint.streams.host import CompiledFamily, host_family

KINDS = [*EXACT, *OTHERS, *NETWORKS]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_says_what_its_predictor_says(kind):
    predictor = predictor_of(kind)
    symbols = sequences(predictor)
    whole = np.asarray(predictor.log_probs(symbols), np.float64)[0]
    stream, rows, logs = sp.Stream(predictor), [], []
    for symbol in symbols[0]:
        rows.append(stream.predict())
        logs.append(stream.update(symbol))
    assert rows[0].dtype == np.float64
    np.testing.assert_allclose(rows, whole, atol=1e-5)
    np.testing.assert_allclose(np.exp(rows).sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(logs, np.stack(rows)[np.arange(len(logs)), symbols[0]], atol=1e-12)
    assert stream.position == len(logs)
    assert stream.code_length == pytest.approx(-sum(logs) / math.log(2))
    again = sp.Stream(predictor)
    np.testing.assert_array_equal(again.extend(symbols[0].tolist()), logs)  # to the last bit
    assert again.code_length == stream.code_length


@pytest.mark.parametrize(
    ("segment", "xs"),
    [
        (sp.NormalGamma(1e3, 1e7, 5e6, 5e10), [900.0, 1020.0, 1000.0, 1300.0]),
        (sp.Poisson(1e10, 1e4), [1_000_000, 998_000, 1_003_000]),
        (sp.Poisson(9e4, 9e3), [10, 0, 30, 9700, 12]),
        (sp.Poisson(1e8, 1e5), [1000, 0, 1040, 9700, 980]),
    ],
)
def test_long_segments_and_large_counts_keep_their_digits(segment, xs):
    stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.Geometric(1e-9), segment)))
    with jax.enable_x64(True):
        before = segment.initial()
        for x in np.array(xs, float):
            # Stirling's series, where the stream has log-gammas or a recurrence
            expected, before = segment.observe(before, x)
            assert stream.update(x) == pytest.approx(float(expected), rel=1e-12, abs=2e-10)


@pytest.mark.parametrize("segment", FAMILIES, ids=name)
def test_every_family_and_prior_is_the_sum_over_all_partitions(segment):
    rows = example(segment)
    for i, prior in enumerate((*PRIORS, sp.PTW(5))):
        row = rows[i % 2]
        truth = Enumeration(prior, segment, row)
        stream = sp.Stream(sp.bayes_optimal(sp.Source(prior, segment)))
        logs = []
        for x in row:
            prediction = stream.predict()
            observation = None if np.isnan(x).all() else x
            logs.append(stream.update(observation))
            if observation is None:
                assert logs[-1] == 0
            elif segment.finite:
                assert prediction[int(x)] == pytest.approx(logs[-1], abs=1e-12)
            else:  # what was predicted stays the same when the stream goes on
                assert prediction.log_density(x) == pytest.approx(logs[-1], abs=1e-12)
        np.testing.assert_allclose(logs, truth.log_density(), atol=1e-10)
        mean = truth.run_length_mean()[-1]
        assert stream.run_length.mean == pytest.approx(mean, abs=1e-9)
        for last in (1, 4, 100):
            expected = truth.switch_within(max(len(row) - last, 1), len(row) - 1)
            assert stream.change_probability(last) == pytest.approx(expected, abs=1e-9)
        chunks = sp.Stream(stream.predictor)
        np.testing.assert_array_equal(
            np.concatenate([chunks.extend(row[:2]), chunks.extend(row[2:])]), logs
        )


def test_run_length_and_change_probability_are_those_of_the_posterior():
    predictor = sp.bayes_optimal(sp.Source(sp.Geometric(0.02)))
    values = np.repeat([0, 1], [60, 12])
    posterior = predictor.posterior(values)
    stream = sp.Stream(predictor)
    for t, x in enumerate(values):
        stream.update(x)
        if t:
            filtered = float(posterior.switch_filtered[t])
            assert stream.change_probability(last=1) == pytest.approx(filtered, abs=1e-5)
        assert stream.run_length.mean == pytest.approx(
            float(posterior.run_length_mean[t]), abs=1e-3
        )
    within = float(posterior.switch_within(57, 71))
    assert stream.change_probability(last=15) == pytest.approx(within, abs=1e-5)
    assert stream.run_length.mode == 12


def test_pruned_streams_prune_what_the_predictor_prunes():
    values = np.repeat([0.0, 4.0, -2.0], 20) + np.random.default_rng(0).normal(size=60)
    for source, xs in (
        (sp.Source(sp.Geometric(0.05), sp.NormalGamma()), values),
        (sp.Source(sp.LIN(), sp.Categorical(5)), values.round() % 5),
    ):
        kept = sp.bayes_optimal(source, max_hypotheses=7)
        logs = sp.Stream(kept).extend(xs)
        np.testing.assert_allclose(logs, kept.log_density(xs), atol=1e-4)
        every = sp.Stream(sp.bayes_optimal(source)).extend(xs)
        assert np.abs(logs - every).max() > 1e-6


@pytest.mark.parametrize(
    ("prior", "kept", "tolerance"),
    [
        (sp.Geometric(0.005), 100, 0.01),
        (sp.Geometric(0.005), 20, 0.04),
        (sp.LIN(), 100, 0.02),
        (sp.RandomUniform(600), 100, 0.05),
    ],
    ids=name,
)
def test_a_pruned_stream_after_a_long_gap_is_the_exact_one(prior, kept, tolerance, tmp_path):
    """Starts with nothing observed between them are merged: no probability is lost in a gap."""
    rng = np.random.default_rng(0)
    for segment, xs in (
        (sp.Categorical(5), rng.integers(0, 5, kept)),
        (sp.MarkovChain(2, order=1), rng.integers(0, 2, kept)),
        (sp.NormalGamma(), rng.normal(size=kept)),
        *([(sp.Trend(), rng.normal(size=kept))] if kept == 100 else []),
    ):
        source = sp.Source(prior, segment)
        exact, pruned = (sp.Stream(sp.bayes_optimal(source, most)) for most in (None, kept))
        no_loss = isinstance(prior, sp.Geometric) and not isinstance(segment, sp.Trend)
        gap = [None] * 1000
        for chunk in (xs[:-1], gap[:100], gap[100:], xs[-1:]):  # nothing is pruned before the gap
            expected = exact.extend(chunk)
            atol = 1e-3 if no_loss else tolerance
            np.testing.assert_allclose(pruned.extend(chunk), expected, atol=atol)
            for last in (1, 50, 1000):
                expected = exact.change_probability(last)
                assert pruned.change_probability(last) == pytest.approx(expected, abs=tolerance)
            mean = exact.run_length.mean
            assert pruned.run_length.mean == pytest.approx(mean, rel=4 * tolerance)
            whole = pruned
            whole.save(tmp_path / "state")
            pruned = sp.Stream.load(tmp_path / "state")
            assert pruned.run_length == whole.run_length
            assert pruned.change_probability(50) == whole.change_probability(50)
            more = [None, xs[0], None, None, xs[1]]
            np.testing.assert_array_equal(copy.copy(pruned).extend(more), whole.extend(more))


def test_large_tables_are_summed_alike(monkeypatch):
    """Beyond a size, sums are not left to BLAS, and a symbol is added to its own row alone."""
    symbols = [*random_symbols(2, 60).tolist(), None, 1, None, 0, 0]
    for prior in (sp.Geometric(0.1), sp.LIN()):
        predictor = sp.bayes_optimal(sp.Source(prior), max_hypotheses=20)
        expected = sp.Stream(predictor).extend(symbols)
        with monkeypatch.context() as patch:
            patch.setattr("switchpoint.streams.engine.FEW", 0)
            patch.setattr("switchpoint.streams.forward._FEW_SYMBOLS", 0)
            np.testing.assert_allclose(
                sp.Stream(predictor).extend(symbols), expected, rtol=0, atol=1e-13
            )


def test_streams_of_equal_segments_share_their_formulas():
    one, other = (sp.NormalGamma(strength=strength) for strength in (0.25, 0.5))
    streams = [
        sp.Stream(sp.bayes_optimal(sp.Source(prior, segment), max_hypotheses=20))
        for prior in (sp.Geometric(0.01), sp.LIN())
        for segment in (one, other)
    ]
    values = np.random.default_rng(0).normal(size=300)
    first, different, second, _ = (stream.extend(values) for stream in streams)
    alone = sp.Stream(streams[0].predictor)
    np.testing.assert_array_equal(alone.extend(values), first)
    assert not np.allclose(first, different)
    assert not np.allclose(first, second)


@pytest.mark.parametrize("segment", [sp.Regression(lags=1), sp.Trend(), sp.Poisson()], ids=name)
def test_families_that_work_in_numpy_are_not_compiled(segment):
    """A compiled family is slower, and forgets what passes with time at an outlier."""
    assert not isinstance(host_family(segment), CompiledFamily)


def test_priors_and_families_of_your_own_run():
    values = np.random.default_rng(0).normal(size=9) * np.repeat([1.0, 5.0, 1.0], 3)
    values[4] = np.nan
    predictor = sp.bayes_optimal(sp.Source(Tabulated.of(sp.LIN()), documented_family()))
    logs = sp.Stream(predictor).extend(values)
    np.testing.assert_allclose(logs, predictor.log_density(values), atol=1e-5)


def test_a_column_may_be_compiled_beside_others():
    segment = sp.Independent(sp.NormalGamma(), sp.Regression(slope=False), sp.Poisson())
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(6, 2)), rng.poisson(2.0, 6)])
    rows[2, 1], rows[3] = math.nan, math.nan
    predictor = sp.bayes_optimal(sp.Source(sp.Geometric(0.2), segment))
    stream = sp.Stream(predictor)
    np.testing.assert_allclose(stream.extend(rows), predictor.log_density(rows), atol=1e-4)
    mean = predictor.predict(predictor.extend(predictor.init(), rows)[0]).mean
    np.testing.assert_allclose(stream.predict().mean, mean, atol=1e-4)


class Coin(sp.Predictor):
    """A predictor of someone's own, whose state is the number of symbols."""

    chance: float = 0.25

    @property
    def alphabet(self):
        return 2

    def init(self, length=None):
        del length
        return jnp.zeros((), jnp.int32)

    def predict(self, state):
        del state
        return jnp.log(jnp.array([1 - self.chance, self.chance]))

    def update(self, state, symbol):
        del symbol
        return state + 1

    def log_probs(self, symbols):
        return jnp.broadcast_to(self.predict(None), (*jnp.shape(symbols), 2))


def test_switches_too_improbable_for_floats():
    predictor = sp.bayes_optimal(sp.Source(sp.PTW(40, 1e-7)))
    stream = sp.Stream(predictor)
    logs = stream.extend([1, None, 1, 0])
    np.testing.assert_allclose(logs, predictor.log_density([1, np.nan, 1, 0]), atol=1e-5)
    with pytest.raises(TypeError, match=r"predictor.posterior\(values\)"):
        stream.change_probability(last=1)


def test_a_predictor_of_your_own_runs_too(tmp_path):
    stream = sp.Stream(Coin(0.125))
    np.testing.assert_allclose(stream.extend([1, 0, 1]), np.log([0.125, 0.875, 0.125]), atol=1e-6)
    with pytest.raises(TypeError, match="Coin has no posterior"):
        stream.change_probability(last=1)
    with pytest.raises(TypeError, match="bayes_optimal"):
        _ = stream.run_length
    stream.save(tmp_path / "coin")
    with pytest.raises(ValueError, match=r"Coin.*predictor="):
        sp.Stream.load(tmp_path / "coin")
    loaded = sp.Stream.load(tmp_path / "coin", predictor=Coin(0.125))
    assert loaded.position == int(loaded._engine.state) == 3
    state, logs = Coin().extend(Coin().init(), np.array([0, 1]))
    assert (int(state), logs.shape) == (2, (2, 2))


def fresh_predictors():
    """One for every engine and law, and whether its stream has a posterior over run lengths."""
    sources = map(sp.Source, (*PRIORS, sp.PTW(40), sp.LIN()), FAMILIES * 2)
    columns = ValueSpec(location=(5.0, -100.0), scale=(2.0, 30.0), scalar=False)
    for kind in (*EXACT, *OTHERS, "stack-lstm", "window"):
        yield predictor_of(kind), kind not in (*NETWORKS, "mixture")
    for source in sources:
        yield sp.bayes_optimal(source), True
        yield sp.bayes_optimal(source, max_hypotheses=3), True
    yield sp.bayes_optimal(sp.Source(Tabulated.of(sp.LIN()), documented_family())), True
    yield sp.bayes_optimal(sp.Source(sp.PTW(40, 1e-7))), False
    yield network_from_name("rnn", None, 16, jax.random.key(0), columns, hidden=8), False
    yield Coin(), False


def test_every_property_of_a_fresh_stream(tmp_path):
    for predictor, has_posterior in fresh_predictors():
        fresh = sp.Stream(predictor)
        fresh.save(tmp_path / "state")
        loaded = sp.Stream.load(tmp_path / "state", predictor=predictor)
        for stream in (fresh, copy.copy(fresh), loaded):
            assert (stream.position, stream.code_length) == (0, 0.0)
            assert stream.extend([]).shape == (0,)
            assert repr(stream).endswith("position=0)")
            if has_posterior:
                assert stream.run_length == sp.streams.RunLength(0.0, 0)
                assert stream.change_probability(1) == stream.change_probability(50) == 0
            else:
                with pytest.raises(TypeError, match="posterior"):
                    _ = stream.run_length
                with pytest.raises(TypeError, match="posterior"):
                    stream.change_probability(50)
            prediction = stream.predict()
            if isinstance(prediction, np.ndarray):
                assert np.exp(prediction).sum() == pytest.approx(1)
            else:
                event = getattr(getattr(predictor, "segment", None), "event_shape", (2,))
                assert np.shape(prediction.mean) == np.shape(prediction.variance) == event
                assert np.isfinite(prediction.log_density(np.zeros(event)))


class TestObservations:
    def stream(self, segment, **options):
        return sp.Stream(sp.bayes_optimal(sp.Source(sp.Geometric(0.1), segment)), **options)

    def test_a_symbol_may_have_any_type(self):
        logs = [
            self.stream(sp.Bernoulli()).extend([0, one, 0]).tolist()
            for one in (1, 1.0, True, np.int8(1), np.float32(1), jnp.asarray(1))
        ]
        assert all(each == logs[0] for each in logs)

    def test_missing_observations_change_nothing_but_the_time(self):
        stream = self.stream(sp.Bernoulli())
        assert [stream.update(x) for x in (None, math.nan, np.float64("nan"))] == [0, 0, 0]
        assert (stream.position, stream.code_length) == (3, 0.0)
        np.testing.assert_allclose(np.exp(stream.predict()), 0.5)
        assert stream.extend([None, 1, float("nan")])[1] == pytest.approx(math.log(0.5))
        assert sp.Stream(sp.KT()).update(None) == 0
        with pytest.raises(ValueError, match="missing symbol"):
            sp.Stream(predictor_of("lstm")).update(None)

    def test_columns_by_name_and_by_number(self):
        segment = sp.Independent(sp.NormalGamma(), sp.Poisson())
        rows = [[0.3, 2], [0.1, math.nan], [math.nan, 1], [math.nan, math.nan]]
        expected = self.stream(segment).extend(rows)
        by_name = self.stream(segment, columns=("level", "count"))
        logs = [
            by_name.update(x)
            for x in ({"count": 2, "level": 0.3}, {"level": 0.1}, {"level": None, "count": 1}, {})
        ]
        np.testing.assert_array_equal(logs, expected)
        by_number = self.stream(segment)
        assert by_number.update({1: 2, 0: 0.3}) == expected[0]
        np.testing.assert_array_equal(by_number.extend([{0: 0.1}, {1: 1}, None]), expected[1:])
        with pytest.raises(ValueError, match="one of 'level', 'count', got 'cuont'"):
            by_name.update({"cuont": 1})
        with pytest.raises(ValueError, match="columns="):
            by_number.update({"level": 1})

    def test_bad_observations_are_refused_and_change_nothing(self):
        for segment, bad, message in (
            (sp.Bernoulli(), 2, "from 0 to 1, got 2"),
            (sp.Bernoulli(), 0.5, "got 0.5"),
            (sp.Bernoulli(), "1", "symbol"),
            (sp.NormalGamma(), math.inf, "finite"),
            (sp.NormalGamma(), "3", "numbers"),
            (sp.NormalGamma(), [1.0, 2.0], "one number"),
            (sp.Poisson(), 1.5, "whole numbers from 0"),
            (sp.Exponential(), -1.0, "numbers from 0"),
            (sp.Independent(sp.NormalGamma(), sp.Poisson()), [1.0, -1.0], "column 1"),
            (sp.Independent(sp.NormalGamma(), sp.Poisson()), 1.0, "2 columns"),
        ):
            stream = self.stream(segment)
            good = [0.0, 1.0] if segment.event_shape else 1
            stream.update(good)
            before = stream.predict()
            with pytest.raises(ValueError, match=message):
                stream.update(bad)
            with pytest.raises(ValueError, match=r"position 1|shape|numbers|length|one number"):
                stream.extend([good, bad])
            assert stream.position == 1
            if segment.finite:
                np.testing.assert_array_equal(stream.predict(), before)

    @pytest.mark.parametrize(
        ("predictor", "xs", "message"),
        [
            (sp.bayes_optimal(sp.Source(sp.PTW(2))), [0, 1, 0, 1, 0], "at most 4 .* got 5"),
            (sp.bayes_optimal(sp.Source(sp.PTW(2), sp.Poisson())), [0, 1, 0, 1, 0], "got 5"),
            (sp.KTOracle([False, True]), [0, 1, 1], "2 of them for 3"),
            (predictor_of("lstm"), [0, 1, None], "missing symbol.* at position 2"),
            (predictor_of("window"), [0, 1, 2], "got 2"),
            (sp.KT(), [0, 1, 10**30], "64 bits"),
        ],
        ids=["tree", "values", "oracle", "lstm", "window", "kt"],
    )
    def test_a_chunk_is_observed_whole_or_not_at_all(self, predictor, xs, message):
        stream = sp.Stream(predictor)
        with pytest.raises(ValueError, match=message):
            stream.extend(xs)
        assert (stream.position, stream.code_length) == (0, 0)
        logs = stream.extend(xs[:2])  # as if nothing had been tried
        np.testing.assert_array_equal(logs, sp.Stream(predictor).extend(xs[:2]))

    def test_a_value_is_refused_by_update_and_extend_alike(self):
        stream = self.stream(sp.NormalGamma())
        for bad in (1e151, -1e151, 10**400):
            with pytest.raises(ValueError, match=r"1e.150|64 bits"):
                stream.update(bad)
            with pytest.raises(ValueError, match=r"1e.150|64 bits"):
                stream.extend([bad])
        for bad in (1.0, None):
            with pytest.raises(ValueError, match="list of observations"):
                stream.extend(bad)
        with pytest.raises(ValueError, match=r"shape \(2, 2\)"):
            self.stream(sp.Bernoulli()).extend(np.array([[0, math.nan], [1, 0]]))
        assert stream.position == 0

    def test_names_of_columns_must_fit_the_source(self):
        segment = sp.Independent(sp.NormalGamma(), sp.Poisson())
        for columns in (["a"], ["a", "b", "c"], ["a", "a"], "ab"):
            with pytest.raises(ValueError, match=r"columns must name .* has 2"):
                self.stream(segment, columns=columns)
        with pytest.raises(ValueError, match="has 0"):
            self.stream(sp.NormalGamma(), columns=["a"])

    def test_large_values_keep_their_digits(self):
        values = np.random.default_rng(0).normal(size=50)
        near = self.stream(sp.NormalGamma()).extend(values)
        far = self.stream(sp.NormalGamma(mean=1e6)).extend(values + 1e6)
        np.testing.assert_allclose(far, near, atol=1e-8)
        assert np.all(np.isfinite(self.stream(sp.NormalGamma()).extend([0.0, 1e100, -1e100, 1.0])))

    def test_a_value_far_from_everything(self):
        stream = self.stream(sp.Gaussian(0.0, 1.0, 1.0))
        logs = stream.extend([0.1, 0.2, 3e4, 3e4, 0.1])
        assert np.all(np.isfinite(logs))
        assert logs[2] < -1e7
        exact = stream.predictor.log_density(np.array([0.1, 0.2, 3e4, 3e4, 0.1]))
        np.testing.assert_allclose(logs, exact, rtol=1e-5)

    def test_nothing_at_all(self):
        assert self.stream(sp.Bernoulli()).extend([]).shape == (0,)
        assert self.stream(sp.NormalGamma()).extend([]).shape == (0,)
        with pytest.raises(ValueError, match="predictor must be a Predictor"):
            sp.Stream(sp.Source(sp.PTW(4)))

    def test_no_longer_than_the_prior_allows(self):
        for segment in (sp.Bernoulli(), sp.NormalGamma()):
            stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.PTW(2), segment)))
            stream.extend([0, 1, 0, 1])
            with pytest.raises(ValueError, match=r"at most 4 .* got 5"):
                stream.update(1)
            assert stream.position == 4
        oracle = sp.Stream(sp.KTOracle([False, True]))
        oracle.extend([0, 1])
        with pytest.raises(ValueError, match=r"must cover .* got 2"):
            oracle.update(1)


def test_the_distribution_of_the_next_value_is_the_predictors():
    predictor = sp.bayes_optimal(sp.Source(sp.Geometric(0.1), sp.NormalGamma()), max_hypotheses=5)
    stream, state = sp.Stream(predictor), predictor.init()
    for x in (0.3, -0.2, 4.0, 4.5, 3.9, 4.1):
        stream.update(x)
        state = predictor.update(state, x)
    ours, theirs = stream.predict(), predictor.predict(state)
    assert ours.mean == pytest.approx(float(theirs.mean), abs=1e-4)
    assert ours.variance == pytest.approx(float(theirs.variance), rel=1e-4)
    assert ours.cdf(ours.quantile(0.3)) == pytest.approx(0.3, abs=1e-9)
    points = np.array([0.0, 4.0])
    np.testing.assert_allclose(ours.log_density(points), theirs.log_density(points), atol=1e-4)
    assert isinstance(ours.sample(jax.random.key(0)), float)


def test_the_distribution_of_another_value_does_not_compile(compilations):
    segment = sp.Independent(sp.NormalGamma(), sp.Poisson())
    predictor = sp.bayes_optimal(sp.Source(sp.Geometric(0.1), segment), max_hypotheses=5)
    stream, state = sp.Stream(predictor), predictor.init()
    for x in ([0.3, 2.0], [0.1, 0.0], [0.2, 1.0]):
        stream.update(x)
        state = predictor.update(state, x)
        with compilations() as compiled:
            for prediction in (stream.predict(), predictor.predict(state)):
                quantiles = prediction.quantile(0.25), prediction.quantile(0.5)
                _ = prediction.mean, prediction.variance, prediction.cdf(x)
                _ = prediction.sample(jax.random.key(0))
                assert np.all(quantiles[0] < quantiles[1] + 1e-9)
    assert compiled == []


def test_every_prediction_stays_what_it_was():
    stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.Geometric(0.1), sp.NormalGamma())))
    stream.extend([0.0, 0.1, 0.2])
    first, second = stream.predict(), stream.predict()
    before = first.log_density(0.3)
    stream.update(100.0)
    third = stream.predict()
    assert first.log_density(0.3) == second.log_density(0.3) == before != third.log_density(0.3)


@pytest.mark.parametrize("segment", [each for each in FAMILIES if not each.finite], ids=name)
def test_what_cannot_be_has_no_density(segment):
    predictor = sp.bayes_optimal(sp.Source(sp.Geometric(0.1), segment))
    stream, state = sp.Stream(predictor), predictor.init()
    row = example(segment)[0][0]
    stream.update(row)
    ours, theirs = stream.predict(), predictor.predict(predictor.update(state, row))
    assert ours.log_density(np.full(segment.event_shape, math.inf)) == -math.inf
    for x in (-1.0, 0.5, 2.0):
        points = np.full(segment.event_shape, x)
        np.testing.assert_allclose(ours.log_density(points), theirs.log_density(points), atol=1e-4)


def test_a_prediction_of_the_oracle_does_not_begin_the_next_segment():
    stream = sp.Stream(sp.KTOracle([False, False, True, False]))
    stream.extend([1, 1])
    np.testing.assert_allclose(np.exp(stream.predict()), 0.5)
    assert stream.run_length.mode == 2
    assert stream.change_probability(last=2) == 0
    assert stream.update(1) == pytest.approx(math.log(0.5))
    assert stream.run_length.mode == 1


def test_a_second_thread_is_refused_by_a_sentence():
    """While one thread is inside a call, which waits for the other here."""
    inside, done = threading.Event(), threading.Event()

    class Slow(Coin):
        def update(self, state, symbol):
            inside.set()
            assert done.wait(60)
            return super().update(state, symbol)

    stream = sp.Stream(Slow())
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(stream.update, 1)
        assert inside.wait(60)
        for call in (
            lambda: stream.update(0),
            lambda: stream.extend([0, 1]),
            stream.predict,
            lambda: stream.run_length,
            lambda: stream.change_probability(5),
            lambda: copy.copy(stream),
            lambda: stream.save("never-written"),
        ):
            with pytest.raises(RuntimeError, match=r"another thread.*lock"):
                call()
        done.set()
        assert first.result() == pytest.approx(math.log(0.25))
    assert (stream.position, stream.update(0)) == (1, pytest.approx(math.log(0.75)))
    with pytest.raises(ValueError, match="missing symbol"):
        stream.update(None)
    assert stream.extend([0]).shape == (1,)  # a refused observation leaves the stream free


def test_two_threads_that_update_one_stream_lose_nothing():
    """An update is made whole or refused whole, whenever the interpreter changes threads."""
    stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.PTW(40))))

    def write(count):
        refused = 0
        for _ in range(count):
            try:
                stream.update(1)
            except RuntimeError:
                refused += 1
        return count - refused

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            made = sum(pool.map(write, [2000, 2000]))
    finally:
        sys.setswitchinterval(interval)
    assert stream.position == made
    alone = sp.Stream(stream.predictor)
    alone.extend([1] * made)
    assert stream.code_length == alone.code_length


def test_a_copy_goes_on_by_itself(tmp_path):
    stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.LIN())))
    stream.notes["name"] = ["first"]
    stream.extend([0, 1, 1])
    other = copy.copy(stream)
    other.notes["name"].append("second")
    other.update(1)
    other.save(tmp_path / "state")
    assert sp.Stream.load(tmp_path / "state").notes == {"name": ["first", "second"]}
    assert (stream.position, stream.notes) == (3, {"name": ["first"]})
    again = sp.Stream.loads(stream.dumps()), pickle.loads(pickle.dumps(stream))
    expected = sp.Stream(stream.predictor).extend([0, 1, 1, 1])[-1]
    assert [each.update(1) for each in (stream, *again)] == [expected] * 3
    assert all(each.notes == stream.notes for each in again)


class TestLongStreams:
    def test_ptw_around_the_limit_of_32_bits(self):
        """All observations before are missing, so that the weights are those of the prior."""
        begin, split, depth = 2**31 - 3, 0.3, 40
        predictor = sp.bayes_optimal(sp.Source(sp.PTW(depth, split)))
        state = eqx.tree_at(lambda s: s.time.low, predictor.init(), jnp.asarray(begin))
        weights, all_split = {}, 1.0
        for height in range(depth, -1, -1):
            start = begin >> height << height
            stops = 1 - split if height else 1.0
            weights[start] = weights.get(start, 0.0) + all_split * stops
            all_split *= split
        stream = sp.Stream(predictor)
        stream._engine.position = begin
        each = np.array([weights[start] for start in sorted(weights)])
        counts = np.full((2, len(each)), 0.5)
        joint = np.ones(bin(begin - 1).count("1") + 1)
        stream._engine.restore({"weights": each, "joint": joint, "counts": counts})
        bits = [1, 1, 0, 1, 1, 1, 0, 1]
        _, whole = predictor.extend(state, np.array(bits))
        for bit, expected in zip(bits, whole, strict=True):
            np.testing.assert_allclose(stream.predict(), predictor.predict(state), atol=1e-5)
            np.testing.assert_allclose(stream.predict(), expected, atol=1e-5)
            stream.update(bit)
            state = predictor.update(state, bit)
        assert stream.position == int(state.time) == 2**31 + 5

    def test_hypotheses_around_the_limit_of_32_bits(self):
        bits = random_symbols(2, 40).tolist()
        for prior in (sp.Geometric(0.1), sp.LIN()):
            predictor = sp.bayes_optimal(sp.Source(prior), max_hypotheses=5)
            early, late = sp.Stream(predictor), sp.Stream(predictor)
            late._engine.position = 2**31 - 9
            late._engine.starts[:] = 2**31 - 9
            np.testing.assert_array_equal(early.extend(bits), late.extend(bits))
            assert late.position == 2**31 + 31
            assert late.run_length == early.run_length

    def test_states_stay_small_and_weights_normalised(self):
        draw = sp.Source(sp.Geometric(0.005)).sample(jax.random.key(0), 1, 4096)
        bits = np.asarray(draw.symbols[0])
        for predictor, most in (
            (sp.bayes_optimal(sp.Source(sp.PTW(40))), 16),
            (sp.bayes_optimal(sp.Source(sp.Geometric(0.005)), max_hypotheses=20), 20),
        ):
            stream = sp.Stream(predictor)
            for chunk in np.split(bits, 4):
                assert np.all(np.isfinite(stream.extend(chunk)))
                weights = stream._engine.runs().probabilities
                assert weights.sum() == pytest.approx(1, abs=1e-12)
                assert np.exp(stream.predict()).sum() == pytest.approx(1, abs=1e-12)
                assert len(stream._engine.weights) <= most
            whole = predictor.log_density(bits)
            assert stream.code_length == pytest.approx(-float(whole.sum()) / math.log(2), rel=1e-4)


SAVED = ["ptw", "ptw-deep", "lin", "renewal", "pruned", "kt", "oracle", "stack-lstm", "window"]


class TestSavedStates:
    @pytest.mark.parametrize("kind", SAVED)
    def test_a_stream_goes_on_where_it_was_saved(self, kind, tmp_path):
        predictor = predictor_of(kind)
        symbols = sequences(predictor)[0]
        whole, stream = sp.Stream(predictor), sp.Stream(predictor)
        expected = whole.extend(symbols)
        parts = []
        for i, chunk in enumerate(np.split(symbols, [1, 37, 64])):
            parts.append(stream.extend(chunk))
            stream.save(tmp_path / "state")
            loaded = sp.Stream.load(tmp_path / "state")
            if kind not in NETWORKS:
                assert loaded.run_length == stream.run_length
                assert loaded.change_probability(3) == stream.change_probability(3)
            stream = loaded
            if i == 0:
                sp.Stream.load(tmp_path / "state").extend(symbols[1:])  # and the file stays
        np.testing.assert_array_equal(np.concatenate(parts), expected)
        assert stream.position == len(symbols)
        assert stream.code_length == whole.code_length

    def test_a_loaded_predictor_is_the_same_to_the_last_digit(self):
        rng = np.random.default_rng(0)
        for number in [*rng.uniform(size=300), *10 ** rng.uniform(-9, 0, 300)]:
            for prior in (
                sp.Geometric(number),
                sp.PTW(9, number),
                sp.Renewal(rng.dirichlet([1.0] * 7)),
            ):
                predictor = sp.bayes_optimal(sp.Source(prior))
                about, _ = spec.describe_predictor(predictor)
                assert spec.make_predictor(json.loads(json.dumps(about))) == predictor

    @pytest.mark.parametrize("segment", FAMILIES, ids=name)
    def test_every_family_is_saved(self, segment, tmp_path):
        columns = tuple("abcdefgh"[: sum(segment.event_shape)]) or None
        predictor = sp.bayes_optimal(sp.Source(sp.LIN(), segment))
        values = example(segment)[1]
        expected = sp.Stream(predictor).extend(values)
        stream = sp.Stream(predictor, columns=columns)
        parts = [stream.extend(values[:5])]
        stream.save(tmp_path / "state")
        loaded = sp.Stream.load(tmp_path / "state")
        assert (loaded.predictor, loaded.columns) == (predictor, columns)
        np.testing.assert_array_equal([*parts[0], *loaded.extend(values[5:])], expected)

    def test_a_network_of_the_zoo_is_saved_by_its_name(self, tmp_path):
        network = sp.load("rnn-ptw")
        stream = sp.Stream(network)
        stream.extend(random_symbols(2, 30))
        stream.save(tmp_path / "state")
        assert os.path.getsize(tmp_path / "state") < 20_000
        loaded = sp.Stream.load(tmp_path / "state")
        np.testing.assert_array_equal(loaded.predict(), stream.predict())
        card = _card(tmp_path / "state")
        assert card["predictor"]["name"] == "rnn-ptw"
        card["predictor"]["sha256"] = "0" * 64
        _write_card(tmp_path / "state", card)
        with pytest.raises(ValueError, match="rnn-ptw with SHA-256 000"):
            sp.Stream.load(tmp_path / "state")

    @pytest.mark.slow
    def test_in_another_process(self, tmp_path):
        symbols = sequences(predictor_of("pruned"))[0].tolist()
        stream = sp.Stream(predictor_of("pruned"))
        stream.extend(symbols[:50])
        stream.save(tmp_path / "state")
        program = (
            "import sys, switchpoint as sp\n"
            "stream = sp.Stream.load(sys.argv[1])\n"
            "print(*(each.hex() for each in stream.extend(eval(sys.argv[2])).tolist()))\n"
        )
        arguments = [sys.executable, "-c", program, str(tmp_path / "state"), str(symbols[50:])]
        run = subprocess.run(arguments, capture_output=True, text=True, check=True)
        found = [float.fromhex(each) for each in run.stdout.split()]
        np.testing.assert_array_equal(found, stream.extend(symbols[50:]))

    def test_a_damaged_or_foreign_file_is_refused_by_name(self, tmp_path):
        path = tmp_path / "state.safetensors"
        stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.PTW(40))))
        stream.extend([0, 1, 1])
        stream.save(path)
        whole = path.read_bytes()

        def refused(content, message):
            path.write_bytes(content)
            with pytest.raises(ValueError, match=message) as error:
                sp.Stream.load(path)
            assert str(path) in str(error.value)
            assert "\n" not in str(error.value)

        refused(b"", "not a saved stream")
        refused(whole[:-5], "not a saved stream")
        refused(whole[:-5] + b"\x01" + whole[-4:], "not a saved stream: .* checksum")
        refused(b"1,0,1,0\n", "not a saved stream")
        path.write_bytes(whole)
        newer = {**_card(path), "format": 99}
        _write_card(path, newer)
        refused(path.read_bytes(), "format 99.*upgrade switchpoint")
        path.write_bytes(whole)
        _write_card(path, {**_card(path), "position": 2**35})
        refused(path.read_bytes(), "not a saved stream: its array")
        for wrong in ({"position": -1}, {"position": "3"}, {"notes": [1]}):
            path.write_bytes(whole)
            _write_card(path, {**_card(path), **wrong})
            refused(path.read_bytes(), "not a saved stream: .*position or notes")
        path.write_bytes(whole)
        _write_card(path, {"kind": "stream", "format": 1})
        refused(path.read_bytes(), "not a saved stream: its card")
        network = sp.zoo.path_of("rnn-ptw").read_bytes()
        refused(network, "not a saved stream: it is a network")
        with pytest.raises(ValueError, match=r"no file .*nowhere"):
            sp.Stream.load(tmp_path / "nowhere")
        with pytest.raises(ValueError, match="cannot be written"):
            stream.save(tmp_path / "no" / "directory")

    def test_another_predictor_does_not_fit(self, tmp_path):
        stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.LIN()), max_hypotheses=5))
        stream.extend([0, 1, 1])
        stream.save(tmp_path / "state")
        for other in (
            sp.KT(),
            sp.bayes_optimal(sp.Source(sp.LIN(), sp.Categorical(3))),
            sp.bayes_optimal(sp.Source(sp.Geometric(0.1)), max_hypotheses=5),
            sp.bayes_optimal(sp.Source(sp.LIN(), sp.Bernoulli(1, 1)), max_hypotheses=5),
        ):
            with pytest.raises(ValueError, match="not a saved stream"):
                sp.Stream.load(tmp_path / "state", predictor=other)
        assert sp.Stream.load(tmp_path / "state", predictor=stream.predictor).position == 3
        stream = sp.Stream(sp.load("rnn-ptw"))
        stream.save(tmp_path / "state")
        with pytest.raises(ValueError, match="of another predictor"):
            sp.Stream.load(tmp_path / "state", predictor=sp.load("rnn-lin"))


def _card(path):
    with safe_open(path, framework="np") as file:
        card = json.loads(file.metadata()["switchpoint"])
    del card["sha256"]
    return card


def _write_card(path, card):
    """Replace the card of a file, with the checksum that belongs to it."""
    from switchpoint._tensors import _digest

    arrays = load_file(path)
    save_file(arrays, path, {"switchpoint": json.dumps({**card, "sha256": _digest(card, arrays)})})
