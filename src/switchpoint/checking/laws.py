"""A prior: its law of segment lengths, and its sampler."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from switchpoint.checking.report import Collector, compared
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
        findings.run("lengths", _normalised, prior)
        findings.run("max_length", _max_length, prior)
    findings.run("switches drawn", _sampler, prior, seed)


def _grid(prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Starts and runs, (starts, runs), within the longest sequence."""
    longest = _RUNS if prior.max_sequence is None else min(_RUNS, prior.max_sequence)
    starts = [start for start in _STARTS if start < longest] or [0]
    start, run = np.meshgrid(starts, np.arange(1, longest + 1), indexing="ij")
    return start.astype(np.int32), run.astype(np.int32)


def _hazards(prior: Prior) -> tuple[bool, str]:
    prior.check_hazards()
    hazards = np.asarray(prior.hazard_after(*_grid(prior)))
    return True, f"probabilities from {hazards.min():.3g} to {hazards.max():.3g}"


def _survival(prior: Prior) -> tuple[bool, str]:
    grid = _grid(prior)
    found, expected = prior.survival_after(*grid), 1 - prior.hazard_after(*grid)
    finding = compared(found, expected, _CLOSE, "survival_after and 1 - hazard_after")
    if not finding[0]:
        return finding
    found, expected = jnp.exp(prior.log_survival_after(*grid)), prior.survival_after(*grid)
    return compared(found, expected, _CLOSE, "exp(log_survival_after) and survival_after")


def _normalised(prior: Prior) -> tuple[bool, str]:
    start, run = _grid(prior)
    survival = jnp.exp(prior.log_survival(start, run))
    product = jnp.cumprod(prior.survival_after(start, run), axis=-1)
    finding = compared(survival, product, _CLOSE, "P(L > run) and the product of survivals")
    if not finding[0]:
        return finding
    total = jnp.exp(prior.log_pmf(start, run)).sum(-1) + survival[:, -1]
    return compared(total, jnp.ones_like(total), _CLOSE, "the total of log_pmf and log_survival")


def _max_length(prior: Prior) -> tuple[bool, str] | None:
    longest = prior.max_length
    if longest is None:
        return None
    starts = np.asarray(_STARTS, np.int32)
    beyond = jnp.exp(prior.log_survival(starts, np.full_like(starts, longest)))
    return compared(
        beyond, jnp.zeros_like(beyond), _CLOSE, f"P(L > {longest}), the max_length, and 0"
    )


def _sampler(prior: Prior, seed: int) -> tuple[bool, str]:
    length = _LENGTH if prior.max_sequence is None else min(_LENGTH, prior.max_sequence)
    switches = np.asarray(prior.sample_switches(jax.random.key(seed), _DRAWS, length))
    chances, seen = prior.switch_probability(length), switches.mean(0)
    allowed = 6 * np.sqrt(chances * (1 - chances) / _DRAWS) + 4 / _DRAWS
    allowed = np.where(chances * (1 - chances) < 1e-12, _CLOSE, allowed)
    time = int(np.argmax(np.abs(seen - chances) / allowed))
    if abs(seen[time] - chances[time]) > allowed[time]:
        return False, (
            f"{seen[time]:.4g} of {_DRAWS} draws switch at {time}, with probability "
            f"{chances[time]:.4g} by hazard_after"
        )
    first = np.where(switches.any(1), switches.argmax(1), length)
    runs = np.arange(1, length, dtype=np.int32)
    law = 1 - np.exp(np.asarray(prior.log_survival(np.zeros_like(runs), runs), np.float64))
    gaps = np.abs((first[:, None] <= runs).mean(0) - law)
    if not gaps.size:
        return True, "a single symbol has no switch"
    bound = 2 * math.exp(-2 * _DRAWS * gaps.max() ** 2)
    run = int(runs[np.argmax(gaps)])
    if bound < 1e-6:
        return False, (
            f"{(first <= run).mean():.4g} of {_DRAWS} first segments have at most {run} symbols, "
            f"with probability {law[run - 1]:.4g} by log_survival"
        )
    return True, f"positions and first lengths of {_DRAWS} draws (within {gaps.max():.2g})"
