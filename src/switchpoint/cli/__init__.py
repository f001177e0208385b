"""The command line: one command for each thing that `switchpoint` does."""

from switchpoint.cli.main import main

__all__ = ["main"]
