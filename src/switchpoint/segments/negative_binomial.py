"""Counts with an unknown mean, and more variance than Poisson's."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from switchpoint._namespace import Numbers, namespace
from switchpoint._parameters import Parameter, positive
from switchpoint.segments._special import log, stirling_error
from switchpoint.segments.base import Level, Segment, scalar_level
from switchpoint.segments.distributions import Distribution, GammaPoisson, Support

_NODES, _REACH = 64, 4.5  # of an integral over a Beta distribution, in asinh of its logit
_LEAST, _MOST = 1e-2, 1e6  # estimates of a dispersion
_KEPT = 0.9  # of the squared differences of neighbours, without those across a switch
_CHI_SQUARE_KEPT = 0.6230  # the mean of chi^2_1, cut off above that quantile


class CountsRun(NamedTuple):
    """Statistics of a run of overdispersed counts."""

    size: Numbers
    """The dispersion of their sum: that of one times their number."""
    total: Numbers
    """Their sum."""
    composition: Numbers
    """ln P(the counts | their sum), which does not depend on p."""


class NegativeBinomial(Segment):
    """Counts 0, 1, 2, ... with an unknown mean, and more variance than Poisson's.

    Generative model, with r = `dispersion`, and p drawn once per segment:

        p ~ Beta(alpha, beta),    P(x_t | p) = Gamma(r + x_t) / (Gamma(r) x_t!) p^r (1 - p)^x_t

    With the mean m = r (1 - p) / p the variance is m + m^2 / r: Poisson's for r -> infinity; for
    large counts the noise is a constant part of the level, 1 / sqrt(r). A dispersion that is
    unknown, too, is a `Mixture` over some values, or fitted by evidence, or comes from
    `estimate_dispersion`.

    Statistic: the number n of counts, their sum s, and ln P(the counts | s), to which the merge of
    two runs adds the probability that s divides in that way. Predictive, the beta negative
    binomial with the posterior Beta(alpha + r n, beta + s) of p:

        P(x_{n+1} = x) = Gamma(r + x) / (Gamma(r) x!) B(alpha + r n + r, beta + s + x)
                         / B(alpha + r n, beta + s)

    in O(1), computed by differences of deviances (Loader, 2000), which keep their digits for large
    counts; so is the evidence of a run.

    - `dispersion` > 0: r;
    - `alpha` > 0, `beta` > 0: the prior of p. In ln((1 - p) / p) it has exponential tails, so that
      means far from r are possible.

    >>> import switchpoint as sp
    >>> segment = sp.NegativeBinomial(dispersion=4.0, alpha=3.0, beta=1.0)
    >>> float(segment.predictive(segment.initial()).mean)
    2.0
    """

    dispersion: Parameter = positive(10.0)
    alpha: Parameter = positive(1.0)
    beta: Parameter = positive(1.0)

    def statistic(self, x: Numbers) -> CountsRun:
        one = namespace(x).ones_like(x)
        return CountsRun(self.dispersion * one, x, 0.0 * one)

    def merge(self, before: CountsRun, after: CountsRun) -> CountsRun:
        division = _log_division((before.size, before.total), (after.size, after.total))
        return CountsRun(
            before.size + after.size,
            before.total + after.total,
            before.composition + after.composition + division,
        )

    def initial(self) -> CountsRun:
        return CountsRun(self.alpha, self.beta, 0.0)

    def predictive(self, statistics: CountsRun) -> "BetaNegativeBinomial":
        return BetaNegativeBinomial(self.dispersion, statistics.size, statistics.total)

    def observe(self, statistics: CountsRun, x: Numbers) -> tuple[Numbers, CountsRun]:
        alpha, beta, composition = statistics
        division = _log_division((self.dispersion, x), (alpha, beta))
        logs = division - namespace(beta, x).log1p(x / beta)
        return logs, CountsRun(alpha + self.dispersion, beta + x, composition + division)

    def run_log_density(self, before: CountsRun, run: CountsRun) -> tuple[Numbers, Numbers]:
        of_sum = beta_negative_binomial_log_density(run.size, before.size, before.total, run.total)
        return 0.0 * run.size, run.composition + of_sum

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*shape"]:
        """The odds (1 - p) / p of each segment: its mean is r times these."""
        key_alpha, key_beta = jax.random.split(key)
        logs = jax.random.loggamma(key_beta, self.beta, shape)
        return jnp.exp(logs - jax.random.loggamma(key_alpha, self.alpha, shape))

    def emission(self, parameters: Float[Array, ""], statistics: CountsRun) -> GammaPoisson:
        del statistics
        return GammaPoisson(self.dispersion, 1 / parameters)

    def level_posterior(self, statistics: CountsRun) -> Level:
        """E[m] and Var[m]; where they do not exist, finite numbers as in `Exponential`."""
        alpha, beta, _ = statistics
        odds = beta / jnp.maximum(alpha - 1, alpha / 2)
        variance = odds * (odds + 1) / jnp.maximum(alpha - 2, alpha / 3)
        return scalar_level(self.dispersion * odds, self.dispersion**2 * variance)


def estimate_dispersion(values: Any) -> float:
    """The dispersion r of counts with the variance m + m^2 / r around levels m that switch.

    From neighbours, whose mean is the level but where it switches: the r for which their squared
    differences over 2 (m + m^2 / r) have the mean of chi-square variables, both without the largest
    tenth. At most 10^6, where the variance is not above Poisson's. O(n).

    - `values`: (time,), NaN where missing.

    >>> import numpy as np
    >>> from switchpoint.segments import estimate_dispersion
    >>> rng = np.random.default_rng(0)
    >>> counts = rng.negative_binomial(5, 5 / (5 + np.repeat([40, 900], 300)))
    >>> 4 < estimate_dispersion(counts) < 6.5
    True
    """
    seen = np.asarray(values, float)
    seen = seen[~np.isnan(seen)]
    middle, halves = (seen[1:] + seen[:-1]) / 2, (seen[1:] - seen[:-1]) ** 2 / 2
    middle, halves = middle[middle > 0], halves[middle > 0]
    if not len(middle):
        return _MOST
    count = math.ceil(_KEPT * len(middle))

    def too_small(dispersion: float) -> bool:
        """Whether the variance for this dispersion is more than that of the values."""
        ratios = np.sort(halves / (middle + middle**2 / dispersion))
        return bool(ratios[:count].mean() < _CHI_SQUARE_KEPT)

    low, high = math.log(_LEAST), math.log(_MOST)
    for _ in range(40):
        half = (low + high) / 2
        low, high = (half, high) if too_small(math.exp(half)) else (low, half)
    return math.exp(high)


class BetaNegativeBinomial(Distribution):
    """Negative binomial counts of dispersion `size`, whose p is drawn from Beta(alpha, beta).

    With r = size, for x = 0, 1, 2, ...:

        P(x) = Gamma(r + x) / (Gamma(r) x!) B(alpha + r, beta + x) / B(alpha, beta)

    The mean is r beta / (alpha - 1) for alpha > 1, and there is a variance for alpha > 2.

    >>> from switchpoint.segments import BetaNegativeBinomial
    >>> float(BetaNegativeBinomial(4.0, 3.0, 1.0).mean)
    2.0
    """

    size: Numbers
    alpha: Numbers
    beta: Numbers

    def log_density(self, x: Any) -> Numbers:
        return beta_negative_binomial_log_density(self.size, self.alpha, self.beta, x)

    def cdf(self, x: Any) -> Float[Array, "..."]:
        """P(X <= x) = P(q <= p) for q ~ Beta(size, x + 1) and p ~ Beta(alpha, beta)."""
        below = jnp.floor(jnp.asarray(x, float))
        reached = _beta_order(
            (jnp.asarray(self.size, float), jnp.maximum(below, 0) + 1),
            (jnp.asarray(self.alpha, float), jnp.asarray(self.beta, float)),
        )
        return jnp.where(below >= 0, reached, 0.0)

    @property
    def mean(self) -> Float[Array, "..."]:
        alpha = jnp.asarray(self.alpha, float)
        finite = self.size * self.beta / jnp.where(alpha > 1, alpha - 1, 1.0)
        return jnp.where(alpha > 1, finite, jnp.inf)

    @property
    def variance(self) -> Float[Array, "..."]:
        alpha = jnp.asarray(self.alpha, float)
        odds = self.beta / jnp.where(alpha > 2, alpha - 1, 1.0)
        below = jnp.where(alpha > 2, alpha - 2, 1.0)
        finite = self.size * odds * (odds + 1) * (self.size + alpha - 1) / below
        return jnp.where(alpha > 2, finite, jnp.inf)

    @property
    def location(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        centre = jnp.asarray(self.size * self.beta / self.alpha, float)
        return centre, 1 + centre

    @property
    def support(self) -> Support:
        return Support(least=0, whole=True)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "..."]:
        shape = jnp.broadcast_shapes(*map(jnp.shape, (self.size, self.alpha, self.beta)))
        key_alpha, key_beta, key_count = jax.random.split(key, 3)
        logs = jax.random.loggamma(key_alpha, jnp.asarray(self.alpha, float), shape)
        odds = jnp.exp(logs - jax.random.loggamma(key_beta, jnp.asarray(self.beta, float), shape))
        return GammaPoisson(self.size, odds).sample(key_count)


def beta_negative_binomial_log_density(size: Any, alpha: Any, beta: Any, x: Any) -> Any:
    """ln P(x) of a `BetaNegativeBinomial`; 0 for a `size` of 0 and x = 0."""
    xp = namespace(size, alpha, beta, x)
    inside = xp.maximum(x, 0.0)
    logs = _log_division((size, inside), (alpha, beta)) - xp.log1p(inside / beta)
    return xp.where((x >= 0) & (xp.floor(x) == x), logs, -xp.inf)


def _log_division(one: tuple[Any, Any], other: tuple[Any, Any]) -> Any:
    """ln P(x | x + y) for negative binomial x of size r and y of size a, with a common p.

    It is C(x, r) C(y, a) / C(x + y, r + a), with C(x, r) = Gamma(r + x) / (Gamma(r) Gamma(x + 1)).
    The probabilities of x, y and x + y at the most probable p have the same ratio, without the
    large terms of these logarithms.
    """
    (size, x), (other_size, y) = one, other
    xp = namespace(size, x, other_size, y)
    both, total = size + other_size, x + y
    empty = total <= 0
    odds = both / xp.where(empty, 1.0, total)
    parts = _log_count(xp, size, odds, x) + _log_count(xp, other_size, odds, y)
    return xp.where(empty, 0.0, parts - _log_count(xp, both, odds, total))


def _log_count(xp: Any, size: Any, odds: Any, x: Any) -> Any:
    """ln C(x, size) p^size (1 - p)^x for real x >= 0, with the odds p / (1 - p)."""
    none = (x <= 0) | (size <= 0)
    x, r = xp.where(none, 1.0, x), xp.where(size <= 0, 1.0, size)
    surplus = (x * odds - r) / (odds + 1)
    both = r + x
    logs = (
        r * _log_ratio(xp, surplus / r, both * odds / (r * (odds + 1)))
        + x * _log_ratio(xp, -surplus / x, both / (x * (odds + 1)))
        - 0.5 * log(2 * math.pi * x * (both / r))
        + stirling_error(both)
        - stirling_error(r)
        - stirling_error(x)
    )
    return xp.where(none, -size * xp.log1p(1 / odds), logs)


def _log_ratio(xp: Any, excess: Any, ratio: Any) -> Any:
    """ln `ratio`, which is 1 + `excess`, with the digits of the one that has them."""
    near = abs(excess) < 0.5
    return xp.where(near, xp.log1p(xp.where(near, excess, 0.0)), log(xp.where(near, 1.0, ratio)))


def _beta_order(one: tuple[Array, Array], other: tuple[Array, Array]) -> Float[Array, "..."]:
    """P(q <= p) for q ~ Beta(one) and p ~ Beta(other), by the trapezoidal rule over the narrower.

    In the logit, whose density is smooth on the whole line.
    """
    (a, b), (c, d) = one, other
    swap = 1 / a + 1 / b > 1 / c + 1 / d
    a, b, c, d = (jnp.where(swap, *pair) for pair in ((c, a), (d, b), (a, c), (b, d)))
    steps = jnp.linspace(-_REACH, _REACH, _NODES + 1)
    scale = jnp.sqrt(1 / a + 1 / b)[..., None]
    logit = (jnp.log(a) - jnp.log(b))[..., None] + scale * jnp.sinh(steps)
    heights = a[..., None] * jax.nn.log_sigmoid(logit) + b[..., None] * jax.nn.log_sigmoid(-logit)
    heights = heights - heights.max(-1, keepdims=True)
    heights = jnp.exp(heights) * jnp.cosh(steps)
    share = jax.scipy.special.betainc(c[..., None], d[..., None], jax.nn.sigmoid(logit))
    below = jnp.sum(heights * share, -1) / jnp.sum(heights, -1)
    return jnp.where(swap, below, 1 - below)
