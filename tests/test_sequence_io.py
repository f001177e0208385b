"""Sequences in files: numbers and labels in, rows out, and a sentence for everything else."""

import csv
import io
import itertools
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from switchpoint import _text
from switchpoint._text import printable
from switchpoint.cli.sequence_io import parse_number, read_symbols


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Reads a file of this content, which is text, bytes or an array."""
    monkeypatch.chdir(tmp_path)

    def read(name, content, **options):
        if isinstance(content, np.ndarray):
            (np.savez_compressed if name.endswith("z") else np.save)(
                name, **{"symbols" if name.endswith("z") else "arr": content}
            )
        elif isinstance(content, str):
            Path(name).write_text(content)
        else:
            Path(name).write_bytes(content)
        return read_symbols(Path(name), **options)

    return read


def refusal(read, name, content, **options):
    """The sentence that refuses a file; it always names the file."""
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        read(name, content, **options)
    assert printable(name) in str(caught.value)
    assert len(str(caught.value)) < 380  # the command line shows no more than 400 characters
    return str(caught.value)


# --- numbers --------------------------------------------------------------------------------


def test_digits_are_single_symbols_only_in_small_alphabets(read):
    assert read("x.txt", "12 3", alphabet=10).symbols.tolist() == [1, 2, 3]
    found = read("x.txt", "12 3", alphabet=13)
    assert found.symbols.tolist() == [12, 3]
    assert (found.alphabet, found.labels) == (13, ())


BITS = "01101110000000010000111101111111"
SPACED = " ".join(BITS)
FLOATS = ", ".join(f"{bit}.0" for bit in BITS)
COLUMN = "\n".join(BITS)
TABLE = "\n".join(f"{t};{bit}" for t, bit in enumerate(BITS))


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("bits", SPACED, None),
        ("bits.txt", FLOATS, None),
        ("bits.txt", "\ufeff" + BITS[:9] + ";\r\n" + BITS[9:], None),
        ("bits.csv", COLUMN, None),
        ("bits.csv", "bit\n" + COLUMN + "\n\n", None),
        ("bits.csv", TABLE, "1"),
        ("bits.csv", "time;bit\n" + TABLE, "bit"),
        ("bits.csv", "time;bit\n" + TABLE, "1"),
        ("bits.tsv", TABLE.replace(";", "\t"), "1"),
        ("bits.txt", "a,b\n" + TABLE.replace(";", ","), "b"),
    ],
)
def test_kinds_of_text(read, name, text, column):
    assert read(name, text, column=column).symbols.tolist() == [int(bit) for bit in BITS]


@pytest.mark.parametrize("dtype", [bool, np.int64, np.uint8, np.float32])
def test_kinds_of_arrays(read, dtype):
    symbols = np.array(list(BITS), int)
    both = np.stack([1 - symbols, symbols])
    for found in (
        read("x.npy", symbols.astype(dtype)),
        read("x.npy", both.astype(dtype), row=1),
        read("x.npz", both.astype(dtype), row=1),
    ):
        assert found.symbols.tolist() == symbols.tolist()
        assert found.symbols.dtype == np.int32


@pytest.mark.parametrize("text", ["1", "1.0", "+1", "1e0", "10e-1", "01", ".5e1", "1."])
def test_numbers(text):
    assert parse_number(text) == float(text)


NOT_NUMBERS = ["0_1", "1_000", "١", "１", "1e400", "-1e400", "nan", "NaN", "inf", "infinity", "0x1"]


@pytest.mark.parametrize("text", [*NOT_NUMBERS, "", "-", ".", "1 0"])
def test_not_numbers(text):
    assert parse_number(text) is None


@pytest.mark.parametrize("token", NOT_NUMBERS)
@pytest.mark.parametrize("others", ["0 1", "up down"])
@pytest.mark.parametrize("name", ["x.txt", "x.csv"])
def test_what_is_almost_a_number_is_no_symbol(read, token, others, name):
    if token == "0x1" and others != "0 1":
        return  # a word like any other
    text = f"{others} {token}" if name == "x.txt" else "\n".join(["head", *others.split(), token])
    message = refusal(read, name, text)
    assert repr(token) in message
    assert "position 2" in message


def test_counts_suggest_the_alphabet(read):
    for name, text in {
        "x.csv": "count\n0\n3\n12\n",
        "x.txt": "0 3 12",
        "y.txt": "3, 12, 7",
    }.items():
        message = refusal(read, name, text)
        assert "symbol 3 at position" in message
        assert "--alphabet 13" in message
    for text in ("012012", "012\n201"):  # runs of digits, not numbers
        message = refusal(read, "x.txt", text)
        assert "symbol 2 at position 2" in message
        assert message.count("--alphabet 3") == 1
    assert "--alphabet 256" in refusal(read, "x.npy", np.array([0, 255]))
    # Who names an alphabet, as a network does, is told of no other.
    assert "--alphabet" not in refusal(read, "x.npy", np.array([0, 5]), alphabet=3)


@pytest.mark.parametrize(
    "values", [[1120, 1131], [20.5, 19.0], [0, 1, -1], [0.0, np.nan], [1.0, np.inf]]
)
def test_real_values_are_told_what_to_do(read, values):
    message = refusal(read, "x.npy", np.array(values))
    for part in ("only symbols", "whole numbers from 0", "labels", "numpy.digitize"):
        assert part in message
    if np.isfinite(values).all():
        table = "price\n" + "\n".join(map(str, values))
        assert "numpy.digitize" in refusal(read, "x.csv", table)


def test_the_first_value_that_is_no_whole_number_is_named(read):
    assert "0.5 at position 2" in refusal(read, "x.npy", np.array([3, 4, 0.5, 0.25]))


@pytest.mark.parametrize("labels", [None, "up,down"])
def test_no_symbols(read, labels):
    for name, content in {
        "x.txt": " \n",
        "x.csv": "\n",
        "y.csv": "up\n",
        "x.npy": np.zeros(0),
        "y.npy": np.zeros((3, 0), "U4"),
    }.items():
        if (name, labels) != ("y.csv", "up,down"):
            assert "holds no symbols" in refusal(read, name, content, labels=labels)


def test_alphabets_have_two_symbols(read):
    with pytest.raises(ValueError, match="alphabet must be at least 2, got 1"):
        read("x.txt", "0", alphabet=1)


# --- labels ---------------------------------------------------------------------------------

WORDS = ["up", "up", "down", "up", "level", "down"]


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("x.txt", "\n".join(WORDS), {}),
        ("x", ", ".join(WORDS), {}),
        ("x.csv", "\n".join(WORDS), {}),
        ("x.csv", "direction\n" + "\n".join(WORDS), {}),
        ("x.csv", "\n".join(f"{t},{word}" for t, word in enumerate(WORDS)), {"column": "1"}),
        ("x.csv", "t,d\n" + "\n".join(f"{t},{w}" for t, w in enumerate(WORDS)), {"column": "d"}),
        ("x.tsv", "\n".join(f"{word}\t{word}" for word in WORDS), {"column": "0"}),
        ("x.npy", np.array(WORDS), {}),
        ("x.npz", np.array(WORDS), {}),
        ("x.npy", np.array(WORDS).astype("S"), {}),
        ("x.npy", np.array([WORDS[::-1], WORDS]), {"row": 1}),
    ],
)
def test_labels_are_numbered_as_they_appear(read, name, content, options):
    found = read(name, content, **options)
    assert found.labels == ("up", "down", "level")
    assert found.symbols.tolist() == [0, 0, 1, 0, 2, 1]
    assert found.symbols.dtype == np.int32
    assert found.alphabet == 3


def test_labels_on_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"yes no no")))
    found = read_symbols(Path("-"))
    assert (found.labels, found.symbols.tolist()) == (("yes", "no"), [0, 1, 1])


@pytest.mark.parametrize("text", ["ACGTTGCA", "ACGT\nTGCA\n", "A C G T T G C A"])
def test_letters_need_no_separators(read, text):
    found = read("x.txt", text)
    assert found.labels == tuple("ACGT")
    assert found.symbols.tolist() == [0, 1, 2, 3, 3, 2, 1, 0]


def test_long_lines_of_letters_may_repeat(read):
    line = "ACGT" * 15
    assert len(read("x.txt", f"{line}\n{line}\n").symbols) == 120


@pytest.mark.parametrize("text", ["False true TRUE false", "true True FALSE true"])
def test_false_is_0_and_true_is_1(read, text):
    found = read("x.txt", text)
    assert found.labels == ("False", "True")
    assert found.symbols.tolist() == [int(word.lower() == "true") for word in text.split()]
    assert read("x.txt", "TRUE true").symbols.tolist() == [1, 1]
    assert read("x.npy", np.array(text.split())).labels == ("False", "True")


def test_booleans_are_numbers_as_before(read):
    found = read("x.npy", np.array([True, False]))
    assert (found.symbols.tolist(), found.labels) == ([1, 0], ())


def test_given_labels_fix_the_order(read):
    found = read("x.txt", "down up down", labels="up,down, level")
    assert found.labels == ("up", "down", "level")
    assert (found.symbols.tolist(), found.alphabet) == ([1, 0, 1], 3)
    # A first line that is a label is no header.
    assert read("x.csv", "down\nup\nup", labels="up,down").symbols.tolist() == [1, 0, 0]
    assert read("x.txt", "ACCA\nACCA", labels="C,A").symbols.tolist() == [1, 0, 0, 1] * 2
    assert read("x.txt", "0110", labels="1,0").symbols.tolist() == [1, 0, 0, 1]
    assert read("x.npy", np.array([-1, 1, -1]), labels="-1,1").symbols.tolist() == [0, 1, 0]
    assert read("x.txt", "nan 0_1 nan", labels="nan,0_1").symbols.tolist() == [0, 1, 0]
    assert read("x.csv", '"a,b"\nc\nc', labels='c,"a,b"').symbols.tolist() == [1, 0, 0]


def test_given_labels_are_all_there_are(read):
    message = refusal(read, "x.txt", "up up left right", labels="up,down")
    for part in ("'left'", "position 2", "up, down"):
        assert part in message


def test_alphabets_of_labels(read):
    found = read("x.txt", "up up")
    assert (found.alphabet, found.labels) == (2, ("up",))
    found = read("x.txt", "a b a", alphabet=4)
    assert (found.alphabet, found.labels) == (4, ("a", "b"))
    message = refusal(read, "x.txt", "a b c a", alphabet=2)
    assert "3 labels" in message
    assert "alphabet of 2" in message
    assert "a, b, c" in message


@pytest.mark.parametrize("labels", ["up,up", "up,,down", "up", "", "a\x1b,b"])
def test_bad_lists_of_labels(read, labels):
    with pytest.raises(ValueError, match=r"labels must be .* got"):
        read("x.txt", "up down", labels=labels)


def test_too_many_labels(read):
    words = ["".join(pair) for pair in itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=2)]
    assert read("x.csv", "\n".join(words[:256] * 2)).alphabet == 256
    message = refusal(read, "x.csv", "\n".join(words[:257] * 2))
    assert "257" in message
    assert "256" in message


def test_numbers_and_words_do_not_mix(read):
    for name, text in {"x.txt": "0 1 zero", "x.csv": "bit\n0\n1\nzero\n"}.items():
        message = refusal(read, name, text)
        assert "'zero' at position 2 is not a number" in message
        assert "--labels" in message
    assert "'0-1-1-0'" in refusal(read, "x.txt", "0-1-1-0")  # a separator we do not know
    assert "'>chr1'" in refusal(read, "x.txt", ">chr1\n" + "ACGT" * 15)


def test_a_header_is_no_label(read):
    assert read("x.csv", "a,b\nu,v\nw,u\n", column="a").symbols.tolist() == [0, 1]
    assert read("x.csv", "u,v\nw,u\nu,v\n", column="0").symbols.tolist() == [0, 1, 0]
    assert read("x.csv", "True\nFalse\nfalse\n").symbols.tolist() == [1, 0, 0]
    assert read("x.csv", "0,up\n1,down\n", column="1").symbols.tolist() == [0, 1]


# --- arrays that lie ------------------------------------------------------------------------


def npy(header, data=b"", version=1):
    """An .npy file with this header."""
    width = 2 if version == 1 else 4
    head = header if isinstance(header, bytes) else header.encode("latin1")
    return b"\x93NUMPY" + bytes([version, 0]) + len(head).to_bytes(width, "little") + head + data


def header(descr="'<i4'", shape="(2,)", order="False"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


TWO = np.array([0, 1], "<i4").tobytes()

DAMAGED = {
    "nothing": b"",
    "noise": b"\xff\xfe\x00" * 50,
    "only the magic": b"\x93NUMPY",
    "another version": npy(header(), TWO, version=9),
    "truncated": npy(header(), TWO[:-1]),
    "a huge shape": npy(header(shape="(10000000000000,)")),
    "a shape beyond all numbers": npy(header(shape=f"({10**30}, {10**30})")),
    "a negative shape": npy(header(shape="(-2,)"), TWO),
    "items of no size": npy(header("'<U0'", "(1000000000000,)")),
    "not a literal": npy("{'descr': print('<i4')}\n"),
    "not even tokens": npy("{'descr': '''\n"),
    "brackets": npy("[" * 5000),
    "nested": npy("(" * 90 + ")" * 90),
    "a long header": npy(header() + " " * 20000, TWO),
    "no such type": npy(header("'<q99'"), TWO),
    "fields without a name": npy(header("[('', '<i4'), ('', 3)]"), TWO),
    "objects": npy(header("'|O'"), b"\x80\x04N."),
    "records": npy(header("[('a', '<i4')]"), TWO),
    "times": npy(header("'<M8[s]'", "(1,)"), bytes(8)),
    "complex": npy(header("'<c8'", "(1,)"), bytes(8)),
    "one value": npy(header(shape="()"), TWO),
    "no Unicode": npy(header("'<U1'", "(1,)"), b"\xff\xff\xff\x7f"),
    "no UTF-8": npy(header("'|S1'", "(1,)"), b"\xff"),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_arrays(read, content):
    for name, whole in {"x.npy": content, "x.npz": archive(content)}.items():
        message = refusal(read, name, whole)
        assert "pickle" not in message
        assert "max_header_size" not in message


def archive(content, method=zipfile.ZIP_DEFLATED, name="symbols.npy"):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as target:
        target.writestr(name, content)
    return file.getvalue()


def test_any_order_of_bytes_and_axes(read):
    array = np.array([[0, 1, 1], [1, 0, 0]])
    for stored in (np.asfortranarray(array), array.astype(">i2"), array[:, :]):
        assert read("x.npy", stored, row=1).symbols.tolist() == [1, 0, 0]
        assert read("x.npz", stored, row=0).symbols.tolist() == [0, 1, 1]
    assert read("x.npy", npy(header(shape="(2L,)"), TWO)).symbols.tolist() == [0, 1]  # Python 2


def changed(data, old, new):
    assert old in data
    return data.replace(old, new)


def test_odd_archives(read):
    whole = archive(npy(header(), TWO), zipfile.ZIP_STORED)
    assert read("x.npz", whole).symbols.tolist() == [0, 1]
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):  # of which NumPy writes neither
        assert "compress" in refusal(read, "x.npz", archive(npy(header(), TWO), method))
    unknown = changed(
        whole,
        b"PK\x01\x02\x14\x03\x14\x00\x00\x00\x00\x00",
        b"PK\x01\x02\x14\x03\x14\x00\x00\x00\x63\x00",
    )
    assert "compress" in refusal(read, "x.npz", unknown)
    locked = changed(
        whole, b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00"
    )
    assert "encrypted" in refusal(read, "x.npz", locked)
    for bad in (whole[:-10], whole[:40], changed(whole, TWO, TWO[::-1]), b"PK\x03\x04" + bytes(9)):
        refusal(read, "x.npz", bad)
    assert "`symbols`, but draws\\x1b" in refusal(read, "x.npz", archive(b"", name="draws\x1b.npy"))


# --- limits ---------------------------------------------------------------------------------


@pytest.fixture
def limit(monkeypatch):
    monkeypatch.setattr(_text, "LARGEST", 2**20)


@pytest.mark.usefixtures("limit")
def test_what_is_read_has_a_limit(read, monkeypatch):
    assert len(read("x.txt", "01" * 2**19).symbols) == 2**20
    bomb = archive(npy(header("'|u1'", f"({2**21},)"), bytes(2**21)))
    assert len(bomb) < 2**14
    for name, content in {
        "x.txt": "01" * 2**19 + "0",
        "x.csv": "0\n" * 2**19 + "0",
        "x.npy": np.zeros(2**20, np.uint8),
        "x.npz": bomb,
    }.items():
        assert "more than 1 MiB" in refusal(read, name, content)
    for name in ("/dev/zero", "/dev/full"):
        with pytest.raises(ValueError, match=f"{name} .*more than 1 MiB"):
            read_symbols(Path(name))
    with open("/dev/zero") as endless:
        monkeypatch.setattr(sys, "stdin", endless)
        with pytest.raises(ValueError, match=r"standard input .*more than 1 MiB"):
            read_symbols(Path("-"))


def test_no_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ValueError, match="standard input cannot be read"):
        read_symbols(Path("-"))


# --- what a terminal is shown ---------------------------------------------------------------


def test_printable():
    assert printable("naïve 名 ±") == "naïve 名 ±"
    assert printable("a\x1b[31m\n\x00\u202e\udcff") == r"a\x1b[31m\n\x00\u202e\udcff"


def test_control_characters_are_escaped(read):
    for name, content, options in (
        ("a\x1b[31m.txt", "0 7", {}),
        ("a\x1b[31m.npy", b"", {}),
        ("x.csv", "a\x1b[31m,b\n0,1\n", {}),
        ("x.csv", "a\x1b[31m,b\n0,1\n", {"column": "c"}),
        ("x.csv", "a\x1b[31m,b\n,1\n", {"column": "0"}),
        ("x.txt", "0 1 \x1b[31m", {}),
        ("x.txt", "up down \x1b[31m up", {}),
        ("x.csv", "word\nup\nup\x1b[31m\nup", {}),
        ("x.txt", "\x1b[31m", {"labels": "up,down"}),
    ):
        message = refusal(read, name, content, **options)
        assert message.isprintable()
        assert r"\x1b[31m" in message


# --- rows -----------------------------------------------------------------------------------


def test_rows_show_labels(tmp_path, capsys, monkeypatch):
    from switchpoint.cli import main

    monkeypatch.chdir(tmp_path)
    words = ["up", 'a "b", c'] * 16
    np.save("x.npy", np.array(words))
    assert main(["predict", "x.npy", "--prior", "ptw"]) == 0
    out, err = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(out)))
    assert list(rows[0])[:4] == ["t", "symbol", "p_up", 'p_a "b", c']
    assert [row["symbol"] for row in rows] == words
    assert "labels" in err
    assert 'up = 0, a "b", c = 1' in err
    Path("again.csv").write_text(out)
    assert read_symbols(Path("again.csv"), column="symbol").labels == ("up", 'a "b", c')
    labels = '"a ""b"", c",up'
    arguments = ["--prior", "ptw", "--labels", labels, "--out", "x.json"]
    assert main(["predict", "x.npy", *arguments]) == 0
    answer = json.loads(Path("x.json").read_text())
    assert answer["summary"]["labels"] == ['a "b", c', "up"]
    assert [row["symbol"] for row in answer["rows"]] == words
    swapped = [float(row["p_up"]) for row in answer["rows"]]
    np.testing.assert_allclose(swapped, [float(row["p_up"]) for row in rows], rtol=1e-5)
