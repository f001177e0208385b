"""What costs too much is refused before the work, and much is done in pieces."""

import csv
from pathlib import Path

import jax
import numpy as np
import pytest

import switchpoint as sp
from switchpoint.cli import check_cost, main, sequence_report
from switchpoint.neural.recurrent import Recurrent
from switchpoint.neural.transformer import Transformer

LENGTH = 32


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bits.txt").write_text("0 1 " * (LENGTH // 2))
    return tmp_path


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("sample --batch 1000000000", ["1000000000 x 256", "at most 5000000000 symbols"]),
        ("sample --alphabet 100000 --length 64", ["alphabet must be at most 65536, got 100000"]),
        ("sample --depth 100000000000", ["depth must be at most 62, got 100000000000"]),
        ("prior ptw --depth 100000000000", ["depth must be at most 62"]),
        ("sample --length 1000000000", ["1 x 1000000000", "GiB of memory", "(4 GiB)"]),
        ("sample --batch 2000000 --out x.npz", ["2000000 x 256", ".npz", "GiB of memory"]),
        ("predict bits.txt --alphabet 1000000000", ["alphabet must be at most 65536"]),
        ("evaluate kt --sequences 1000000000", ["1000000000 sequences", "GiB of memory"]),
        ("evaluate kt --alphabet 100000", ["alphabet must be at most 65536"]),
        ("evaluate kt --on lin --alphabet 11 --length 18000", ["at most 17320 of an alphabet"]),
    ],
)
def test_too_much_is_refused_with_the_number_and_the_limit(command, told, capsys, monkeypatch):
    monkeypatch.setattr(check_cost, "memory_limit", lambda: 2**32)
    assert main(command.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert all(part in err for part in told), err
    assert not Path("x.npz").exists()


def test_long_predictions_are_refused_by_memory(capsys, monkeypatch):
    arguments = ["predict", "bits.txt", "--alphabet", "60000"]
    monkeypatch.setattr(check_cost, "memory_limit", lambda: 2**27)
    assert main(arguments) == 2
    assert (
        "32 symbols of an alphabet of 60000 would take about 0.179 GiB" in capsys.readouterr().err
    )
    assert main([*arguments, "--prior", "lin", "--alphabet", "10000000"]) == 2
    with pytest.raises(ValueError, match=r"200000 symbols for this network"):
        check_cost.check_network(Transformer(2, key=jax.random.key(0), layers=2), 200_000)
    check_cost.check_network(Recurrent(2, "lstm", key=jax.random.key(0), hidden=8), 10**9)


def test_the_limit_is_half_of_the_memory(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("1000000\n")
    monkeypatch.setattr(check_cost, "_CGROUP_LIMIT", tmp_path / "memory.max")
    assert check_cost.memory_limit() == 500_000
    (tmp_path / "memory.max").write_text("max\n")
    assert check_cost.memory_limit() > 2**27


@pytest.mark.parametrize("suffix", ["csv", "npz", ""])
def test_many_sequences_are_drawn_in_pieces(capsys, monkeypatch, suffix):
    monkeypatch.setattr(check_cost, "PIECE", 2 * LENGTH * 2)
    command = ["sample", "--length", str(LENGTH), "--batch", "5", "--seed", "3"]
    assert main([*command, *(["--out", f"x.{suffix}"] if suffix else [])]) == 0
    key, source = jax.random.key(3), sp.Source(sp.PTW(5))
    draws = [source.sample(jax.random.fold_in(key, i), 2, LENGTH) for i in range(3)]
    symbols = np.concatenate([draw.symbols for draw in draws])[:5]
    if suffix == "csv":
        rows = list(csv.DictReader(Path("x.csv").read_text().splitlines()))
        places = [(int(row["sequence"]), int(row["t"])) for row in rows]
        assert places == list(np.ndindex(5, LENGTH))
        assert [int(row["symbol"]) for row in rows] == symbols.ravel().tolist()
    elif suffix == "npz":
        with np.load("x.npz") as saved:
            np.testing.assert_array_equal(saved["symbols"], symbols)
            np.testing.assert_array_equal(
                saved["probs"], np.concatenate([draw.probs for draw in draws])[:5]
            )
            assert saved["switches"].shape == (5, LENGTH)
    else:
        printed = capsys.readouterr().out.splitlines()
        assert printed == ["".join(map(str, row)) for row in symbols.tolist()]


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_a_long_sequence_in_blocks_is_predicted_as_a_whole(kind, key, monkeypatch):
    network = (
        Transformer(2, key=key, layers=2)
        if kind == "transformer"
        else Recurrent(2, "lstm", key=key, hidden=8)
    )
    symbols = np.asarray(jax.random.bernoulli(key, 0.3, (LENGTH,)), np.int32)
    monkeypatch.setattr(sequence_report, "NETWORK_BLOCK", 12)
    blocks = sequence_report.log_probs_in_blocks(network, symbols)
    np.testing.assert_allclose(blocks, network.log_probs(symbols), atol=2e-5)
