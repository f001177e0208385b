"""`switchpoint compress` and `decompress`: files as symbols, and the commands."""

import io
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import switchpoint as sp
from switchpoint.cli import main
from switchpoint.cli.reader.symbol_files import guess_kind, to_content, to_symbols
from switchpoint.zoo import manifest

BITS = "0110111000000001000011110111111100000001\n"


@pytest.fixture(autouse=True)
def _bits(folder):
    (folder / "bits.txt").write_text(BITS)


# --- files ----------------------------------------------------------------------------------


@given(st.binary(max_size=40), st.sampled_from(["bits", "bytes"]))
def test_any_file_is_bits_and_bytes(content, kind):
    sequence, about = to_symbols(content, kind)
    assert sequence.symbols.max(initial=0) < sequence.alphabet
    assert to_content(sequence.symbols, about) == content


@given(st.text("01 ,\n", max_size=40))
def test_any_text_of_bits_is_restored(text):
    content = text.encode()
    if set(text) & {"0", "1"}:
        assert guess_kind(content, None) == "text"
        sequence, about = to_symbols(content, "text")
        assert len(sequence.symbols) == text.count("0") + text.count("1")
        assert to_content(sequence.symbols, about) == content
    else:
        assert guess_kind(content, None) == "bytes"


@pytest.mark.parametrize(
    ("text", "alphabet", "labels"),
    [
        ("ACGTAACC\n", 4, None),
        ("up down\r\nup\r\n\r\n", None, "down,up"),
        ("0 2 1 1\n", 3, None),
        ("10;11;9", 12, None),
        ("é ü é", None, None),
    ],
)
def test_texts_of_symbols_are_restored(text, alphabet, labels):
    sequence, about = to_symbols(text.encode(), "text", alphabet, labels)
    assert to_content(sequence.symbols, about) == text.encode()


@pytest.mark.parametrize(
    ("content", "kind", "alphabet", "problem"),
    [
        (b"0 01 1", "text", 12, "--as bytes"),
        (b"0\xff1", "text", None, "byte 1"),
        (b"", "text", None, "no symbols"),
        (b"012", "text", 2, "symbol 2 at position 2"),
        (b"01", "bits", 3, "alphabet must be 2"),
    ],
)
def test_texts_that_cannot_be_restored_are_refused(content, kind, alphabet, problem):
    with pytest.raises(ValueError, match=problem):
        to_symbols(content, kind, alphabet)


# --- commands -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (BITS.encode(), []),
        (BITS.encode(), ["--prior", "lin"]),
        (BITS.encode(), ["--prior", "kt", "--alpha", "0.2"]),
        (BITS.encode(), ["--prior", "geometric", "--hazard", "0.1", "--hypotheses", "5"]),
        (BITS.encode(), ["--as", "bytes"]),
        (BITS.encode(), ["--model", "lstm-ptw"]),
        (b"GATTACA\n" * 3, ["--labels", "A,C,G,T", "--concentration", "0.3"]),
        (b"", []),
        (bytes(range(256)), []),
        (b"\x89PNG", ["--as", "bits"]),
    ],
)
def test_a_file_is_restored_byte_for_byte(folder, run, content, options):
    (folder / "x.dat").write_bytes(content)
    status, out, err = run("compress", "x.dat", *options)
    assert (status, err) == (0, "")
    assert f"x.dat: {len(content)} bytes" in out
    assert "code length" in out
    assert run("decompress", "x.dat.spz", "--out", "y.dat") == (0, "", "")
    assert (folder / "y.dat").read_bytes() == content
    assert sorted(path.name for path in folder.iterdir()) == [
        "bits.txt", "x.dat", "x.dat.spz", "y.dat",
    ]  # fmt: skip


def test_the_size_is_the_code_length(folder, run):
    symbols = (np.random.default_rng(7).random(4000) < np.repeat([0.1, 0.8], 2000)).astype(int)
    (folder / "x.txt").write_text("".join(map(str, symbols)))
    stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.PTW(12))))
    stream.extend(symbols)
    status, out, _ = run("compress", "x.txt")
    assert status == 0
    assert f"code length {stream.code_length:,.1f} bits" in out
    size = 8 * (folder / "x.txt.spz").stat().st_size
    assert size <= 1.001 * stream.code_length + 32 + 8 * 50  # and a header


def test_standard_streams(folder, capsysbinary, monkeypatch):
    assert main(["compress", "bits.txt", "--out", "x.spz"]) == 0
    for name in ("bits.txt", "-"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BITS.encode())))
        capsysbinary.readouterr()
        assert main(["compress", name, "--out", "-"]) == 0
        printed = capsysbinary.readouterr()
        assert printed.out == (folder / "x.spz").read_bytes()
        assert b"standard output: " in printed.err
    assert main(["decompress", "x.spz", "--out", "-"]) == 0
    assert capsysbinary.readouterr().out == BITS.encode()


def test_an_archive_needs_its_network(folder, run, monkeypatch):
    assert run("compress", "bits.txt", "--model", "lstm-lin", "--out", "x.spz")[0] == 0
    decompress = ("decompress", "x.spz", "--out", "y")
    assert "lstm-lin with SHA-256" in run(*decompress, "--model", "lstm-ptw")[2]
    monkeypatch.setattr(manifest, "PACKAGED", folder)
    gone = run(*decompress)[2]
    assert "lstm-lin, which is not here" in gone
    assert "--model" in gone
    assert not (folder / "y").exists()


def test_the_coder_is_an_extra(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "constriction", None)
    assert "pip install 'switchpoint[compress]'" in run("compress", "bits.txt")[2]
