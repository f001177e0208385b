"""The findings of a check, and how they are collected and shown."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

_LEAST_P = 1e-6  # of a check that passes: seeds are fixed, and there are few checks


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
    """Findings one after another. A check returns a detail, or raises where a property fails."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def run(self, name: str, check: Callable[..., str | None], *args: Any) -> None:
        """Add the finding of `check(*args)`, unless it returns None: it does not apply."""
        try:
            detail = check(*args)
            if detail is not None:
                self.findings.append(Finding(name, True, detail))
        except Exception as error:  # of a check, or of the code that is checked
            text = " ".join(str(error).split())
            text = text if len(text) <= 300 else f"{text[:297]}..."
            detail = text if type(error) is ValueError else f"{type(error).__name__}: {text}"
            if all(each.detail != detail for each in self.findings):  # one failure is enough
                self.findings.append(Finding(name, False, detail))

    def make(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """The result of `function(*args)`; None if it raises, which is a failure of this name."""
        results: list[Any] = []
        self.run(name, lambda: results.append(function(*args)))
        return results[0] if results else None


def require(condition: Any, problem: str) -> None:
    """Raise a `ValueError` unless a condition holds."""
    if not condition:
        raise ValueError(problem)


def require_equal(found: Any, expected: Any, tolerance: float, what: str) -> str:
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

    By the bound of Dvoretzky, Kiefer and Wolfowitz,
    P(the largest difference of the distribution functions > d) <= 2 exp(-2 n d^2) (Massart, 1990).
    """
    draws = len(ranks)
    order = np.sort(np.asarray(ranks, np.float64), axis=0)
    steps = np.arange(1, draws + 1)[:, None, None] / draws
    gaps = np.maximum(np.abs(order - steps), np.abs(order - steps + 1 / draws)).max(0)
    gaps = np.nan_to_num(gaps, nan=1.0)
    time, column = np.unravel_index(np.argmax(gaps), gaps.shape)
    gap = float(gaps[time, column])
    bound = 2 * math.exp(-2 * draws * gap**2)
    which = f", column {column}" if gaps.shape[1] > 1 else ""
    require(
        bound >= _LEAST_P,
        f"{what}: at time {time}{which} the ranks of {draws} draws are {gap:.3g} from uniform, "
        f"which has a probability below {bound:.1g}",
    )
    return f"{what}: ranks of {draws} draws within {gap:.2g} of uniform"
