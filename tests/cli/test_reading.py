"""Files: what is read from them as series or as sequences, and a sentence for everything else."""

import bz2
import csv
import gzip
import importlib.util
import io
import itertools
import json
import lzma
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from switchpoint import _text
from switchpoint._text import printable
from switchpoint.cli.reader import Layout, read_series, read_symbols
from switchpoint.cli.reader.cells import parse_number

NAN = float("nan")
HAS_PYARROW = importlib.util.find_spec("pyarrow") is not None


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a file of this content, which is text, bytes or an array; - is standard input."""
    monkeypatch.chdir(tmp_path)

    def write(name, content):
        data = content.encode() if isinstance(content, str) else content
        if name == "-":
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        elif isinstance(content, np.ndarray):
            (np.savez_compressed if name.endswith("z") else np.save)(
                name, **{"symbols" if name.endswith("z") else "arr": content}
            )
        else:
            Path(name).write_bytes(data)
        return Path(name)

    return write


@pytest.fixture
def series(write):
    """The series in a file of this content."""

    def series(name, content, *columns, time=None, day_first=None, **layout):
        return read_series(write(name, content), columns, time, day_first, Layout(**layout))

    return series


@pytest.fixture
def sequence(write):
    """The sequence of symbols in a file of this content."""
    return lambda name, content, **options: read_symbols(write(name, content), **options)


# --- series of numbers ------------------------------------------------------------------------


def assert_is(found, values, names, times=None):
    expected = np.asarray(values, float).reshape(len(values), -1)
    np.testing.assert_array_equal(found.frame.to_numpy(), expected)
    assert tuple(found.frame.columns) == names
    assert (found.times and found.times.labels) == times


LIST = {"x.csv": "1\n2.5\n-3e2\n", "x.txt": "1 2.5\n-300\n", "x.dat": "1, 2.5, -300",
        "-": "1;2.5;-300\n", "y.csv": "\ufeff1\n2.5\n-300"}  # fmt: skip
MISSING = ["1", "", "NA", "nan", "NaN", "null", "None", "N/A", "2"]
TABLE = "date,open,close,note\n2024-01-31,1,4,a\n2024-02-29,2,,b\n2024-03-31,3,6,\n"
DATES = ("2024-01-31", "2024-02-29", "2024-03-31")
YEARS = ("1871", "1872")
JSON = {
    "0": [[1, None, 3]],
    "x": [
        [{"x": 1}, {"x": None}, {"x": 3}],
        [{"x": 1, "name": "a"}, {"name": "b"}, {"x": 3, "name": "c"}],
        {"x": [1, None, 3]},
        {"x": {"0": 1, "1": None, "2": 3}, "name": {"0": "a", "1": "b", "2": "c"}},
    ],
}
# The file, its content and the columns that are asked for; the values, names and times.
SERIES = [
    *((name, text, (), [1, 2.5, -300], ("0",)) for name, text in LIST.items()),
    ("x.csv", "t,x\n" + "".join(f"{t},{cell}\n" for t, cell in enumerate(MISSING)), (),
     [1, *[NAN] * 7, 2], ("x",), tuple("012345678")),
    ("x.csv", "NA\n1\n2\n", (), [NAN, 1, 2], ("0",)),
    ("x.csv", ",\nx,y\n1,2\n,\n\n3,4\n,\n,\n", "x", [1, NAN, 3], ("x",)),
    ("x.csv", TABLE, ["close"], [4, NAN, 6], ("close",), DATES),
    ("x.csv", TABLE, "2", [4, NAN, 6], ("close",), DATES),
    ("x.csv", TABLE, ["close", "open"], [[4, 1], [NAN, 2], [6, 3]], ("close", "open"), DATES),
    ("x.tsv", TABLE.replace(",", "\t"), ["open"], [1, 2, 3], ("open",), DATES),
    ("x.csv", TABLE.replace(",", ";"), ["open"], [1, 2, 3], ("open",), DATES),
    *(("x.csv", f"{name},flow\n1871,5\n1872,6\n", (), [5, 6], ("flow",), YEARS)
      for name in ("year", "Date", "TIME")),
    ("x.csv", "year,flow\n1871,5\n1872,6\n", ["year"], [1871, 1872], ("year",)),
    ("x.csv", "2024-01-31,1\n2024-02-29,2\n2024-03-31,3\n", (), [1, 2, 3], ("1",), DATES),
    ("x.csv", "1,2\n3,4\n", "1", [2, 4], ("1",)),
    *((name, json.dumps(content), (), [1, NAN, 3], (column,))
      for column, contents in JSON.items() for content in contents for name in ("x.json", "-")),
    ("x.npy", np.array([1.5, NAN]), (), [1.5, NAN], ("0",)),
    ("x.npy", np.array([[1, 2], [3, 4]]), "1", [2, 4], ("1",)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "columns", "expected"), [
    (name, content, columns, expected) for name, content, columns, *expected in SERIES
])  # fmt: skip
def test_series(series, name, content, columns, expected):
    assert_is(series(name, content, *columns), *expected)


@pytest.mark.parametrize("columns", [("x",), ("x", "y")])
def test_a_whole_gap_keeps_its_length(series, columns):
    """pandas writes the only cell of a row as "" where it is missing, and two as a comma."""
    values = np.repeat([[NAN], [1], [NAN], [NAN], [2]], len(columns), axis=1)
    text = pd.DataFrame(values, columns=columns).to_csv(index=False)
    assert_is(series("x.csv", text, *columns), values, columns)


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "-"])
def test_json_lines(series, name):
    text = '{"day": "2024-01-01", "x": 1}\n{"day": "2024-01-02", "x": null}\n'
    assert_is(series(name, text), [1, NAN], ("x",), ("2024-01-01", "2024-01-02"))
    with pytest.raises(ValueError, match=r"line 3 is not JSON \(Expecting"):
        series(name, text + "oops\n")


@pytest.mark.skipif(not HAS_PYARROW, reason="needs pyarrow")
@pytest.mark.parametrize("name", ["x.parquet", "x.pq", "-"])
def test_parquet(series, name):
    frame = pd.DataFrame(
        {
            "day": pd.date_range("2024-01-01", periods=3),
            "x": [1.5, None, 3],
            "n": pd.array([1, None, 2], "Int64"),
            "word": ["a", "b", None],
        }
    )
    data = frame.to_parquet()
    times = ("2024-01-01", "2024-01-02", "2024-01-03")
    assert_is(series(name, data, "x"), [1.5, NAN, 3], ("x",), times)
    assert_is(series(name, data, "n", "x"), [[1, 1.5], [NAN, NAN], [2, 3]], ("n", "x"), times)
    indexed = frame.set_index("day")[["x"]].to_parquet()
    assert_is(series(name, indexed), [1.5, NAN, 3], ("x",), times)


def test_parquet_needs_a_package(series, monkeypatch):
    for name in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=r"pip install 'switchpoint\[parquet\]'"):
        series("x.parquet", b"PAR1")


REFUSED = {
    "x.csv: the file holds no observations": ("x.csv", ""),
    "holds no observations": ("x.csv", "a,b\n"),
    "there is no column 'z'; the columns are: date, open, close, note": ("x.csv", TABLE, "z"),
    "there is no column '4'": ("x.csv", TABLE, "4"),
    "2 columns of numbers, choose with --column": ("x.csv", TABLE),
    "open, close": ("x.csv", TABLE),
    "'a' in column note, line 2, is not a finite number": ("x.csv", TABLE, "note"),
    "no column holds only numbers": ("x.csv", "a,b\nx,y\nz,w\n"),
    "numbers, id, counts the rows": ("x.csv", "id,load\n1,3 ms\n2,4 ms\n3,3 ms\n"),
    "'x' in column a, line 2": ("x.csv", "a\nx\n1\n"),
    "'inf' in column x, line 3": ("x.csv", "x\n1\ninf\n"),
    "'1_0' in column x, line 2": ("x.csv", "x\n1_0\n2\n"),
    "'inf' in column 0, row 1": ("x.json", "[1, Infinity]"),
    "0000... in column 0, row 1": ("x.json", f"[1, -1{'0' * 400}]"),
    "column 'open' is chosen twice": ("x.csv", TABLE, "open", "1"),
    "two columns called 'x'": ("x.csv", "x,x\n1,2\n", "x"),
    "line 3 has 1 cell, the first has 2": ("x.csv", "x,y\n1,2\n3\n"),
    "is not JSON": ("x.json", "{"),
    "JSON must be a list of numbers": ("x.json", '"text"'),
    "object of columns of equal length": ("x.json", '{"a": [1, 2], "b": [1]}'),
    "'x' in column 0, row 1": ("x.json", '[1, "x"]'),
    "byte 1 is not UTF-8": ("x.csv", b"1\xff\x01"),
    "standard input: there is no column 'y'": ("-", "x\n1\n2\n", "y"),
}


REFUSED_TIMES = {
    "both the series and its time": "open",
    "there is no column 'when'": "when",
    "no time in column note, line 4": "note",
}


@pytest.mark.parametrize("message", [*REFUSED, *REFUSED_TIMES])
def test_bad_files_are_refused_in_one_sentence(series, message):
    arguments = REFUSED.get(message, ("x.csv", TABLE, "open"))
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        series(*arguments, time=REFUSED_TIMES.get(message))
    assert message in str(caught.value)


# --- layouts ----------------------------------------------------------------------------------

DAYS = pd.date_range("2024-01-01", periods=40)
NUMBERS = np.round(np.random.default_rng(0).normal(0, 2000, 40), 2)
FRAME = pd.DataFrame({"day": DAYS, "café": NUMBERS})
PACKED = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def zipped(data, name="x.csv"):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as target:
        target.writestr(name, data)
    return file.getvalue()


def is_frame(found, name="café"):
    np.testing.assert_array_equal(found.frame.to_numpy()[:, 0], NUMBERS)
    assert list(found.frame.columns) == [name]
    assert found.times.coordinates.tolist() == DAYS.to_pydatetime().tolist()


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", " "])
@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("date_format", ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y%m%d"])
@pytest.mark.parametrize("header", [True, False])
def test_every_layout_is_recognised(series, separator, decimal, date_format, header):
    options = {"sep": separator, "decimal": decimal, "header": header, "index": False}
    text = FRAME.to_csv(date_format=date_format, **options)
    found = series("x.csv", text)
    is_frame(found, "café" if header else "1")
    names = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes", " ": "spaces"}
    assert found.notes[:2] == (
        f"separated by {names[separator]}",
        "names in line 1" if header else "no header",
    )
    assert ("decimal commas" in found.notes) == (decimal == ",")
    order = {"%d.%m.%Y": "day first", "%m/%d/%Y": "month first"}.get(date_format, "")
    assert found.times.order == order
    assert order in found.time


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
def test_every_packing_is_recognised(series, sequence, suffix, encoding):
    data = PACKED[suffix](FRAME.to_csv(index=False).encode(encoding))
    for name in (f"x.csv{suffix}", "-"):
        found = series(name, data)
        is_frame(found)
    note = {"utf-8": None, "utf-8-sig": None, "latin-1": "Windows-1252"}.get(encoding, "UTF-16")
    assert note is None or note in found.notes
    words = PACKED[suffix]("süß\nherb\nsüß\n".encode(encoding))
    assert sequence(f"x.txt{suffix}", words).labels == ("süß", "herb")


def test_archives_hold_one_file(series, sequence):
    is_frame(series("x.zip", zipped(FRAME.to_csv(index=False))))
    assert sequence("x.zip", zipped("0110", "bits.txt")).symbols.tolist() == [0, 1, 1, 0]
    two = io.BytesIO()
    with zipfile.ZipFile(two, "w") as target:
        target.writestr("a.csv", "1")
        target.writestr("b.csv", "1")
    with pytest.raises(ValueError, match=r"x\.zip: .*2 files, not one: a\.csv, b\.csv"):
        series("x.zip", two.getvalue())
    with pytest.raises(ValueError, match=r"x\.gz: the gzip archive cannot be read"):
        series("x.gz", gzip.compress(b"1,2,3" * 100)[:-20])


def test_excel(series, sequence):
    pytest.importorskip("openpyxl")
    file = io.BytesIO()
    with pd.ExcelWriter(file) as book:
        FRAME.to_excel(book, sheet_name="Numbers", startrow=2, index=False)
        pd.DataFrame({"move": ["up", "down", "up"]}).to_excel(book, sheet_name="Moves", index=False)
        pd.DataFrame().to_excel(book, sheet_name="Nothing")
    for name in ("x.xlsx", "-"):
        found = series(name, file.getvalue())
        is_frame(found)
        assert found.notes == ("Excel, sheet Numbers", "names in row 3")
    moves = sequence("x.xlsx", file.getvalue(), layout=Layout(sheet="Moves"))
    assert (moves.labels, moves.symbols.tolist()) == (("up", "down"), [0, 1, 0])
    for sheet, message in {
        "Moves": "'up' in column move, row 2",
        "Nothing": "holds no observations",
        "Other": "no sheet 'Other'; the sheets are: Numbers, Moves, Nothing",
    }.items():
        with pytest.raises(ValueError, match=message):
            series("x.xlsx", file.getvalue(), sheet=sheet)
    with pytest.raises(ValueError, match="damaged, or not of Excel"):
        series("x.xlsx", file.getvalue()[:-100])
    with pytest.raises(ValueError, match=r"not an Excel workbook \(\.xlsx\): save it as"):
        series("x.xls", b"\xd0\xcf\x11\xe0")


def test_excel_needs_a_package(series, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ValueError, match=r"pip install 'switchpoint\[excel\]'"):
        series("x.xlsx", zipped("", "xl/workbook.xml"))


WRITTEN = {
    ("1,234.5", "12", "-2,000,000"): ([1234.5, 12, -2e6], "thousands separated by commas"),
    ("1.234,5", "12", "-2.000.000"): ([1234.5, 12, -2e6], "decimal commas"),
    ("1 234,5", "12", "0,125"): ([1234.5, 12, 0.125], "decimal commas"),
    ("1'234.5", "12", "\u22122"): ([1234.5, 12, -2], None),
    ("80%", "?", "7.5 %"): ([80, NAN, 7.5], "x in %"),
    ("$1,200.50", "-$3", "$-4"): ([1200.5, -3, -4], "x in $"),
    ("3,50 €", "-", "4,00 €"): ([3.5, NAN, 4], "x in €"),
    ("1.234", "2.345", "3.456"): ([1.234, 2.345, 3.456], None),
    ("1", "#N/A", "."): ([1, NAN, NAN], "missing: #N/A, ."),
}


@pytest.mark.parametrize("cells", WRITTEN)
@pytest.mark.parametrize("table", [False, True])
def test_numbers_as_people_write_them(series, cells, table):
    values, note = WRITTEN[cells]
    rows = [f"{2001 + i};{cell}" if table else cell for i, cell in enumerate(cells)]
    found = series("x.csv", "\n".join(["year;x" if table else "x", *rows]))
    assert_is(found, values, ("x",), ("2001", "2002", "2003") if table else None)
    assert note is None or note in found.notes


def test_comments_are_skipped(series):
    text = "# a river\nday;flow;stage\n# checked\n2024-01-01;1;2\n2024-01-02;2;4\n"
    found = series("x.csv", text, "flow")
    assert_is(found, [1, 2], ("flow",), ("2024-01-01", "2024-01-02"))
    assert "comment lines skipped: 2" in found.notes
    assert "not used: stage" in found.notes
    with pytest.raises(ValueError, match="'error' in column flow, line 4"):
        series("x.csv", text.replace("2024-01-01;1", "2024-01-01;error"), "flow")


@pytest.mark.parametrize("cells", [("80%", "0.7", "90%"), ("1", "$2", "3")])
def test_numbers_of_different_units_are_refused(series, cells):
    with pytest.raises(ValueError, match="in column x, line 3, is not a finite number"):
        series("x.csv", "\n".join(["x", *cells]))


NAMES = {
    "date,2024\n2024-01-01,5\n2024-01-02,6\n": "2024",
    ",0\n0,5\n1,6\n": "0",
    ",0\n2024-01-01,5\n2024-01-02,6\n": "0",
    "when,1\n2024-01-01,5\n2024-01-02,6\n": "1",
    "2023,x\n2024-01-01,5\n2024-01-02,6\n": "x",
}


@pytest.mark.parametrize("text", NAMES)
def test_names_may_be_numbers(series, text):
    found = series("x.csv", text)
    np.testing.assert_array_equal(found.frame.to_numpy()[:, 0], [5, 6])
    assert list(found.frame.columns) == [NAMES[text]]
    assert found.times is not None


def test_series_of_pandas_are_read(series):
    values = pd.Series(NUMBERS)
    for one in (values, values.set_axis(DAYS), values.rename("x"), values.rename(3)):
        np.testing.assert_array_equal(series("x.csv", one.to_csv()).frame.to_numpy()[:, 0], NUMBERS)


@pytest.mark.parametrize(
    "text",
    ["0,1\n1.5,2.5\n3,4\n", "2023,2024\n1.5,2.5\n", "0,1\n5,6\n7,8\n"],
)
def test_numbers_that_may_be_names_are_refused(series, text):
    with pytest.raises(ValueError, match=r"line 1 \(.*may be names .*--header or --no-header"):
        series("x.csv", text, "1")
    rows = text.count("\n")
    assert len(series("x.csv", text, "1", header=False).frame) == rows
    assert len(series("x.csv", text, "1", header=True).frame) == rows - 1


def test_columns_separated_by_spaces_are_not_one_series(series):
    text = "1 10\n2 11\n3 12\n"
    with pytest.raises(ValueError, match=r"2 columns of numbers, choose with --column"):
        series("x.txt", text)
    assert_is(series("x.txt", text, "1"), [10, 11, 12], ("1",))
    assert "a list of numbers" in series("x.txt", "1 2 3\n4 5 6\n7\n").notes


SETTLED = {
    "x\n1,234\n5,678\n": ("--decimal", "decimal", {".": [1234, 5678], ",": [1.234, 5.678]}),
    "1,5\n2,5\n": ("--decimal", "decimal", {",": [1.5, 2.5]}),
    "a.b\n1.2\n3.4\n": (None, "separator", {".": [1, 3]}),
    "day,x\n01/02/2024,1\n02/02/2024,2\n": ("--dayfirst", "day_first", {True: [1, 2]}),
}


@pytest.mark.parametrize("text", SETTLED)
def test_options_settle_ambiguities(series, text):
    named, option, answers = SETTLED[text]
    if named is not None:
        with pytest.raises(ValueError, match=named):
            series("x.csv", text)
    for choice, values in answers.items():
        columns = ("a",) if option == "separator" else ()
        found = series("x.csv", text, *columns, **{option: choice})
        np.testing.assert_array_equal(found.frame.to_numpy()[:, 0], values)


def test_dates_in_the_order_that_is_asked_for(series):
    text = "day,x\n01/02/2024,1\n02/02/2024,2\n"
    for day_first, days in {True: (1, 2), False: (2, 2)}.items():
        found = series("x.csv", text, day_first=day_first).times.coordinates
        assert [each.item().day for each in found] == list(days)
    with pytest.raises(ValueError, match=r"with the month first, got '13/02/2024' at position 1"):
        series("x.csv", text.replace("02/02", "13/02"), day_first=False)


@pytest.mark.parametrize("form", ["%b %d %Y", "%d %B %Y", "%d/%m/%Y", "%Y/%m/%d", "%Y%m%d %H:%M"])
def test_the_only_column_of_dates_is_the_time(series, form):
    rows = "\n".join(f"{i % 3},{day.strftime(form)}" for i, day in enumerate(DAYS))
    found = series("x.csv", f"x,stamp\n{rows}")
    assert found.time_name == "stamp"
    assert found.times.coordinates.tolist() == DAYS.to_pydatetime().tolist()
    two = "x,from,to\n1,2024-01-01,2024-01-02\n2,2024-01-02,2024-01-03\n"
    with pytest.raises(ValueError, match="2 columns hold dates, choose with --time: from, to"):
        series("x.csv", two)
    assert series("x.csv", two, time="to").times.labels == ("2024-01-02", "2024-01-03")
    assert series("x.csv", two, time="none").times is None


STACKED = pd.concat([FRAME.assign(firm=firm, café=NUMBERS + i) for i, firm in enumerate("AB")])


@pytest.mark.parametrize("frame", [STACKED, STACKED.sort_values("day", kind="stable")])
def test_stacked_series_are_refused_unless_one_is_chosen(series, frame):
    text = frame.to_csv(index=False)
    for options in ({}, {"time": "day"}):
        with pytest.raises(ValueError, match=r"column firm distinguishes 2 series.*--where firm=A"):
            series("x.csv", text, **options)
    is_frame(series("x.csv", text, where=("firm=A",)))
    assert "firm=A" in series("x.csv", text, where=("firm=A",)).notes
    with pytest.raises(ValueError, match=r"column firm has no 'C' for --where.*A, B"):
        series("x.csv", text, where=("firm=C",))
    with pytest.raises(
        ValueError, match=r"times in column day repeat or go back in line 3: .*--time none"
    ):
        series("x.csv", frame.sort_values("day").drop(columns="firm").to_csv(index=False))
    few = pd.concat([FRAME, FRAME[:3]]).assign(firm=["A"] * 40 + ["B"] * 3).sort_values("day")
    with pytest.raises(ValueError, match="column firm distinguishes 2 series"):
        series("x.csv", few.to_csv(index=False))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"separator": "ab"}, "separator must be one character, tab or space, got 'ab'"),
        ({"decimal": ";"}, "decimal must be a point or a comma, got ';'"),
        ({"where": ("firm",)}, "where must be COLUMN=VALUE, got 'firm'"),
    ],
)
def test_bad_layouts(options, message):
    with pytest.raises(ValueError, match=message):
        Layout(**options)


# --- sequences of symbols -------------------------------------------------------------------


def refusal(sequence, name, content, **options):
    """The sentence that refuses a file; it always names the file."""
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        sequence(name, content, **options)
    assert printable(name) in str(caught.value)
    assert len(str(caught.value)) < 380  # the command line shows no more than 400 characters
    return str(caught.value)


# --- sequences of numbers ---------------------------------------------------------------------


REFUSED_SYMBOLS = [
    # counts suggest the alphabet, except to a network, which has one
    ("x.csv", "count\n0\n3\n12\n", {}, "symbol 3 at position 1", "--alphabet 13"),
    ("x.txt", "3, 12, 7", {}, "symbol 3 at position 0", "--alphabet 13"),
    ("x.txt", "012012", {}, "symbol 2 at position 2", "--alphabet 3"),
    ("x.txt", "012\n201", {}, "symbol 2 at position 2", "--alphabet 3"),
    ("x.npy", np.array([0, 255]), {}, "--alphabet 256"),
    ("x.npy", np.array([1e15]), {"alphabet": 10**20}, "outside the alphabet"),
    ("x.npy", np.array([0, 5]), {"alphabet": 3}, "symbol 5 at position 1"),
    # real values
    ("x.npy", np.array([1120, 1131]), {}, "only symbols", "numpy.digitize"),
    ("x.npy", np.array([3, 4, 0.5, 0.25]), {}, "0.5 at position 2", "whole numbers from 0"),
    ("x.npy", np.array([0, 1, -1]), {}, "numpy.digitize"),
    ("x.npy", np.array([0.0, np.nan]), {}, "numpy.digitize"),
    ("x.npy", np.array([1.0, np.inf]), {}, "numpy.digitize"),
    ("x.csv", "price\n20.5\n19.0", {}, "numpy.digitize"),
    # nothing at all
    *(
        (name, content, {"labels": labels}, "holds no symbols")
        for labels in (None, "up,down")
        for name, content in {
            "x.txt": " \n",
            "x.csv": "\n",
            "x.npy": np.zeros(0),
            "y.npy": np.zeros((3, 0), "U4"),
        }.items()
    ),
    ("x.csv", "up\n", {}, "holds no symbols"),
    # labels
    ("x.txt", "up up left right", {"labels": "up,down"}, "'left'", "position 2", "up, down"),
    ("x.txt", "a b c a", {"alphabet": 2}, "3 labels", "alphabet of 2", "a, b, c"),
    ("x.txt", "0 1 zero", {}, "'zero' at position 2 is not a number", "--labels"),
    ("x.csv", "bit\n0\n1\nzero\n", {}, "'zero' at position 2 is not a number", "--labels"),
    ("x.txt", "0-1-1-0", {}, "'0-1-1-0'"),  # a separator we do not know
    ("x.txt", ">chr1\n" + "ACGT" * 15, {}, "'>chr1'"),
]


@pytest.mark.parametrize(("name", "content", "options", "parts"), [
    (name, content, options, parts) for name, content, options, *parts in REFUSED_SYMBOLS
])  # fmt: skip
def test_files_without_symbols_are_refused(sequence, name, content, options, parts):
    message = refusal(sequence, name, content, **options)
    assert all(part in message for part in parts), message
    assert "alphabet" not in options or "--alphabet" not in message


@pytest.mark.parametrize(
    "options",
    [*({"labels": text} for text in ("up,up", "up,,down", "", "a\x1b,b")), {"alphabet": 1}],
)
def test_bad_options_of_symbols(sequence, options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} must be .* got"):
        sequence("x.txt", "0 1", **options)


def test_archives(sequence):
    whole = archive(npy(header(), TWO), zipfile.ZIP_STORED)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        content = archive(npy(header(), TWO), method)
        assert sequence("x.npz", content).symbols.tolist() == [0, 1]
    for bad in (whole[:-10], whole[:40], whole.replace(TWO, TWO[::-1]), b"PK\x03\x04" + bytes(9)):
        refusal(sequence, "x.npz", bad)
    file = io.BytesIO()
    np.savez(file, **{"a\x1b": [0, 1], "b": [1, 0]})
    assert "2 files, not one: a\\x1b.npy" in refusal(sequence, "x.npz", file.getvalue())


BITS = "01101110000000010000111101111111"
COLUMN = "\n".join(BITS)
ROWS = "\n".join(f"{t};{bit}" for t, bit in enumerate(BITS))
WORDS = ["up", "up", "down", "up", "level", "down"]
NUMBERED = ([0, 0, 1, 0, 2, 1], ("up", "down", "level"))
LINE = "ACGT" * 15
# The file, its content and the options; the symbols, and their labels if there are any.
SYMBOLS = [
    *((name, text, {"column": column}, list(map(int, BITS)))
      for name, text, column in [
          ("bits", " ".join(BITS), None),
          ("bits.txt", ", ".join(f"{bit}.0" for bit in BITS), None),
          ("bits.txt", "\ufeff" + BITS[:9] + ";\r\n" + BITS[9:], None),
          ("bits.csv", COLUMN, None),
          ("bits.csv", "bit\n" + COLUMN + "\n\n", None),
          ("bits.csv", ROWS, "1"),
          ("bits.csv", "time;bit\n" + ROWS, "bit"),
          ("bits.csv", "time;bit\n" + ROWS, "1"),
          ("bits.tsv", ROWS.replace(";", "\t"), "1"),
          ("bits.txt", "a,b\n" + ROWS.replace(";", ","), "b"),
      ]),
    ("x.txt", "12 3", {"alphabet": 10}, [1, 2, 3]),
    ("x.txt", "12 3", {"alphabet": 13}, [12, 3]),
    *((name, content, options, *NUMBERED)
      for name, content, options in [
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
      ]),
    *(("x.txt", text, {}, [0, 1, 2, 3, 3, 2, 1, 0], tuple("ACGT"))
      for text in ("ACGTTGCA", "ACGT\nTGCA\n", "A C G T T G C A")),
    ("x.txt", f"{LINE}\n{LINE}\n", {}, [0, 1, 2, 3] * 30, tuple("ACGT")),
    # False is 0, and True is 1.
    *((name, content, {}, [0, 1, 1, 0], ("False", "True"))
      for name, content in [
          ("x.txt", "False true TRUE false"),
          ("x.npy", np.array(["False", "true", "TRUE", "false"])),
      ]),
    ("x.txt", "TRUE true", {}, [1, 1], ("False", "True")),
    ("x.csv", "True\nFalse\nfalse\n", {}, [1, 0, 0], ("False", "True")),
    # Given labels fix the order, and a first line that is a label is no header.
    *((name, content, {"labels": labels}, symbols, tuple(labels.split(",")))
      for name, content, labels, symbols in [
          ("x.txt", "down up down", "up,down,level", [1, 0, 1]),
          ("x.csv", "down\nup\nup", "up,down", [1, 0, 0]),
          ("x.txt", "ACCA\nACCA", "C,A", [1, 0, 0, 1] * 2),
          ("x.txt", "0110", "1,0", [1, 0, 0, 1]),
          ("x.npy", np.array([-1, 1, -1]), "-1,1", [0, 1, 0]),
          ("x.txt", "nan 0_1 nan", "nan,0_1", [0, 1, 0]),
      ]),
    ("x.csv", '"a,b"\nc\nc', {"labels": 'c,"a,b"'}, [1, 0, 0], ("c", "a,b")),
    # A header is no label.
    ("x.csv", "a,b\nu,v\nw,u\n", {"column": "a"}, [0, 1], ("u", "w")),
    ("x.csv", "u,v\nw,u\nu,v\n", {"column": "0"}, [0, 1, 0], ("u", "w")),
    ("x.csv", "0,up\n1,down\n", {"column": "1"}, [0, 1], ("up", "down")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "options", "expected"), [
    (name, content, options, expected) for name, content, options, *expected in SYMBOLS
])  # fmt: skip
def test_symbols(sequence, name, content, options, expected):
    found, (symbols, *labels) = sequence(name, content, **options), expected
    assert found.symbols.tolist() == symbols
    assert found.symbols.dtype == np.int32
    assert [found.labels] == (labels or [()])
    assert found.alphabet == options.get("alphabet", max(2, len(found.labels)))


@pytest.mark.parametrize("dtype", [bool, np.int64, np.uint8, np.float32])
def test_kinds_of_arrays(sequence, dtype):
    symbols = np.array(list(BITS), int)
    both = np.stack([1 - symbols, symbols])
    for found in (
        sequence("x.npy", symbols.astype(dtype)),
        sequence("x.npy", both.astype(dtype), row=1),
        sequence("x.npz", both.astype(dtype), row=1),
    ):
        assert found.symbols.tolist() == symbols.tolist()


NOT_NUMBERS = ["0_1", "1_000", "١", "１", "1e400", "-1e400", "nan", "NaN", "inf", "infinity", "0x1"]


def test_parse_number_is_stricter_than_float():
    for text in ("1", "1.0", "+1", "1e0", "10e-1", "01", ".5e1", "1."):
        assert parse_number(text) == float(text)
    for text in (*NOT_NUMBERS, "", "-", ".", "1 0"):
        assert parse_number(text) is None


@pytest.mark.parametrize("token", NOT_NUMBERS)
@pytest.mark.parametrize("others", ["0 1", "up down"])
@pytest.mark.parametrize("name", ["x.txt", "x.csv"])
def test_a_malformed_number_is_no_symbol(sequence, token, others, name):
    if token == "0x1" and others != "0 1":
        return  # a word like any other
    text = f"{others} {token}" if name == "x.txt" else "\n".join(["head", *others.split(), token])
    message = refusal(sequence, name, text)
    assert repr(token) in message
    assert "position 2" in message


def test_alphabets_of_labels(sequence):
    found = sequence("x.txt", "up up")
    assert (found.alphabet, found.labels) == (2, ("up",))
    found = sequence("x.txt", "a b a", alphabet=4)
    assert (found.alphabet, found.labels) == (4, ("a", "b"))
    words = ["".join(pair) for pair in itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=2)]
    assert sequence("x.csv", "\n".join(words[:256] * 2)).alphabet == 256
    assert "257 labels" in refusal(sequence, "x.csv", "\n".join(words[:257] * 2))


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
def test_damaged_arrays(sequence, content):
    for name, whole in {"x.npy": content, "x.npz": archive(content)}.items():
        message = refusal(sequence, name, whole)
        assert "pickle" not in message
        assert "max_header_size" not in message


def archive(content, method=zipfile.ZIP_DEFLATED, name="symbols.npy"):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as target:
        target.writestr(name, content)
    return file.getvalue()


# --- limits ---------------------------------------------------------------------------------


@pytest.fixture
def limit(monkeypatch):
    monkeypatch.setattr(_text, "LARGEST", 2**20)


@pytest.mark.usefixtures("limit")
def test_the_size_of_a_file_has_a_limit(sequence, monkeypatch):
    assert len(sequence("x.txt", "01" * 2**19).symbols) == 2**20
    bomb = archive(npy(header("'|u1'", f"({2**21},)"), bytes(2**21)))
    assert len(bomb) < 2**14
    for name, content in {
        "x.txt": "01" * 2**19 + "0",
        "x.csv": "0\n" * 2**19 + "0",
        "x.npy": np.zeros(2**20, np.uint8),
        "x.npz": bomb,
    }.items():
        assert "more than 1 MiB" in refusal(sequence, name, content)
    for name in ("/dev/zero", "/dev/full"):
        with pytest.raises(ValueError, match=f"{name} .*more than 1 MiB"):
            read_symbols(Path(name))
    with open("/dev/zero") as endless:
        monkeypatch.setattr(sys, "stdin", endless)
        with pytest.raises(ValueError, match=r"standard input .*more than 1 MiB"):
            read_symbols(Path("-"))


# --- what a terminal is shown ---------------------------------------------------------------


def test_control_characters_are_escaped(sequence):
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
        message = refusal(sequence, name, content, **options)
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
