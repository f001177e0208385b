"""Parameters of priors and segments are leaves: any value, one program, and derivatives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import name

import switchpoint as sp
from switchpoint._checks import one_line

SYMBOLS = np.random.default_rng(0).integers(0, 2, 12)


class Own(sp.Prior):
    """A prior as users write them."""

    rate: float

    def hazard_after(self, start, run):
        return jnp.broadcast_to(self.rate, jnp.broadcast_shapes(jnp.shape(start), jnp.shape(run)))


class Volatility(sp.Segment):
    """A family as users write them."""

    shape: float = 1.0
    rate: float = 1.0

    def statistic(self, x):
        return jnp.ones_like(x), x**2

    def predictive(self, statistics):
        count, squares = statistics
        shape, rate = self.shape + count / 2, self.rate + squares / 2
        return sp.segments.StudentT(2 * shape, 0.0, rate / shape)


def use_everything(source):
    """Everything that is compiled for a source."""
    predictor = sp.bayes_optimal(source)
    predictor.log_probs(SYMBOLS)
    predictor.predict(predictor.update(predictor.init(), 1))
    posterior = predictor.posterior(SYMBOLS)
    posterior.sample(jax.random.key(0), 2)
    posterior.switch_count_pmf(3)
    source.sample(jax.random.key(0), 2, 10)
    source.prior.sample_switches(jax.random.key(0), 2, 10)
    source.prior.switch_probability(10)


SOURCES = [
    lambda p: sp.Source(sp.Geometric(p), sp.Bernoulli(p, 2 * p)),
    lambda p: sp.Source(sp.PTW(4, p), sp.Categorical(3, p)),
    lambda p: sp.Source(sp.Renewal([p, 1 - p])),
    lambda p: sp.Source(Own(p)),
]


@pytest.mark.slow
@pytest.mark.parametrize("make", SOURCES[:2])
def test_another_value_does_not_compile(make, compilations):
    use_everything(make(0.3))
    with compilations() as compiled:
        use_everything(make(0.4))
    assert not compiled


@pytest.mark.parametrize("make", SOURCES[2:])
def test_predictions_with_another_value_do_not_compile(make, compilations):
    sp.bayes_optimal(make(0.3)).log_probs(SYMBOLS)
    with compilations() as compiled:
        sp.bayes_optimal(make(0.4)).log_probs(SYMBOLS)
    assert not compiled


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda p: sp.Source(sp.Geometric(p), sp.Bernoulli(p, 2 * p)), SYMBOLS),
        (lambda p: sp.Source(sp.PTW(4, p), sp.Categorical(3, p)), SYMBOLS),
        (lambda p: sp.Source(Own(p), Volatility(p, 2)), SYMBOLS / 2),
        (lambda p: sp.Source(sp.PTW(4, p), sp.Trend(p, p, p, p)), SYMBOLS / 2),
    ],
)
def test_methods_compiled_by_equinox_are_compiled_once(make, values, compilations):
    def log_density(source):
        return eqx.filter_jit(sp.bayes_optimal(source).log_density)(values)

    first = log_density(make(0.5))
    with compilations() as compiled:
        second = log_density(make(0.4))
    assert not compiled
    assert abs(first - second).max() > 1e-3


MODEL = sp.HMM([0.7, 0.3], [[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4], [0.1, 0.9]])
REALS = np.random.default_rng(2).normal(size=7).repeat(2).cumsum()[:12]
DIFFERENTIABLE = [
    (
        sp.Geometric(0.3),
        sp.segments.Independent(
            sp.NormalGamma(0.1, 2.0), sp.Categorical(3, 0.7), sp.MarkovChain(2, 1, 0.6),
            sp.Poisson(), Volatility(2, rate=3.0), MODEL,
        ),
        np.random.default_rng(1).integers(0, 2, (6, 6)),
        1 + 4 + 1 + 1 + 2 + 2 + (2 + 4 + 4),
    ),
    (
        sp.Renewal([0.2, 0.5, 0.3]),
        sp.segments.Independent(sp.Gaussian(0.2), sp.Exponential(2.0), sp.Trend()),
        np.random.default_rng(1).gamma(2.0, size=(6, 3)),
        3 + 3 + 2 + 5,
    ),
    (sp.PTW(4, 0.3), sp.NormalGamma(0.1, 2.0), REALS, 1 + 4),
    (sp.PTW(4, 0.3), sp.Bernoulli(0.6, 0.8), SYMBOLS, 1 + 2),
    (Own(0.2), sp.Categorical(9, 0.4), SYMBOLS, 1 + 1),
    (sp.LIN(), sp.Bernoulli(0.6, 0.8), SYMBOLS, 2),
    (sp.RandomUniform(5), sp.Gaussian(0.2), REALS, 3),
    (sp.RegularPeriodic(5), sp.Exponential(2.0), np.exp(REALS), 2),
]  # fmt: skip


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("prior", "segment", "values", "count"),
    [
        DIFFERENTIABLE[0],
        *(pytest.param(*each, marks=pytest.mark.slow) for each in DIFFERENTIABLE[1:]),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, eqx.Module) else "",
)
def test_gradients_of_equinox_are_finite_differences(prior, segment, values, count):
    """Of the evidence, with respect to every hyperparameter of every prior and family."""
    source = sp.Source(prior, segment)

    def evidence(source):
        return sp.bayes_optimal(source).log_density(values).sum()

    slopes, structure = jax.tree.flatten(eqx.filter_grad(evidence)(source))
    leaves, expected = jax.tree.flatten(source)
    assert structure == expected
    assert sum(map(np.size, slopes)) == count

    compiled = eqx.filter_jit(evidence)
    for i, slope in enumerate(slopes):
        for step in np.eye(np.size(slope)).reshape(-1, *np.shape(slope)) * 1e-5:
            above, below = (
                compiled(
                    jax.tree.unflatten(structure, [*leaves[:i], leaves[i] + h, *leaves[i + 1 :]])
                )
                for h in (step, -step)
            )
            expected = float(above - below) / 2e-5
            assert float((slope * step).sum()) / 1e-5 == pytest.approx(expected, rel=1e-5, abs=1e-8)


# One case for each algorithm: tree, few and many symbols, densities with and without closed form.
DIFFERENTIATED = [
    (sp.PTW(10, 0.3), sp.Bernoulli(0.7, 2.0)),
    (sp.LIN(), sp.Bernoulli(0.7, 2.0)),
    (sp.Geometric(0.05), sp.Categorical(12, 0.7)),
    (sp.Geometric(0.05), sp.MarkovChain(2, concentration=0.6)),
    (sp.Geometric(0.05), sp.NormalGamma(mean=0.2, strength=0.5, shape=1.5, rate=0.8)),
]


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("make", SOURCES)
def test_the_evidence_of_many_values_is_that_of_each(make):
    def evidence(parameter):
        return sp.bayes_optimal(make(parameter)).log_density(SYMBOLS).sum()

    many = jax.vmap(evidence)(jnp.array([0.2, 0.3]))
    np.testing.assert_allclose(many, [evidence(0.2), evidence(0.3)], rtol=1e-12)


@jax.jit
def slope(source, constants, values):
    """The evidence of a source, and its gradient."""

    def evidence(source):
        predictor = sp.bayes_optimal(eqx.combine(source, constants))
        return predictor.log_density(values).sum()

    return jax.value_and_grad(evidence)(source)


@pytest.mark.slow
@pytest.mark.parametrize(("prior", "segment"), DIFFERENTIATED, ids=name)
def test_the_gradient_of_a_long_sequence_is_its_finite_difference(prior, segment):
    """In double precision, from which that in single precision hardly differs."""
    draw = sp.Source(sp.Geometric(0.02), segment).sample(jax.random.key(1), 1, 1000)
    values = np.asarray(draw.values[0])
    source, constants = eqx.partition(sp.Source(prior, segment), eqx.is_inexact_array_like)
    source = jax.tree.map(np.float64, source)
    rng = np.random.default_rng(0)
    direction = jax.tree.map(lambda leaf: leaf * rng.normal(size=leaf.shape), source)

    def at(distance):
        moved = jax.tree.map(lambda leaf, by: leaf + distance * by, source, direction)
        return jax.device_get(slope(moved, constants, values))

    step = 1e-6
    with jax.enable_x64(True):
        expected = (at(step)[0] - at(-step)[0]) / (2 * step)
        exact = at(0)[1]
    along = sum(jax.tree.leaves(jax.tree.map(lambda a, b: np.sum(a * b), exact, direction)))
    assert along == pytest.approx(expected, rel=1e-5, abs=1e-5)
    jax.tree.map(
        lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-2),
        at(0)[1],
        exact,
    )


def test_parameters_read_as_they_were_written():
    for number in (0.5, 0.001, 1 / 3, 1e-30, 1 - 1e-9, 1.0, 0.1 + 0.2):
        assert sp.Geometric(number).hazard == number
    assert repr(sp.Source(sp.PTW(3, 0.3), sp.Bernoulli(0.7))) == (
        "Source(prior=PTW(depth=3, split=0.3), segment=Bernoulli(alpha=0.7, beta=0.5))"
    )
    assert repr(sp.Renewal([0.25, 0.75])) == "Renewal(pmf=(0.25, 0.75))"
    assert repr(sp.Source(Own(1), Volatility(rate=2))) == (
        "Source(prior=Own(rate=1.0), segment=Volatility(rate=2.0))"
    )
    assert sp.Geometric(0.1) == sp.Geometric(0.1) != sp.Geometric(0.2)
    assert (
        len({sp.Geometric(0.1), sp.Geometric(0.1), Own(0.1), Volatility(2), Volatility(2.0)}) == 3
    )


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda: sp.Geometric(0.1), "Geometric(hazard={})"),
        (lambda: sp.PTW(3), "PTW(depth=3, split={})"),
        (lambda: sp.RandomUniform(4), "RandomUniform(max_length=4)"),
        (lambda: sp.RegularPeriodic(4), "RegularPeriodic(period=4)"),
        (lambda: sp.Renewal([0.2, 0.8]), "Renewal(pmf={})"),
        (lambda: Own(0.2), "Own(rate={})"),
        (lambda: sp.Gaussian(), "Gaussian(mean={}, mean_scale={}, scale={})"),
        (lambda: sp.Categorical(3), "Categorical(size=3, concentration={})"),
        (lambda: Volatility(2.0), "Volatility(shape={}, rate={})"),
        (
            lambda: sp.Source(sp.LIN(), sp.segments.Independent(sp.Poisson())),
            "Source(prior=LIN(), segment=Independent(columns=(Poisson(shape={}, rate={}),)))",
        ),
    ],
)
def test_modules_without_values_are_shown(make, shown):
    module = make()
    values, rest = eqx.partition(module, eqx.is_array)
    assert values == module
    leaves = jax.tree.leaves(module)
    assert one_line(rest) == shown.format(*[None for _ in leaves])
    abstract = jax.eval_shape(lambda each: each, module)
    assert one_line(abstract) == shown.format(*jax.tree.leaves(abstract))
    traced = []
    jax.jit(lambda each: traced.append(one_line(each)))(module)
    assert traced == [shown.format(*[f"f32{list(np.shape(leaf))}" for leaf in leaves])]


def test_draws_of_the_papers_sources_stay_the_same():
    # The very sequences that recorded results were measured on.
    for prior, more, expected in (
        ("ptw", {}, 1175439),
        ("lin", {}, 1231322),
        ("regular", {"period": 20}, 1187153),
        ("uniform", {}, 1076692),
    ):
        source = sp.Source(sp.prior_from_name(prior, 64, **more))
        symbols = np.asarray(source.sample(jax.random.key(0), 50, 64).symbols)
        assert symbols @ np.arange(64) @ np.arange(50) == expected


@pytest.mark.parametrize("name", ["predictive", "sample"])
def test_what_exact_prediction_rests_on_cannot_be_overridden(name):
    with pytest.raises(TypeError, match=f"Mine.{name} cannot be overridden.*pseudo_counts"):
        type("Mine", (sp.Bernoulli,), {name: lambda *_: None, "__annotations__": {}})
