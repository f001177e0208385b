"""Exact statistics of priors: the positions and the number of switching points.

Computed in float64 on the host, regardless of JAX's default precision.
"""

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from switchpoint import _checks

if TYPE_CHECKING:
    from switchpoint.priors.base import Prior

_NEGLIGIBLE = 1e-300


def next_start_table(
    prior: "Prior", length: int
) -> tuple[Float[np.ndarray, "time time"], Float[np.ndarray, " time"]]:
    """table[s, e] = P(the next segment starts at e | s), and P(none starts before the end | s)."""
    prior.check_length(length)
    with jax.enable_x64(True):
        hazards, survivals = (np.asarray(each) for each in _hazards(prior, length))
    table = np.zeros((length, length))
    alive = np.ones(length)
    for run in range(1, length):
        here = np.arange(length - run)
        table[here, here + run] = alive[here] * hazards[run - 1, here]
        alive[here] *= survivals[run - 1, here]
    return table, alive


@functools.partial(jax.jit, static_argnames="length")
def _hazards(
    prior: "Prior", length: int
) -> tuple[Float[Array, "runs time"], Float[Array, "runs time"]]:
    """The hazard and its complement for every run and every start."""
    starts = jnp.arange(length, dtype=jnp.int32)

    def of_run(run: Array) -> tuple[Array, Array]:
        runs = jnp.broadcast_to(run, starts.shape)
        hazard, survival = prior.hazard_after(starts, runs), prior.survival_after(starts, runs)
        return jnp.broadcast_to(hazard, runs.shape), jnp.broadcast_to(survival, runs.shape)

    return lax.map(of_run, jnp.arange(1, length, dtype=jnp.int32))


def switch_probability(table: Float[np.ndarray, "time time"]) -> Float[np.ndarray, " time"]:
    """P(a segment starts at t), 0 at t = 0, from `next_start_table`."""
    starts = np.zeros(len(table))
    starts[0] = 1
    for time in range(1, len(table)):
        starts[time] = starts[:time] @ table[:time, time]
    starts[0] = 0
    return starts


def switch_count_pmf(
    table: Float[np.ndarray, "time time"], alive: Float[np.ndarray, " time"]
) -> Float[np.ndarray, " time"]:
    """P(k switching points), k = 0..length-1, from `next_start_table`."""
    step = table.T
    if np.count_nonzero(table) < 0.1 * table.size:
        from scipy.sparse import csr_array  # slow to import

        step = csr_array(step)
    pmf = np.zeros(len(table))
    last_start = np.zeros(len(table))
    last_start[0] = 1
    for count in range(len(table)):
        pmf[count] = last_start @ alive
        last_start = step @ last_start
        if last_start.sum() < _NEGLIGIBLE:
            break
    return pmf


def ptw_switch_count_pmf(
    depth: int, split: float = 0.5, most: int | None = None
) -> Float[np.ndarray, " count"]:
    """The paper's P_d[k]: P(k switching points) in a sequence of 2^depth under PTW, k = 0..most.

    `most` defaults to 2^depth - 1, the maximum. The generating function satisfies
    P_d(z) = (1 - p) + p z P_{d-1}(z)^2 with P_0 = 1; the recursion printed in the paper omits
    the factor p = 1/2 before its sum.
    """
    depth = _checks.whole_number("depth", depth)
    split = _checks.probability("split", split, below_one=True)
    most = 2**depth - 1 if most is None else most
    pmf = np.ones(1)
    for _ in range(depth):
        square = np.convolve(pmf, pmf)[:most]
        pmf = np.concatenate([[1 - split], split * square])
    return np.pad(pmf[: most + 1], (0, max(0, most + 1 - len(pmf))))


def ptw_switch_count_limit(most: int, split: float = 0.5) -> Float[np.ndarray, " count"]:
    """The paper's P_infinity[k] = C(k) p^k (1-p)^(k+1), k = 0..most, with Catalan numbers C(k).

    It equals P_d[k] for every depth d > k.
    """
    split = _checks.probability("split", split, below_one=True)
    pmf = np.empty(most + 1)
    pmf[0] = 1 - split
    for count in range(most):
        growth = 2 * (2 * count + 1) / (count + 2)  # C(k+1) / C(k)
        pmf[count + 1] = pmf[count] * growth * split * (1 - split)
    return pmf


def ptw_expected_switches(depth: int, split: float = 0.5) -> float:
    """E_d[k] = p (1 - (2p)^d) / (1 - 2p), which is d/2 for p = 1/2."""
    depth = _checks.whole_number("depth", depth)
    split = _checks.probability("split", split, below_one=True)
    return split * float(np.sum((2 * split) ** np.arange(depth)))
