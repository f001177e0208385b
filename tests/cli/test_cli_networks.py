"""Trained networks on the command line: as good as any other predictor, and refused as clearly."""

import csv
import functools
import io

import jax
import numpy as np
import pytest

import switchpoint as sp
from switchpoint import evaluation, neural
from switchpoint.cli.networks import describe_member

LENGTH = 32  # always the same, so that one compilation serves all tests
TRAINED = 16
OPTIONS = {"hidden": 8, "readout": 1}
SOURCES = {"ptw": "Source(prior=PTW(depth=4, split=0.5))", "lin": "Source(prior=LIN())"}
EXCESS = [3.0, None, 1.5, 2.0, 4.0]
PRIORS = ["ptw", "ptw", "ptw", "lin", "lin"]
FROZEN = [False, True, False, False, False]


def card(alphabet=2, members=5):
    return {
        "model": "lstm",
        "alphabet": alphabet,
        "length": TRAINED,
        "options": OPTIONS,
        "sources": SOURCES,
        "members": [
            {"prior": prior, "seed": index, "excess": excess, "diverged": frozen}
            for index, (prior, excess, frozen) in enumerate(
                zip(PRIORS, EXCESS, FROZEN, strict=True)
            )
        ][:members],
    }


def networks_of(about):
    return list(make_networks(about["alphabet"], len(about["members"])))


@functools.cache
def make_networks(alphabet, count):
    keys = jax.random.split(jax.random.key(5), count)
    made = [neural.network_from_name("lstm", alphabet, TRAINED, key, **OPTIONS) for key in keys]
    # Large weights, so that the members differ in all digits that are printed.
    return [jax.tree.map(lambda leaf: 3 * leaf, network) for network in made]


@pytest.fixture
def run_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "lstm").mkdir()
    path = tmp_path / "lstm" / "model.safetensors"
    neural.save_networks(path, networks_of(card()), card())
    return tmp_path / "lstm"


@pytest.fixture
def symbols(tmp_path):
    draw = sp.Source(sp.PTW(5)).sample(jax.random.key(3), 1, LENGTH).symbols[0]
    (tmp_path / "bits.txt").write_text("".join(map(str, np.asarray(draw).tolist())))
    return np.asarray(draw)


def probs_in(text):
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == ["t", "symbol", "p0", "p1"]
    return np.array([[row["p0"], row["p1"]] for row in rows], np.float32)


def flat(text):
    """A text without the line breaks and frames that the terminal's width makes."""
    return " ".join(text.replace("│", " ").split())


# --- predict --------------------------------------------------------------------------------


@pytest.mark.slow
def test_predict_with_a_network(run_directory, symbols, run):
    status, out, err = run("predict", "bits.txt", "--model", run_directory)
    assert status == 0
    network = sp.load(run_directory)
    expected = network.log_probs(symbols)
    np.testing.assert_allclose(probs_in(out), np.exp(expected), rtol=1e-6)
    state = network.init()
    for prediction, symbol in zip(probs_in(out), symbols, strict=True):
        np.testing.assert_allclose(prediction, np.exp(network.predict(state)), rtol=1e-4)
        state = network.update(state, symbol)
    bits = float(sp.code_length(symbols, expected).sum())
    kt_bits = float(sp.code_length(symbols, sp.KT().log_probs(symbols)).sum())
    summary = flat(err)
    assert f"code length {bits:.2f} bits" in summary
    assert f"plain KT {kt_bits:.2f} bits" in summary
    assert "network lstm, hidden 8, readout 1 " in summary
    assert "member 2 members 5 chosen by lowest excess" in summary
    assert "trained on PTW(depth=4, split=0.5) trained length 16 this sequence is longer" in summary
    assert "switches" not in summary


@pytest.mark.slow
@pytest.mark.usefixtures("run_directory")
@pytest.mark.parametrize("alphabet", [2, 3])
def test_a_picture_without_a_posterior(tmp_path, run, alphabet):
    about = card(alphabet, members=1)
    neural.save_networks("one.safetensors", networks_of(about), about)
    (tmp_path / "x.txt").write_text("01" * (LENGTH // 2))
    arguments = ("--model", "one.safetensors", "--plot", "x.png", "--out", "x.csv")
    assert run("predict", "x.txt", *arguments)[0] == 0
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("run_directory", "symbols")
def test_a_network_that_overflows_is_refused(run):
    about = card(members=1)
    network = jax.tree.map(lambda leaf: leaf * np.nan, networks_of(about)[0])
    neural.save_networks("nan.safetensors", [network], about)
    status, out, err = run("predict", "bits.txt", "--model", "nan.safetensors")
    assert (status, out) == (2, "")
    assert "the network's numbers overflow at position 0" in err


# --- cards ----------------------------------------------------------------------------------


def test_descriptions_of_cards():
    assert neural.best_member(card()) == 2
    assert neural.best_member({"members": [{}, {}]}) == 0
    for about, parts in {
        "memoryless": {"options": {}},
        "transformer, layers 2, positions relative": {
            "options": {"layers": 2, "positions": "relative", "context": None}
        },
    }.items():
        described = describe_member({**card(), **parts, "model": about.partition(",")[0]}, 0)
        assert described["network"] == about
    ternary = repr(sp.Source(sp.PTW(4), sp.Categorical(3)))
    for trained_on, parts in {
        "LIN()": {"members": [{"prior": "lin"}]},
        f"PTW(depth=4, split=0.5), {sp.Categorical(3)!r}": {"sources": {"ptw": ternary}},
        "ptw": {"sources": {}},
        "an unknown source": {"members": [{}]},
    }.items():
        assert describe_member(card() | parts, 0)["trained_on"] == trained_on


# --- evaluate -------------------------------------------------------------------------------


def table_of(text):
    """The cells of each row of the printed table, by the name of the predictor."""
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: row[1:] for row in rows if len(row) > 6 and row[1].isdigit()}


@pytest.mark.slow
def test_evaluate_runs(run_directory, run):
    arguments = ("--length", LENGTH, "--sequences", 40, "--out", "results.nc")
    status, out, err = run("evaluate", "kt", "lstm", *arguments)
    assert (status, err) == (0, "")
    members = neural.load_members(run_directory)
    ensembles = {"lstm[ptw]": [members[0], members[2]], "lstm[lin]": members[3:]}
    optimum = sp.bayes_optimal(sp.Source(sp.PTW(5)))
    expected = sp.evaluate(
        {"kt": sp.KT(), **ensembles, "optimum": optimum}, sp.Source(sp.PTW(5)), LENGTH, 40
    )
    dataset = evaluation.load("results.nc")
    np.testing.assert_array_equal(dataset["regret"], expected["regret"])
    np.testing.assert_array_equal(dataset["code_length"], expected["code_length"])
    assert dataset["members"].values.tolist() == [1, 2, 2, 1]
    assert dataset.attrs["networks"]["lstm[ptw]"]["members"] == [0, 2]
    assert dataset.attrs["networks"]["lstm[lin]"]["members"] == [3, 4]
    assert dataset.attrs["networks"]["lstm[lin]"]["trained_on"] == "LIN()"

    table = table_of(out)
    assert list(table) == ["kt", "lstm[ptw]", "lstm[lin]", "optimum"]
    regret = expected["regret"].values
    best = regret[3, 0]
    for index, name in ((1, "lstm[ptw]"), (2, "lstm[lin]")):
        mean = regret[index].mean(0)
        each = (regret[index] - best).mean(1)
        bits = expected["code_length"].values[index].mean() / LENGTH
        numbers = [
            mean.mean(),
            mean.std(ddof=1) / np.sqrt(40),
            (mean - best).mean(),
            (mean - best).std(ddof=1) / np.sqrt(40),
            each.min(),
            np.median(each),
        ]
        assert table[name] == ["2", *(f"{number:.3f}" for number in numbers), f"{bits:.4f}"]
    assert table["kt"][:2] == ["1", f"{regret[0, 0].mean():.3f}"]
    assert len(table["kt"]) == 6
    assert "lstm[ptw] lstm, hidden 8, readout 1; trained on PTW(depth=4, split=0.5)" in flat(out)
    assert flat(out).count("left out: 1") == 1


def test_members_share_one_program(compilations):
    networks = networks_of(card())
    sp.evaluate({"one": networks[0]}, sp.Source(sp.PTW(5)), LENGTH, 40)
    with compilations() as compiled:
        sp.evaluate({"five": networks}, sp.Source(sp.PTW(5)), LENGTH, 40)
    assert compiled == []
    with compilations() as compiled:
        sp.evaluate({"five": networks}, sp.Source(sp.PTW(5)), LENGTH - 1, 40)
    assert compiled != []  # they would have been counted


def test_a_network_that_predicts_no_numbers_is_reported(run_directory, run):
    networks = networks_of(card())
    networks[2] = jax.tree.map(lambda leaf: leaf * np.nan, networks[2])
    neural.save_networks(run_directory / "model.safetensors", networks, card())
    arguments = ("--length", LENGTH, "--sequences", 40, "--out", "results.nc")
    status, out, err = run("evaluate", "lstm", *arguments)
    assert status == 1
    assert err.count("\n") == 1
    assert "lstm[ptw]" in err
    assert "member 2" in err
    assert "lstm[lin]" not in err
    assert "optimum" in out  # the others are not lost
    assert evaluation.load("results.nc").sizes["sequence"] == 40


def test_labels_and_references(run_directory, run):
    one, several = card(members=1), run_directory / "model.safetensors"
    neural.save_networks("one.safetensors", networks_of(one), one)
    arguments = ("one.safetensors", f"big={several}", "--reference", "big[lin]")
    status, out, _ = run("evaluate", *arguments, "--length", LENGTH, "--sequences", 40)
    assert status == 0
    assert list(table_of(out)) == ["one[ptw]", "big[ptw]", "big[lin]", "optimum"]
    assert table_of(out)["big[lin]"][3:5] == ["0.000", "0.000"]
