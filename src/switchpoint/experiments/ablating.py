"""Which size and kind of network does how well on PTW."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr

from switchpoint.exact import bayes_optimal
from switchpoint.experiments.plans import ablation_run
from switchpoint.experiments.scales import Ablation, Scale
from switchpoint.experiments.summaries import regret_and_excess, stacked, with_error
from switchpoint.experiments.work import Work

_NUMBERS = ("hidden", "readout", "stack_depth", "stack_width", "layers", "context")
_NONE = -1  # where a model has no such option


def ablations(work: Work) -> xr.Dataset:
    """Regret against the number of parameters, for every configuration that was run."""
    scale = work.scale
    known = [each for each in scale.ablations if not work.lacks(ablation_run(scale, each), "ptw")]
    source = scale.source("ptw")
    optimum = work.regret(
        "optimum", lambda: [bayes_optimal(source)], source, scale.length, scale.sequences
    ).isel(member=0)
    regrets = {ablation.name: _tested(work, ablation) for ablation in known}
    return xr.Dataset(
        {
            **{key: ("configuration", values) for key, values in _options(scale, known).items()},
            **regret_and_excess(stacked(regrets, "configuration"), optimum),
            **with_error(optimum, "optimum_regret"),
        }
    )


def _tested(work: Work, ablation: Ablation) -> xr.DataArray:
    """The regret (seed, sequence) of one configuration."""
    scale = work.scale
    run = ablation_run(scale, ablation)
    return work.network_regret(run, "ptw", scale.trial("ptw"), scale.ablation_seeds)


def _options(scale: Scale, known: Sequence[Ablation]) -> dict[str, Any]:
    """What sets the configurations apart, and how many parameters each has."""
    configs = [ablation_run(scale, each).config for each in known]
    options = [config.options() for config in configs]
    shapes = [jax.eval_shape(config.network, jax.random.key(0)) for config in configs]
    return {
        "part": [each.part for each in known],
        "model": [config.model for config in configs],
        "positions": [each.get("positions", "-") for each in options],
        "parameters": [sum(leaf.size for leaf in jax.tree.leaves(shape)) for shape in shapes],
        **{
            name: np.array([_number(each.get(name)) for each in options], np.int32)
            for name in _NUMBERS
        },
    }


def _number(value: int | None) -> int:
    return _NONE if value is None else value
