"""What a number was made with: the commit, the versions and the machine."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax

COMMIT_VARIABLE = "SWITCHPOINT_COMMIT"
"""Where the commit may be named for a copy of the sources that has no history."""

_PACKAGE = Path(__file__).parent


def made_with() -> dict[str, Any]:
    """Commit, versions, platform and device, ready for JSON; the commit is None if unknown."""
    from switchpoint import __version__  # known once all of the package is

    return {
        "commit": commit(),
        "switchpoint": __version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": jax.devices()[0].device_kind,
    }


def commit() -> str | None:
    """The commit of the sources, with a plus sign where files were changed since."""
    named = os.environ.get(COMMIT_VARIABLE)
    if named:
        return named
    root = _git("rev-parse", "--show-toplevel")
    # An installed package may lie in somebody else's repository.
    if not root or (Path(root) / "src" / "switchpoint").resolve() != _PACKAGE.resolve():
        return None
    head = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return f"{head}+" if head and changed else head or None


def _git(*arguments: str) -> str:
    """What git says, or nothing."""
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
