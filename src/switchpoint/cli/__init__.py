"""The command line: `switchpoint sample`, `predict`, `train`, `evaluate` and `prior`."""

from switchpoint.cli.main import main

__all__ = ["main"]
