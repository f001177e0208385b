"""The paper's studies, one file each, and what runs them."""

from switchpoint.studies.base import Caption, Finding, Grid, Measurement, Run, Study, Table
from switchpoint.studies.pipeline import Outcome, draw, reproduce
from switchpoint.studies.progress import ProgressReporter
from switchpoint.studies.registry import STUDIES
from switchpoint.studies.results import Result, load_result
from switchpoint.studies.scale import SCALES, Scale, TestSet

__all__ = [
    "SCALES",
    "STUDIES",
    "Caption",
    "Finding",
    "Grid",
    "Measurement",
    "Outcome",
    "ProgressReporter",
    "Result",
    "Run",
    "Scale",
    "Study",
    "Table",
    "TestSet",
    "draw",
    "load_result",
    "reproduce",
]
