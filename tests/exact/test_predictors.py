"""What every predictor promises, and how the exact ones agree with each other."""

import dataclasses
import functools
import inspect
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from family_reference import log_marginal
from reference import name

import switchpoint as sp
from switchpoint.exact.counts import filter_large_alphabet, filter_small_alphabet
from switchpoint.neural import network_from_name, save_networks

LENGTH = 100  # one for all, so that each program is compiled once; longer than a new stream's state
SWITCHES = np.zeros(LENGTH, bool)
SWITCHES[[5, 6, 11, 70]] = True

EXACT = {
    "ptw": (sp.PTW(7, split=0.3), sp.Bernoulli()),
    "ptw-deep": (sp.PTW(40), sp.Categorical(12)),
    "lin": (sp.LIN(), sp.Categorical(4)),
    "regular": (sp.RegularPeriodic(3), sp.Bernoulli()),
    "uniform": (sp.RandomUniform(4), sp.Bernoulli(0.7, 2.0)),
    "geometric": (sp.Geometric(0.2), sp.Bernoulli()),
    "always": (sp.Geometric(1.0), sp.Bernoulli()),
    "renewal": (sp.Renewal([0.1, 0.0, 0.5, 0.4]), sp.Bernoulli()),
}
NETWORKS = {
    "rnn": ("rnn", 2, {"hidden": 8, "readout": 0}),
    "lstm": ("lstm", 5, {"hidden": 8, "readout": 1}),
    "stack-rnn": ("stack-rnn", 2, {"hidden": 8, "readout": 2, "stack_depth": 3, "stack_width": 2}),
    "stack-lstm": ("stack-lstm", 3, {"hidden": 8}),
    "sincos": ("transformer", 2, {"layers": 2, "positions": "sincos"}),
    "alibi": ("transformer", 3, {"layers": 2, "positions": "alibi"}),
    "relative": ("transformer", 2, {"layers": 2, "positions": "relative"}),
    "rotary": ("transformer", 3, {"layers": 2, "positions": "rotary"}),
    "window": ("transformer", 2, {"layers": 1, "positions": "relative", "context": 4}),
    "gru": ("gru", 3, {"hidden": 8, "readout": 1}),
    "lru": ("lru", 2, {"layers": 2, "width": 8, "state_size": 4}),
    "mamba": ("mamba", 3, {"layers": 2, "width": 8, "state_size": 2}),
    "memoryless": ("memoryless", 2, {}),
    "markov": ("markov", 2, {"order": 3}),
}
OTHERS = {
    "pruned": lambda: sp.bayes_optimal(sp.Source(sp.LIN()), max_hypotheses=5),
    "kt": lambda: sp.KT(sp.Categorical(5)),
    "oracle": lambda: sp.KTOracle(SWITCHES),
    "mixture": lambda: sp.bayes_optimal(
        sp.SourceMixture([sp.Source(sp.LIN()), sp.Source(sp.PTW(7))], weights=[0.3, 0.7])
    ),
}


def network_of(name, alphabet, options):
    return network_from_name(name, alphabet, LENGTH, jax.random.key(0), **options)


@functools.cache
def predictor_of(name):
    if name in NETWORKS:
        return network_of(*NETWORKS[name])
    return sp.bayes_optimal(sp.Source(*EXACT[name])) if name in EXACT else OTHERS[name]()


@pytest.fixture(params=[*EXACT, *OTHERS, *NETWORKS])
def predictor(request):
    """Each kind of predictor, built when it is needed."""
    return predictor_of(request.param)


def random_symbols(alphabet, *shape):
    return np.random.default_rng(1).integers(0, alphabet, shape)


def sequences(predictor):
    return random_symbols(predictor.alphabet, 3, LENGTH)


def one_at_a_time(predictor, symbols):
    state, rows = predictor.init(), []
    for symbol in symbols:
        rows.append(predictor.predict(state))
        state = predictor.update(state, int(symbol))
    return np.stack(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["ptw", "ptw-deep", "lin", "uniform", *OTHERS, *NETWORKS]
)  # for other priors it is the same program
def test_all_forms_agree(name):
    """Normalised, causal, stream = chunks = whole, batches, `jit`, `vmap`, gradients."""
    predictor = predictor_of(name)
    report = sp.check(predictor, sequences(predictor)[:2]).raise_if_failed()
    assert {"stream", "chunks", "jit and vmap"} <= {each.name for each in report.findings}


def test_probabilities_are_positive_and_hear_the_past(predictor):
    symbols = sequences(predictor)
    log_probs = np.asarray(predictor.log_probs(symbols))
    assert np.all(np.isfinite(log_probs))
    changed = symbols.copy()
    changed[:, 7] = (changed[:, 7] + 1) % predictor.alphabet
    forgets = predictor is predictor_of("always") or predictor is predictor_of("memoryless")
    change = np.abs(np.asarray(predictor.log_probs(changed)) - log_probs)[:, 8:].max()
    assert (change > 1e-3) != forgets


@pytest.mark.slow
def test_the_nodes_after_a_chunk_are_those_after_its_observations():
    """Across the ends of nodes of several heights, and with missing values."""
    values = np.random.default_rng(3).normal(size=80) + np.repeat([0.0, 4.0], 40)
    values[[7, 35, 36]] = np.nan
    for predictor, xs in (
        (predictor_of("ptw"), sequences(predictor_of("ptw"))[0]),
        (sp.bayes_optimal(sp.Source(sp.PTW(7), sp.NormalGamma())), values),
    ):
        state = predictor.init()
        for x in xs[:30]:
            state = predictor.update(state, x)
        chunked, _ = predictor.extend(state, xs[30:55])
        chunked, _ = predictor.extend(chunked, xs[55:80])
        for x in xs[30:80]:
            state = predictor.update(state, x)
        assert int(chunked.time) == int(state.time) == 80
        for one, other in zip(jax.tree.leaves(chunked), jax.tree.leaves(state), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_a_second_call_does_not_compile(predictor, compilations):
    symbols = sequences(predictor)
    predictor.log_probs(symbols)
    state = predictor.update(predictor.init(), 0)
    predictor.predict(state)
    again = jax.tree.map(lambda leaf: leaf, predictor)  # an equal predictor, not the same one
    with compilations() as compiled:
        again.log_probs(symbols)
        again.predict(again.update(again.init(), 0))
    assert not compiled


@pytest.mark.parametrize("name", NETWORKS)
def test_save_then_load_is_identical(name, tmp_path):
    model, alphabet, options = NETWORKS[name]
    network = predictor_of(name)
    card = {"model": model, "alphabet": alphabet, "length": LENGTH, "options": options}
    save_networks(tmp_path / "a.safetensors", [network], {**card, "members": [{}]})
    loaded = sp.load(tmp_path / "a.safetensors")
    assert jax.tree.structure(loaded) == jax.tree.structure(network)
    symbols = sequences(network)
    np.testing.assert_array_equal(loaded.log_probs(symbols), network.log_probs(symbols))


@pytest.mark.parametrize("most", [None, 3], ids=["tree", "recursion"])
def test_exact_predictors_check_symbols_alike(most):
    predictor = sp.bayes_optimal(sp.Source(sp.PTW(2)), max_hypotheses=most)
    assert isinstance(predictor, sp.ExactPredictor)
    for method in (predictor.log_probs, predictor.posterior):
        for wrong, message in (
            ([0, 2], "from 0 to 1, got 2"),
            ([], "at least one"),
            ([0] * 5, "at most 4 .* got 5"),
        ):
            with pytest.raises(ValueError, match=message):
                method(wrong)


def test_only_what_has_a_posterior_is_an_exact_predictor():
    assert not isinstance(sp.KT(), sp.ExactPredictor)
    with pytest.raises(TypeError, match="abstract"):
        sp.ExactPredictor()


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_ptw_is_the_general_recursion():
    source = sp.Source(sp.PTW(9, 0.4), sp.Categorical(3))
    symbols = random_symbols(3, 5, 50)
    fast = sp.bayes_optimal(source)
    slow = sp.ForwardPredictor(source.prior, source.segment)
    np.testing.assert_allclose(fast.log_probs(symbols), slow.log_probs(symbols), atol=1e-12)
    few, many = fast.posterior(symbols), slow.posterior(symbols)
    for field in ("log_marginal", "switch_filtered", "switch_smoothed", "run_length_mean"):
        np.testing.assert_allclose(getattr(few, field), getattr(many, field), atol=1e-10)
    np.testing.assert_allclose(few.probs_smoothed, many.probs_smoothed, atol=1e-10)
    np.testing.assert_allclose(few.map_log_prob, many.map_log_prob, atol=1e-10)
    np.testing.assert_array_equal(few.map_switches, many.map_switches)


def test_regular_is_the_oracle():
    source = sp.Source(sp.RegularPeriodic(7), sp.Categorical(3))
    symbols, times = random_symbols(3, 5, 40), np.arange(40)
    oracle = sp.KTOracle((times % 7 == 0) & (times > 0), source.segment)
    np.testing.assert_allclose(
        sp.bayes_optimal(source).log_probs(symbols), oracle.log_probs(symbols), atol=1e-6
    )


def test_uniform_that_never_ends_in_time_is_kt():
    symbols = np.array([0, 1, 1, 1])
    kt = sp.KT().log_probs(symbols)
    lasting = sp.bayes_optimal(sp.Source(sp.RegularPeriodic(99)))
    np.testing.assert_allclose(lasting.log_probs(symbols), kt, atol=1e-6)
    np.testing.assert_allclose(np.exp(kt)[:, 1], [0.5, 0.25, 0.5, 2.5 / 4], atol=1e-6)


@pytest.mark.usefixtures("float64")
def test_kt_of_values_is_the_closed_form_of_each_segment():
    segment = sp.NormalGamma(mean=0.3, strength=0.5, shape=1.5, rate=0.8)
    values = np.random.default_rng(0).normal(size=(2, 30))
    values[1] += 1e5
    gaps = values.copy()
    gaps[:, [0, 7, 12]] = np.nan
    switches = np.isin(np.arange(30), [5, 12])
    for x, predictor, cuts in (
        (values, sp.KT(segment), []),
        (gaps, sp.KTOracle(switches, segment), [5, 12]),
    ):
        logs = predictor.log_density(x)
        for row, found in zip(x, np.asarray(logs), strict=True):
            expected = sum(log_marginal(segment, part) for part in np.split(row, cuts))
            assert found.sum() == pytest.approx(expected, rel=1e-8)
            state, pieces = predictor.init(), []
            for chunk in np.split(row, [3, 13]):
                state, piece = predictor.extend(state, chunk)
                pieces.append(piece)
            np.testing.assert_allclose(np.concatenate(pieces), found, atol=1e-9)
            stepped, logs = predictor.init(), []
            for each in row:
                density = predictor.predict(stepped).log_density(each)
                logs.append(0.0 if np.isnan(each) else float(density))
                stepped = predictor.update(stepped, each)
            np.testing.assert_allclose(logs, found, atol=1e-9)
            assert int(state.time) == int(stepped.time) == 30


def test_many_sequences_are_laid_out_otherwise_and_give_the_same():
    symbols = random_symbols(2, 300, 70)
    predictor = sp.bayes_optimal(sp.Source(sp.LIN()))
    many = np.asarray(predictor.log_probs(symbols))
    np.testing.assert_allclose(predictor.log_probs(symbols[:20]), many[:20], atol=1e-5)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("prior", [sp.LIN(), sp.Geometric(0.02), sp.PTW(9, 0.4)], ids=name)
def test_large_alphabets_are_the_same_recursion(prior):
    segment = sp.Categorical(5, 0.7)
    rows = jnp.asarray(random_symbols(5, 2, 300))
    large = jax.jit(lambda rows: filter_large_alphabet(prior, segment, rows))(rows)
    small = jax.jit(lambda rows: filter_small_alphabet(prior, segment, rows)[0])(rows)
    for slow, fast in zip(jax.tree.leaves(small), jax.tree.leaves(large), strict=True):
        np.testing.assert_allclose(slow, fast, atol=1e-10)


def test_chunks_are_put_together_in_order():
    symbols = random_symbols(2, 1100, 300)  # more than one chunk, the last one short
    predictor = sp.bayes_optimal(sp.Source(sp.PTW(9)))
    whole = predictor.log_probs(symbols)
    for row in (0, 559, 560, 1099):
        np.testing.assert_allclose(whole[row], predictor.log_probs(symbols[row]), atol=1e-6)


class TestStreaming:
    def test_state_grows_as_long_as_the_stream(self):
        symbols = random_symbols(2, 150)
        predictor = sp.bayes_optimal(sp.Source(sp.LIN()))
        np.testing.assert_allclose(
            one_at_a_time(predictor, symbols), predictor.log_probs(symbols), atol=1e-5
        )
        assert len(predictor.init().weights) < 150

    def test_a_bounded_prior_needs_no_more_than_its_longest_segment(self):
        symbols = random_symbols(2, LENGTH)
        predictor = sp.bayes_optimal(sp.Source(sp.RandomUniform(10)))
        state = predictor.init()
        for symbol in symbols:
            state = predictor.update(state, symbol)
        assert len(state.weights) == 10
        assert predictor.pruning_bound(state) == 0
        np.testing.assert_allclose(
            one_at_a_time(predictor, symbols), predictor.log_probs(symbols), atol=1e-5
        )

    def test_many_streams_by_vmap(self):
        predictor = sp.bayes_optimal(sp.Source(sp.PTW(40)))
        symbols = random_symbols(2, 3, 8)
        states = eqx.filter_vmap(predictor.init, axis_size=3)()
        for time in range(8):
            states = jax.vmap(predictor.update)(states, symbols[:, time])
        np.testing.assert_array_equal(states.time.low, [8, 8, 8])

    def test_inside_jit_an_unknown_capacity_is_an_error(self):
        growing = [
            sp.bayes_optimal(sp.Source(sp.LIN())),
            sp.bayes_optimal(sp.Source(sp.RandomUniform(1000))),
            network_of("transformer", 2, {"layers": 1}),
        ]
        bits = jnp.zeros(100, jnp.int32)
        for predictor in growing:

            def run(bits, state, predictor=predictor):
                return jax.lax.scan(lambda s, bit: (predictor.update(s, bit), None), state, bits)

            for start in (predictor.init, lambda predictor=predictor: predictor.init()):
                with pytest.raises(ValueError, match=r"init\(length="):
                    jax.jit(lambda bits, start=start, run=run: run(bits, start()))(bits)
            with pytest.raises(ValueError, match=r"init\(length="):
                jax.jit(run)(bits, predictor.init())  # made outside
            jax.jit(run)(bits, predictor.init(length=100))

    def test_beyond_its_capacity_a_jitted_state_is_no_number(self):
        predictor = sp.bayes_optimal(sp.Source(sp.LIN()))
        state = predictor.init(length=3)
        step = jax.jit(predictor.update)
        for expected_finite in (True, True, True, False):
            state = step(state, jnp.asarray(1))
            assert np.all(np.isfinite(predictor.predict(state))) == expected_finite

    def test_a_stream_has_no_end(self):
        for prior, options in ((sp.PTW(45), {}), (sp.Geometric(0.01), {"max_hypotheses": 5})):
            predictor = sp.bayes_optimal(sp.Source(prior), **options)
            near_the_end = eqx.tree_at(
                lambda s: s.time.low, predictor.init(), jnp.asarray(2**31 - 3)
            )
            near_the_end = eqx.tree_at(
                lambda s: s.statistics, near_the_end, near_the_end.statistics + (2**30 - 3)
            )
            if options:
                near_the_end = eqx.tree_at(
                    lambda s: s.starts, near_the_end, near_the_end.starts + (2**31 - 10)
                )
            state = near_the_end
            for _ in range(6):
                state = predictor.update(state, 1)
                assert np.all(np.isfinite(predictor.predict(state)))
                assert np.all(np.asarray(state.statistics) >= 0)
            assert int(state.time) == 2**31 + 3
            if options:
                assert np.exp(predictor.predict(state))[1] > 0.5

    def test_states_of_other_predictors_are_refused(self):
        deep, shallow = (sp.bayes_optimal(sp.Source(sp.PTW(depth))) for depth in (40, 20))
        lin = sp.bayes_optimal(sp.Source(sp.LIN()))
        three = sp.bayes_optimal(sp.Source(sp.LIN(), sp.Categorical(3)))
        for owner, other in ((deep, shallow), (lin, three), (sp.KT(), sp.KT(sp.Categorical(3)))):
            for use in (other.predict, lambda state, other=other: other.update(state, 1)):
                with pytest.raises(ValueError, match="state must be one that this predictor's"):
                    use(owner.init())


def test_a_deep_tree_serves_a_short_stream():
    symbols = random_symbols(2, 4, 64)
    deep = sp.bayes_optimal(sp.Source(sp.PTW(60, 0.5)))
    # A split above the first 64 symbols is nearly never on the leftmost path.
    log_probs = deep.log_probs(symbols)
    np.testing.assert_allclose(log_probs, sp.KT().log_probs(symbols), atol=1e-5)
    np.testing.assert_allclose(one_at_a_time(deep, symbols[0]), log_probs[0], atol=1e-5)


def test_every_field_of_a_posterior_has_its_shape_and_meaning_in_help():
    described = re.findall(r"^(\w+): .*\n +\S", inspect.getdoc(sp.Posterior), re.MULTILINE)
    fields = [field.name for field in dataclasses.fields(sp.Posterior)]
    assert described == [name for name in fields if not name.startswith("_")]
