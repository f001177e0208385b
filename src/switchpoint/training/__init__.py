"""Training: log loss on fresh draws, for many networks in one program."""

from switchpoint.training.config import Member, TrainConfig
from switchpoint.training.metrics_log import EvalRecord, read_reports
from switchpoint.training.program import use_all_cores
from switchpoint.training.sweep import Sweep, read_sweep, sweep
from switchpoint.training.train import TrainedEnsemble, train

__all__ = [
    "EvalRecord",
    "Member",
    "Sweep",
    "TrainConfig",
    "TrainedEnsemble",
    "read_reports",
    "read_sweep",
    "sweep",
    "train",
    "use_all_cores",
]
