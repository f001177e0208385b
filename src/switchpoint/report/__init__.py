"""The report of saved results, for people."""

from switchpoint.report.write import write_report

__all__ = ["write_report"]
