"""The modules of the playground, run by Node, compute what the Python library computes."""

import json
import math
import shutil
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import switchpoint as sp
from switchpoint.playground.page import NETWORKS, SOURCES, describe

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node (Debian's package nodejs)")

HAZARD = 0.05
SEQUENCES, LENGTH = 50, 90
LAWS = {"ptw": sp.PTW(8), "lin": sp.LIN(), "geometric": sp.Geometric(HAZARD)}


def ask(**questions):
    """The answers of the modules."""
    script = Path(__file__).parent / "evaluate.mjs"
    command = [NODE, str(script), str(SOURCES)]
    options = {"input": json.dumps(questions), "capture_output": True, "text": True}
    try:
        done = subprocess.run(command, timeout=40, **options)
    except subprocess.TimeoutExpired:  # Node 20 may hang as it exits, after all is written
        done = subprocess.run(command, timeout=80, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def case(values, switches=None, kind="bits", sides=None):
    return {
        "kind": kind,
        "values": np.asarray(values).tolist(),
        "switches": switches,
        "range": sides,
        "hazard": HAZARD,
    }


def switching_bits(chance, length):
    """Bits of segments of 15, and where they switch."""
    probabilities = chance.beta(0.5, 0.5, -(-length // 15)).repeat(15)[:length]
    return (chance.random(length) < probabilities).astype(int), list(range(15, length, 15))


def rounded(network):
    """The network with weights of half precision, in double precision."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, "f2"), jnp.float64), network)


@pytest.fixture(scope="module")
def bits():
    """Fifty sequences: ten, of which each has four that differ from the last in one bit."""
    chance = np.random.default_rng(31)
    rows = []
    for _ in range(SEQUENCES // 5):
        row, switches = switching_bits(chance, LENGTH)
        for _ in range(5):
            rows.append(row)
            row = row.copy()
            row[chance.integers(LENGTH)] ^= 1
    return np.array(rows), switches


@pytest.fixture(scope="module")
def networks():
    return {name: sp.load(of) for name, of in NETWORKS.items()}


@pytest.fixture(scope="module")
def answers(bits, networks):
    rows, switches = bits
    cases = [case(row, switches) for row in rows]
    weights = {name: describe(network) for name, network in networks.items()}
    return ask(cases=cases, networks=weights)["cases"]


def stacked(answers, name, field):
    return np.array([answer[name][field] for answer in answers], float)


def check_predictions(answers, name, symbols, log_probs):
    """P(1 | x_<t), and the code length after each bit."""
    time = symbols.shape[-1]
    predictions = stacked(answers, name, "prediction")[:, :time]
    np.testing.assert_allclose(predictions, np.exp(log_probs[..., 1]), atol=1e-9)
    paid = np.take_along_axis(log_probs, symbols[..., None], -1)[..., 0]
    lengths = stacked(answers, name, "bits")[:, 1:]
    np.testing.assert_allclose(lengths, -paid.cumsum(-1) / math.log(2), atol=1e-7)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", LAWS)
def test_exact_predictors(name, bits, answers):
    rows, _ = bits
    bayes = sp.bayes_optimal(sp.Source(LAWS[name], sp.Bernoulli()))
    check_predictions(answers, name, rows, np.asarray(bayes.log_probs(rows)))
    posterior = bayes.posterior(rows)
    for field in ("smoothed", "filtered"):
        expected = getattr(posterior, f"switch_{field}")
        np.testing.assert_allclose(stacked(answers, name, field), expected, atol=1e-9)
    runs = np.asarray(posterior.run_length_pmf())  # (sequence, time, length of the run)
    for t in (0, 1, 37, LENGTH - 1):
        row = t * (t + 1) // 2
        starts = stacked(answers, name, "starts")[:, row : row + t + 1]
        np.testing.assert_allclose(starts[:, ::-1], runs[:, t, : t + 1], atol=1e-9)


@pytest.mark.usefixtures("float64")
def test_predictors_of_known_segments(bits, answers):
    rows, switches = bits
    check_predictions(answers, "kt", rows, np.asarray(sp.KT().log_probs(rows)))
    oracle = sp.KTOracle(np.isin(np.arange(LENGTH), switches))
    check_predictions(answers, "oracle", rows, np.asarray(oracle.log_probs(rows)))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name, bits, answers, networks):
    rows, _ = bits
    log_probs = np.asarray(rounded(networks[name]).log_probs(rows))
    check_predictions(answers, name, rows, log_probs)
    full = np.asarray(networks[name].log_probs(rows))
    difference = np.abs(np.exp(full) - np.exp(log_probs)).max()
    assert difference < 1e-3  # of half precision; 8e-4 at most on 50 sequences of 256


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", LAWS)
def test_values(name):
    chance = np.random.default_rng(5)
    levels = chance.normal(5, 2.5, (3, 4)).repeat(8, axis=1)
    rows = levels + 0.5 * chance.normal(size=levels.shape)
    rows[0] += 1e6  # far from 0
    rows[1, 20] += 500  # an outlier
    sides = [[1e6, 1e6 + 10], [0, 10], [0, 10]]
    cases = [case(row, None, "values", each) for row, each in zip(rows, sides, strict=True)]
    answers = ask(cases=cases)["cases"]
    for row, (low, high), answer in zip(rows, sides, answers, strict=True):
        noise = (high - low) / 20
        segment = sp.NormalGamma((low + high) / 2, 0.04, 3.0, 2 * noise**2)
        bayes = sp.bayes_optimal(sp.Source(LAWS[name], segment))
        lengths = -np.asarray(bayes.log_density(row)).cumsum() / math.log(2)
        np.testing.assert_allclose(answer[name]["bits"][1:], lengths, rtol=1e-7, atol=1e-5)
        if name == "geometric":
            smoothed = bayes.posterior(row).switch_smoothed
            np.testing.assert_allclose(answer[name]["smoothed"], smoothed, atol=1e-5)


@pytest.mark.usefixtures("float64")
def test_a_longer_sequence_has_a_deeper_tree():
    row, _ = switching_bits(np.random.default_rng(1), 300)
    answers = ask(cases=[case(row[:256]), case(row)])["cases"]
    for answer, depth in zip(answers, (8, 9), strict=True):
        symbols = row[None, : len(answer["ptw"]["filtered"])]
        bayes = sp.bayes_optimal(sp.Source(sp.PTW(depth), sp.Bernoulli()))
        check_predictions([answer], "ptw", symbols, np.asarray(bayes.log_probs(symbols)))
    assert answers[0]["ptw"]["prediction"][256] is None  # after the last observation of the tree


def test_edited_models_have_the_numbers_of_fresh_ones():
    chance = np.random.default_rng(3)
    row, switches = switching_bits(chance, 270)
    values = chance.normal(size=40).round(2)
    flipped = [*row[:199], 1 - row[199], *row[200:]]
    edits = [
        *(case(each, switches) for each in (row, row[:250], flipped, [], [1])),
        *(case(values[:n], None, "values", [-3, 3]) for n in (40, 39)),
        case(values, None, "values", [-4, 4]),
        {**case(row[:20]), "hazard": 0.2},
        case(row),
    ]
    assert all(ask(edits=edits)["edits"])


@pytest.mark.parametrize("prior", ["ptw", "lin", "geometric"])
def test_draws_follow_the_prior(prior):
    count, length = 4000, 64
    draws = ask(draws=[{"prior": prior, "length": length, "seed": 7, "count": count}])["draws"][0]
    switches = np.zeros((count, length))
    for row, drawn in zip(switches, draws, strict=True):
        row[drawn["switches"]] = 1
        assert len(drawn["values"]) == length
    expected = LAWS[prior].switch_probability(length)
    errors = np.sqrt(expected * (1 - expected) / count)
    assert (np.abs(switches.mean(0) - expected) <= 5 * errors).all()
    # Within a segment, two bits agree with probability E[p^2 + (1 - p)^2] = 3/4.
    values = np.array([drawn["values"] for drawn in draws])
    agree = (values[:, 1] == values[:, 0])[switches[:, 1] == 0]
    assert abs(agree.mean() - 0.75) < 5 * 0.5 / len(agree) ** 0.5


def test_values_are_drawn_from_the_segment_model():
    parameters = {"mean": 5, "strength": 0.04, "rate": 0.5}
    question = {"prior": "geometric", "length": 2, "seed": 1, "count": 20_000}
    draws = ask(draws=[{**question, "parameters": parameters}])["draws"][0]
    pairs = np.array([drawn["values"] for drawn in draws if not drawn["switches"]])
    # The noise has variance rate / (shape - 1) = 1/4, the level 25 times as much.
    noise, mean = (pairs[:, 1] - pairs[:, 0]) ** 2 / 2, pairs.mean(1)
    for numbers, expected in ((noise, 0.25), (mean, 5), ((mean - 5) ** 2, 6.25 + 0.125)):
        error = numbers.std() / len(numbers) ** 0.5
        assert abs(numbers.mean() - expected) < 5 * error


@pytest.mark.parametrize(
    ("text", "kind", "values", "notice"),
    [
        ("0110", "bits", [0, 1, 1, 0], ""),
        ("0, 1\n1 0", "bits", [0, 1, 1, 0], ""),
        ("01a10", "bits", [0, 1, 1, 0], "“a”"),
        ("1.5 2; -3e1,.25", "values", [1.5, 2, -30, 0.25], ""),
        ("level 3 high 4", "values", [3, 4], "2 words"),
        ("1 0 2", "values", [1, 0, 2], ""),
        ("1" * 600, "bits", [1] * 512, "first 512 of 600"),
        ("5 5 5", "values", [5, 5, 5], ""),
        ("hello 1", None, None, "“hello”"),
        ("1e999", None, None, "“1e999”"),
        ("", None, None, "empty"),
    ],
)
def test_pasted_text(text, kind, values, notice):
    (answer,) = ask(texts=[text])["texts"]
    pasted = answer["sequence"]
    assert pasted is None if kind is None else (pasted["kind"], pasted["values"]) == (kind, values)
    assert notice in answer["notice"]
    assert bool(notice) == bool(answer["notice"])


WHOLE = "bits=0011&switches=2&hazard=0.1&posterior=lin&hidden=rnn,kt&revealed=1&end=4"
VALUES = "values=1.5,-2,3&range=-3,4&hazard=0.02&posterior=ptw&hidden=&end=3"


def test_links_carry_sequence_and_settings():
    answers = ask(links=[WHOLE, VALUES, "bits=&hazard=0.02&posterior=ptw&hidden=&end=0"])
    assert answers["again"] == [WHOLE, VALUES, "bits=&hazard=0.02&posterior=ptw&hidden=&end=0"]
    assert not any(each["notice"] for each in answers["links"])
    assert answers["links"][0]["sequence"]["switches"] == [2]


def test_cut_links_are_named_and_what_is_left_is_used():
    whole = [text[:end] for text in (WHOLE, VALUES) for end in range(len(text))]
    answers = ask(links=whole)["links"]
    for text, answer in zip(whole, answers, strict=True):
        assert "damaged" in answer["notice"], text
        if answer["sequence"]:
            assert len(answer["sequence"]["values"]) <= 4
    (odd,) = ask(links=["bits=01x1&switches=9&hazard=7&end=4"])["links"]
    assert odd["sequence"]["values"] == [0, 1, 1]
    assert odd["sequence"]["switches"] is None
    assert all(word in odd["notice"] for word in ("observations", "switches", "hazard"))
