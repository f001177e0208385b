"""The distribution of observations within one segment: conjugate families."""

from switchpoint._namespace import namespace
from switchpoint._parameters import location, positive, real, simplex
from switchpoint.segments.base import Level, Segment
from switchpoint.segments.dirichlet import Bernoulli, Categorical, Dirichlet, make_segment
from switchpoint.segments.distributions import (
    Discrete,
    Distribution,
    GammaPoisson,
    Joint,
    Lomax,
    MixtureSameFamily,
    Normal,
    Product,
    StudentT,
    Support,
)
from switchpoint.segments.exponential import Exponential
from switchpoint.segments.forecasting import Forecast, forecast
from switchpoint.segments.gaussian import Gaussian
from switchpoint.segments.hmm import HMM
from switchpoint.segments.independent import Independent
from switchpoint.segments.markov_chain import MarkovChain
from switchpoint.segments.mixture import JointMixture, Mixture, MixtureGeneral
from switchpoint.segments.multivariate_normal import (
    MultivariateNormal,
    MultivariateStudentT,
    principal_axes,
)
from switchpoint.segments.negative_binomial import (
    BetaNegativeBinomial,
    NegativeBinomial,
    estimate_dispersion,
)
from switchpoint.segments.normal_gamma import NormalGamma
from switchpoint.segments.poisson import Poisson
from switchpoint.segments.regression import Regression
from switchpoint.segments.trend import Trend

__all__ = [
    "HMM",
    "Bernoulli",
    "BetaNegativeBinomial",
    "Categorical",
    "Dirichlet",
    "Discrete",
    "Distribution",
    "Exponential",
    "Forecast",
    "GammaPoisson",
    "Gaussian",
    "Independent",
    "Joint",
    "JointMixture",
    "Level",
    "Lomax",
    "MarkovChain",
    "Mixture",
    "MixtureGeneral",
    "MixtureSameFamily",
    "MultivariateNormal",
    "MultivariateStudentT",
    "NegativeBinomial",
    "Normal",
    "NormalGamma",
    "Poisson",
    "Product",
    "Regression",
    "Segment",
    "StudentT",
    "Support",
    "Trend",
    "estimate_dispersion",
    "forecast",
    "location",
    "make_segment",
    "namespace",
    "positive",
    "principal_axes",
    "real",
    "simplex",
]
