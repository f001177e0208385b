"""Tables of numbers in files: what is read, and a sentence for everything else."""

import importlib.util
import io
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from switchpoint.cli.table_io import read_series

NAN = float("nan")
HAS_PYARROW = importlib.util.find_spec("pyarrow") is not None


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Reads a file of this content, text or bytes."""
    monkeypatch.chdir(tmp_path)

    def read(name, content, *columns, **options):
        data = content if isinstance(content, bytes) else content.encode()
        if name == "-":
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        else:
            Path(name).write_bytes(data)
        return read_series(Path(name), columns, **options)

    return read


def assert_is(found, values, names, times=None):
    np.testing.assert_array_equal(found.values, np.asarray(values, float).reshape(len(values), -1))
    assert found.names == names
    assert found.times == times


@pytest.mark.parametrize("name", ["x.csv", "x.txt", "x.dat", "-"])
@pytest.mark.parametrize(
    "text",
    ["1\n2.5\n-3e2\n", "1 2.5\n-300\n", "1, 2.5, -300", "1;2.5;-300\n", "\ufeff1\n2.5\n-300"],
)
def test_lists_of_numbers(read, name, text):
    assert_is(read(name, text), [1, 2.5, -300], ("0",))


def test_missing_observations_have_many_spellings(read):
    cells = ["1", "", "NA", "nan", "NaN", "null", "None", "N/A", "2"]
    text = "t,x\n" + "".join(f"{t},{cell}\n" for t, cell in enumerate(cells))
    assert_is(read("x.csv", text, "x"), [1, *[NAN] * 7, 2], ("x",))
    assert_is(read("x.csv", "NA\n1\n2\n"), [NAN, 1, 2], ("0",))


@pytest.mark.parametrize("columns", [("x",), ("x", "y")])
def test_a_whole_gap_keeps_its_length(read, columns):
    """pandas writes the only cell of a row as "" where it is missing, and two as a comma."""
    values = np.repeat([[NAN], [1], [NAN], [NAN], [2]], len(columns), axis=1)
    text = pd.DataFrame(values, columns=columns).to_csv(index=False)
    assert_is(read("x.csv", text, *columns), values, columns)
    assert_is(read("x.csv", "x,y\n1,2\n,\n\n3,4\n,\n,\n", "x"), [1, NAN, 3], ("x",))


TABLE = "date,open,close,note\n2024-01-31,1,4,a\n2024-02-29,2,,b\n2024-03-31,3,6,\n"
DATES = ("2024-01-31", "2024-02-29", "2024-03-31")


def test_columns_by_name_or_number_with_dates_as_times(read):
    assert_is(read("x.csv", TABLE, "close"), [4, NAN, 6], ("close",), DATES)
    assert_is(read("x.csv", TABLE, "2"), [4, NAN, 6], ("close",), DATES)
    both = [[4, 1], [NAN, 2], [6, 3]]
    assert_is(read("x.csv", TABLE, "close", "open"), both, ("close", "open"), DATES)
    assert_is(read("x.csv", TABLE, "open", time="date"), [1, 2, 3], ("open",), DATES)
    tabs = TABLE.replace(",", "\t")
    assert_is(read("x.tsv", tabs, "open"), [1, 2, 3], ("open",), DATES)
    assert_is(read("x.csv", TABLE.replace(",", ";"), "open"), [1, 2, 3], ("open",), DATES)


@pytest.mark.parametrize("name", ["year", "Date", "TIME"])
def test_a_first_column_that_is_called_like_time_is_the_time(read, name):
    found = read("x.csv", f"{name},flow\n1871,5\n1872,6\n")
    assert_is(found, [5, 6], ("flow",), ("1871", "1872"))
    assert found.time_name == name
    assert_is(read("x.csv", f"{name},flow\n1871,5\n1872,6\n", name), [1871, 1872], (name,))


def test_a_table_without_a_header(read):
    text = "2024-01-01,5\n2024-01-02,6\n"
    assert_is(read("x.csv", text), [5, 6], ("1",), ("2024-01-01", "2024-01-02"))
    assert_is(read("x.csv", "1,2\n3,4\n", "1"), [2, 4], ("1",))


@pytest.mark.parametrize("name", ["x.json", "-", "x"])
@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ([1, None, 3], ("0",)),
        ([{"x": 1}, {"x": None}, {"x": 3}], ("x",)),
        ([{"x": 1, "name": "a"}, {"name": "b"}, {"x": 3, "name": "c"}], ("x",)),
        ({"x": [1, None, 3]}, ("x",)),
        ({"x": {"0": 1, "1": None, "2": 3}, "name": {"0": "a", "1": "b", "2": "c"}}, ("x",)),
    ],
)
def test_json_as_lists_records_and_columns(read, name, content, columns):
    assert_is(read(name, json.dumps(content)), [1, NAN, 3], columns)


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "-"])
def test_json_lines(read, name):
    text = '{"day": "2024-01-01", "x": 1}\n{"day": "2024-01-02", "x": null}\n'
    assert_is(read(name, text), [1, NAN], ("x",), ("2024-01-01", "2024-01-02"))
    with pytest.raises(ValueError, match=r"line 3 is not JSON \(Expecting"):
        read(name, text + "oops\n")


def test_json_with_times(read):
    rows = [{"time": f"2024-01-0{day}", "x": day / 2} for day in (1, 2, 3)]
    times = ("2024-01-01", "2024-01-02", "2024-01-03")
    assert_is(read("x.json", json.dumps(rows)), [0.5, 1, 1.5], ("x",), times)
    years = {"year": [1871, 1872], "x": [1, 2]}
    assert_is(read("x.json", json.dumps(years)), [1, 2], ("x",), ("1871", "1872"))


@pytest.mark.skipif(not HAS_PYARROW, reason="needs pyarrow")
@pytest.mark.parametrize("name", ["x.parquet", "x.pq", "-"])
def test_parquet(read, name):
    frame = pd.DataFrame(
        {
            "day": pd.date_range("2024-01-01", periods=3),
            "x": [1.5, None, 3],
            "n": pd.array([1, None, 2], "Int64"),
            "word": ["a", "b", None],
        }
    )
    data = frame.to_parquet()
    times = ("2024-01-01 00:00:00", "2024-01-02 00:00:00", "2024-01-03 00:00:00")
    assert_is(read(name, data, "x"), [1.5, NAN, 3], ("x",), times)
    assert_is(read(name, data, "n", "x"), [[1, 1.5], [NAN, NAN], [2, 3]], ("n", "x"), times)
    indexed = frame.set_index("day")[["x"]].to_parquet()
    assert_is(read(name, indexed), [1.5, NAN, 3], ("x",), times)


def test_parquet_needs_a_package(read, monkeypatch):
    for name in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=r"pip install 'switchpoint\[parquet\]'"):
        read("x.parquet", b"PAR1")


REFUSED = {
    "x.csv: the file holds no observations": ("x.csv", ""),
    "holds no observations": ("x.csv", "a,b\n"),
    "there is no column 'z'; the columns are: date, open, close, note": ("x.csv", TABLE, "z"),
    "there is no column '4'": ("x.csv", TABLE, "4"),
    "2 columns of numbers, choose with --column": ("x.csv", TABLE),
    "open, close": ("x.csv", TABLE),
    "'a' in column note, line 2, is not a finite number": ("x.csv", TABLE, "note"),
    "no column holds only numbers": ("x.csv", "a,b\nx,y\nz,w\n"),
    "'x' in column a, line 2": ("x.csv", "a\nx\n1\n"),
    "'inf' in column x, line 3": ("x.csv", "x\n1\ninf\n"),
    "'1_0' in column x, line 2": ("x.csv", "x\n1_0\n2\n"),
    "inf in column 0, row 1": ("x.json", "[1, Infinity]"),
    "-inf in column 0, row 1": ("x.json", f"[1, -1{'0' * 400}]"),
    "column 'open' is chosen twice": ("x.csv", TABLE, "open", "1"),
    "two columns called 'x'": ("x.csv", "x,x\n1,2\n", "x"),
    "line 3 has 2 cells, the first has 1": ("x.csv", "x\n1\n2,3\n"),
    "is not JSON": ("x.json", "{"),
    "JSON must be a list of numbers": ("x.json", '"text"'),
    "a: 2, b: 1": ("x.json", '{"a": [1, 2], "b": [1]}'),
    "'x' in column 0, row 1": ("x.json", '[1, "x"]'),
    "byte 1 is not UTF-8": ("x.csv", b"1\xff"),
    "standard input: there is no column 'y'": ("-", "x\n1\n2\n", "y"),
}


@pytest.mark.parametrize(("message", "arguments"), REFUSED.items(), ids=list(REFUSED))
def test_bad_files_are_refused_in_one_sentence(read, message, arguments):
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        read(*arguments)
    assert message in str(caught.value)


def test_bad_times_are_refused_in_one_sentence(read):
    with pytest.raises(ValueError, match="both the series and its time"):
        read("x.csv", TABLE, "open", time="open")
    with pytest.raises(ValueError, match="there is no column 'when'"):
        read("x.csv", TABLE, "open", time="when")
    with pytest.raises(ValueError, match="no time in column note, line 4"):
        read("x.csv", TABLE, "open", time="note")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        read_series(tmp_path / "none.csv")


@pytest.mark.skipif(not HAS_PYARROW, reason="needs pyarrow")
def test_damaged_parquet(read):
    with pytest.raises(ValueError, match="damaged, or not a Parquet file"):
        read("x.parquet", b"PAR1 is not enough")
