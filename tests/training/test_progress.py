"""What a training run shows: live, in plain lines, and in TensorBoard."""

import io
import math
import os
import sys

import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from switchpoint.training.config import Member
from switchpoint.training.metrics_log import EvalRecord
from switchpoint.training.progress import (
    PlainProgress,
    Progress,
    RichProgress,
    Warnings,
    progress_for,
    progress_of,
)
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


def shown(progress, members=MEMBERS, report=REPORT):
    progress.start(members, 100, 2000)
    progress.tick(300, 1.0)
    progress.tick(500, 12.5)
    progress.report(report)
    progress.note("member 4 [red] frozen\x1b[2J\nat step 400")
    progress.close()
    progress.close()  # once more does no harm


def plain_lines(members=MEMBERS, report=REPORT):
    stream = io.StringIO()
    shown(PlainProgress(stream), members, report)
    return stream.getvalue().splitlines()


def test_plain_lines_say_all_there_is_to_say():
    pace = "12.5 steps/s | 100 seed-steps/s | 2 min 0 s left"
    assert plain_lines() == [
        "training 8 members from step 100 to 2000",
        "step 500/2000 | ptw | loss best 0.8100, median 0.8200 bits/symbol"
        f" | excess best 1.100 ± 0.010, median 1.200 ± 0.020 bits | {pace}",
        "step 500/2000 | lin | loss best 0.9100, median 0.9200 bits/symbol"
        f" | excess best 22.000 ± 0.200, median 23.000 ± 0.300 bits | 1 of 4 diverged | {pace}",
        "member 4 [red] frozen [2J at step 400",
    ]


def test_one_member_is_neither_best_nor_median():
    lines = plain_lines(MEMBERS[:1], EvalRecord(500, (0.84,), (1.4,), (0.04,), ()))
    assert lines[1].startswith(
        "step 500/2000 | ptw | loss 0.8400 bits/symbol | excess 1.400 ± 0.040 bits | 12.5 steps/s"
    )


def test_where_every_member_diverged_there_are_no_numbers():
    report = EvalRecord(500, (math.nan,), (math.nan,), (math.nan,), (0,))
    assert (
        "loss - bits/symbol | excess - bits | 1 of 1 diverged"
        in plain_lines(MEMBERS[:1], report)[1]
    )
    assert "nan" not in live_text(80, MEMBERS[:1], report)


@pytest.mark.parametrize(
    ("steps_per_second", "left"),
    [(1900, "1 s"), (20, "1 min 35 s"), (0.5, "1 h 3 min"), (0.01, "2 d 4 h")],
)
def test_time_left(steps_per_second, left):
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.start(MEMBERS, 0, 2000)
    progress.tick(100, steps_per_second)
    progress.report(EvalRecord(100, *[(1.0,) * 8] * 3, ()))
    assert stream.getvalue().rstrip().endswith(f" | {left} left")


def pace_of(*ticks):
    """What a resumed run says of its pace after these ticks."""
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.start(MEMBERS, 100, 2000)
    for step, steps_per_second in ticks:
        progress.tick(step, steps_per_second)
    progress.report(EvalRecord(100, *[(1.0,) * 8] * 3, ()))
    return stream.getvalue().splitlines()[-1].split(" | ")[4:]


def test_the_time_left_is_what_the_present_pace_takes_for_the_steps_to_come():
    for unknown in (0.0, math.inf, math.nan):
        assert pace_of((200, unknown)) == []
    fast = (500, 100.0)  # of which 100 were done by an earlier process
    assert pace_of(fast) == ["100 steps/s", "800 seed-steps/s", "15 s left"]
    assert pace_of(fast, (500, 12.5))[-1] == "2 min 0 s left"
    assert pace_of(fast, (400, 12.5))[-1] == "2 min 0 s left"  # a step that is done stays done
    assert pace_of(fast, (2000, 12.5))[-1] == "0 s left"


def test_a_stream_without_the_sign_does_not_end_the_run():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    shown(PlainProgress(stream))
    assert b"excess best 1.100 ? 0.010" in stream.buffer.getvalue()


def live_text(width, members=MEMBERS, report=REPORT):
    console = Console(
        file=io.StringIO(), record=True, force_terminal=True, width=width, color_system=None
    )
    shown(RichProgress(console), members, report)
    return console.export_text()


@pytest.mark.parametrize("width", [80, 160])
def test_the_live_display_says_the_same(width):
    text = live_text(width)
    assert "member 4 [red] frozen" in text
    assert "…" not in text  # nothing is cut
    words = " ".join(text.split())
    for line in plain_lines()[1:3]:
        assert line.partition(" | 12.5 steps/s")[0] in words
    last = text[text.rindex("step 500 of 2,000") :]
    assert max(map(len, last.splitlines())) <= width
    assert "\x1b" not in text
    assert " 25% " in last
    assert "12.5 steps/s · 100 seed-steps/s · 2 min 0 s left" in last


def test_before_the_first_steps_there_is_no_pace():
    console = Console(file=io.StringIO(), record=True, force_terminal=True, width=80)
    progress = RichProgress(console)
    progress.start(MEMBERS, 100, 2000)
    progress.close()
    text = console.export_text()
    assert "step 100 of 2,000" in text
    assert "preparing" in text
    assert "steps/s" not in text


def test_silence(capfd):
    shown(Progress())
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_live_on_a_terminal_and_plain_elsewhere(monkeypatch):
    assert isinstance(progress_for(io.StringIO()), PlainProgress)
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb"), os.fdopen(theirs, "w", encoding="utf-8") as terminal:
        monkeypatch.setenv("TERM", "xterm")
        assert isinstance(progress_for(terminal), RichProgress)
        monkeypatch.setenv("TERM", "dumb")
        assert isinstance(progress_for(terminal), PlainProgress)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_by_default_it_is_shown_to_a_person_alone(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb"), os.fdopen(theirs, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert isinstance(progress_of(None), RichProgress)
        assert isinstance(progress_of(True), RichProgress)
        assert type(progress_of(False)) is Progress
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(progress_of(None), Warnings)
    assert isinstance(progress_of(True), PlainProgress)
    mine = Progress()
    assert progress_of(mine) is mine


@pytest.mark.parametrize(("widgets", "kind"), [(object(), RichProgress), (None, PlainProgress)])
def test_a_notebook_shows_it_with_widgets_or_without(monkeypatch, widgets, kind):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: widgets)
    assert isinstance(progress_of(None), kind)
    assert isinstance(progress_of(False), Progress)


def test_warnings_are_shown_and_nothing_else():
    stream = io.StringIO()
    progress = Warnings(stream)
    shown(progress)
    progress.warning("a checkpoint\nis damaged")
    assert stream.getvalue() == "a checkpoint is damaged\n"
    Progress().warning("nobody hears it")
    plain = io.StringIO()
    PlainProgress(plain).warning("a note as any other")
    assert plain.getvalue() == "a note as any other\n"


def events(directory):
    accumulator = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def test_tensorboard_reads_every_member(tmp_path):
    writer = EventWriter(tmp_path, MEMBERS, 0)
    writer.report(REPORT)
    writer.close()
    scalars = events(tmp_path)
    assert len(scalars) == 2 * 7  # the frozen member has no numbers
    assert scalars["loss/ptw-seed2-lr0.01"] == [(500, pytest.approx(0.81))]
    assert scalars["excess/lin-seed3-lr0.01"] == [(500, pytest.approx(121))]


def test_tensorboard_drops_what_a_resumed_run_does_again(tmp_path):
    def report(step, value):
        return EvalRecord(step, (value,), (value,), (0.0,), ())

    killed = EventWriter(tmp_path, MEMBERS[:1], 0)
    for step in (10, 20, 30, 40):
        killed.report(report(step, 1.0))
    killed.close()
    resumed = EventWriter(tmp_path, MEMBERS[:1], 20)
    resumed.report(report(30, 2.0))
    resumed.close()
    assert events(tmp_path)["loss/ptw-seed0-lr0.01"] == [(10, 1.0), (20, 1.0), (30, 2.0)]


def test_without_tensorboard_the_command_to_install_it_is_given(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(ValueError, match=r"pip install 'switchpoint\[tensorboard\]'"):
        EventWriter(tmp_path, MEMBERS, 0)
