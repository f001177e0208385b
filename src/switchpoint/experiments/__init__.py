"""The paper's studies as data, and what carries them out."""

from switchpoint.experiments.findings import Finding, findings
from switchpoint.experiments.reproduce import Outcome, reproduce, state_of
from switchpoint.experiments.results import load_result, result_path
from switchpoint.experiments.scales import Scale
from switchpoint.experiments.sizes import SCALES
from switchpoint.experiments.studies import STUDIES, Study
from switchpoint.experiments.watching import Watcher

__all__ = [
    "SCALES",
    "STUDIES",
    "Finding",
    "Outcome",
    "Scale",
    "Study",
    "Watcher",
    "findings",
    "load_result",
    "reproduce",
    "result_path",
    "state_of",
]
