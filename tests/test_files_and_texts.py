"""Atomic writes, and numbers and texts for people."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from switchpoint import _numbers
from switchpoint._files import atomic_write, check_writable, write_json
from switchpoint._text import printable


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_an_error_while_writing_leaves_nothing(tmp_path):
    def lines():
        yield b"half"
        raise RuntimeError

    with pytest.raises(RuntimeError), atomic_write(Path("x.csv")) as file:
        file.writelines(lines())
    assert list(tmp_path.iterdir()) == []


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    before = os.umask(0o027)
    try:
        with atomic_write(Path("new")) as file:
            file.write(b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o604)
    with atomic_write(Path("new")) as file:
        file.write(b"2")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o604
    assert (tmp_path / "new").read_bytes() == b"2"


def test_links_stay_links_and_devices_stay_devices(tmp_path):
    (tmp_path / "link").symlink_to("target")
    with atomic_write(Path("link")) as file:
        file.write(b"1")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"1"
    check_writable(Path(os.devnull))
    with atomic_write(Path(os.devnull)) as file:
        file.write(b"1")
    assert Path(os.devnull).is_char_device()


def test_probabilities_are_rounded_and_never_to_a_certainty():
    for probability in np.linspace(0, 1, 20_001):
        text = _numbers.chance(float(probability))
        shown = float(text.strip("<>%")) / 100
        assert 0 < shown < 1
        digit = 1e-2 if 0.01 <= probability < 0.995 else 1e-4
        rounding = 1.01 if text[0] in "<>" else 0.51  # a bound, or the nearest number
        assert abs(shown - probability) < rounding * digit


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "<0.01"), (0.03, "0.03"), (0.97, "1.0"), (1.72, "1.7"), (138.4, "138"), (54321, "54,321")],
)
def test_expected_numbers_for_people(number, text):
    assert _numbers.expected_count(number) == text


def test_printable():
    assert printable("naïve 名 ±") == "naïve 名 ±"
    assert printable("a\x1b[31m\n\x00\u202e\udcff") == r"a\x1b[31m\n\x00\u202e\udcff"


def test_a_replaced_file_is_on_disk_with_its_directory(tmp_path, monkeypatch):
    synced, path = [], tmp_path / "x.json"
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    write_json(path, {"format": 1})
    assert synced == [path.stat().st_ino, tmp_path.stat().st_ino]
