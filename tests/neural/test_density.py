"""Networks on real values: a density at every time, learned from the same training engine."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import switchpoint as sp
from switchpoint.neural import ValueSpec, network_from_name

DOCS = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
GAUSSIAN = sp.Source(sp.Geometric(0.05), sp.Gaussian(mean_scale=3.0))
SMALL = {"hidden": 16, "readout": 0, "length": 16, "batch": 8, "steps": 4, "validation": 8}
MODELS = {
    "rnn": {"hidden": 16},
    "stack-lstm": {"hidden": 16, "stack_depth": 4, "stack_width": 2},
    "transformer": {"layers": 2},
}
ONE = ValueSpec(location=(5.0,), scale=(2.0,))
TWO = ValueSpec(location=(5.0, -100.0), scale=(2.0, 30.0), scalar=False, components=3)


def network_of(model="rnn", values=ONE, seed=0):
    make = jax.jit(lambda key: network_from_name(model, None, 16, key, values, **MODELS[model]))
    return make(jax.random.key(seed))


def values_of(spec, *shape, seed=0):
    noise = np.random.default_rng(seed).normal(size=(*shape, len(spec.location)))
    values = noise * spec.scale + spec.location
    return values[..., 0] if spec.scalar else values


@pytest.mark.parametrize(
    ("model", "values"), [("rnn", ONE), ("stack-lstm", TWO), ("transformer", TWO)]
)
def test_one_at_a_time_is_the_whole_sequence(model, values):
    network = network_of(model, values)
    xs = values_of(values, 2, 9)
    xs[1, 3:6] = np.nan
    whole = network.log_density(xs)
    assert whole.shape == (2, 9)
    states = network.states(xs)
    for row, (x, expected) in enumerate(zip(xs, whole, strict=True)):
        state = network.init()
        for time, (one, log_density) in enumerate(zip(x, expected, strict=True)):
            predicted = network.predict(state)
            if not np.isnan(one).any():
                np.testing.assert_allclose(predicted.log_density(one), log_density, atol=2e-4)
            state = network.update(state, one)
            if model != "transformer":  # whose states are not its memory
                for leaf, every in zip(*map(jax.tree.leaves, (state.memory, states)), strict=True):
                    np.testing.assert_allclose(every[row, time], leaf[0], atol=1e-5)
    np.testing.assert_array_equal(whole[1, 3:6], 0)
    assert not np.allclose(whole[1, 6:], network.log_density(xs[1, 6:]))  # it knows of the gap


def test_the_density_integrates_to_one():
    network = network_of()
    grid = np.linspace(-60, 70, 20_001)
    state = network.update(network.init(), 4.0)
    density = np.exp(np.asarray(network.predict(state).log_density(grid), np.float64))
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-4)


def test_a_column_that_is_missing_leaves_the_other():
    network = network_of(values=TWO)
    x = np.array([6.0, -80.0])
    mixture = network.predict(network.init())
    weights = np.exp(np.asarray(mixture.log_weights, np.float64))
    first = np.exp(np.asarray(mixture.components.columns[0].log_density(x[0] - 5.0), np.float64))
    expected = np.log(np.sum(weights * first))
    found = network.log_density(np.array([[6.0, np.nan]]))
    np.testing.assert_allclose(found, [expected], atol=1e-4)


@pytest.mark.slow
def test_files_and_evaluation(tmp_path):
    run = sp.train(sp.TrainConfig(model="lstm", **SMALL), tmp_path / "run", source=GAUSSIAN)
    loaded = sp.load(tmp_path / "run")
    values = GAUSSIAN.sample(jax.random.key(1), 3, 16).values
    np.testing.assert_array_equal(loaded.log_density(values), run.best().log_density(values))
    optimum = sp.bayes_optimal(GAUSSIAN)
    found = sp.evaluate({"network": loaded, "optimum": optimum}, GAUSSIAN, 16, 50)
    draw = GAUSSIAN.sample(jax.random.fold_in(jax.random.key(0), 0), 250, 16)
    expected = (draw.log_density - optimum.log_density(draw.values)).sum(-1)[:50] / np.log(2)
    regret = found["regret"].sel(predictor="optimum", member=0)
    np.testing.assert_allclose(regret, expected, atol=1e-3)
    assert (found["regret"].sel(predictor="network", member=0).mean() > regret.mean()).item()


@pytest.mark.slow
def test_the_documented_lstm_comes_within_5_percent_of_the_optimum():
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL) if "Gaussian" in b)
    names = {"sp": sp}
    exec(block, names)
    source = names["source"]
    predictors = {"lstm": names["lstm"], "optimum": sp.bayes_optimal(source)}
    found = sp.summarise(sp.evaluate(predictors, source, 32, 4000, seed=5), "optimum")
    one = found.isel(member=0).sel(predictor="lstm")
    excess, error = float(one["excess"]), float(one["excess_error"])
    assert excess - 3 * error > 0
    assert excess + 3 * error < 0.05 * float(one["regret"] - one["excess"])


@pytest.mark.parametrize(
    ("segment", "settings", "words"),
    [
        (sp.Poisson(), {}, ["whole numbers", "Poisson"]),
        (sp.Independent(sp.Gaussian(), sp.Poisson()), {}, ["whole numbers"]),
        (sp.Gaussian(), {"model": "markov"}, ["markov", "real values"]),
    ],
)
def test_what_networks_cannot_predict_is_refused(segment, settings, words):
    config = sp.TrainConfig(**settings, length=8, steps=2, batch=4)
    with pytest.raises(ValueError) as refused:  # noqa: PT011, the words are below
        sp.train(config, source=sp.Source(sp.Geometric(0.1), segment))
    assert all(word in str(refused.value) for word in words)


def test_bad_values_are_named():
    network = network_of()
    with pytest.raises(ValueError, match="inf at position 1"):
        network.log_density([1.0, np.inf])
    with pytest.raises(ValueError, match="columns"):
        network_of(values=TWO).log_density(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="log_density"):
        network.log_probs(jnp.zeros((1, 3), jnp.int32))
