"""Where numbers come from that were not, or not all, computed on this machine."""

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from switchpoint.figures.identity import name_of, source_name
from switchpoint.report.elements import paragraph
from switchpoint.report.numbers import listed


def origin(dataset: xr.Dataset) -> list[str]:
    """Where the numbers come from, and of which networks there are none.

    Nothing where all of it was made here and is there.
    """
    return [*_made_where(dataset), *_not_run(dataset)]


def _not_run(dataset: xr.Dataset) -> list[str]:
    """A paragraph that names the seeds that were not trained."""
    parts = [
        f"{name_of(run)} on {source_name(dataset, prior)}, {_seeds(seeds)}"
        for run, priors in dataset.attrs.get("not_run", {}).items()
        for prior, seeds in priors.items()
    ]
    return [paragraph(f"Not run: {'; '.join(parts)}.", "missing")] if parts else []


def _seeds(numbers: Sequence[int]) -> str:
    """Seeds by their numbers, as a range where they follow each other."""
    first, last = numbers[0], numbers[-1]
    if first == last:
        return f"seed {first}"
    if list(numbers) == list(range(first, last + 1)):
        return f"seeds {first} to {last}"
    return f"seeds {listed([str(number) for number in numbers])}"


def _made_where(dataset: xr.Dataset) -> list[str]:
    """A paragraph that tells recorded numbers from measured ones."""
    recorded = dataset.attrs.get("recorded")
    if recorded is None:
        if "networks" not in dataset.attrs["provenance"]:
            return []
        made = _made(dataset.attrs["provenance"])
        return [paragraph(f"Computed here with networks that were trained before: {made}.")]
    where = f"{recorded['sequences']:,} sequences, {_made(recorded['provenance'])}"
    if recorded["here_sequences"] is None:
        return [paragraph(f"Recorded results, not computed on this machine: {where}.")]
    return [
        paragraph(
            f"Dots, bands and numbers of all seeds are recorded results ({where}). Diamonds are "
            f"the networks of the zoo, measured on this machine on {recorded['here_sequences']:,} "
            "sequences: their excess over the optimum there, with two standard errors, drawn above "
            "the recorded optimum. A bar without a diamond comes from below the scale."
        )
    ]


def _made(provenance: Mapping[str, Any]) -> str:
    """The device, the day and the commit of what made results, or the networks behind them."""
    parts = [provenance]
    if "networks" in provenance:
        parts = [each for each in provenance["networks"].values() if each]
    if not parts:
        return "where and when is not known"
    devices = listed(sorted({str(each["device"]) for each in parts}))
    days = sorted({str(each["finished"]).split(" ")[0] for each in parts if "finished" in each})
    commits = sorted({str(each["commit"])[:8] for each in parts if each.get("commit")})
    words = [devices]
    if days:
        words.append(days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}")
    if commits:
        words.append(f"commit{'s' if len(commits) > 1 else ''} {listed(commits)}")
    return ", ".join(words)
