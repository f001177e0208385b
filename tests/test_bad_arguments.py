"""Bad arguments give a ValueError that names the argument and its value."""

import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest

import switchpoint as sp
from switchpoint import _checks

KEY = jax.random.key(0)


def predict(symbols, prior=None, segment=None):
    source = sp.Source(prior or sp.LIN(), segment or sp.Bernoulli())
    return sp.bayes_optimal(source).log_probs(symbols)


class Bad(sp.Prior):
    hazard: float

    def hazard_after(self, start, run):
        return jnp.where(jnp.asarray(run) + jnp.asarray(start) == 104, self.hazard, 0.5)


class Misshapen(sp.Prior):
    def hazard_after(self, start, run):  # noqa: ARG002
        return np.full(3, 0.5)


BAD = {
    "depth must be a whole number of at least 1, got 0": lambda: sp.PTW(0),
    "depth must be a whole number of at least 1, got -3": lambda: sp.PTW(-3),
    "depth must be a whole number, got 2.5": lambda: _checks.positive_int("depth", 2.5),
    "depth must be a whole number, got True": lambda: sp.PTW(True),
    "split must be strictly between 0 and 1, got 0.0": lambda: sp.PTW(3, 0.0),
    "split must be strictly between 0 and 1, got 1.0": lambda: sp.PTW(3, 1),
    "split must be strictly between 0 and 1, got nan": lambda: sp.PTW(3, float("nan")),
    "period must be a whole number of at least 1, got 0": lambda: sp.RegularPeriodic(0),
    "max_length must be a whole number of at least 1, got -1": lambda: sp.RandomUniform(-1),
    "hazard must be above 0 and at most 1, got 0.0": lambda: sp.Geometric(0.0),
    "hazard must be above 0 and at most 1, got -0.5": lambda: sp.Geometric(-0.5),
    "hazard must be above 0 and at most 1, got 1.5": lambda: sp.Geometric(1.5),
    "hazard must be a number, got 'often'": lambda: _checks.probability("hazard", "often"),
    "pmf must sum to one, got a sum of 0.9": lambda: sp.Renewal([0.5, 0.4]),
    "at least 0, got -0.5 at index 1": lambda: sp.Renewal([1.5, -0.5]),
    "at least 0, got nan at index 0": lambda: sp.Renewal([float("nan"), 1]),
    "pmf must be a non-empty list": lambda: sp.Renewal([]),
    "pmf must be a list of numbers": lambda: sp.Renewal(["a"]),
    "alpha must be a finite number above 0, got 0.0": lambda: sp.Bernoulli(alpha=0),
    "beta must be a finite number above 0, got inf": lambda: sp.Bernoulli(beta=np.inf),
    "size must be at least 2, got 1": lambda: sp.Categorical(1),
    "concentration must be a finite number above 0, got -1.0": lambda: sp.Categorical(3, -1),
    "batch must be a whole number of at least 1, got 0": lambda: sp.Source(sp.LIN()).sample(
        KEY, 0, 5
    ),
    "length must be a whole number of at least 1, got -2": lambda: sp.Source(sp.LIN()).sample(
        KEY, 1, -2
    ),
    r"length must be at most 8 for PTW(depth=3, split=0.5), got 9": lambda: sp.Source(
        sp.PTW(3)
    ).sample(KEY, 1, 9),
    r"length must be at most 4 for PTW(depth=2, split=0.5), got 5": lambda: predict(
        [0] * 5, sp.PTW(2)
    ),
    "from 0 to 1, got 7 at position 2": lambda: predict([0, 1, 7, 1]),
    "from 0 to 1, got -1 at position 0 of sequence 1": lambda: predict([[0, 1], [-1, 1]]),
    "from 0 to 2, got 3 at position 1": lambda: predict([0, 3], segment=sp.Categorical(3)),
    "from 0 to 1, got nan at position 1": lambda: predict([0.0, np.nan]),
    "from 0 to 1, got 0.5 at position 1": lambda: predict([0.0, 0.5]),
    "symbols must be whole numbers, got '0' at position 0": lambda: predict(["0", "1"]),
    "symbols must be whole numbers, got 'a' at position 2": lambda: predict([0, 1, "a"]),
    "switchpoint.NormalGamma": lambda: predict([0.0, 0.25]),
    "switchpoint.Categorical(8)": lambda: predict([0, 1, 7, 1]),
    "got the str '0110'": lambda: predict("0110"),
    "got the bytes b'01'": lambda: predict(b"01"),
    "got the generator": lambda: predict(bit for bit in (0, 1)),
    "same length, got [[0, 1], [0]]": lambda: predict([[0, 1], [0]]),
    "got None": lambda: predict([0, None, 1]),
    "one column, got a DataFrame of 2 (a, b)": lambda: predict(pd.DataFrame({"a": [0], "b": [1]})),
    "alpha must be from 1e-15 to 1e+15, got 1e-30": lambda: sp.Bernoulli(1e-30, 1e30),
    "Bad.hazard_after must return probabilities from 0 to 1, got 1.5": lambda: sp.Source(Bad(1.5)),
    "probabilities from 0 to 1, got nan": lambda: sp.Source(Bad(float("nan"))),
    "must work elementwise": lambda: sp.Source(Misshapen()),
    "begin and end must be from 0 to 1 and in order, got 1 and 0": lambda: (
        sp.bayes_optimal(sp.Source(sp.PTW(2))).posterior([0, 1]).switch_within(1, 0)
    ),
    "symbols must hold at least one symbol, got shape (0,)": lambda: predict([]),
    "symbols must hold at least one symbol, got shape ()": lambda: predict(1),
    "max_hypotheses must be a whole number of at least 1, got 0": lambda: sp.bayes_optimal(
        sp.Source(sp.LIN()), max_hypotheses=0
    ),
    "n must be a whole number of at least 1, got 0": lambda: (
        sp.bayes_optimal(sp.Source(sp.PTW(2))).posterior([0, 1]).sample(KEY, 0)
    ),
    "switches must have the shape of the symbols (3,), got (2,)": lambda: sp.KTOracle(
        [False, True]
    ).log_probs([0, 1, 1]),
    "switches must be one row": lambda: sp.KTOracle(np.zeros((2, 3), bool)).init(),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_argument(message):
    # Its first word (the argument), its numbers (the bounds) and its end (the value) must be there.
    sentence, got, value = message.partition("got ")
    parts = [message]
    if sentence and got:
        parts = [sentence.split()[0], *re.findall(r"\d\S*\d|\d", sentence), got + value]
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        BAD[message]()
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert "\n" not in str(caught.value)


def test_symbols_outside_the_alphabet_in_a_stream():
    for predictor in (sp.KT(), sp.bayes_optimal(sp.Source(sp.PTW(3)))):
        with pytest.raises(ValueError, match=r"symbol .*0 to 1, got 2"):
            predictor.update(predictor.init(), 2)


def test_stream_longer_than_the_tree():
    predictor = sp.bayes_optimal(sp.Source(sp.PTW(2)))
    state = predictor.init()
    for symbol in (0, 1, 1, 0):
        state = predictor.update(state, symbol)
    with pytest.raises(ValueError, match="length must be at most 4"):
        predictor.update(state, 0)


def test_stream_longer_than_the_oracle_knows():
    oracle = sp.KTOracle([False, True])
    state = oracle.update(oracle.update(oracle.init(), 0), 1)
    with pytest.raises(ValueError, match=r"switches .*got 2"):
        oracle.update(state, 0)


def test_integral_floats_and_booleans_are_symbols():
    exact = predict([0, 1, 1])
    np.testing.assert_array_equal(predict([0.0, 1.0, 1.0]), exact)
    np.testing.assert_array_equal(predict(np.array([False, True, True])), exact)
    np.testing.assert_array_equal(predict(jnp.array([0, 1, 1], jnp.uint8)), exact)
    np.testing.assert_array_equal(predict(np.array([0, True, 1], object)), exact)


def test_one_column_of_a_dataframe_is_a_sequence():
    bits = [0, 1, 1, 0]
    exact = predict(bits)
    frame = pd.DataFrame({"x": bits, "y": [1, 1, 1, 1]})
    for one in (frame[["x"]], frame["x"], frame[["x"]].astype("Int64"), pl.DataFrame({"x": bits})):
        np.testing.assert_array_equal(predict(one), exact)
    np.testing.assert_array_equal(predict(frame.to_numpy().T)[0], exact)


@pytest.mark.slow
def test_arguments_of_the_wrong_type():
    # In a process of its own: here, annotations are checked before the package can.
    calls = {
        "key must be a JAX random key, such as jax.random.key(0), got 0": (
            "sp.Source(sp.LIN()).sample(0, 1, 5)"
        ),
        "got 7": "sp.bayes_optimal(sp.Source(sp.LIN())).posterior([0, 1]).sample(7, 1)",
        "prior must be a Prior, such as switchpoint.PTW(8), got 'ptw'": "sp.Source('ptw')",
        "segment must be a Segment": "sp.Source(sp.PTW(3), 2)",
        "source must be a Source": "sp.detect([1.0], source=sp.PTW(3))",
        "got PTW(depth=3, split=0.5)": "sp.bayes_optimal(sp.PTW(3))",
        "segment must be one of trend, level": "sp.detect([1.0], segment=3)",
        "sources must be a mapping from names": "sp.compare([sp.Source(sp.LIN())], [0, 1])",
    }
    script = "import switchpoint as sp\n" + "".join(
        f"try: {call}\nexcept ValueError as error: print(error)\n" for call in calls.values()
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    for message, line in zip(calls, done.stdout.splitlines(), strict=True):
        assert message in line
