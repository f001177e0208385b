"""A prior: its law of segment lengths, and its sampler."""

import jax
import jax.numpy as jnp
import numpy as np

from switchpoint.checking.report import Collector, require_equal
from switchpoint.priors import Prior

_CLOSE = 1e-6
_DRAWS, _LENGTH, _RUNS = 10_000, 48, 200
_STARTS = (0, 1, 2, 7, 24)


def check_law(findings: Collector, prior: Prior, seed: int) -> None:
    """The findings about a prior alone."""
    findings.run("hazards", _hazards, prior)
    if not findings.findings[-1].ok:
        return  # all else follows from them
    with jax.enable_x64(True):
        findings.run("survival", _survival, prior)
        findings.run("lengths", _lengths, prior)
    findings.run("switches drawn", _sampler, prior, seed)


def _grid(prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Starts and runs, (starts, runs), within the longest sequence."""
    longest = _RUNS if prior.max_sequence is None else min(_RUNS, prior.max_sequence)
    starts = [start for start in _STARTS if start < longest] or [0]
    start, run = np.meshgrid(starts, np.arange(1, longest + 1), indexing="ij")
    return start.astype(np.int32), run.astype(np.int32)


def _hazards(prior: Prior) -> str:
    prior.check_hazards()
    hazards = np.asarray(prior.hazard_after(*_grid(prior)))
    return f"probabilities from {hazards.min():.3g} to {hazards.max():.3g}"


def _survival(prior: Prior) -> str:
    grid = _grid(prior)
    survival = prior.survival_after(*grid)
    stays = 1 - np.asarray(prior.hazard_after(*grid))
    require_equal(survival, stays, _CLOSE, "survival_after and 1 - hazard_after")
    logs = jnp.exp(prior.log_survival_after(*grid))
    return require_equal(logs, survival, _CLOSE, "exp(log_survival_after) and survival_after")


def _lengths(prior: Prior) -> str:
    start, run = _grid(prior)
    survival = np.exp(prior.log_survival(start, run))
    product = np.cumprod(np.broadcast_to(prior.survival_after(start, run), run.shape), axis=-1)
    require_equal(survival, product, _CLOSE, "P(L > run) and the product of survivals")
    if prior.max_length is not None:
        longest = np.full_like(start[:, 0], prior.max_length)
        beyond = np.exp(prior.log_survival(start[:, 0], longest))
        require_equal(beyond, 0 * beyond, _CLOSE, f"P(L > {prior.max_length}), max_length, and 0")
    total = np.exp(prior.log_pmf(start, run)).sum(-1) + survival[:, -1]
    ones = np.ones_like(total)
    return require_equal(total, ones, _CLOSE, "the total of log_pmf and log_survival")


def _sampler(prior: Prior, seed: int) -> str:
    """Positions and first lengths, which all have binomial numbers among independent draws."""
    length = _LENGTH if prior.max_sequence is None else min(_LENGTH, prior.max_sequence)
    switches = np.asarray(prior.sample_switches(jax.random.key(seed), _DRAWS, length))
    runs = np.arange(1, length, dtype=np.int32)
    first = np.where(switches.any(1), switches.argmax(1), length)
    law = 1 - np.exp(np.asarray(prior.log_survival(np.zeros_like(runs), runs), np.float64))
    worst = 0.0
    for what, seen, chances in (
        ("switch at", switches.mean(0)[1:], prior.switch_probability(length)[1:]),
        ("have a first segment of at most", (first[:, None] <= runs).mean(0), law),
    ):
        spread = chances * (1 - chances)
        allowed = 6 * np.sqrt(np.maximum(spread, 0) / _DRAWS) + 4 / _DRAWS
        gaps = np.abs(seen - chances) / np.where(spread < 1e-12, _CLOSE, allowed)
        if gaps.size and gaps.max() > 1:
            at = int(np.argmax(gaps))
            raise ValueError(
                f"{seen[at]:.4g} of {_DRAWS} draws {what} {runs[at]}, with probability "
                f"{chances[at]:.4g} by the hazards"
            )
        worst = max(worst, float(np.abs(seen - chances).max(initial=0.0)))
    return f"positions and first lengths of {_DRAWS} draws (within {worst:.2g})"
