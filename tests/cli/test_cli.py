"""The command line: what goes in comes out, and bad input costs one line and nothing else."""

import csv
import io
import json
import os
import re
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import pytest

import switchpoint as sp
from switchpoint.cli import check_cost, sequence_report
from switchpoint.cli.app import PANELS, load_command
from switchpoint.cli.prior import length_law, shown_lengths
from switchpoint.cli.reader import read_symbols
from switchpoint.neural.networks.recurrent import Recurrent
from switchpoint.neural.networks.transformer import Transformer

LENGTH = 32  # always the same, so that one compilation serves all tests
BITS = "01101110000000010000111101111111"


@pytest.fixture
def bits(folder):
    path = folder / "bits.txt"
    path.write_text(" ".join(BITS) + "\n")
    return path


def give_stdin(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def symbols_of(rows):
    return [int(row["symbol"]) for row in rows]


def read_csv(text):
    return list(csv.DictReader(io.StringIO(text)))


# --- sample ---------------------------------------------------------------------------------


def expected_draw(segment, seed, batch):
    """The arrays of the sequences that are drawn."""
    draw = sp.Source(sp.PTW(5), segment).sample(jax.random.key(seed), batch, LENGTH)
    return {name: np.asarray(getattr(draw, name)) for name in ("symbols", "probs", "switches")}


@pytest.mark.parametrize(
    ("suffix", "segment"),
    [
        ("npz", sp.Bernoulli()),
        ("csv", sp.Categorical(3)),
        ("", sp.Bernoulli()),
        ("", sp.Categorical(12)),
    ],
)
def test_sample(folder, run, monkeypatch, suffix, segment):
    command = ["sample", "--length", LENGTH, "--batch", 5, "--seed", 7]
    command += ["--alphabet", segment.alphabet, *(["--out", f"draws.{suffix}"] if suffix else [])]
    status, out, err = run(*command)
    assert (status, err) == (0, "")
    draw = expected_draw(segment, 7, 5)
    if suffix == "npz":
        with np.load(folder / "draws.npz", allow_pickle=False) as saved:
            for name, array in draw.items():
                np.testing.assert_array_equal(saved[name], array)
            assert saved["probs"].dtype == np.float32
            assert json.loads(str(saved["description"])) == {
                "prior": "PTW(depth=5, split=0.5)",
                "segment": "Bernoulli(alpha=0.5, beta=0.5)",
                "seed": 7,
                "version": sp.__version__,
            }
    elif suffix == "csv":
        table = pd.read_csv(folder / "draws.csv", dtype=np.float32)
        assert list(table) == ["sequence", "t", "symbol", "switch", "p0", "p1", "p2"]
        assert table[["sequence", "t"]].to_numpy().tolist() == [*map(list, np.ndindex(5, LENGTH))]
        np.testing.assert_array_equal(table["symbol"], draw["symbols"].ravel())
        np.testing.assert_array_equal(table["switch"], draw["switches"].ravel())
        np.testing.assert_array_equal(table[["p0", "p1", "p2"]], draw["probs"].reshape(-1, 3))
    else:
        separator = "" if segment.alphabet == 2 else " "
        assert out.splitlines() == [separator.join(map(str, row)) for row in draw["symbols"]]
        give_stdin(monkeypatch, out)
        symbols = read_symbols(Path("-"), segment.alphabet).symbols
        np.testing.assert_array_equal(symbols, draw["symbols"].ravel())


# --- predict --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "source"),
    [("ptw", sp.Source(sp.PTW(5))), ("lin", sp.Source(sp.LIN(), sp.Categorical(3)))],
    ids=["ptw", "lin"],
)
def test_predict_is_the_bayes_optimum(folder, run, key, name, source):
    alphabet, symbols = source.segment.alphabet, np.asarray(source.sample(key, 2, LENGTH).symbols)
    np.save("x.npy", symbols)
    command = ["predict", "x.npy", "--row", 1, "--alphabet", alphabet, "--prior", name]
    status, out, err = run(*command, "--out", "rows.csv", "--plot", "x.png")
    assert (status, err) == (0, "")
    optimum, symbols = sp.bayes_optimal(source), symbols[1]
    posterior, log_probs = optimum.posterior(symbols), optimum.log_probs(symbols)
    rows, names = pd.read_csv("rows.csv", dtype=np.float32), [f"p{k}" for k in range(alphabet)]
    assert list(rows) == ["t", "symbol", *names, "switch_filtered", "switch_smoothed"]
    np.testing.assert_array_equal(rows["t"], np.arange(LENGTH))
    np.testing.assert_array_equal(rows["symbol"], symbols)
    np.testing.assert_allclose(rows[names], np.exp(log_probs), rtol=1e-6)
    np.testing.assert_array_equal(rows["switch_filtered"], posterior.switch_filtered)
    np.testing.assert_array_equal(rows["switch_smoothed"], posterior.switch_smoothed)
    kt = sp.KT(source.segment)
    for each in (log_probs, kt.log_probs(symbols)):
        assert f"{float(sp.code_length(symbols, each).sum()):.2f} bits" in out
    assert (folder / "x.png").read_bytes().startswith(b"\x89PNG")


def changed_at(position, length, seed=1):
    rng = np.random.default_rng(seed)
    return np.where(
        np.arange(length) < position, rng.random(length) < 0.1, rng.random(length) < 0.9
    )


@pytest.mark.slow
def test_without_a_prior_predict_finds_the_change(folder, run):
    (folder / "one.txt").write_text("".join(map(str, changed_at(75, 200).astype(int))))
    status, out, _ = run("predict", "one.txt", "--out", "rows.json")
    assert status == 0
    summary = json.loads((folder / "rows.json").read_text())["summary"]
    assert "Geometric" in summary["prior"]
    (switch,) = summary["switches"]
    assert abs(switch["position"] - 75) <= 3
    assert switch["begin"] <= 75 <= switch["end"]
    assert switch["interval_probability"] >= 0.9
    assert switch["end"] - switch["begin"] < 12
    pmf = summary["switch_count_pmf"]
    assert summary["no_switch_probability"] == pmf[0] < 1e-6
    assert max(range(len(pmf)), key=pmf.__getitem__) == 1
    assert sum(pmf) == pytest.approx(1, abs=1e-4)
    lengths = summary["bits_by_prior"]
    assert set(lengths) == {"geometric", "lin", "uniform", "ptw", "kt"}
    assert list(lengths.values()) == sorted(lengths.values())
    assert lengths["geometric"] == pytest.approx(summary["bits"], abs=0.2)  # two digits of hazard
    assert lengths["kt"] == pytest.approx(summary["kt_bits"], abs=1e-3)
    shown = " ".join(out.split())
    assert f"{next(iter(lengths))} {next(iter(lengths.values())):.1f}, " in shown
    assert f"at {switch['position']}, " in shown
    assert "no switch: " in shown


def test_predict_writes_json(bits, folder, run):
    status, out, err = run("predict", bits, "--prior", "ptw", "--out", "rows.json")
    assert (status, err) == (0, "")
    assert "plain KT" in out
    answer = json.loads((folder / "rows.json").read_text())
    assert symbols_of(answer["rows"]) == [int(bit) for bit in BITS]
    summary = answer["summary"]
    posterior = sp.bayes_optimal(sp.Source(sp.PTW(5))).posterior(np.array(list(BITS), int))
    assert summary["symbols"] == LENGTH
    assert summary["prior"] == "PTW(depth=5, split=0.5)"
    assert summary["bits"] == pytest.approx(-float(posterior.log_marginal) / np.log(2), rel=1e-5)
    assert summary["map_switches"] == np.flatnonzero(posterior.map_switches).tolist()
    assert summary["map_log_prob"] == pytest.approx(float(posterior.map_log_prob), rel=1e-6)
    status, out, _ = run("predict", bits, "--prior", "ptw", "--format", "json")
    assert (status, json.loads(out)) == (0, answer)
    assert run("predict", bits, "--prior", "ptw", "--format", "csv", "--out", "rows.json")[0] == 0
    assert (folder / "rows.json").read_text().startswith("t,symbol,p0,p1")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("suffix", "column"), [("npz", None), ("csv", "symbol")])
def test_the_files_of_sample_are_read(run, suffix, column):
    out = Path(f"draws.{suffix}")
    assert run("sample", "--length", LENGTH, "--batch", 5, "--seed", 7, "--out", out)[0] == 0
    symbols = read_symbols(out, column=column, row=1).symbols
    np.testing.assert_array_equal(symbols, expected_draw(sp.Bernoulli(), 7, 5)["symbols"][1])
    with pytest.raises(ValueError, match=rf"{out}: .*5 sequences, choose one with --row"):
        read_symbols(out, column=column)


# --- prior ----------------------------------------------------------------------------------


def test_prior_prints_its_law(folder, run):
    status, out, err = run("prior", "ptw", "--length", LENGTH, "--plot", "ptw.png")
    assert (status, err) == (0, "")
    assert "PTW(depth=5, split=0.5)" in out
    assert "2.5 expected" in out  # depth / 2
    assert "█" in out
    assert (folder / "ptw.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "options", ["lin", "regular --period 5", "uniform", "geometric --hazard 0.1"]
)
def test_every_prior_has_a_law(run, options):
    status, out, _ = run("prior", *options.split(), "--length", 16)
    assert status == 0
    assert "hazard" in out
    assert "others" in out


def test_prior_reads_a_pmf(folder, run):
    (folder / "pmf.txt").write_text("0, 0.25\n0.75\n")
    status, out, _ = run("prior", "renewal", "--pmf", "pmf.txt", "--length", LENGTH)
    assert status == 0
    assert "Renewal(pmf=(0.0, 0.25, 0.75))" in out


def test_length_law_of_a_start():
    law = length_law(sp.PTW(5), 8, LENGTH)
    pmf = law["P(L = r)"]
    np.testing.assert_allclose(pmf[[1, 2, 4, 8]], [1 / 8, 1 / 8, 1 / 4, 1 / 2], rtol=1e-6)
    np.testing.assert_allclose(pmf.sum(), 1, rtol=1e-6)
    assert law["P(L >= r)"][1] == 1
    assert shown_lengths(law) == list(range(1, 9))
    assert shown_lengths(length_law(sp.PTW(5), 0, LENGTH)) == [1, 2, 4, 8, 16, 32]
    assert shown_lengths(length_law(sp.RegularPeriodic(20), 0, LENGTH)) == [1, 2, 4, 8, 16, 20]


# --- costs ----------------------------------------------------------------------------------


def test_long_predictions_are_refused_by_memory(bits, run, monkeypatch):
    monkeypatch.setattr(check_cost, "memory_limit", lambda: 2**27)
    status, _, err = run("predict", bits, "--alphabet", 60000)
    assert status == 2
    assert all(part in err for part in ("32 symbols", "alphabet of 60000", "0.179 GiB"))
    transformer, lstm = (
        eqx.filter_eval_shape(make, jax.random.key(0))
        for make in (
            lambda key: Transformer(2, key=key, layers=2),
            lambda key: Recurrent(2, "lstm", key=key, hidden=8),
        )
    )
    with pytest.raises(ValueError, match=r"200000 symbols for this network"):
        check_cost.check_network(transformer, 200_000)
    check_cost.check_network(lstm, 10**9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_a_long_sequence_in_blocks_is_predicted_as_a_whole(kind, key):
    network = (
        Transformer(2, key=key, layers=2)
        if kind == "transformer"
        else Recurrent(2, "lstm", key=key, hidden=8)
    )
    symbols = np.asarray(jax.random.bernoulli(key, 0.3, (LENGTH,)), np.int32)
    blocks = sequence_report.log_probs_in_blocks(network, symbols, block=12)
    np.testing.assert_allclose(blocks, network.log_probs(symbols), atol=2e-5)


# --- interrupts and files --------------------------------------------------------------------


def test_a_failed_write_keeps_the_previous_file(folder, bits, run, monkeypatch):
    (folder / "rows.csv").write_text("before")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    status, _, err = run("predict", bits, "--out", "rows.csv")
    assert status == 2
    assert err.count("\n") == 1
    assert all(part in err for part in ("out", "rows.csv", "No space left on device"))
    assert (folder / "rows.csv").read_text() == "before"
    assert sorted(path.name for path in folder.iterdir()) == ["bits.txt", "rows.csv"]


# --- the whole ------------------------------------------------------------------------------


def test_the_help_has_every_command_in_its_panel(run):
    printed = run("--help")[1]
    panels = [re.findall(r"^│ ([a-z-]+) ", panel, re.M) for panel in printed.split("╭─")[2:]]
    assert panels == [list(commands) for commands in PANELS.values()]


def test_the_commands_that_are_shown_without_arguments_run(run, monkeypatch):
    shown = re.findall(r"^    (.+)$", run()[1], re.MULTILINE)
    assert [line.split(" | ")[-1].split()[1] for line in shown] == ["detect", "watch", "reproduce"]
    for line, part in zip(shown, ("1 change point", '"event": "alarm"'), strict=False):
        values, command = line.split(" | switchpoint ")
        give_stdin(monkeypatch, "\n".join(values.split()[2:]))
        status, out, _ = run(*command.split())
        assert status == 0
        assert part in out


def test_the_help_of_a_command_begins_with_its_summary_and_shows_its_use():
    for panel in PANELS.values():
        for name, summary in panel.items():
            command = load_command(name)
            assert not [each.name for each in command.params if "Undefined" in str(each.help)]
            text = " ".join(command.help.split())
            assert text.startswith(f"{summary} "), name
            example = text.partition("For example:")[2]
            assert f" {name} " in f"{example} " or not example, name
