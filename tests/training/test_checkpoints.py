"""What a training run leaves on disk: checkpoints, reports, and the lock."""

import json
import math
import shutil
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from switchpoint.training import TrainConfig
from switchpoint.training.checkpoints import Checkpoints, run_lock
from switchpoint.training.metrics_log import EvalRecord, read_reports
from switchpoint.training.run_directory import final_reports

CONFIG = {"hidden": 64, "prior": ("ptw", "lin"), "clip": None}


def state(step):
    return {
        "weights": jnp.linspace(0, step, 12, dtype=jnp.float32).reshape(3, 4).T,
        "key": jnp.asarray([step, 2**32 - 1], jnp.uint32),
        "frozen": jnp.asarray([True, False]),
        "count": np.asarray(step, np.int32),
        "half": jnp.asarray([step], jnp.bfloat16),
        "none": np.zeros((0, 3), np.float64),
    }


def saved(directory, *steps, **options):
    checkpoints = Checkpoints(directory, CONFIG, **options)
    for step in steps:
        checkpoints.save(step, state(step))
    checkpoints.close()


def restored(directory):
    """The newest intact checkpoint, without any note."""
    checkpoint, notes = Checkpoints(directory, CONFIG).restore()
    assert notes == []
    return checkpoint


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_what_is_saved_comes_back_bit_for_bit(tmp_path):
    saved(tmp_path, 7)
    checkpoint = restored(tmp_path)
    assert (checkpoint.step, checkpoint.path) == (7, tmp_path / "step-000000007.safetensors")
    assert checkpoint.arrays.keys() == state(7).keys()
    for name, array in state(7).items():
        again = checkpoint.arrays[name]
        assert (again.dtype, again.shape) == (array.dtype, array.shape)
        assert again.tobytes() == np.asarray(array).tobytes()


def test_the_last_few_are_kept_and_nothing_else(tmp_path):
    (tmp_path / ".0123456789abcdef.tmp").write_bytes(b"left by a kill")
    (tmp_path / "notes.txt").write_text("the user's own")
    saved(tmp_path, 1, 2, 3, 1_234_567_890, keep=2)
    assert names(tmp_path) == [
        "notes.txt",
        "step-000000003.safetensors",
        "step-1234567890.safetensors",
    ]
    assert restored(tmp_path).step == 1_234_567_890


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "truncated"),
        (lambda path: save_file({"a": np.ones(2)}, path), "not written by switchpoint"),
        (
            lambda path: shutil.copy(path.with_name("step-000000001.safetensors"), path),
            "the checkpoint of step 1 under another name",
        ),
    ],
)
def test_a_damaged_checkpoint_is_passed_over(tmp_path, damage, reason):
    saved(tmp_path, 1, 2)
    path = tmp_path / "step-000000002.safetensors"
    damage(path)
    checkpoint, (note,) = Checkpoints(tmp_path, CONFIG).restore()
    assert checkpoint.step == 1
    assert str(path) in note
    assert reason in note


def test_where_all_are_damaged_the_notes_remain_and_the_run_begins_anew(tmp_path):
    saved(tmp_path, 10, 20, 30)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:100])
    checkpoint, notes = Checkpoints(tmp_path, CONFIG).restore()
    assert checkpoint is None
    assert len(notes) == 3
    saved(tmp_path, 5)  # must outlive the damaged ones, though they claim to be newer
    assert names(tmp_path) == ["step-000000005.safetensors"]
    assert restored(tmp_path).step == 5


def test_a_run_with_other_settings_is_refused(tmp_path):
    saved(tmp_path, 1)
    other = {"hidden": 128, "prior": ["ptw", "lin"], "clip": None, "batch": 8}
    with pytest.raises(ValueError, match="another --out") as caught:
        Checkpoints(tmp_path, other).restore()
    message = str(caught.value)
    assert str(tmp_path) in message
    assert "batch: None, now 8; hidden: 64, now 128" in message
    assert "prior" not in message


def test_a_failed_write_is_raised_at_the_next_call(tmp_path):
    checkpoints = Checkpoints(tmp_path / "gone", CONFIG)
    shutil.rmtree(tmp_path / "gone")
    checkpoints.save(1, state(1))
    with pytest.raises(ValueError, match="checkpoint cannot be written"):
        checkpoints.save(2, state(2))
    checkpoints.save(3, state(3))
    with pytest.raises(ValueError, match="checkpoint cannot be written"):
        checkpoints.close()


# Forks lives of a run, each of which restores, checks what it got and saves without end, and
# kills each at a random moment after its first save. Prints how many kills left an unfinished
# file behind.
LIVES = """
import os, random, signal, sys, time, traceback
from pathlib import Path
import numpy as np
from switchpoint.training.checkpoints import Checkpoints

directory = Path(sys.argv[1])
draw = random.Random(1)

def live():
    checkpoints = Checkpoints(directory, {})
    checkpoint, notes = checkpoints.restore()
    assert not notes, notes
    step = 0
    if checkpoint is not None:
        step = checkpoint.step
        assert (checkpoint.arrays["x"] == np.arange(300_000) + step).all()
    while True:
        step += 1
        checkpoints.save(step, {"x": np.arange(300_000) + step})

def newest():
    return max(directory.glob("step-*"), default=None)

unfinished = 0
for _ in range(30):
    before = newest()
    child = os.fork()
    if child == 0:
        try:
            live()
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    while newest() == before and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.001)
    time.sleep(draw.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    unfinished += any(directory.glob(".*.tmp"))
print(unfinished)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither fork nor SIGKILL")
def test_a_killed_run_leaves_whole_checkpoints_only(tmp_path):
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LIVES, tmp_path],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) >= 3  # else the kills have come between the writes, and prove nothing
    checkpoint, notes = Checkpoints(tmp_path, {}).restore()
    assert notes == []
    assert checkpoint.step >= 30  # each life made one at least
    np.testing.assert_array_equal(checkpoint.arrays["x"], np.arange(300_000) + checkpoint.step)


def report(step, *, broken=False):
    loss = math.nan if broken else 0.1 + 0.2
    return EvalRecord(step, (loss, 1 / 3), (math.inf if broken else 2.5, -1e-9), (0.1, 0.0), (1,))


def test_a_report_is_one_line_of_strict_json():
    line = report(500, broken=True).to_json_line()
    assert "\n" not in line
    fields = json.loads(line, parse_constant=pytest.fail)  # NaN is no JSON
    assert fields["loss"] == [None, 1 / 3]
    again = EvalRecord.from_json(line)
    assert math.isnan(again.loss[0])
    assert math.isnan(again.excess[0])
    assert EvalRecord.from_json(report(5).to_json_line()) == report(5)


def test_an_unfinished_line_is_no_report(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [report(step).to_json_line() + "\n" for step in (10, 20, 30)]
    path.write_text("".join(lines) + lines[0][:40])  # the kill came in the middle of a line
    assert read_reports(path) == [report(10), report(20), report(30)]


def test_a_finished_run_has_all_its_reports(tmp_path):
    """A cut at the end of a line leaves whole lines, which are too few all the same."""
    path = tmp_path / "metrics.jsonl"
    lines = [report(step).to_json_line() + "\n" for step in (10, 20, 25)]
    config = TrainConfig(steps=25, warmup=0, report_every=10)
    path.write_text("".join(lines))
    assert final_reports(path, config) == [report(10), report(20), report(25)]
    for some in (lines[:2], lines[1:], [*lines, lines[2]], []):
        path.write_text("".join(some))
        with pytest.raises(ValueError, match=rf"metrics\.jsonl .* 3 reports .* got {len(some)}"):
            final_reports(path, config)


HOLD = """
import sys
from pathlib import Path
from switchpoint.training.checkpoints import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_one_process_at_a_time_and_a_dead_one_lets_go(tmp_path):
    command = [sys.executable, "-c", HOLD, tmp_path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(ValueError, match=f"another process is training in {tmp_path}"):
            run_lock(tmp_path).__enter__()
        process.kill()
    for _ in range(2):
        with run_lock(tmp_path):
            assert (tmp_path / ".lock").exists()
