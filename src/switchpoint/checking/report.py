"""The findings of a check, and how they are collected and shown."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

Verdict: TypeAlias = tuple[bool, str]
"""Whether a property holds, and the numbers that decide."""

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
    """Findings one after another; an exception is a failure like any other."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def run(self, name: str, check: Callable[..., Verdict | None], *args: Any) -> None:
        """Add the finding of `check(*args)`, unless it returns None: it does not apply."""
        try:
            verdict = check(*args)
        except Exception as error:  # of the code that is checked
            text = " ".join(str(error).split())
            text = text if len(text) <= 300 else f"{text[:297]}..."
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            verdict = False, kind + text
            if any(each.detail == verdict[1] for each in self.findings):
                return  # one failure is enough
        if verdict is not None:
            self.findings.append(Finding(name, *verdict))

    def make(self, name: str, function: Callable[[], Any]) -> Any:
        """The result of `function`; None if it raises, which is a failure of this name."""
        results: list[Any] = []
        self.run(name, lambda: results.append(function()))
        return results[0] if results else None


def first_failure(verdicts: Iterable[Verdict]) -> Verdict:
    """The first verdict that fails, or else the last."""
    verdict = (True, "")
    for verdict in verdicts:
        if not verdict[0]:
            break
    return verdict


def compared(found: Any, expected: Any, tolerance: float, what: str) -> Verdict:
    """Whether two arrays agree, relative to 1 or to their size, and where they do not."""
    found, expected = (np.asarray(each, np.float64) for each in (found, expected))
    if found.shape != expected.shape:
        return False, f"{what}: shape {found.shape}, not {expected.shape}"
    with np.errstate(invalid="ignore"):
        gaps = np.abs(found - expected) / (1 + np.abs(expected))
        gaps = np.where(found == expected, 0.0, np.nan_to_num(gaps, nan=np.inf))
    worst = float(gaps.max(initial=0.0))
    if worst > tolerance:
        at = np.unravel_index(np.argmax(gaps), gaps.shape)
        place = f" at {tuple(map(int, at))}" if at else ""
        return False, f"{what}: {found[at]:.6g}, not {expected[at]:.6g}{place}"
    return True, f"{what} (off by at most {worst:.1g})"


def uniform(ranks: Float[np.ndarray, "draws time columns"], what: str) -> Verdict:
    """Whether the ranks at each time are uniform, by the bound of Dvoretzky, Kiefer and Wolfowitz.

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
    if bound < _LEAST_P:
        which = f", column {column}" if gaps.shape[1] > 1 else ""
        return False, (
            f"{what}: at time {time}{which} the ranks of {draws} draws are {gap:.3g} from uniform, "
            f"which has a probability below {bound:.1g}"
        )
    return True, f"{what}: ranks of {draws} draws within {gap:.2g} of uniform"
