"""Lossless compression: the coder, the archive, and the commands."""

import io
import json
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import switchpoint as sp
from switchpoint.cli import main
from switchpoint.cli.reader.symbol_files import kind_of, to_content, to_symbols
from switchpoint.streams import archive, coding
from switchpoint.streams.archive import Archive, unpack

BITS = "0110111000000001000011110111111100000001\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bits.txt").write_text(BITS)
    return tmp_path


def source(prior, alphabet=2, **options):
    segment = sp.Bernoulli(**options) if alphabet == 2 else sp.Categorical(alphabet, **options)
    return sp.Source(prior, segment)


PREDICTORS = [
    sp.KT(),
    sp.KT(sp.Categorical(256, 0.1)),
    sp.bayes_optimal(source(sp.PTW(40))),
    sp.bayes_optimal(source(sp.PTW(6, 0.1), alpha=0.01, beta=3.0)),
    sp.bayes_optimal(source(sp.PTW(8), 5)),
    sp.bayes_optimal(source(sp.LIN())),
    sp.bayes_optimal(source(sp.Geometric(0.02), 3), 10),
    sp.bayes_optimal(source(sp.RegularPeriodic(7))),
    sp.bayes_optimal(source(sp.RandomUniform(20), 26)),
]


def random_symbols(rng, alphabet, length):
    """A few segments, from nearly constant to nearly uniform."""
    parts = []
    while sum(map(len, parts)) < length:
        law = rng.dirichlet(np.full(alphabet, 10 ** rng.uniform(-2, 1)) + 1e-9)
        parts.append(rng.choice(alphabet, rng.integers(1, length + 1), p=law))
    return np.concatenate([np.zeros(0, int), *parts])[:length].astype(np.int32)


# --- the coder ------------------------------------------------------------------------------


def test_a_thousand_round_trips_in_no_more_than_the_code_length():
    rng = np.random.default_rng(18)
    for trial in range(1000):
        predictor = PREDICTORS[trial % len(PREDICTORS)]
        length = int(rng.integers(0, 8 if trial % 20 else 60))
        symbols = random_symbols(rng, predictor.alphabet, length)
        stream = sp.Stream(predictor)
        code = coding.encode(stream, symbols)
        assert stream.position == len(symbols)
        found = coding.decode(sp.Stream(predictor), code, len(symbols))
        np.testing.assert_array_equal(found, symbols)
        assert 8 * len(code) <= 1.001 * stream.code_length + 32


@pytest.mark.parametrize("share", [0.0, 0.003, 0.5])
def test_a_long_sequence_has_its_code_length(share):
    """In several blocks; where almost nothing is to be said, a loss at every symbol would show."""
    grid = coding.Grid(24, 2**10)
    symbols = (np.random.default_rng(3).random(2**12 - 5) < share).astype(np.int32)
    stream = sp.Stream(sp.KT())
    code = coding.encode(stream, symbols, grid)
    assert 8 * len(code) <= 1.001 * stream.code_length + 32
    assert 8 * len(code) >= stream.code_length - 8
    found = coding.decode(sp.Stream(sp.KT()), code, len(symbols), grid)
    np.testing.assert_array_equal(found, symbols)


class Elsewhere:
    """A stream on a machine whose arithmetic errs by up to `error`."""

    def __init__(self, predictor, error):
        self.stream, self.error, self.rng = sp.Stream(predictor), error, np.random.default_rng(0)

    def predict(self):
        log_probs = self.stream.predict()
        return log_probs + self.rng.uniform(-self.error, self.error, len(log_probs))

    def update(self, symbol):
        return self.stream.update(symbol)


@pytest.mark.parametrize(
    ("number", "grid"), [(1, "exact"), (2, "exact"), (2, "network"), (6, "exact")]
)
def test_machines_that_round_differently_decode_the_same(number, grid):
    grid = coding.GRIDS[grid]
    predictor = PREDICTORS[number]
    symbols = random_symbols(np.random.default_rng(5), predictor.alphabet, 2000)
    code = coding.encode(sp.Stream(predictor), symbols, grid)
    # Differences of ln P of e change sums of probabilities by at most e.
    elsewhere = Elsewhere(predictor, 0.9 * grid.tolerance)
    found = coding.decode(elsewhere, code, len(symbols), grid)
    np.testing.assert_array_equal(found, symbols)
    # Much more than the margin is too much, or else the test above would mean nothing.
    elsewhere = Elsewhere(predictor, 2.0 ** -(grid.precision + 2))
    found = coding.decode(elsewhere, code, len(symbols), grid)
    assert (found != symbols).any()


def test_a_margin_is_found_for_simple_fractions():
    """KT predicts a quarter, two thirds and so on; rounding to nearest would be a toss-up."""
    sums = np.array([[0.0] * 3, [(2**24 - 2) * p for p in (0.25, 0.5, 0.75)]])
    symbols = np.zeros(3, int)
    index, (low, high) = coding._best_offset(sums, symbols, 2, coding.EXACT)
    assert index == 0
    assert low.tolist() == [0, 0, 0]
    np.testing.assert_allclose(high / 2**24, [0.25, 0.5, 0.75], atol=2e-7)
    # One more symbol on the edge of the first offset: another is taken.
    edge = 5 - coding._offset(0)
    sums, symbols = np.array([[0.0] * 4, [*sums[1], edge]]), np.zeros(4, int)
    assert coding._best_offset(sums, symbols, 2, coding.EXACT)[0] == 1


@pytest.mark.parametrize("alphabet", [2, 3, 256])
def test_constriction_takes_integer_shares_exactly(alphabet):
    """One step of asymmetric numeral systems, written out."""
    import constriction

    rng = np.random.default_rng(alphabet)
    inner = np.sort(rng.choice(np.arange(1, 2**24), alphabet - 1, replace=False)).tolist()
    cuts = [0, *inner, 2**24]
    for symbol in range(alphabet):
        coder = constriction.stream.stack.AnsCoder(np.array([5, 7, 9], np.uint32))
        coder.encode_reverse(symbol, coding._Model()(cuts))
        share, words, state = cuts[symbol + 1] - cuts[symbol], [5], (9 << 32) | 7
        if state >> 40 >= share:
            words, state = [5, state % 2**32], state >> 32
        state = (state // share << 24) + cuts[symbol] + state % share
        words += [state % 2**32, state >> 32]
        while words[-1] == 0:
            words.pop()
        assert coder.get_compressed().tolist() == words


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
        assert kind_of(content, None) == "text"
        sequence, about = to_symbols(content, "text")
        assert len(sequence.symbols) == text.count("0") + text.count("1")
        assert to_content(sequence.symbols, about) == content
    else:
        assert kind_of(content, None) == "bytes"


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


# --- archives -------------------------------------------------------------------------------


ARCHIVE = Archive({"type": "kt"}, "exact", {"kind": "bits"}, 5, "0123456789abcdef", b"\0code")


def test_an_archive_is_unpacked_as_it_was_packed():
    data = ARCHIVE.pack()
    assert unpack(data, "it") == ARCHIVE
    assert len(data) < 60


def test_a_damaged_archive_is_refused():
    data = ARCHIVE.pack()
    for size in range(len(data)):
        with pytest.raises(ValueError, match=r"^it is (not an archive|truncated)"):
            unpack(data[:size], "it")
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 + place % 255
        with pytest.raises(ValueError, match=r"^it is (not an archive|truncated)"):
            unpack(bytes(changed), "it")


def sealed(content):
    return content + zlib.crc32(content).to_bytes(4, "little")


def test_an_archive_of_a_later_version_is_named():
    data = bytearray(ARCHIVE.pack()[:-4])
    data[4] += 1
    with pytest.raises(ValueError, match="format 2; this version of switchpoint reads up to 1"):
        unpack(sealed(bytes(data)), "it")


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ({"length": -1}, "no valid length"),
        ({"length": "5"}, "no valid length"),
        ({"length": 2**60}, "no valid length"),
        ({"grid": "coarse"}, "no valid grid"),
        ({"symbols": None}, "no valid symbols"),
        (["length"], "is unreadable"),
        ({"digest": ...}, "is unreadable"),
    ],
)
def test_a_header_that_cannot_be_is_refused(header, problem):
    if isinstance(header, dict):
        header = {**{name: getattr(ARCHIVE, name) for name in archive._FIELDS}, **header}
        header = {name: value for name, value in header.items() if value is not ...}
    deflate = zlib.compressobj(wbits=-15, zdict=archive._PHRASES)
    content = deflate.compress(json.dumps(header).encode()) + deflate.flush()
    with pytest.raises(ValueError, match=f"it is damaged: its header .*{problem}"):
        unpack(sealed(ARCHIVE.pack()[:5] + content), "it")


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
    status, said = run(capsys, "compress", "x.dat", *options)
    assert status == 0, said
    assert f"x.dat: {len(content)} bytes" in said
    assert "code length" in said
    assert run(capsys, "decompress", "x.dat.spz", "--out", "y.dat") == (0, "")
    assert (folder / "y.dat").read_bytes() == content
    assert sorted(path.name for path in folder.iterdir()) == [
        "bits.txt", "x.dat", "x.dat.spz", "y.dat",
    ]  # fmt: skip


def test_the_size_is_the_code_length(folder, capsys):
    symbols = random_symbols(np.random.default_rng(7), 2, 4000)
    (folder / "x.txt").write_text("".join(map(str, symbols)))
    stream = sp.Stream(sp.bayes_optimal(source(sp.PTW(12))))
    stream.extend(symbols)
    status, said = run(capsys, "compress", "x.txt")
    assert status == 0
    assert f"code length {stream.code_length:,.1f} bits" in said
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
        "other.spz": sealed(data[:-6] + b"\1\2"),
        "trits.txt": b"0 1 2 0\n",
    }.items():
        (folder / name).write_bytes(content)
    capsys.readouterr()
    files = {path.name for path in folder.iterdir()}

    def message(*arguments):
        return refused(capsys, *arguments, files=files)

    assert "cut.spz is truncated or damaged" in message("decompress", "cut.spz")
    assert "odd.spz is truncated or damaged" in message("decompress", "odd.spz")
    assert "foreign.spz is not an archive" in message("decompress", "foreign.spz")
    # A code with other symbols, as if this machine had predicted something else.
    assert "other.spz is whole, but" in message("decompress", "other.spz")
    assert "bits.txt.spz exists" in message("compress", "bits.txt")
    assert "bits.txt exists" in message("decompress", "bits.txt.spz")
    assert "does not end in .spz" in message("decompress", "bits.txt")
    assert "none.txt cannot be read" in message("compress", "none.txt")
    assert ". cannot be read (Is a directory)" in message("compress", ".")
    trits = message("compress", "trits.txt", "--alphabet", "2")
    assert "symbol 2 at position 2 is outside the alphabet" in trits
    again = ("compress", "bits.txt", "--out", "z.spz")
    assert "--as must be text, bits or bytes" in message(*again, "--as", "words")
    assert "got 'ppm'" in message(*again, "--prior", "ppm")
    assert "hazard is not a parameter of kt" in message(*again, "--prior", "kt", "--hazard", "0.1")
    assert "prior cannot be given with --model" in message(
        *again, "--model", "lstm-ptw", "--prior", "lin"
    )
    assert "--member is for" in message(*again, "--member", "0")
    assert "out cannot be written" in message("compress", "bits.txt", "--out", "no/z.spz")
    assert "bits.txt: symbol '0' at position 0" in message(*again, "--labels", "a,b")
    assert "made without a network" in message(
        "decompress", "bits.txt.spz", "--out", "z", "--model", "lstm-ptw"
    )


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
    said = refused(capsys, "compress", "bits.txt", files=["bits.txt"])
    assert "pip install 'switchpoint[compress]'" in said
