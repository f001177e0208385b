"""Compiled programs are kept for the next command."""

import os
import sys
import warnings
from pathlib import Path

MAX_BYTES = 2**29
"""How large the cache may be when a command starts; the oldest programs go first."""

_SETTING = "JAX_COMPILATION_CACHE_DIR"


def use_compilation_cache() -> None:
    """Let JAX keep what it compiles in the user's cache directory.

    Nothing happens where JAX is imported already or the user has set a directory for it, nor
    where there is no directory that can be written.
    """
    directory = cache_directory()
    if directory is None or _SETTING in os.environ or "jax" in sys.modules:
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _shrink(directory)
    except OSError:
        return
    if not os.access(directory, os.W_OK):
        return
    os.environ[_SETTING] = str(directory)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    # A damaged entry, or a full disk, costs the time of a compilation and nothing else.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation")


def cache_directory() -> Path | None:
    """Where the system wants caches, or None where the user has no home."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "switchpoint", "jax") if os.path.isabs(base) else None


def _shrink(directory: Path) -> None:
    """Remove the oldest files until the rest are small enough, and those that are empty."""
    # JAX's own limit needs a package that may be missing, and a lock that others may hold.
    found = [(path.stat(), path) for path in directory.rglob("*") if path.is_file()]
    total = sum(stat.st_size for stat, _ in found)
    for stat, path in sorted(found, key=lambda each: each[0].st_mtime):
        if total > MAX_BYTES or stat.st_size == 0:
            path.unlink(missing_ok=True)
            total -= stat.st_size
