"""Sources of sequences: prior x segment -> Draw, mixtures of them, and samplers of your own."""

from switchpoint.sources.mixture import SourceMixture
from switchpoint.sources.source import AbstractSource, Draw, Source

__all__ = ["AbstractSource", "Draw", "Source", "SourceMixture"]
