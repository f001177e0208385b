"""The forward recursion in blocks of times, and in chunks, against one time after another."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import name

import switchpoint as sp
from switchpoint.exact.blocks import filter_sequences
from switchpoint.exact.hypotheses import Sequences
from switchpoint.segments.base import log_density, observe, prior_statistics

LENGTH = 70
PRIOR = sp.RandomUniform(45)  # segments end for certain, in the middle of a block
CLOSED = [
    sp.NormalGamma(mean=0.2, strength=0.5, shape=0.3, rate=0.8),
    sp.Trend(level_scale=2.0, slope_scale=0.3, shape=1.2, rate=0.7, level=0.1),
    sp.Independent(sp.NormalGamma(), sp.Trend()),
    sp.NegativeBinomial(dispersion=3.0),
]


def noise(segment, rng, shape):
    """Standard normal values, or counts."""
    values = rng.normal(size=(*shape, *segment.event_shape))
    return np.floor(np.exp(values + 2)) if segment.support.whole else values


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("segment", CLOSED, ids=name)
def test_the_density_of_a_run_is_that_of_its_observations(segment):
    values = jnp.asarray(noise(segment, np.random.default_rng(0), (2, 9)))
    values = values.at[:, 6].set(jnp.nan)

    def run_of(row):
        """After five observations: the density of four, one by one and at once."""
        before, run, total = prior_statistics(segment), segment.empty(), 0.0
        for x in row[:5]:
            before = observe(segment, before, x)
        after = before
        for x in row[5:]:
            total = total + log_density(segment, after, x)
            after, run = observe(segment, after, x), observe(segment, run, x)
        return total, segment.run_log_density(before, run)

    total, (of_counts, of_values) = jax.jit(jax.vmap(run_of))(values)
    np.testing.assert_allclose(of_counts + of_values, total, atol=1e-12)
    assert float(of_counts[0]) == float(of_counts[1])  # whatever the values are


def test_a_run_of_several_columns_is_closed_if_all_are():
    mixed = sp.Independent(sp.NormalGamma(), sp.Poisson())
    assert mixed.run_log_density(*[prior_statistics(mixed)] * 2) is None


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "segment", [CLOSED[0], pytest.param(CLOSED[1], marks=pytest.mark.slow)], ids=name
)
def test_blocks_are_one_time_after_another(segment):
    """With and without missing values, few sequences and many, which are laid out otherwise."""
    rng = np.random.default_rng(1)
    values = noise(segment, rng, (66, LENGTH))
    values[:, 40:] += 3
    values[1, 20] = 50.0
    gaps = values.copy()
    gaps[rng.random(gaps.shape) < 0.2] = np.nan
    gaps[3, 30:66] = np.nan
    source = sp.Source(PRIOR, segment)
    slow = sp.bayes_optimal(source, max_hypotheses=LENGTH)  # prunes nothing
    blocks = sp.bayes_optimal(source)
    for array in (values, gaps):
        expected = np.asarray(slow.log_density(array))
        for rows in (array[:4], array) if segment is CLOSED[0] else (array[:4],):
            found = np.asarray(blocks.log_density(rows))
            np.testing.assert_allclose(found, expected[: len(rows)], atol=1e-10)
    traced = jax.jit(blocks.log_density)(jnp.asarray(values[:4]))  # values that are not known
    np.testing.assert_allclose(traced, slow.log_density(values)[:4], atol=1e-10)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("prior", [sp.LIN(), PRIOR], ids=name)
def test_chunks_of_symbols_with_gaps_are_the_whole_sequence(prior):
    """From a state with more slots than are in use, too."""
    rng = np.random.default_rng(2)
    bits = np.where(rng.random(160) < 0.15, np.nan, rng.integers(0, 2, 160))
    predictor = sp.bayes_optimal(sp.Source(prior))
    whole = np.asarray(predictor.log_density(bits))
    state, logs = predictor.init(length=160), []
    for chunk in np.split(bits, [40, 80, 120]):
        state, log_probs = predictor.extend(state, chunk)
        seen = np.take_along_axis(
            np.asarray(log_probs), np.nan_to_num(chunk).astype(int)[:, None], axis=1
        )[:, 0]
        logs.append(np.where(np.isnan(chunk), 0.0, seen))
    np.testing.assert_allclose(np.concatenate(logs), whole, atol=1e-10)
    assert float(state.weights.sum()) == pytest.approx(1)
    if isinstance(prior, sp.LIN):  # under which the first segment may still last
        counted = np.asarray(state.statistics)[np.asarray(state.starts) == 0][0]
        assert counted.tolist() == [np.sum(bits == 0), np.sum(bits == 1)]


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_pieces_of_a_long_sequence_are_the_whole():
    """Long sequences are compiled in pieces, each with the starts up to its end."""
    values = np.random.default_rng(3).normal(size=130) + np.repeat([0.0, 3.0], 65)
    values[100:110] = np.nan
    missing = np.isnan(values)
    prior, segment = sp.Geometric(0.02), sp.NormalGamma()
    whole = sp.bayes_optimal(sp.Source(prior, segment)).log_density(values)
    sequences = Sequences(jnp.asarray(values)[None], jnp.zeros(1))
    filtered = jax.jit(functools.partial(filter_sequences, piece_work=0))(prior, segment, sequences)
    np.testing.assert_allclose(filtered.log_density[0, ~missing], whole[~missing], atol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_a_posterior_may_leave_negligible_starts_out():
    """They are left out for one long sequence, not for a batch."""
    levels = np.repeat([0.0, 0.35, 6.0], [700, 600, 800])  # the first switch is not certain
    values = levels + np.random.default_rng(4).normal(size=len(levels))
    values[500:520] = np.nan
    predictor = sp.bayes_optimal(sp.Source(sp.Geometric(0.01), sp.Gaussian(mean_scale=6.0)))
    one, batch = predictor.posterior(values), predictor.posterior(np.stack([values] * 2))
    assert one._partitions.width < len(values)
    for field in ("switch_smoothed", "level_mean", "level_std", "map_switches", "map_log_prob"):
        found, expected = (np.asarray(getattr(each, field)) for each in (one, batch))
        np.testing.assert_allclose(found, expected[0], atol=1e-10, err_msg=field)
    np.testing.assert_allclose(one.switch_count_pmf(20), batch.switch_count_pmf(20)[0], atol=1e-10)


@pytest.mark.slow
def test_a_posterior_of_known_values_for_several_hazards():
    """Under `vmap` it is not known which starts are negligible."""
    values = np.random.default_rng(5).normal(size=70) + np.repeat([0.0, 4.0], 35)

    def switch_smoothed(hazard):
        predictor = sp.bayes_optimal(sp.Source(sp.Geometric(hazard), sp.Gaussian(mean_scale=3.0)))
        return predictor.posterior(values).switch_smoothed

    hazards = jnp.array([0.01, 0.1])
    one_by_one = [switch_smoothed(float(hazard)) for hazard in hazards]
    np.testing.assert_allclose(jax.vmap(switch_smoothed)(hazards), one_by_one, atol=1e-5)
