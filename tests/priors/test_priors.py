"""The laws of the priors: one law each, told in several ways that must agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import PRIORS, name, partitions, pmf, prior_of_partition, survival

import switchpoint as sp

LENGTH = 16
starts = pytest.mark.parametrize("prior", PRIORS, ids=name)


@pytest.mark.usefixtures("float64")
@starts
@pytest.mark.slow
def test_law_is_the_one_in_the_table(prior):
    starts, runs = np.arange(LENGTH)[:, None], np.arange(1, LENGTH + 1)
    chances = [[pmf(prior, s, r) for r in runs.tolist()] for s in range(LENGTH)]
    tails = [[survival(prior, s, r) for r in runs.tolist()] for s in range(LENGTH)]
    np.testing.assert_allclose(np.exp(prior.log_pmf(starts, runs)), chances, atol=1e-12)
    np.testing.assert_allclose(np.exp(prior.log_survival(starts, runs)), tails, atol=1e-12)


def test_survival_of_lin_is_accurate_far_out():
    runs = np.array([1, 10, 15, 16, 17, 100, 4096, 10**6])
    exact = np.array([np.log1p(-0.5 / np.arange(1, r + 1)).sum() for r in runs])
    np.testing.assert_allclose(
        sp.LIN().log_survival(jnp.zeros(len(runs), int), jnp.asarray(runs)), exact, rtol=1e-6
    )


@starts
def test_statistics_are_those_of_the_enumeration(prior):
    length = 9
    rows = np.asarray(partitions(length))
    chances = np.asarray([prior_of_partition(prior, row) for row in rows])
    assert chances.sum() == pytest.approx(1, abs=1e-12)
    counts = np.bincount(rows.sum(1), weights=chances, minlength=length)
    np.testing.assert_allclose(prior.switch_count_pmf(length), counts, atol=1e-12)
    np.testing.assert_allclose(prior.switch_probability(length), chances @ rows, atol=1e-12)


def test_statistics_are_float64_whatever_the_default():
    law = sp.LIN().switch_count_pmf(300)
    assert law.dtype == np.float64
    assert law.sum() == pytest.approx(1, abs=1e-12)
    mean = law @ np.arange(300)
    assert sp.LIN().switch_probability(300).sum() == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("split", [0.5, 0.3, 0.8])
@pytest.mark.parametrize("depth", [1, 2, 5, 8])
def test_ptw_count_law_is_the_papers(depth, split):
    law = sp.statistics.ptw_switch_count_pmf(depth, split)
    np.testing.assert_allclose(law, sp.PTW(depth, split).switch_count_pmf(2**depth), atol=1e-13)
    mean = sp.statistics.ptw_expected_switches(depth, split)
    assert law @ np.arange(len(law)) == pytest.approx(mean)
    limit = sp.statistics.ptw_switch_count_limit(depth - 1, split)
    np.testing.assert_allclose(law[:depth], limit, rtol=1e-12)  # P_d[k] is P_infinity[k], k < d
    if split == 0.5:
        assert mean == pytest.approx(depth / 2)
    else:
        p, d = split, depth
        assert mean == pytest.approx(p * (1 - (2 * p) ** d) / (1 - 2 * p))


def test_ptw_count_limit_has_catalan_numbers():
    catalan = [1, 1, 2, 5, 14, 42, 132, 429]
    expected = [c * 2.0 ** (-2 * k - 1) for k, c in enumerate(catalan)]
    np.testing.assert_allclose(sp.statistics.ptw_switch_count_limit(7), expected, rtol=1e-12)
    p = 0.3
    tilted = [e * 2 * (1 - p) * (4 * p * (1 - p)) ** k for k, e in enumerate(expected)]
    np.testing.assert_allclose(sp.statistics.ptw_switch_count_limit(7, p), tilted, rtol=1e-12)


def test_ptw_count_law_of_depth_0_and_cut_short():
    np.testing.assert_array_equal(sp.statistics.ptw_switch_count_pmf(0), [1.0])
    assert sp.statistics.ptw_expected_switches(0) == 0
    whole = sp.statistics.ptw_switch_count_pmf(6)
    np.testing.assert_allclose(sp.statistics.ptw_switch_count_pmf(6, most=9), whole[:10])
    np.testing.assert_allclose(sp.statistics.ptw_switch_count_pmf(1, most=3), [0.5, 0.5, 0, 0])


def test_ptw_switches_are_at_halves_and_quarters():
    chances = sp.PTW(4).switch_probability(16)
    by_height = [0, *(2.0 ** -(4 - ((t & -t).bit_length() - 1)) for t in range(1, 16))]
    np.testing.assert_allclose(chances, by_height)


class Aging(sp.Prior):
    """A user's own prior: the longer a segment, and the later, the likelier its end."""

    def hazard_after(self, start, run):
        return 1 - 0.9 ** (run + start % 2).astype(float)


@pytest.mark.slow
def test_a_prior_of_ones_own_is_one_small_class(key):
    length, prior = 24, Aging()
    draw = sp.Source(prior).sample(key, batch=4000, length=length)
    chances = prior.switch_probability(length)
    error = 5 * np.sqrt(chances * (1 - chances) / 4000)
    assert np.all(np.abs(np.asarray(draw.switches).mean(0) - chances) <= error)
    bayes = sp.bayes_optimal(sp.Source(prior))
    posterior = bayes.posterior(draw.symbols[:500])
    assert posterior.switch_smoothed.mean() == pytest.approx(chances.mean(), abs=0.02)
    own = sp.regret(draw, bayes.log_probs(draw.symbols)).sum(-1).mean()
    other = sp.bayes_optimal(sp.Source(sp.LIN()))
    assert own < sp.regret(draw, other.log_probs(draw.symbols)).sum(-1).mean()


def test_priors_are_values():
    assert hash(jax.tree.structure(sp.PTW(8))) == hash(jax.tree.structure(sp.PTW(8, 0.5)))
    assert jax.tree.structure(sp.PTW(8)) != jax.tree.structure(sp.PTW(9))
    assert repr(sp.RandomUniform(7)) == "RandomUniform(max_length=7)"


def test_prior_from_name_has_the_papers_defaults():
    assert repr(sp.prior_from_name("ptw", 200)) == repr(sp.PTW(8))
    assert repr(sp.prior_from_name("ptw", 1)) == repr(sp.PTW(1))
    assert repr(sp.prior_from_name("uniform", 200)) == repr(sp.RandomUniform(200))
    assert repr(sp.prior_from_name("regular", 200, period=20)) == repr(sp.RegularPeriodic(20))
    with pytest.raises(ValueError, match="needs period"):
        sp.prior_from_name("regular", 200)
    with pytest.raises(ValueError, match="period is not a parameter of prior 'lin'"):
        sp.prior_from_name("lin", 200, period=3)
    with pytest.raises(ValueError, match=r"prior must be one of ptw, lin.*'kin'"):
        sp.prior_from_name("kin", 200)


def test_a_law_answers_plain_numbers():
    assert float(sp.LIN().hazard_after(0, 2)) == 0.25
    assert float(np.exp(sp.PTW(3).log_pmf(0, 8))) == pytest.approx(0.5)
    assert float(np.exp(sp.RandomUniform(4).log_survival(7, 1))) == pytest.approx(0.75)
