"""The findings of a check, how they are shown, and what decides them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

LEAST_P = 1e-6  # of a check that passes: seeds are fixed, and there are few checks


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


def require(condition: Any, problem: str) -> None:
    """Raise a `ValueError` unless a condition holds."""
    if not condition:
        raise ValueError(problem)


def require_equal(what: str, found: Any, expected: Any, tolerance: float) -> str:
    """Raise a `ValueError` unless two arrays agree, relative to 1 or to their size; the detail."""
    found, expected = (np.asarray(each, np.float64) for each in (found, expected))
    require(found.shape == expected.shape, f"{what}: shape {found.shape}, not {expected.shape}")
    with np.errstate(invalid="ignore"):
        gaps = np.abs(found - expected) / (1 + np.abs(expected))
        gaps = np.where(found == expected, 0.0, np.nan_to_num(gaps, nan=np.inf))
    worst = float(gaps.max(initial=0.0))
    if worst > tolerance:
        at = np.unravel_index(np.argmax(gaps), gaps.shape)
        place = f" at {tuple(map(int, at))}" if at else ""
        raise ValueError(f"{what}: {found[at]:.6g}, not {expected[at]:.6g}{place}")
    return f"{what} (off by at most {worst:.1g})"


def require_uniform(ranks: Float[np.ndarray, "draws time columns"], what: str) -> str:
    """Raise a `ValueError` unless the ranks at each time are uniform; the detail.

    By the test of Kolmogorov and Smirnov.
    """
    from scipy import stats  # slow to import

    tests = stats.kstest(np.asarray(ranks, np.float64), "uniform", axis=0)
    at = np.unravel_index(np.argmin(np.nan_to_num(tests.pvalue)), tests.pvalue.shape)
    gap, chance = float(tests.statistic[at]), float(np.nan_to_num(tests.pvalue[at]))
    which = f", column {at[1]}" if ranks.shape[2] > 1 else ""
    require(
        chance >= LEAST_P,
        f"{what}: at time {at[0]}{which} the ranks of {len(ranks)} draws are {gap:.3g} from "
        f"uniform, which has a probability of {chance:.1g}",
    )
    return f"{what}: ranks of {len(ranks)} draws within {gap:.2g} of uniform"
