"""The paper's studies, one file each, and what runs them."""

from switchpoint.paper.base import Caption, Finding, Grid, Measurement, Run, Study, Table
from switchpoint.paper.pipeline import StudyRunner, draw, reproduce
from switchpoint.paper.registry import STUDIES
from switchpoint.paper.results import Result, load_result
from switchpoint.paper.scale import SCALES, Scale, TestSet

__all__ = [
    "SCALES",
    "STUDIES",
    "Caption",
    "Finding",
    "Grid",
    "Measurement",
    "Result",
    "Run",
    "Scale",
    "Study",
    "StudyRunner",
    "Table",
    "TestSet",
    "draw",
    "load_result",
    "reproduce",
]
