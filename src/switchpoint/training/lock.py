"""One process at a time in a run directory."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl


@contextmanager
def run_lock(directory: Path) -> Iterator[None]:
    """Keep every other process out of `directory`, which must exist; raises where one is in.

    The lock belongs to the process, so a killed one leaves nothing locked. Windows and file
    systems without locks have none.
    """
    handle = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if sys.platform != "win32":
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ValueError(f"another process is training in {directory}") from error
            except OSError:
                pass  # a file system that has no locks
        yield
    finally:
        os.close(handle)  # lets go of the lock; the file stays, since others may be opening it
