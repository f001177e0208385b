"""The environment that produced a result: commit, versions and machine."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax

COMMIT_VARIABLE = "SWITCHPOINT_COMMIT"
"""The environment variable that names the commit for sources without a git history."""

_PACKAGE = Path(__file__).parent


def environment_info() -> dict[str, Any]:
    """Commit, versions, platform and device, ready for JSON; the commit is None if unknown."""
    from switchpoint import __version__  # not yet defined while the package is imported

    return {
        "commit": commit(),
        "switchpoint": __version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": jax.devices()[0].device_kind,
    }


def commit() -> str | None:
    """The commit of the sources, with a plus sign if files have changed since."""
    named = os.environ.get(COMMIT_VARIABLE)
    if named:
        return named
    root = _git("rev-parse", "--show-toplevel")
    # An installed package may lie inside another repository.
    if not root or (Path(root) / "src" / "switchpoint").resolve() != _PACKAGE.resolve():
        return None
    head = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return f"{head}+" if head and changed else head or None


def _git(*arguments: str) -> str:
    """The output of git, or nothing if it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(_PACKAGE), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
