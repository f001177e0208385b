"""The release: a fresh environment runs the wheel, without the source tree."""

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def run(*command, **options):
    """The output of a command that must succeed, with no path to the source tree."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=environment, **options
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_all_files_have_the_same_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version} " in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.slow
def test_a_fresh_environment_runs_the_wheel(tmp_path):
    pytest.importorskip("hatchling", reason="builds the wheel, without network access")
    run(*PIP, "wheel", ROOT, "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path)
    (wheel,) = tmp_path.glob("switchpoint-*.whl")
    packaged = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "switchpoint").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packaged == sources

    fresh = tmp_path / "fresh"
    run(sys.executable, "-m", "venv", "--without-pip", fresh)
    python = fresh / "bin" / "python"
    run(*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel)
    # The dependencies are those of this environment, after the packages of the fresh one.
    (site,) = fresh.glob("lib/python*/site-packages")
    paths = [path for path in sys.path if "site-packages" in path]
    (site / "dependencies.pth").write_text("\n".join(paths))
    command = fresh / "bin" / "switchpoint"
    where = run(python, "-c", "import switchpoint; print(switchpoint.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(fresh)
    assert run(command, "--version", cwd=tmp_path).startswith("switchpoint 0.")
    bits = ROOT / "examples" / "bits.txt"
    rows = run(command, "predict", bits, "--model", "lstm-ptw", cwd=tmp_path)  # from the zoo
    assert len(rows.splitlines()) == 1 + 256
    assert "on-distribution" in run(command, "reproduce", "--list", cwd=tmp_path)
