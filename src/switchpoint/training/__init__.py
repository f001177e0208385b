"""Training: log loss on fresh draws, for many networks in one program."""

from switchpoint.training.config import TrainConfig
from switchpoint.training.members import Member
from switchpoint.training.metrics import read_reports
from switchpoint.training.program import use_all_cores
from switchpoint.training.report import Report
from switchpoint.training.train import TrainedEnsemble, train

__all__ = [
    "Member",
    "Report",
    "TrainConfig",
    "TrainedEnsemble",
    "read_reports",
    "train",
    "use_all_cores",
]
