"""Checks of priors, segment models, sources, networks and predictors of one's own."""

from switchpoint.checking.properties import check
from switchpoint.checking.report import Finding, Report

__all__ = ["Finding", "Report", "check"]
