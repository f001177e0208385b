"""Captions of the figures of the priors."""

import numpy as np
import xarray as xr

from switchpoint.figures.identity import source_name
from switchpoint.report.caption import Caption
from switchpoint.report.numbers import listed, with_error


def prior_captions(dataset: xr.Dataset) -> dict[str, Caption]:
    """Captions of where and how often the sources switch."""
    ptw = source_name(dataset, "ptw")
    places = dataset.sel(source="ptw")
    top = int(np.argmax(places["switch_probability"].values))
    middle = places.isel(time=top)
    deepest = dataset.isel(depth=-1)
    kink = min(int(deepest["depth"]), deepest.sizes["switches"] - 1)
    numbers = [
        f"{source_name(dataset, source)} {_most_likely(dataset.sel(source=source))}"
        for source in map(str, dataset["source"].values)
    ]
    return {
        "priors-ptw-positions": Caption(
            alt=f"Probability of a switch of {ptw} at every position, exact and sampled.",
            seen=f"Most likely is a switch at {top}: exact "
            f"{float(middle['switch_probability']):.3f}, sampled "
            f"{_pair(middle, 'switch_frequency')}.",
            paper="Half of all sequences switch in the middle, a quarter at each quarter, and so "
            "on, halving.",
        ),
        "priors-ptw-counts": Caption(
            alt="Probability of each number of switches under PTW, one curve per depth: exact at "
            "the left, sampled at the right; a dashed line is the limit of infinite depth.",
            seen=f"At depth {int(deepest['depth'])}: no switch, exact "
            f"{float(deepest['ptw_count_law'][0]):.4f} and sampled "
            f"{_pair(deepest.isel(switches=0), 'ptw_count_sampled')}; {kink} switches, exact "
            f"{float(deepest['ptw_count_law'][kink]):.4f} and sampled "
            f"{_pair(deepest.isel(switches=kink), 'ptw_count_sampled')}.",
            paper="Theory and samples agree; for fewer switches than the depth the law is that of "
            "infinite depth, and the kink where they are equal is real.",
        ),
        "priors-switches": Caption(
            alt="For each source the number of switches and their positions: columns are sampled, "
            "marks are the exact law.",
            seen=f"Most likely number of switches, exact against sampled: {listed(numbers)}.",
            paper="Histograms of samples alone; here the exact law lies over them.",
        ),
    }


def _most_likely(one: xr.Dataset) -> str:
    best = int(np.argmax(one["count_law"].values))
    at = one.isel(count=best)
    number = int(at["count"])
    return f"{number} ({float(at['count_law']):.3f} against {_pair(at, 'count_frequency')})"


def _pair(one: xr.Dataset, name: str) -> str:
    return with_error(float(one[name]), float(one[f"{name}_error"]))
