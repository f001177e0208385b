"""The progress of a training run: a bar, plain lines, and TensorBoard."""

import io
import math
import os
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from switchpoint._display import BarProgress, LineProgress, show_progress
from switchpoint._progress import Progress
from switchpoint.training.config import Member
from switchpoint.training.metrics_log import EvalRecord
from switchpoint.training.progress import RunProgress, run_progress
from switchpoint.training.tensorboard import EventWriter

PRIORS = ("ptw", "lin")
MEMBERS = [Member(i, PRIORS[i // 4], i % 4, 0.01) for i in range(8)]
REPORT = EvalRecord(
    step=500,
    loss=(0.84, 0.82, 0.81, 0.83, math.nan, 0.92, 0.93, 0.91),
    excess=(1.4, 1.2, 1.1, 1.3, math.nan, 22.0, 23.0, 121.0),
    excess_error=(0.04, 0.02, 0.01, 0.03, math.nan, 0.2, 0.3, 0.1),
    diverged=(4,),
)


def show(progress, members=MEMBERS, report=REPORT):
    run = RunProgress(progress, progress, reports=True)
    run.begin(len(members), 100, 2000)
    run.step(500, 2000, len(members), 12.5)
    run.report(members, report, 2000)
    run.note("member 4 [red] frozen\x1b[2J\nat step 400")


def lines(members=MEMBERS, report=REPORT):
    stream = io.StringIO()
    show(LineProgress(stream), members, report)
    return stream.getvalue().splitlines()


def test_plain_lines():
    assert lines() == [
        "training 8 members from step 100 to 2000",
        "step 500/2000 | ptw | loss best 0.8100, median 0.8200 bits/symbol"
        " | excess best 1.100 ± 0.010, median 1.200 ± 0.020 bits",
        "step 500/2000 | lin | loss best 0.9100, median 0.9200 bits/symbol"
        " | excess best 22.000 ± 0.200, median 23.000 ± 0.300 bits | 1 of 4 diverged",
        "member 4 [red] frozen [2J at step 400",
    ]
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    show(LineProgress(stream))  # a stream that cannot encode ± does not end the run
    assert b"excess best 1.100 ? 0.010" in stream.buffer.getvalue()


def test_plain_lines_estimate_the_time_left(monkeypatch):
    stream, now = io.StringIO(), [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    progress = LineProgress(stream, seconds=10)
    for now[0], done in [(1.0, 0.25), (11.0, 0.5), (12.0, 0.6), (31.0, 1.0)]:
        progress.update("training", done)
    assert stream.getvalue() == "training, 50%, 20 s left\ntraining, 100%, 0 s left\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_a_bar_on_a_terminal_and_lines_elsewhere(monkeypatch):
    def kind(choice):
        with run_progress(choice) as run:
            return run.note.__func__, run.warning.__func__

    bar, line, silent = BarProgress.note, LineProgress.note, Progress.note
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert [kind(choice) for choice in (None, True, "warnings", False)] == [
        (silent, line),
        (line, line),
        (silent, line),
        (silent, silent),
    ]
    with pytest.raises(ValueError, match="progress must be True, False"):
        kind("quiet")
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb"), os.fdopen(theirs, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        assert [kind(choice) for choice in (None, True)] == [(bar, bar), (bar, bar)]
        assert kind("warnings") == (silent, line)
        monkeypatch.setenv("TERM", "dumb")
        assert kind(True) == (line, line)


@pytest.mark.parametrize(("widgets", "kind"), [(object(), BarProgress), (None, LineProgress)])
def test_a_notebook_needs_widgets_for_a_bar(monkeypatch, widgets, kind):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: widgets)
    with show_progress(None) as progress:
        assert type(progress) is kind


def scalars(directory):
    accumulator = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def test_tensorboard_reads_every_member_and_no_step_twice(tmp_path):
    def write(first, steps, value):
        writer = EventWriter(tmp_path / "cut", MEMBERS[:1], first)
        for step in steps:
            writer.report(EvalRecord(step, (value,), (value,), (0.0,), ()))
        writer.close()

    writer = EventWriter(tmp_path / "all", MEMBERS, 0)
    writer.report(REPORT)
    writer.close()
    written = scalars(tmp_path / "all")
    assert len(written) == 2 * 7  # the diverged member has no numbers
    assert written["loss/ptw-seed2-lr0.01"] == [(500, pytest.approx(0.81))]
    write(0, (10, 20, 30, 40), 1.0)
    write(20, (30,), 2.0)
    assert scalars(tmp_path / "cut")["loss/ptw-seed0-lr0.01"] == [(10, 1.0), (20, 1.0), (30, 2.0)]


def test_without_tensorboard_the_message_has_the_command_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(ValueError, match=r"pip install 'switchpoint\[tensorboard\]'"):
        EventWriter(tmp_path, MEMBERS, 0)
