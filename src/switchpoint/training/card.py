"""The card of trained networks: what they are, what they learned from, how well, with what."""

import math
from typing import Any

import equinox
import jax
import optax

from switchpoint.neural.registry import CUSTOM
from switchpoint.training.config import TrainConfig
from switchpoint.training.report import Report


def card_of(config: TrainConfig, report: Report) -> dict[str, Any]:
    """What a file of networks says about itself; no times, so that equal runs are equal files."""
    from switchpoint import __version__  # known once all of the package is

    settings = config.to_dict()
    network = (
        {"network": settings["network"]}
        if config.model == CUSTOM
        else {"options": config.options()}
    )
    return {
        "model": config.model,
        "alphabet": config.alphabet,
        "length": config.length,
        **network,
        "sources": {prior: repr(config.source(prior)) for prior in config.prior},
        "steps": report.step,
        "planned_steps": config.steps,
        "members": [
            {
                "prior": member.prior,
                "seed": member.seed,
                "learning_rate": member.learning_rate,
                "excess": _finite(report.excess[member.index]),
                "excess_error": _finite(report.excess_error[member.index]),
                "diverged": member.index in report.frozen,
            }
            for member in config.members()
        ],
        "config": settings,
        "versions": {
            "switchpoint": __version__,
            "jax": jax.__version__,
            "equinox": equinox.__version__,
            "optax": optax.__version__,
        },
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
