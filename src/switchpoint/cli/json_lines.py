"""Lines of JSON on standard output, as fast as their reader takes them."""

import io
import json
import os
import select
import sys
from collections.abc import Mapping
from typing import Any

_PIECE = 4096  # bytes that a pipe takes at once, if it takes any (PIPE_BUF)


class JsonLines:
    """Lines that wait to be written; an interrupted `flush` can be continued."""

    def __init__(self) -> None:
        self._pending = bytearray()
        try:
            self._descriptor: int | None = sys.stdout.fileno()
            sys.stdout.flush()
        except (OSError, io.UnsupportedOperation):  # a stream of Python
            self._descriptor = None

    def add(self, record: Mapping[str, Any]) -> None:
        """Add a line."""
        self._pending += json.dumps(record).encode() + b"\n"

    def flush(self, patience: float | None = None) -> None:
        """Write all lines; give up if the reader takes nothing for `patience` seconds."""
        if self._descriptor is None:
            sys.stdout.write(self._pending.decode())
            self._pending.clear()
            return
        while self._pending and _is_ready(self._descriptor, patience):
            del self._pending[: os.write(self._descriptor, self._pending[:_PIECE])]


def _is_ready(descriptor: int, patience: float | None) -> bool:
    """Whether the next piece can be written without waiting."""
    try:
        return bool(select.select([], [descriptor], [], patience)[1])
    except OSError:  # Windows selects sockets only
        return True
