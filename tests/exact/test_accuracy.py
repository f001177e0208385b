"""Single precision against double, on sequences made to hurt."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import name

import switchpoint as sp


def hard_sequences(length):
    """Constant, alternating, late-switching and random sequences."""
    late = np.zeros(length, int)
    late[-length // 16 :] = 1
    middle = np.arange(length) >= length // 2 + 1
    blocks = (np.arange(length) // 37) % 2
    random = np.random.default_rng(0).integers(0, 2, length)
    rows = [np.zeros(length), np.ones(length), np.arange(length) % 2, late, middle, blocks, random]
    return np.stack(rows).astype(np.int32)


def priors(length):
    return [
        sp.PTW(length.bit_length() - 1),
        sp.PTW(30, 0.2),
        sp.LIN(),
        sp.RandomUniform(length),
        sp.Geometric(1e-3),
        sp.RegularPeriodic(20),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("length", "which", "tolerance"),
    [(256, which, 1e-5) for which in range(6)] + [(4096, which, 1e-4) for which in (0, 1, 2)],
)
def test_single_precision_predictions(length, which, tolerance):
    prior = priors(length)[which]
    symbols = hard_sequences(length)
    predictor = sp.bayes_optimal(sp.Source(prior))
    single = predictor.log_probs(symbols)
    assert single.dtype == jnp.float32
    with jax.enable_x64(True):
        double = np.asarray(predictor.log_probs(symbols))
    assert double.dtype == np.float64
    assert np.all(np.isfinite(single))
    probs = np.exp(np.asarray(single, np.float64))
    assert np.abs(probs - np.exp(double)).max() < tolerance
    np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-6)
    # What is nearly impossible is as accurate as what is likely.
    assert np.abs(single - double).max() < 100 * tolerance


@pytest.mark.slow
@pytest.mark.parametrize("prior", [sp.PTW(8), sp.LIN()], ids=name)
def test_single_precision_posterior(prior):
    symbols = hard_sequences(256)
    predictor = sp.bayes_optimal(sp.Source(prior))
    single = predictor.posterior(symbols)
    with jax.enable_x64(True):
        double = jax.tree.map(np.asarray, predictor.posterior(symbols))
    for field in ("switch_filtered", "switch_smoothed", "probs_smoothed"):
        np.testing.assert_allclose(getattr(single, field), getattr(double, field), atol=1e-4)
    np.testing.assert_allclose(single.log_marginal, double.log_marginal, rtol=1e-5)
    np.testing.assert_allclose(single.run_length_mean, double.run_length_mean, rtol=1e-4)
    np.testing.assert_allclose(single.map_log_prob, double.map_log_prob, atol=1e-3)
    for field in jax.tree.leaves(single):
        assert np.all(np.isfinite(field))


@pytest.mark.slow
@pytest.mark.parametrize(
    "prior",
    [
        *(sp.Renewal([1 - t, *[0] * 298, t]) for t in (1e-5, 1e-7, 1e-9, 1e-12)),
        *(sp.Geometric(1 - t) for t in (1e-7, 1e-12)),
        *(sp.PTW(7, 1 - t) for t in (1e-7, 1e-12)),
    ],
    ids=lambda prior: name(prior)[:40] + name(prior)[-10:],
)
def test_hazards_within_rounding_of_one(prior):
    ones = np.ones(64, int)
    predictors = [
        sp.bayes_optimal(sp.Source(prior)),
        sp.bayes_optimal(sp.Source(prior), max_hypotheses=65),
    ]
    with jax.enable_x64(True):
        double = np.exp(np.asarray(predictors[0].log_probs(ones)))
        truth = predictors[0].posterior(ones)
    for predictor in predictors:
        np.testing.assert_allclose(np.exp(predictor.log_probs(ones)), double, atol=1e-5)
    single = predictors[0].posterior(ones)
    np.testing.assert_allclose(single.switch_smoothed, truth.switch_smoothed, atol=1e-4)
    assert float(single.map_log_prob) == pytest.approx(float(truth.map_log_prob), abs=1e-3)
    assert float(single.map_log_prob) <= 1e-5


def test_tails_below_single_precision():
    law = 0.5 ** np.arange(1, 400)  # P(L >= 200) is 10^-60
    symbols = hard_sequences(256)
    np.testing.assert_allclose(
        sp.bayes_optimal(sp.Source(sp.Renewal(law / law.sum()))).log_probs(symbols),
        sp.bayes_optimal(sp.Source(sp.Geometric(0.5))).log_probs(symbols),
        atol=1e-5,
    )


def test_survival_within_rounding_of_zero():
    for prior, exact in (
        (sp.PTW(8, 1 - 1e-12), np.log(1e-12 * np.arange(8, 0, -1))),
        (sp.Geometric(1 - 1e-12), np.log(1e-12) * 2.0 ** np.arange(8)),
    ):
        runs = 2 ** np.arange(8)
        np.testing.assert_allclose(prior.log_survival(np.zeros(8, int), runs), exact, rtol=1e-4)


@pytest.mark.slow
def test_a_rare_survival_is_drawn_as_often_as_it_should_be(key):
    rare = sp.Renewal([1 - 2.0**-20, 2.0**-20])
    starts = rare.sample_starts(key, 50_000, 200)
    survived = np.sum(np.diff(np.asarray(starts)) == 0)
    expected = 199 * 50_000 * 2.0**-20
    assert abs(survived - expected) < 5 * expected**0.5


@pytest.mark.slow
def test_counts_never_overflow():
    # 70,000 ones: past 8 and 16 bits. KT's estimate is (n + 1/2) / (n + 1).
    ones = np.ones(70_000, np.int8)
    for predictor in (sp.KT(), sp.bayes_optimal(sp.Source(sp.PTW(17)))):
        missing = np.exp(predictor.log_probs(ones)[-1, 0])
        assert 0.2 / 70_000 < missing < 4 / 70_000
    ones = np.ones(256, np.int8)
    missing = np.exp(sp.bayes_optimal(sp.Source(sp.LIN())).log_probs(ones)[-1, 0])
    assert missing == pytest.approx(1 - 0.996, abs=1e-3)


def test_counts_of_a_long_stream_stay_exact():
    state = sp.KT().init()
    counts = state.statistics + 2**24  # where float32 would stop counting
    many = eqx.tree_at(lambda each: each.statistics, state, counts)
    assert int(sp.KT().update(many, 1).statistics[0, 1]) == 2**24 + 1
