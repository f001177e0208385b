"""The command line: `switchpoint sample`, `switchpoint predict` and `switchpoint prior`."""

from switchpoint.cli.main import main

__all__ = ["main"]
