"""The findings of a check, and how they are collected and shown."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np


@dataclass(frozen=True)
class Finding:
    """One property, whether it holds, and the numbers that decide."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, repr=False)
class Report:
    """The findings of `switchpoint.check`; printed, a table."""

    subject: str
    """The `repr` of what was checked, in one line."""
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether every property holds."""
        return not self.failed

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The findings that do not hold."""
        return tuple(finding for finding in self.findings if not finding.ok)

    def raise_if_failed(self) -> "Report":
        """The report itself, or a `ValueError` with the failed findings."""
        if self.failed:
            failures = "; ".join(f"{each.name}: {each.detail}" for each in self.failed)
            raise ValueError(f"{self.subject} fails {len(self.failed)} checks: {failures}")
        return self

    def __repr__(self) -> str:
        count = f"{len(self.findings)} checks, {len(self.failed) or 'none'} failed"
        width = max((len(each.name) for each in self.findings), default=0)
        rows = [
            f"  {'ok    ' if each.ok else 'FAILED'}  {each.name:{width}}  {each.detail}"
            for each in self.findings
        ]
        return "\n".join([f"{self.subject}: {count}", *rows])


class Collector:
    """Findings one after another; an exception is a failure like any other."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def run(self, name: str, check: Callable[..., tuple[bool, str] | None], *args: Any) -> None:
        """Add the finding of `check(*args)`, unless it returns None: it does not apply."""
        try:
            found = check(*args)
        except Exception as error:  # of the code that is checked
            found = False, described(error)
            if any(each.detail == found[1] for each in self.findings):
                return  # one failure is enough
        if found is not None:
            self.findings.append(Finding(name, *found))

    def make(self, name: str, function: Callable[[], Any]) -> Any:
        """The result of `function`; None if it raises, which is a failure of this name."""
        made: list[Any] = []
        self.run(name, lambda: made.append(function()))
        return made[0] if made else None


def described(error: Exception) -> str:
    """An exception in one line, without the pages that JAX may add."""
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else f"{text[:297]}..."
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def compared(found: Any, expected: Any, tolerance: float, what: str) -> tuple[bool, str]:
    """Whether two trees of arrays agree, relative to 1 or to their size, and where they do not."""
    error, detail = 0.0, ""
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        one, other = (np.asarray(each, np.float64) for each in (one, other))
        if one.shape != other.shape:
            return False, f"{what}: shape {one.shape}, not {other.shape}"
        if not one.size:
            continue
        with np.errstate(invalid="ignore"):
            gaps = np.where(one == other, 0.0, np.abs(one - other) / (1 + np.abs(other)))
        gaps = np.where(np.isnan(gaps), np.inf, gaps)
        at = np.unravel_index(np.argmax(gaps), gaps.shape)
        if gaps[at] > error:
            place = f" at {tuple(map(int, at))}" if at else ""
            error, detail = float(gaps[at]), f": {one[at]:.6g}, not {other[at]:.6g}{place}"
    if error > tolerance:
        return False, f"{what}{detail}"
    return True, f"{what} (off by at most {error:.1g})"
