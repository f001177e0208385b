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
from switchpoint._tensors import read_tensors, write_tensors
from switchpoint.cli import main
from switchpoint.cli.process import SIGNALS
from switchpoint.cli.reader import LineReader
from switchpoint.detection.online import Monitor

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


def events(capsys, *arguments):
    """All records that a successful command writes."""
    status = main(["watch", *arguments])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    return [json.loads(line) for line in printed.out.splitlines()]


def watch(capsys, *arguments, event="observation"):
    """The records of one kind that a successful command writes."""
    records = events(capsys, *arguments, *["--all"] * (event == "observation"))
    return [record for record in records if record["event"] == event]


def saved_position(path="x.state"):
    """The number of observations in a state."""
    card, _ = read_tensors(Path(path), "watched stream")
    return card["series"][0][1]["position"]


def without_time(records):
    return [{k: value for k, value in each.items() if "time" not in k} for each in records]


# --- what is written ------------------------------------------------------------------------


def test_every_record_agrees_with_the_monitor(capsys):
    records = watch(capsys, "x.txt", "--hazard", "0.01")
    monitor = Monitor(sp.Geometric(0.01), detailed=True)
    reports = [report for x in VALUES for report in monitor.update((float(x),))]
    assert len(records) == len(reports) == len(VALUES)
    for record, report in zip(records, reports, strict=True):
        assert record["position"] == report.position
        assert record["value"] == report.values[0]
        assert record["switch_probability"] == pytest.approx(report.probability, abs=1e-6)
        assert record["run_length"] == report.run.mode
        assert record["surprise"] == pytest.approx(report.surprise, abs=1e-3)


def test_a_change_is_one_alarm(capsys):
    first, *records = events(capsys, "x.txt", "--warm-up", "50")
    assert first == {
        "event": "model", "position": 0, "model": "level segments", "one_in": 100_000
    }  # fmt: skip
    alarms = [each for each in records if each["event"] == "alarm"]
    assert [each["position"] // 80 for each in alarms] == [1, 2]
    for alarm, at, before, after in zip(alarms, (80, 160), (0, 5), (5, -3), strict=True):
        assert at <= alarm["position"] < at + 5
        assert alarm["interval"][0] <= alarm["began"] <= alarm["interval"][1]
        assert abs(alarm["began"] - at) <= 1
        assert alarm["level_before"] == pytest.approx(before, abs=0.5)
        assert alarm["level_after"] == pytest.approx(after, abs=2)
        assert 0.9 < alarm["probability"] <= 1
        assert alarm["value"] == float(VALUES[alarm["position"]])
    assert all(each["event"] in ("alarm", "outlier") for each in records)


@pytest.mark.parametrize("kind", ["trend", "counts", "waiting-times"])
def test_other_families(capsys, kind):
    write([str(int(abs(float(x)) * 3) + 1) for x in VALUES])
    records = watch(capsys, "x.txt", "--segment", kind, "--prior", "lin", "--hypotheses", "20")
    assert len(records) == len(VALUES)
    assert all(np.isfinite(each["surprise"]) for each in records)


def test_bits_and_labels_and_missing_observations(capsys):
    bits = ["1", "0", "", "1", "NA", "nan", "0"]
    write(bits)
    stream = sp.Stream(sp.bayes_optimal(sp.Source(sp.PTW(40))))
    stream.extend([1, 0, None, 1, None, None, 0])
    records = watch(capsys, "x.txt", "--prior", "ptw")
    assert [each["value"] for each in records] == [1, 0, None, 1, None, None, 0]
    total = sum(each["surprise"] for each in records)
    assert total == pytest.approx(stream.code_length, abs=4e-3)
    assert str(records[2]["surprise"]) == "0.0"
    assert [each["surprise"] == 0 for each in records] == [
        value in ("", "NA", "nan") for value in bits
    ]
    write(["up" if bit == "1" else "down" if bit == "0" else bit for bit in bits])
    named = watch(capsys, "x.txt", "--prior", "ptw", "--labels", "down,up")
    assert [each["value"] for each in named[:3]] == ["up", "down", None]
    assert [each["surprise"] for each in named] == [each["surprise"] for each in records]


def test_columns_of_a_table(capsys):
    pairs = [(x, y) for x, y in zip(VALUES, reversed(VALUES), strict=True)]
    rows = [f"2026-01-{1 + i // 24:02d}T{i % 24:02d},{x},{y}" for i, (x, y) in enumerate(pairs)]
    write(["time,load,heat", *rows])
    both = ["--column", "heat", "--column", "load"]
    records = watch(capsys, "x.txt", *both, "--alarms", "common")
    assert [each["position"] for each in records] == list(range(len(VALUES)))
    assert records[5]["time"] == "2026-01-01T05"
    assert records[5]["value"] == {"heat": float(pairs[5][1]), "load": float(pairs[5][0])}
    alarms = watch(capsys, "x.txt", *both, event="alarm")
    assert {(each["metric"], each["position"] // 80) for each in alarms} == {
        ("heat", 1), ("heat", 2), ("load", 1), ("load", 2)
    }  # fmt: skip
    times = [row.partition(",")[0] for row in rows]
    for alarm in alarms:
        assert alarm["began_time"] == times[alarm["began"]]
        assert alarm["interval_times"] == [times[each] for each in alarm["interval"]]
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
        records = watch(capsys, "x.txt", "--segment", kind, event="alarm")
        first, *more = [each["position"] - 100 for each in records]
        assert first <= 4
        assert len(more) <= 1  # the noise, which a constant does not show


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
    common = ["--alarms", "common", "--time", "host"]
    records = watch(capsys, "x.txt", "--column", "v", "--column", "w", *common)
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
    options = ["--hazard", "0.01", "--warm-up", "20"]
    whole = without_time(events(capsys, "x.txt", *options))
    assert [each["event"] for each in whole].count("alarm") == 2
    write(VALUES[:cut])
    options += ["--state", "x.state"]
    parts = events(capsys, "x.txt", *options) if cut > 20 else []
    if cut > 20:
        assert saved_position() == cut
        assert events(capsys, "x.txt", *options) == []
    write(VALUES)
    parts += events(capsys, "x.txt", *options)
    assert without_time(parts) == whole
    assert saved_position() == len(VALUES)


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
    status = main(["watch", *arguments, "--on-error", "stop", "--all"])
    printed = capsys.readouterr()
    assert status == 2
    lines = [line for line in printed.err.splitlines(True) if "false alarm" not in line]
    assert len(lines) == 1
    records = [json.loads(line) for line in printed.out.splitlines()]
    return [each for each in records if each["event"] == "observation"], lines[0]


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
    assert len(before) == saved_position() == 100
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
    _, message = refused(capsys, "x.txt", "--alphabet", "2")
    assert "line 81: '2' is outside the alphabet 0..1" in message
    assert "--segment level" in message
    write(["a", "b"] * 40 + ["c"])
    _, message = refused(capsys, "x.txt", "--warm-up", "50")
    assert "line 81: 'c' is not one of the labels a, b" in message


def test_options_and_states_that_do_not_fit(capsys, folder):
    options = "x.txt --state x.state --hazard 0.01"
    watch(capsys, *options.split())
    saved = (folder / "x.state").read_bytes()
    write(["load"], "header.txt")
    write([""] * 60, "empty.txt")
    (folder / "long.txt").write_text("y" * 2**21)
    (folder / "cut.state").write_bytes(saved[:-20])
    sp.Stream(sp.KT()).save("foreign.state")
    card, arrays = read_tensors(Path("x.state"), "watched stream")
    write_tensors(Path("newer.state"), {**card, "format": 99}, arrays, "path")
    for command, problem in {
        "x.txt --state x.state --hazard 0.02": "was saved with hazard 0.01, got 0.02",
        options + " --one-in 1000": "was saved with one-in 100000.0, got 1000.0",
        options.replace("x.state", "cut.state"): "cut.state is not a state of switchpoint watch",
        options.replace("x.state", "foreign.state"): "foreign.state is not a state of",
        options.replace("x.state", "newer.state"): "newer.state",
        "x.txt --one-in 1": "one_in must be at least 2",
        "x.txt --alarms all": "--alarms must be one of each, common, got 'all'",
        "x.txt --log": "log needs values above 0",
        "x.txt --lags 1 --segment counts": "lags is for segments with a level",
        "x.txt --state no/x.state": "state cannot be written",
        "none.txt": "none.txt cannot be read",
        "x.txt --segment level1": "got 'level1'",
        "x.txt --prior uniform": "needs longest",
        "x.txt --alpha 1": "alpha is for symbols",
        "--follow": "--follow is for a file",
        "header.txt": "no observation follows the header",
        "empty.txt --segment level": "no value among the first 60",
        "long.txt --alphabet 2": "no observation follows the header",
    }.items():
        records, message = refused(capsys, *command.split())
        assert (records, problem in message) == ([], True), message
    assert (folder / "x.state").read_bytes() == saved


# --- services ---------------------------------------------------------------------------------


def test_lines_that_are_no_observations_are_skipped_and_counted(capsys):
    write([*VALUES[:100], "one", *VALUES[100:150], *["two"] * 4, *VALUES[150:]])
    plain = [each["value"] for each in watch(capsys, "x.txt")]
    assert plain == list(map(float, VALUES))
    assert main(["watch", "x.txt"]) == 0
    errors = capsys.readouterr().err
    assert "skipped: x.txt, line 101: 'one' is not a finite number" in errors
    assert "(4 lines so far)" in errors
    assert "(5 lines" not in errors  # 1, 2, 4, 8, ...
    missing = [each["value"] for each in watch(capsys, "x.txt", "--on-error", "missing")]
    assert len(missing) == len(VALUES) + 5
    assert missing[100] is None
    assert main(["watch", "x.txt", "--log"]) == 2  # the model is at fault, and no line
    assert "x.txt: log needs values above 0" in capsys.readouterr().err
    Path("x.txt").write_bytes(b"1.5\n2.5\n\xff\n" + b"9" * 2**21 + b"\n3.5\n")
    assert [each["value"] for each in watch(capsys, "x.txt")] == [1.5, 2.5, 3.5]


def test_every_key_is_a_series_of_its_own(capsys):
    alone = {key: without_time(events(capsys, "x.txt")) for key in "ab"}
    rows = [{"host": key, "v": float(x)} for x in VALUES for key in "ab"]
    write(map(json.dumps, rows))
    options = ["--value", "v", "--key", "host"]
    records = without_time(events(capsys, "x.txt", *options))
    for key, expected in alone.items():
        of_key = [{**each} for each in records if each["key"] == key]
        assert [each.pop("key") for each in of_key] == [key] * len(expected)
        assert of_key == expected
    write(map(json.dumps, rows[:201]))
    options += ["--state", "x.state"]
    parts = events(capsys, "x.txt", *options)  # "a" has seen 101 values, "b" its 100
    write(map(json.dumps, rows))
    parts += events(capsys, "x.txt", *options)
    assert without_time(parts) == records
    table = ["host,v", *(f"{each['host']},{each['v']}" for each in rows)]
    write(table)
    assert len(events(capsys, "x.txt", "--key", "host")) == len(records)


def test_a_history_takes_the_place_of_the_first_observations(capsys):
    write(VALUES[:80], "old.txt")
    write(VALUES[80:90])
    (alarm,) = watch(capsys, "x.txt", "--history", "old.txt", event="alarm")
    assert alarm["began"] == 0
    assert alarm["position"] <= 4


def test_a_file_that_does_not_exist_is_waited_for(folder):
    said = []
    with LineReader(folder / "late.txt", True, warn=said.append) as reader:
        batches = reader.batches(9)
        assert next(batches) == []
        assert reader.place_after(None) is None
        (folder / "late.txt").write_text("1\n2\n")
        lines = next(batches)
        while not lines:
            lines = next(batches)
        assert [line.text for line in lines] == ["1", "2"]
    assert "waiting for" in said[0]


@pytest.mark.parametrize("name", ["x.txt.1", "gone.txt"])
def test_a_file_that_was_rotated_meanwhile(capsys, name):
    """The rest of the old file is read if it can be found, and the model stays."""
    write(VALUES[:150])
    options = ["x.txt", "--state", "x.state", "--warm-up", "50"]
    watch(capsys, *options)
    write(VALUES[:160])
    os.rename("x.txt", name)
    write(VALUES[160:200])
    skipped = 0 if name == "x.txt.1" else 10
    records = watch(capsys, *options)
    assert [each["value"] for each in records] == [*map(float, VALUES[150 + skipped : 200])]
    assert records[0]["position"] == 150
    write(VALUES[200:220])  # truncated in place
    assert [each["value"] for each in watch(capsys, *options)] == [*map(float, VALUES[200:220])]


@pytest.mark.slow
def test_a_service_saves_at_hangup_and_ends_with_status_0():
    with start(
        "--service", "--follow", "x.txt", "--state", "x.state", "--warm-up", "50"
    ) as process:
        process.stdout.readline()
        Path("x.state").unlink(missing_ok=True)
        with open("x.txt", "a") as file:
            file.write("1\n")
        deadline = time.monotonic() + 30
        while not Path("x.state").exists() and time.monotonic() < deadline:
            process.send_signal(signal.SIGHUP)
            time.sleep(0.2)
        assert process.poll() is None
        assert saved_position() >= 240
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        assert "terminated after 241 observations" in process.stderr.read()


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
    file.write_text("6\n")  # truncated in place, as by copytruncate
    assert next(batches) == []
    assert [(line.number, line.text, line.file) for line in next(batches)] == [(1, "6", 1)]
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


def test_a_hangup_reads_a_new_file_before_it_has_content(folder):
    file = folder / "log.txt"
    file.write_text("1\n")
    with LineReader(file, follow=True) as reader:
        batches = reader.batches(9)
        assert [line.text for line in next(batches)] == ["1"]
        file.rename(folder / "log.1")
        file.touch()
        assert next(batches) == []
        assert reader.files == 0
        reader.reopen()
        assert next(batches) == []
        assert reader.files == 1
        file.write_text("2\n")
        assert [line.text for line in next(batches)] == ["2"]


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


def read(process, count):
    """The next observations that a process writes."""
    records = []
    while len(records) < count:
        record = json.loads(process.stdout.readline())
        records += [record] if record["event"] == "observation" else []
    return records


@pytest.mark.slow
def test_a_killed_process_repeats_unsaved_observations(capsys):
    options = ["x.txt", "--hazard", "0.01", "--save-every", "30"]
    whole = without_time(watch(capsys, *options))
    write(VALUES[:100])
    with start("--follow", *options, "--state", "x.state", "--all") as process:
        lines = read(process, 100)
        with open("x.txt", "a") as file:
            file.write(f"{VALUES[100]}\n{VALUES[101][:2]}")
        lines += read(process, 1)
        process.kill()
    saved = saved_position()
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
    with start("--follow", "x.txt", "--state", "x.state", "--all") as process:
        lines = read(process, 100)
        os.rename("x.txt", "x.1")
        write(["time,load", f"100,{VALUES[100]}"])
        lines += read(process, 1)
        process.kill()
    saved = saved_position()
    assert saved in (100, 101)
    del lines[saved:]
    write(["time,load", *(f"{i},{x}" for i, x in enumerate(VALUES) if i >= 100)])
    assert lines + watch(capsys, "x.txt", "--state", "x.state") == whole


@pytest.mark.slow
def test_a_reader_that_takes_nothing_and_a_termination():
    """The process waits for its reader, reads no further, and ends at SIGTERM."""
    write(["0110"[i % 4] for i in range(100_000)])
    options = ["--state", "x.state", "--save-every", "100", "--prior", "ptw", "--all"]
    with start("x.txt", *options) as process:
        process.stdout.read(1)  # it has begun
        time.sleep(1.0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 143
        message = process.stderr.read()
    position = saved_position()
    assert message.endswith(
        f"switchpoint: terminated after {position} observations; the state is in x.state\n"
    )
    assert 0 < position < 10_000  # a pipe holds 64 KiB, a batch 100 lines


@pytest.mark.slow
def test_a_closed_pipe_is_a_clean_end():
    with start("--follow", "x.txt", "--state", "x.state", "--all") as process:
        process.stdout.readline()
        process.stdout.close()
        with open("x.txt", "a") as file:
            file.write("1\n" * 100)
        assert process.wait(timeout=30) == 1
        assert "Error" not in process.stderr.read()
    assert saved_position() in (240, 340)
