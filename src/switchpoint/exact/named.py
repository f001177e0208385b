"""Exact predictors by name, and the prior of highest evidence."""

import math
from typing import Any

import numpy as np
from jaxtyping import Int

from switchpoint.exact.fitting import compare
from switchpoint.exact.forward import bayes_optimal
from switchpoint.exact.kt import KT, KTOracle
from switchpoint.priors import PRIOR_NAMES, PTW, Geometric, Prior, prior_from_name
from switchpoint.segments import Segment
from switchpoint.segments.dirichlet import as_dirichlet
from switchpoint.sources import Source

EXACT_NAMES = (*PRIOR_NAMES, "kt", "oracle", "optimum")
"""The names of the exact predictors: each prior's optimum, and those that need no prior."""


def exact_predictor(
    name: str, segment: Segment, prior: Prior | None = None, max_hypotheses: int | None = None
) -> Any:
    """The exact predictor called `name` for segments of this model.

    `kt` is the predictor of a single segment. `oracle` is the class `KTOracle`, which knows the
    switches of one draw. `optimum`, or the name of a prior, is the Bayes optimum of `prior`, with
    at most `max_hypotheses` starts, except for PTW, which needs no limit.

        >>> import switchpoint as sp
        >>> from switchpoint.exact.named import exact_predictor
        >>> exact_predictor("lin", sp.Bernoulli(), sp.LIN()).prior
        LIN()
    """
    if name == "oracle":
        return KTOracle
    if name == "kt":
        return KT(as_dirichlet(segment))
    if name not in EXACT_NAMES or prior is None:
        raise ValueError(f"prior must be one of {', '.join(PRIOR_NAMES)} or kt, got {name!r}")
    return bayes_optimal(Source(prior, segment), None if isinstance(prior, PTW) else max_hypotheses)


def fit_geometric(
    segment: Segment, symbols: Int[np.ndarray, " time"]
) -> tuple[Geometric, dict[str, float]]:
    """The geometric prior of highest evidence, and the code length by prior, the shortest first.

    With n symbols the hazard is 2^-k, k = 1..log2(4 n), refined by a factor of 2^(1/4), to the two
    digits that data determine. Code lengths, in bits, are those of that prior, of LIN, uniform and
    PTW, and of KT: -log2 P(x). A geometric prior may switch anywhere, so that its posterior shows
    where a sequence changed. Takes O(n^2) time for each of about log2 n + 12 priors.

        >>> import numpy as np
        >>> import switchpoint as sp
        >>> from switchpoint.exact.named import fit_geometric
        >>> prior, bits = fit_geometric(sp.Bernoulli(), np.repeat([0, 1], 50))
        >>> prior, list(bits)[:2]
        (Geometric(hazard=0.013), ['uniform', 'geometric'])
    """

    def best(hazards: np.ndarray) -> float:
        sources = {str(hazard): Source(Geometric(hazard), segment) for hazard in hazards}
        return float(compare(sources, symbols).best)

    time = len(symbols)
    coarse = 2.0 ** -np.arange(1, max(4, time.bit_length() + 2))
    fine = np.clip(best(coarse) * 2.0 ** np.linspace(-0.75, 0.75, 7), coarse[-1], 0.5)
    prior = Geometric(float(f"{best(fine):.2g}"))
    rivals = {name: prior_from_name(name, time) for name in ("lin", "uniform", "ptw")}
    sources = {name: Source(each, segment) for name, each in rivals.items()}
    log_evidence = compare({"geometric": Source(prior, segment), **sources}, symbols).log_evidence
    log_probs = KT(as_dirichlet(segment)).log_probs(symbols)[np.arange(time), symbols]
    log_evidence["kt"] = float(np.asarray(log_probs, np.float64).sum())
    bits = {name: -logs / math.log(2) for name, logs in log_evidence.items()}
    return prior, dict(sorted(bits.items(), key=lambda item: item[1]))
