"""Bad input: one line that says what is wrong, status 2, and no file written or left over."""

import re
import sys
import zlib

import jax
import numpy as np
import pytest

from switchpoint import neural, training
from switchpoint.cli import check_cost, main

NETWORK = "predict bits.txt --model"
# The command line, and a part of the message.
LINES = {
    "perdict": "Did you mean 'predict'?",
    "sample --lenght 3": "No such option --lenght; did you mean '--length'?",
    "sample --length x": "--length",
    "prior ptv": "did you mean 'ptw'?",
    "predict bits.txt --format jsn": "did you mean 'json'?",
    "evaluate kt --on lim": "did you mean 'lin'?",
    "sweep sweep.toml --executor processs": "did you mean 'processes'?",
    "evaluate lstn-ptw": "did you mean 'lstm-ptw'?",
    "reproduce --only on-distribtion": "did you mean 'on-distribution'?",
    # files
    "predict none.txt": "none.txt cannot be read (No such file",
    "predict .": "(Is a directory)",
    "predict half.npy --column 0": "column is for tables",
    "predict bits.txt --row 1": "row must be from 0 to 0",
    "predict bits.txt --out r.xlsx": "must end in .csv or .json",
    "predict bits.txt --out no/x.csv": "no/x.csv (No such file or directory)",
    "predict bits.txt --plot folder.png": "plot cannot be written",
    "predict bits.txt --format xml": "format must be one of csv, json",
    "sample --out x.txt": "out must end in .npz or .csv",
    "sample --out bits.txt/x.csv": "(Not a directory)",
    "sample --out folder.csv": "folder.csv (Is a directory)",
    "prior lin --plot x.gif": "plot must end in",
    # priors and segments
    "predict bits.txt --depth 4": "length must be at most 16",
    "predict bits.txt --prior tree": "prior must be one of",
    "predict bits.txt --prior lin --hazard 0.1": "hazard is not a parameter",
    "predict bits.txt --prior geometric": "--hazard on the command line",
    "predict bits.txt --alphabet 1": "alphabet must be at least 2",
    "predict bits.txt --alpha -1": "alpha must be a finite number above 0",
    "sample --alphabet 3 --alpha 1": "alpha is for an alphabet",
    "sample --concentration 1": "concentration is for alphabets above",
    "sample --depth 0": "depth must be",
    "sample --length 0": "length must be",
    "sample --seed -1": "seed must be",
    "prior regular": "prior 'regular' needs period: give --period",
    "prior lin --start 256": "start must be from 0 to 255",
    "prior lin --length 5000": "length must be at most 4096",
    "prior renewal --pmf pmf.txt": "pmf must sum to one",
    "prior renewal --pmf word.txt": "word.txt: pmf must be numbers",
    "prior renewal --pmf score.txt": "numbers, got '0_1'",
    "prior renewal --pmf none.txt": "none.txt cannot be read",
    "prior lin --pmf pmf.txt": "pmf is not a parameter of prior",
    # networks
    f"{NETWORK} none": "there is no file or directory none",
    f"{NETWORK} .": "holds no trained network",
    f"{NETWORK} cut.safetensors": "cut.safetensors is not a switchpoint network",
    f"{NETWORK} bits.txt": "bits.txt is not a switchpoint network",
    f"{NETWORK} lstm --member 5": "member must be from 0 to 1, got 5",
    f"{NETWORK} lstm --member -1": "member must be from 0 to 1, got -1",
    "predict bits.txt --member 0": "member is for the networks",
    "predict trits.txt --model lstm": "symbol 2 at position 2 is outside the alphabet 0..1",
    **{
        f"{NETWORK} lstm --{name} 2": f"{name} cannot be given with --model"
        for name in ("prior", "depth", "period", "pmf", "alphabet", "concentration")
    },
    "evaluate ctw": "predictor must be one of ptw, lin",
    "evaluate none": "zoo or the path of trained networks, got 'none'",
    "evaluate =lstm": "a name must stand before =",
    "evaluate x=cut.safetensors": "cut.safetensors is not a switchpoint network",
    "evaluate lstm lstm/model.safetensors": "there is more than one predictor lstm[ptw]",
    "evaluate lstm --alphabet 3": "'lstm[ptw]' must have the alphabet of the source, 3, got 2",
    "evaluate frozen.safetensors": "all members in frozen",
    "evaluate lstm --reference lstm": "lstm[ptw], lstm[lin], got",
    "evaluate kt --reference x": "reference must be one",
    "evaluate regular": "prior 'regular' needs period",
    "evaluate kt --period 4": "period is a parameter of regular, which is neither",
    "evaluate kt --out x.csv": "out must end in .nc",
    # training
    "train": "--out",
    "train --out run --config bad.toml": "bad.toml, line 1: unknown field 'hiden'",
    "train --out run --config deep.toml": "deep.toml, line 2: depth must be",
    "train --out run --hidden 0": "hidden must be greater than or equal to 1, got 0",
    "train --out run --hidden many": "--hidden",
    "train --out run --hiden 5": "'--hidden'",
    "train --out run --model lstmm": "got 'lstmm'; did you mean 'lstm'?",
    "train --out run --prior ptv": "got 'ptv'; did you mean 'ptw'?",
    "train --out run --minutes 0": "minutes must be a finite number above 0, got 0",
    "train --out run --kernels fast": "auto, fused, plain, got 'fast'",
    "train --out run --depth 100000000000": "at most 62, got 100000000000",
    "train --out bits.txt": "--out",
    # executors
    **{
        f"{command} {options}": words
        for command in ("reproduce --scale quick --only memory", "sweep sweep.toml")
        for options, words in {
            "--out bits.txt/out": "bits.txt/out",
            "--executor slurm": "'slurm'",
            "--executor local --jobs 3": "jobs",
            "--ray-address 10.0.0.1:6379": "ray-address",
            "--executor ray --ray-address nowhere": "'nowhere'",
            "--executor ray": "pip install 'switchpoint[ray]'",
        }.items()
    },
    # archives; other.spz has other symbols, as if this machine had predicted something else
    "decompress other.spz": "other.spz is intact, but",
    "decompress cut.spz": "cut.spz is truncated",
    "decompress odd.spz": "odd.spz is truncated",
    "decompress foreign.spz": "foreign.spz is not an archive",
    "decompress bits.txt.spz": "bits.txt exists",
    "decompress bits.txt": "does not end in .spz",
    "decompress bits.txt.spz --out z --model lstm-ptw": "without a network",
    "compress bits.txt": "bits.txt.spz exists",
    "compress none.txt": "none.txt cannot be read",
    "compress .": ". cannot be read (Is a directory)",
    "compress trits.txt --alphabet 2": "symbol 2 at position 2 is outside the alphabet",
    "compress bits.txt --out z.spz --as words": "--as must be one of text, bits, bytes",
    "compress bits.txt --out z.spz --prior ppm": "got 'ppm'",
    "compress bits.txt --out z.spz --prior kt --hazard 0.1": "hazard is not a parameter of kt",
    "compress bits.txt --out z.spz --model lstm-ptw --prior lin": "prior cannot be given",
    "compress bits.txt --out z.spz --member 0": "--member is for",
    "compress bits.txt --out no/z.spz": "out cannot be written",
    "compress bits.txt --out z.spz --labels a,b": "bits.txt: symbol '0' at position 0",
}
# Work that would take too long, or more than 4 GiB.
TOO_MUCH = {
    "sample --batch 1000000000": "1000000000 x 256 .*at most 33554432; .*--seed",
    "sample --alphabet 100000 --length 64": "alphabet must be at most 65536, got 100000",
    "sample --depth 100000000000": "depth must be at most 62, got 100000000000",
    "sample --length 1000000000": "1 x 1000000000 .*at most 33554432",
    "prior ptw --depth 100000000000": "depth must be at most 62",
    "predict trits.txt --alphabet 1000000000": "alphabet must be at most 65536",
    "predict long.txt --prior lin": r"20002 symbols are too many for LIN\(\).*ptw has no",
    "evaluate lin --length 20002": r"20002 symbols are too many for LIN\(\)",
    "evaluate kt --on lin --length 20002": r"20002 symbols are too many for LIN\(\)",
    "evaluate kt --on lin --alphabet 11 --length 18000": "at most 17320 of an alphabet",
    "evaluate kt --sequences 1000000000": "1000000000 sequences .*GiB of memory",
    "evaluate kt --alphabet 100000": "alphabet must be at most 65536",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of all kinds, most of them damaged."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "folder.csv").mkdir()
    (folder / "folder.png").mkdir()
    (folder / "lstm").mkdir()
    texts = {
        "bits.txt": "01101110000000010000111101111111",
        "trits.txt": "0 1 2 0",
        "word.txt": "0 zero",
        "pmf.txt": "0.5 0.4",
        "score.txt": "0_1 0",
        "long.txt": "01" * (check_cost.MAX_BITS // 2 + 1),
        "bad.toml": "hiden = 32",
        "deep.toml": "steps = 5\ndepth = 63",
        "sweep.toml": "steps = 10\nwarmup = 0\n[sweep]\nlearning_rate = [0.1]\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    np.save(folder / "half.npy", np.array([0, 0.5]))

    options = {"hidden": 8, "readout": 1}
    members = [{"prior": prior, "excess": 1.0, "diverged": False} for prior in ("ptw", "lin")]
    card = {"model": "lstm", "alphabet": 2, "length": 16, "options": options, "members": members}
    network = neural.network_from_name("lstm", 2, 16, jax.random.key(0), **options)
    neural.save_networks(folder / "lstm/model.safetensors", [network] * 2, card)
    frozen = card | {"members": [{"prior": "ptw", "diverged": True}]}
    neural.save_networks(folder / "frozen.safetensors", [network], frozen)
    whole = (folder / "lstm/model.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(whole[:-9])

    assert main(["compress", str(folder / "bits.txt")]) == 0
    data = (folder / "bits.txt.spz").read_bytes()
    archives = {
        "cut": data[:-9],
        "odd": data[:20] + bytes([data[20] ^ 64]) + data[21:],
        "foreign": b"PK\x03\x04" + bytes(50),
        "other": data[:-6] + b"\1\2" + zlib.crc32(data[:-6] + b"\1\2").to_bytes(4, "little"),
    }
    for name, content in archives.items():
        (folder / f"{name}.spz").write_bytes(content)
    return folder


def refusal(run, files, monkeypatch, line):
    """The one line on standard error; the files stay as they are."""
    monkeypatch.chdir(files)
    monkeypatch.setattr(training, "use_all_cores", lambda: None)
    monkeypatch.setitem(sys.modules, "ray", None)
    before = sorted((path, path.stat().st_mtime_ns) for path in files.rglob("*.*"))
    status, out, err = run(*line.split())
    assert status == 2
    assert out == "" or line.startswith(("reproduce", "sweep"))  # which show their plan first
    assert err.startswith("switchpoint: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert sorted((path, path.stat().st_mtime_ns) for path in files.rglob("*.*")) == before
    return err


@pytest.mark.parametrize("line", LINES)
def test_one_line_says_what_is_wrong(run, files, monkeypatch, line):
    assert LINES[line] in refusal(run, files, monkeypatch, line)


@pytest.mark.parametrize("line", TOO_MUCH)
def test_too_much_is_refused_with_the_number_and_the_limit(run, files, monkeypatch, line):
    monkeypatch.setattr(check_cost, "memory_limit", lambda: 2**32)
    assert re.search(TOO_MUCH[line], refusal(run, files, monkeypatch, line))
