"""Sources of sequences: prior x segment -> Draw."""

from switchpoint.sources.source import Draw, Source

__all__ = ["Draw", "Source"]
