"""`switchpoint watch`: lines in, lines of JSON out, and a state that survives."""

import io
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

import switchpoint as sp
from switchpoint.cli import main
from switchpoint.cli.process import SIGNALS
from switchpoint.cli.reader import LineReader
from switchpoint.detection.defaults import default_column, destandardise

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(sp.__file__).parents[1])}
RNG = np.random.default_rng(18)
VALUES = [f"{x:.3f}" for x in RNG.normal(np.repeat([0.0, 5.0, -3.0], 80), 1.0)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(VALUES)
    return tmp_path


def write(lines, name="x.txt"):
    Path(name).write_text("".join(f"{line}\n" for line in lines))


def watch(capsys, *arguments):
    """What a successful command writes."""
    status = main(["watch", *arguments])
    printed = capsys.readouterr()
    assert (status, printed.err) == (0, "")
    return [json.loads(line) for line in printed.out.splitlines()]


def without_time(records):
    return [{key: value for key, value in each.items() if key != "time"} for each in records]


# --- what is written ------------------------------------------------------------------------


def test_every_record_agrees_with_the_stream(capsys):
    records = watch(capsys, "x.txt", "--hazard", "0.01", "--within", "7")
    segment = destandardise(default_column("level", np.array(VALUES[:50], float)))
    stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.Geometric(0.01), segment), 100))
    assert len(records) == len(VALUES)
    for position, (record, value) in enumerate(zip(records, VALUES, strict=True)):
        surprise = -stream.update(float(value)) / np.log(2)
        assert record["position"] == position
        assert record["value"] == float(value)
        assert record["switch_probability"] == pytest.approx(stream.change_probability(7), abs=1e-6)
        assert record["run_length"] == stream.run_length.mode
        assert record["run_length_mean"] == pytest.approx(stream.run_length.mean, abs=0.01)
        assert record["surprise"] == pytest.approx(surprise, abs=1e-3)
        assert record["code_length"] == pytest.approx(stream.code_length, abs=1e-3)


def test_a_change_is_one_alarm(capsys):
    records = watch(capsys, "x.txt", "--alarm", "0.9")
    assert [each["position"] // 80 for each in records] == [1, 2]
    assert all(each["position"] % 80 < 5 and each["alarm"] for each in records)


def test_the_scale_comes_from_the_first_lines(capsys):
    """In any unit, and far from zero, the same switches are found."""
    before = watch(capsys, "x.txt", "--warm-up", "30")
    write([f"{1e6 + 1e-3 * float(x):.9f}" for x in VALUES])
    after = watch(capsys, "x.txt", "--warm-up", "30")
    for one, other in zip(before, after, strict=True):
        assert one["switch_probability"] == pytest.approx(other["switch_probability"], abs=1e-3)
        assert other["surprise"] == pytest.approx(one["surprise"] - np.log2(1000), abs=1e-2)


@pytest.mark.parametrize("kind", ["trend", "counts", "waiting-times"])
def test_other_families(capsys, kind):
    write([str(int(abs(float(x)) * 3) + 1) for x in VALUES])
    records = watch(capsys, "x.txt", "--segment", kind, "--prior", "lin", "--hypotheses", "20")
    assert len(records) == len(VALUES)
    assert all(np.isfinite(each["code_length"]) for each in records)


def test_bits_and_labels_and_missing_observations(capsys):
    bits = ["1", "0", "", "1", "NA", "nan", "0"]
    write(bits)
    stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.PTW(40))))
    stream.extend([1, 0, None, 1, None, None, 0])
    records = watch(capsys, "x.txt", "--prior", "ptw")
    assert [each["value"] for each in records] == [1, 0, None, 1, None, None, 0]
    assert records[-1]["code_length"] == pytest.approx(stream.code_length, abs=1e-3)
    assert str(records[2]["surprise"]) == "0.0"
    assert [each["surprise"] == 0 for each in records] == [
        value in ("", "NA", "nan") for value in bits
    ]
    write(["up" if bit == "1" else "down" if bit == "0" else bit for bit in bits])
    named = watch(capsys, "x.txt", "--prior", "ptw", "--labels", "down,up")
    assert [each["value"] for each in named[:3]] == ["up", "down", None]
    assert [each["code_length"] for each in named] == [each["code_length"] for each in records]


def test_columns_of_a_table(capsys):
    pairs = [(x, y) for x, y in zip(VALUES, reversed(VALUES), strict=True)]
    rows = [f"2026-01-{1 + i // 24:02d}T{i % 24:02d},{x},{y}" for i, (x, y) in enumerate(pairs)]
    write(["time,load,heat", *rows])
    records = watch(capsys, "x.txt", "--column", "heat", "--column", "load")
    assert [each["position"] for each in records] == list(range(len(VALUES)))
    assert records[5]["time"] == "2026-01-01T05"
    assert records[5]["value"] == {"heat": float(pairs[5][1]), "load": float(pairs[5][0])}
    write([*(f"{x};{y}" for x, y in pairs[:30]), ";", f"{VALUES[0]};"])
    records = watch(capsys, "x.txt", "--column", "1", "--segment", "trend")
    assert records[-3]["value"] == float(pairs[29][1])
    assert records[-2]["value"] is records[-1]["value"] is None


@pytest.mark.parametrize("kind", ["level", "trend"])
@pytest.mark.parametrize(("before", "after"), [(0.5, 0.6), (0.0, 0.01), (-1e5, -1e5 + 1)])
def test_a_change_of_a_constant_is_one_alarm(capsys, kind, before, after):
    """A constant shows no scale; that of what comes later may be anything."""
    noise = (after - before) * RNG.normal(size=200)
    for rest in (np.full(500, after), after + noise):
        write([before] * 100 + rest.tolist())
        records = watch(capsys, "x.txt", "--segment", kind, "--alarm", "0.9")
        assert [each["position"] - 100 for each in records] == [pytest.approx(1, abs=1)]


def test_lines_of_json(capsys):
    plain = without_time(watch(capsys, "x.txt"))
    write([json.dumps({"v": float(x)}) for x in VALUES])
    assert without_time(watch(capsys, "x.txt")) == plain
    rows = [{"host": "a", "v": float(x), "w": i, "at": f"2026-01-{1 + i % 28:02d}"}
            for i, x in enumerate(VALUES)]  # fmt: skip
    rows[7] = {"w": 3}
    write(map(json.dumps, rows[:7]))
    _, message = refused(capsys, "x.txt")
    assert "2 columns of numbers, choose with --column" in message
    assert "v, w" in message
    write(map(json.dumps, rows))
    records = watch(capsys, "x.txt", "--column", "v")
    assert [each["value"] for each in records] == [row.get("v") for row in rows]
    assert records[9]["time"] == "2026-01-10"
    records = watch(capsys, "x.txt", "--column", "v", "--column", "w", "--time", "host")
    assert (records[9]["value"], records[9]["time"]) == ({"v": rows[9]["v"], "w": 9}, "a")
    for row in rows:
        row.pop("w")
    write(map(json.dumps, rows))  # one field of numbers, beside times and words
    assert watch(capsys, "x.txt")[9]["value"] == rows[9]["v"]
    states = [{"state": "up"}, {"state": "down"}, {"state": None}, {}]
    write(map(json.dumps, states * 5))
    assert [each["value"] for each in watch(capsys, "x.txt")[:4]] == ["up", "down", None, None]


@pytest.mark.parametrize("count", [20, 60])  # in the warm-up, and after it
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("3.5", "not a JSON object"),
        ('{"v": 3.5', "not a JSON object"),
        ('{"v": [3.5]}', "v is a list"),
        ('{"v": "3 ms"}', "'3 ms' is not a finite number"),
        ('{"v": Infinity}', "finite"),
    ],
)
def test_lines_that_are_no_json_of_the_stream(capsys, count, line, problem):
    write([*(json.dumps({"v": float(x)}) for x in VALUES[:count]), line])
    before, message = refused(capsys, "x.txt")
    assert len(before) == count
    assert f"x.txt, line {count + 1}: " in message
    assert problem in message


@pytest.mark.parametrize(
    ("lines", "problem", "remedy"),
    [
        (["3 ms", "4 ms", "3 ms", "5 ms"], "line 1: '3 ms' looks like a number", "--labels"),
        (["", "3 ms", "4", "5", "6"], "line 2: '3 ms' looks like a number", "--column"),
        (["$3", "$4", "$3"], "line 1: '$3' looks like a number", "--labels"),
        (["load=3", "load=4", "load=3"], "line 1: 'load=3' looks like a number", "--labels"),
        (["1", "2", "up", "3"], "line 3: 'up' is not a finite number", "--labels"),
        (["up", "down", "up", "3"], "line 1: 'up' is not a finite number", "--labels"),
        (["[1, 2]", "[3, 4]"], "JSON list", "a line of its own"),
        (['{"v": "3 ms"}'] * 9, "line 1: '3 ms' looks like a number", "--labels"),
        (['{"a": {"b": 1}}'], "no field that is a number or a word", "a"),
        (["{v: 3}", "{v: 4}"], "line 1: it is not a JSON object", "{v: 3}"),
    ],
)
def test_lines_of_neither_numbers_nor_labels_are_refused(capsys, lines, problem, remedy):
    write(lines)
    _, message = refused(capsys, "x.txt")
    assert problem in message
    assert remedy in message


# --- states ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 79, 100, 240])
def test_a_run_resumes_where_the_last_one_ended(capsys, cut):
    options = ["--hazard", "0.01", "--alarm", "0.5", "--warm-up", "20"]
    whole = without_time(watch(capsys, "x.txt", *options))
    write(VALUES[:cut])
    options += ["--state", "x.state"]
    parts = watch(capsys, "x.txt", *options) if cut > 20 else []
    if cut > 20:
        assert sp.Stream.load("x.state").position == cut
        assert watch(capsys, "x.txt", *options) == []
    write(VALUES)
    parts += watch(capsys, "x.txt", *options)
    assert without_time(parts) == whole
    assert sp.Stream.load("x.state").position == len(VALUES)


def test_the_end_of_the_last_line_may_come_later(capsys):
    Path("x.txt").write_text("1\n0\n1")
    options = ["x.txt", "--state", "x.state", "--alphabet", "2"]
    assert len(watch(capsys, *options)) == 3
    Path("x.txt").write_text("1\n0\n1\n0\n")
    assert [each["value"] for each in watch(capsys, *options)] == [0]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("follow", [False, True])
def test_the_end_of_a_line_is_no_observation(folder, end, follow):
    file = folder / "ends.txt"
    file.write_bytes(b"1\n0")
    with LineReader(file, False) as reader:
        place = reader.place_after([line for lines in reader.batches(9) for line in lines][-1])
    if not follow:
        file.write_bytes(f"1\n0{end}1{end}".encode())
    with LineReader(file, follow, place) as reader:
        batches = reader.batches(9)
        if follow:
            assert next(batches) == []
            file.write_bytes(f"1\n0{end}1{end}".encode())
        assert next(batches) == [(3, 4 + 2 * len(end), "1", 0)]


def test_a_line_that_grew_after_it_was_counted_is_refused(capsys):
    Path("x.txt").write_text("1\n0\n1")
    options = ["x.txt", "--state", "x.state", "--segment", "level"]
    assert len(watch(capsys, *options)) == 3
    Path("x.txt").write_text("1\n0\n15\n2\n")
    records, message = refused(capsys, *options)
    assert records == []
    assert "x.txt, line 3" in message
    assert "before it was complete" in message


def test_lines_of_standard_input_are_always_new(capsys, monkeypatch):
    for expected in ([0, 1], [2, 3]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"0\n1\n")))
        records = watch(capsys, "--state", "x.state")
        assert [each["position"] for each in records] == expected


def refused(capsys, *arguments):
    """What a command wrote before it refused its input, and the message."""
    status = main(["watch", *arguments])
    printed = capsys.readouterr()
    assert status == 2
    assert printed.err.count("\n") == 1
    return [json.loads(line) for line in printed.out.splitlines()], printed.err


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("one", "'one' is not a finite number"),
        ("inf", "finite"),
        ("01" * 100, "of its own"),
    ],
)
def test_a_bad_line_is_named_and_the_lines_before_it_are_kept(capsys, line, problem):
    write([*VALUES[:100], line, *VALUES[100:]])
    options = ["x.txt", "--state", "x.state"]
    before, message = refused(capsys, *options)
    assert "x.txt, line 101: " in message
    assert problem in message
    assert len(before) == sp.Stream.load("x.state").position == 100
    assert refused(capsys, *options) == ([], message)  # the state is whole
    write([*VALUES[:100], "", *VALUES[100:]])
    assert [each["position"] for each in watch(capsys, *options)] == list(range(100, 241))


def test_lines_that_are_no_rows_of_a_table(capsys):
    rows = [f"{i},{x}" for i, x in enumerate(VALUES[:60])]
    for count in (20, 60):  # in the warm-up, and after it
        line = f"{count}\r7,1"
        Path("x.txt").write_bytes("\n".join([*rows[:count], line, "70,2", ""]).encode())
        before, message = refused(capsys, "x.txt", "--column", "1")
        assert len(before) == count
        assert f"x.txt, line {count + 1}: it is no line of a table" in message


def test_a_quoted_cell_ends_with_its_line(capsys):
    write(['1,"2.5', "3,4", "5,6"])
    records = watch(capsys, "x.txt", "--column", "1")
    assert [each["value"] for each in records] == [2.5, 4, 6]


def test_symbols_outside_the_alphabet(capsys):
    write(["0", "1"] * 40 + ["2"])
    _, message = refused(capsys, "x.txt")
    assert "line 81: '2' is outside the alphabet 0..1" in message
    assert "--segment level" in message
    write(["a", "b"] * 40 + ["c"])
    _, message = refused(capsys, "x.txt")
    assert "line 81: 'c' is not one of the labels a, b" in message


def test_options_and_states_that_do_not_fit(capsys, folder):
    options = "x.txt --state x.state --hazard 0.01"
    watch(capsys, *options.split())
    saved = (folder / "x.state").read_bytes()
    write(VALUES[:30], "short.txt")
    write(["9", *VALUES], "other.txt")
    write(["load"], "header.txt")
    write([""] * 60, "empty.txt")
    (folder / "long.txt").write_text("y" * 2**21)
    (folder / "cut.state").write_bytes(saved[:-20])
    sp.Stream(sp.KT()).save("foreign.state")
    for command, problem in {
        "x.txt --state x.state --hazard 0.02": "was saved with hazard 0.01, got 0.02",
        options.replace("x.txt", "short.txt"): "shorter than the",
        options.replace("x.txt", "other.txt"): "bytes differ",
        options.replace("x.state", "cut.state"): "cut.state is not a saved stream",
        options.replace("x.state", "foreign.state"): "not of switchpoint watch",
        "x.txt --alarm 2": "alarm must be",
        "x.txt --state no/x.state": "state cannot be written",
        "none.txt": "none.txt cannot be read",
        "x.txt --segment level1": "got 'level1'",
        "x.txt --prior uniform": "needs longest",
        "x.txt --alpha 1": "alpha is for symbols",
        "--follow": "--follow is for a file",
        "header.txt": "no observation follows the header",
        "empty.txt --segment level": "no value in the first 50 lines",
        "long.txt --alphabet 2": "line 1: it has more than",
    }.items():
        records, message = refused(capsys, *command.split())
        assert (records, problem in message) == ([], True), message
    assert (folder / "x.state").read_bytes() == saved


# --- reading --------------------------------------------------------------------------------


def test_a_growing_file_is_followed_in_whole_lines(folder):
    file = folder / "grows.txt"
    file.write_text("1\n2\n3")
    reader = LineReader(file, follow=True)
    batches = reader.batches(2)
    texts = [line.text for line in next(batches)]
    assert texts == ["1", "2"]
    assert next(batches) == []  # the third line has no end yet
    with file.open("a") as more:
        more.write("4\r\n5\n")
    assert [(line.number, line.end, line.text) for line in next(batches)] == [
        (3, 8, "34"),
        (4, 10, "5"),
    ]
    assert next(batches) == []
    file.write_text("")
    with pytest.raises(ValueError, match=r"grows.txt was cut off"):
        next(batches)
    reader.close()


def test_a_rotated_file_is_read_to_its_end_and_the_new_one_from_its_beginning(folder):
    file, old = folder / "log.txt", folder / "log.1"
    file.write_text("1\n2\n")
    with LineReader(file, follow=True) as reader, file.open("a", buffering=1) as writer:
        batches = reader.batches(9)
        lines = next(batches)
        file.rename(old)
        assert next(batches) == []  # there is no new file
        file.touch()
        writer.write("3\n")  # to the old file, which logrotate has renamed
        assert [line.text for line in next(batches)] == ["3"]
        writer.write("4\n5")
        file.write_text("6\n")
        lines = [*lines, *next(batches), *next(batches)]
        place = reader.place_after(lines[-1])
        assert place == {"line": 5, "offset": 9, "tail": zlib.crc32(b"1\n2\n3\n4\n5")}
        assert next(batches) == []
        assert reader.place_after(lines[-1]) == {"line": 0, "offset": 0, "tail": 0}
        new = next(batches)
        assert new == [(1, 2, "6", 1)]
        assert [line.text for line in lines] == ["1", "2", "4", "5"]
        assert reader.place_after(new[0])["offset"] == 2


def test_a_file_that_is_replaced_by_a_longer_copy_is_continued(folder):
    """As rsync does: nothing is read twice."""
    file = folder / "log.txt"
    file.write_text("1\n2")
    with LineReader(file, follow=True) as reader:
        batches = reader.batches(9)
        assert [line.text for line in next(batches)] == ["1"]
        (folder / "copy").write_text("1\n23\n4\n")
        (folder / "copy").rename(file)
        assert next(batches) == []
        assert [(line.number, line.text) for line in next(batches)] == [(2, "23"), (3, "4")]
        assert reader.files == 0


def test_a_byte_order_mark_is_no_part_of_the_first_line(capsys):
    Path("x.txt").write_bytes(b"\xef\xbb\xbf1\n0\n1\n")
    assert [each["value"] for each in watch(capsys, "x.txt")] == [1, 0, 1]
    Path("x.txt").write_bytes(b"\xef\xbb\xbfyear,load\n1990,2.5\n1991,3\n")
    assert [each["time"] for each in watch(capsys, "x.txt")] == ["1990", "1991"]


def test_a_signal_waits_for_work_that_must_be_whole(monkeypatch):
    monkeypatch.setattr(SIGNALS, "received", None)
    monkeypatch.setattr(SIGNALS, "unwinds", True)
    done = []

    def work():
        with SIGNALS.deferred():
            SIGNALS._receive(signal.SIGTERM, None)
            done.append(1)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [1]


# --- processes ------------------------------------------------------------------------------


def start(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "switchpoint", "watch", *arguments],
        env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


@pytest.mark.slow
def test_a_killed_process_repeats_unsaved_observations(capsys):
    options = ["x.txt", "--hazard", "0.01", "--save-every", "30"]
    whole = without_time(watch(capsys, *options))
    write(VALUES[:100])
    with start("--follow", *options, "--state", "x.state") as process:
        lines = [json.loads(process.stdout.readline()) for _ in range(100)]
        with open("x.txt", "a") as file:
            file.write(f"{VALUES[100]}\n{VALUES[101][:2]}")
        lines.append(json.loads(process.stdout.readline()))
        process.kill()
    saved = sp.Stream.load("x.state").position
    assert 90 <= saved <= 101
    write(VALUES)
    lines[saved:] = watch(capsys, *options, "--state", "x.state")
    assert without_time(lines) == whole


@pytest.mark.slow
def test_a_rotated_table_is_one_stream(capsys):
    """With its header in each file; the state is saved when the file changes."""
    write(["time,load", *(f"{i},{x}" for i, x in enumerate(VALUES))])
    whole = watch(capsys, "x.txt")
    write(["time,load", *(f"{i},{x}" for i, x in enumerate(VALUES[:100]))])
    with start("--follow", "x.txt", "--state", "x.state") as process:
        lines = [json.loads(process.stdout.readline()) for _ in range(100)]
        os.rename("x.txt", "x.1")
        write(["time,load", f"100,{VALUES[100]}"])
        lines.append(json.loads(process.stdout.readline()))
        process.kill()
    saved = sp.Stream.load("x.state").position
    assert saved in (100, 101)
    del lines[saved:]
    write(["time,load", *(f"{i},{x}" for i, x in enumerate(VALUES) if i >= 100)])
    assert lines + watch(capsys, "x.txt", "--state", "x.state") == whole


@pytest.mark.slow
def test_a_reader_that_takes_nothing_and_a_termination():
    """The process waits for its reader, reads no further, and ends at SIGTERM."""
    write(["0110"[i % 4] for i in range(100_000)])
    with start("x.txt", "--state", "x.state", "--save-every", "100", "--prior", "ptw") as process:
        process.stdout.read(1)  # it has begun
        time.sleep(1.0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 143
        message = process.stderr.read()
    position = sp.Stream.load("x.state").position
    assert message == (
        f"switchpoint: terminated after {position} observations; the state is in x.state\n"
    )
    assert 0 < position < 10_000  # a pipe holds 64 KiB, a batch 100 lines


@pytest.mark.slow
def test_a_closed_pipe_is_a_clean_end():
    with start("--follow", "x.txt", "--state", "x.state") as process:
        process.stdout.readline()
        process.stdout.close()
        with open("x.txt", "a") as file:
            file.write("1\n" * 100)
        assert process.wait(timeout=30) == 1
        assert process.stderr.read() == ""
    assert sp.Stream.load("x.state").position in (240, 340)
