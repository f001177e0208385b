"""Correlated columns: special cases, dependent columns, digits, and rows that are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import switchpoint as sp
from switchpoint.segments import MultivariateStudentT, principal_axes

PRIOR = sp.Geometric(0.01)
SCALES = {"strength": 0.25, "shape": 3.0, "rate": 1.0}


def correlated(length, columns=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(length, columns)) @ rng.normal(size=(columns, columns))


def test_one_column_is_normal_gamma():
    values = correlated(40, 1)
    values[20:] += 5
    values[7] = np.nan
    several = sp.MultivariateNormal(1, mean=0.3, **SCALES)
    one = sp.NormalGamma(mean=0.3, **SCALES)
    with jax.enable_x64(True):
        found, expected = (
            sp.bayes_optimal(sp.Source(PRIOR, each)).posterior(x)
            for each, x in ((several, values), (one, values[:, 0]))
        )
    for name in ("log_marginal", "switch_smoothed", "level_mean", "level_std"):
        other = np.asarray(getattr(expected, name))
        np.testing.assert_allclose(np.reshape(getattr(found, name), other.shape), other, atol=1e-10)


def test_the_predictive_is_that_of_scipy():
    root = np.array([[1.3, 0.4, -0.2], [0, 0.7, 0.5], [0, 0, 2.0]])
    loc = np.array([1.0, -2.0, 0.5])
    law = MultivariateStudentT(5.0, jnp.asarray(loc), jnp.asarray(root))
    truth = scipy.stats.multivariate_t(loc, root.T @ root, df=5)
    points = correlated(6)
    np.testing.assert_allclose(law.log_density(points), truth.logpdf(points), atol=1e-5)
    np.testing.assert_allclose(law.covariance, truth.shape * 5 / 3, rtol=1e-5)
    draws = np.asarray(jax.vmap(law.sample)(jax.random.split(jax.random.key(0), 20_000)))
    inverse = np.linalg.inv(truth.shape)
    distances = np.einsum("ni,ij,nj->n", draws - loc, inverse, draws - loc) / 3
    assert scipy.stats.kstest(distances, scipy.stats.f(3, 5).cdf).pvalue > 1e-3
    correlation = np.corrcoef(draws.T)[0, 1]
    scales = np.sqrt(np.diag(truth.shape))
    assert correlation == pytest.approx(truth.shape[0, 1] / scales[0] / scales[1], abs=0.05)


def test_single_precision_has_the_answers_of_double():
    values = correlated(120)
    values[60:, 1] += 4
    values[:, 2] = values[:, 0] + 1e-4 * values[:, 2]
    values[30] += 1e7
    values += [0, 1e6, -1e4]
    segment = sp.MultivariateNormal(3, mean=[0, 1e6, -1e4], **SCALES)
    bayes = sp.bayes_optimal(sp.Source(PRIOR, segment))
    single = np.asarray(bayes.log_density(values))
    with jax.enable_x64(True):
        double = np.asarray(bayes.log_density(values))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, atol=2e-3)


@pytest.mark.parametrize("step", [0.0, 3.0], ids=["none", "one"])
def test_a_repeated_column_has_the_changes_of_one(step):
    column = np.random.default_rng(1).normal(size=(300, 1))
    column[150:] += step
    repeated = np.repeat(column, 10, axis=1)
    axes = principal_axes(repeated)
    assert axes.shape == (10, 1)
    segment = sp.MultivariateNormal(1, **SCALES)
    bayes = sp.bayes_optimal(sp.Source(PRIOR, segment))
    found = bayes.posterior(repeated @ axes)
    expected = bayes.posterior((column - column.mean()) / column.std())
    assert np.asarray(expected.map_switches).sum() == (step > 0)
    np.testing.assert_array_equal(found.map_switches, expected.map_switches)
    np.testing.assert_allclose(found.switch_smoothed, expected.switch_smoothed, atol=0.05)


def test_dependent_columns_as_they_are_create_no_change():
    column = np.random.default_rng(1).normal(size=(120, 1))
    constant = np.full((120, 1), 7.0)
    values = np.hstack([column, column, constant, -2 * column, 3 * column + 1])
    bayes = sp.bayes_optimal(sp.Source(PRIOR, sp.MultivariateNormal(5, **SCALES)))
    posterior = bayes.posterior(values)
    assert np.isfinite(posterior.log_marginal)
    assert not np.asarray(posterior.map_switches).any()
    assert np.all(np.isfinite(posterior.level_mean))


def test_principal_axes_make_columns_uncorrelated():
    values = correlated(200)
    values[5, 1] = np.nan
    scores = (values @ principal_axes(values))[~np.isnan(values).any(1)]
    np.testing.assert_allclose(np.cov(scores.T, bias=True), np.eye(3), atol=1e-9)
    assert principal_axes(np.full((9, 2), 4.0)).shape == (2, 0)
    assert principal_axes(values[:1]).shape == (3, 3)


def test_a_row_that_is_partly_missing_is_refused():
    bayes = sp.bayes_optimal(sp.Source(PRIOR, sp.MultivariateNormal(2)))
    rows = [[0.0, 1.0], [np.nan, np.nan], [3.0, np.nan]]
    with pytest.raises(ValueError, match=r"as a whole.*\[3.0, nan\] at position 2$"):
        bayes.log_density(rows)
    stream = sp.Stream(bayes)
    stream.extend(rows[:2])
    for refused in (lambda: stream.update(rows[2]), lambda: bayes.update(bayes.init(), rows[2])):
        with pytest.raises(ValueError, match=r"MultivariateNormal, got \[3.0, nan\]$"):
            refused()
    assert stream.position == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sp.MultivariateNormal(0), "dimension"),
        (lambda: sp.MultivariateNormal(2, mean=[1.0, 2.0, 3.0]), r"mean.*2 columns.*\(3,\)"),
        (lambda: sp.MultivariateNormal(2, rate=-1.0), "rate.*above 0"),
    ],
)
def test_impossible_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
