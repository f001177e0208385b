"""`switchpoint compress` and `decompress`: files as symbols, and the commands."""

import io
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import switchpoint as sp
from switchpoint.cli import main
from switchpoint.cli.reader.symbol_files import guess_kind, to_content, to_symbols

BITS = "0110111000000001000011110111111100000001\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bits.txt").write_text(BITS)
    return tmp_path


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


def run(capsys, *arguments):
    """The exit status of a command, and what it printed."""
    status = main(list(arguments))
    printed = capsys.readouterr()
    return status, " ".join((printed.out + printed.err).replace("│", " ").split())


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
def test_a_file_is_restored_byte_for_byte(folder, capsys, content, options):
    (folder / "x.dat").write_bytes(content)
    status, printed_text = run(capsys, "compress", "x.dat", *options)
    assert status == 0, printed_text
    assert f"x.dat: {len(content)} bytes" in printed_text
    assert "code length" in printed_text
    assert run(capsys, "decompress", "x.dat.spz", "--out", "y.dat") == (0, "")
    assert (folder / "y.dat").read_bytes() == content
    assert sorted(path.name for path in folder.iterdir()) == [
        "bits.txt", "x.dat", "x.dat.spz", "y.dat",
    ]  # fmt: skip


def test_the_size_is_the_code_length(folder, capsys):
    symbols = (np.random.default_rng(7).random(4000) < np.repeat([0.1, 0.8], 2000)).astype(int)
    (folder / "x.txt").write_text("".join(map(str, symbols)))
    stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.PTW(12))))
    stream.extend(symbols)
    status, printed_text = run(capsys, "compress", "x.txt")
    assert status == 0
    assert f"code length {stream.code_length:,.1f} bits" in printed_text
    size = 8 * (folder / "x.txt.spz").stat().st_size
    assert size <= 1.001 * stream.code_length + 32 + 8 * 50  # and a header


def test_standard_streams(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BITS.encode())))
    assert main(["compress", "-", "--out", "x.spz"]) == 0
    capsys.readouterr()
    assert main(["decompress", "x.spz", "--out", "-"]) == 0
    assert capsys.readouterr().out == BITS
    del folder


def test_an_archive_on_standard_output(folder, capsysbinary):
    assert main(["compress", "bits.txt", "--out", "x.spz"]) == 0
    capsysbinary.readouterr()
    assert main(["compress", "bits.txt", "--out", "-"]) == 0
    printed = capsysbinary.readouterr()
    assert printed.out == (folder / "x.spz").read_bytes()
    assert b"standard output: " in printed.err


def refused(capsys, *arguments, files):
    """The message of a refusal, which is one line; no file was written or left over."""
    status = main(list(arguments))
    printed = capsys.readouterr()
    assert status == 2, printed
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == sorted(files)
    return printed.err


def test_bad_input_is_one_line_and_writes_nothing(folder, capsys):
    assert main(["compress", "bits.txt"]) == 0
    data = (folder / "bits.txt.spz").read_bytes()
    for name, content in {
        "cut.spz": data[:-9],
        "odd.spz": data[:20] + bytes([data[20] ^ 64]) + data[21:],
        "foreign.spz": b"PK\x03\x04" + bytes(50),
        "other.spz": data[:-6] + b"\1\2" + zlib.crc32(data[:-6] + b"\1\2").to_bytes(4, "little"),
        "trits.txt": b"0 1 2 0\n",
    }.items():
        (folder / name).write_bytes(content)
    capsys.readouterr()
    files = {path.name for path in folder.iterdir()}

    for command, problem in {
        # A code with other symbols, as if this machine had predicted something else.
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
    }.items():
        assert problem in refused(capsys, *command.split(), files=files)


def test_an_archive_needs_its_network(folder, capsys, monkeypatch):
    from switchpoint.zoo import manifest

    assert main(["compress", "bits.txt", "--model", "lstm-lin", "--out", "x.spz"]) == 0
    capsys.readouterr()
    files = {path.name for path in folder.iterdir()}
    wrong = refused(capsys, "decompress", "x.spz", "--out", "y", "--model", "lstm-ptw", files=files)
    assert "lstm-lin with SHA-256" in wrong
    monkeypatch.setattr(manifest, "PACKAGED", folder)
    gone = refused(capsys, "decompress", "x.spz", "--out", "y", files=files)
    assert "lstm-lin, which is not here" in gone
    assert "--model" in gone


def test_the_coder_is_an_extra(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "constriction", None)
    printed_text = refused(capsys, "compress", "bits.txt", files=["bits.txt"])
    assert "pip install 'switchpoint[compress]'" in printed_text
