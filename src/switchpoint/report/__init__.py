"""The report of saved results: templates that make HTML and Markdown."""

from switchpoint.report.render import write_markdown, write_report

__all__ = ["write_markdown", "write_report"]
