"""Results that rest on what is shipped: measured here, recorded, or both side by side."""

import xarray as xr

from switchpoint.experiments.scales import Scale
from switchpoint.experiments.studies import Study, tested_sequences
from switchpoint.experiments.work import Work

HERE = "here_"
"""How names of variables begin that were measured on this machine, beside recorded ones."""


def can_be_made(study: Study, scale: Scale) -> bool:
    """Whether there is what the study needs: always, where networks are trained for it."""
    shipped = scale.shipped
    return (
        shipped is None
        or shipped.has_networks_of(study.runs(scale))
        or shipped.result(study.name) is not None
    )


def result_of(study: Study, work: Work) -> xr.Dataset:
    """The result of a study at the scale of the work.

    At a shipped scale, what the networks of the zoo suffice for is computed. Where that has but
    one seed and results of all seeds are recorded, it stands beside them. What needs other
    networks is the recorded result as it is.
    """
    shipped = work.scale.shipped
    if shipped is None:
        return study.compute(work)
    recorded = shipped.result(study.name)
    if not shipped.has_networks_of(study.runs(work.scale)):
        if recorded is None:
            raise ValueError(f"no result of {study.name} was recorded")
        return _as_recorded(study, recorded, None)
    here = study.compute(work)
    if recorded is None or "seed" not in here.dims:
        return here
    both = _as_recorded(study, recorded, tested_sequences(study, work.scale.described(study.sizes)))
    return both.assign(_of_one_seed(here))


def _of_one_seed(here: xr.Dataset) -> dict[str, xr.DataArray]:
    """What was measured of the one network, and of exact predictors; no summaries of seeds."""
    return {
        f"{HERE}{name}": variable.isel(seed=0, drop=True) if "seed" in variable.dims else variable
        for name, variable in here.data_vars.items()
        if "seed" in variable.dims or str(name).startswith(("exact", "optimum"))
    }


def _as_recorded(study: Study, recorded: xr.Dataset, here_sequences: int | None) -> xr.Dataset:
    """The recorded result, with what it was made with under one name."""
    about = recorded.attrs
    told = {
        "scale": about["scale"],
        "sequences": tested_sequences(study, about["description"]["scale"]),
        "here_sequences": here_sequences,
        "provenance": about["provenance"],
    }
    kept = {key: about[key] for key in about if key not in _ANEW}
    return recorded.drop_attrs().assign_attrs({**kept, "recorded": told})


_ANEW = ("description", "provenance", "scale")  # of a result, what is not that of the recorded one
