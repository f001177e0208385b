"""Where numbers come from that were not, or not all, computed on this machine."""

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from switchpoint.figures.identity import name_of
from switchpoint.report.elements import folded, paragraph
from switchpoint.report.numbers import listed

_FEW = 4  # networks of one kind that are named in a sentence


def origin(dataset: xr.Dataset) -> list[str]:
    """Where the numbers come from, and of which networks there are none.

    Nothing where all of it was made here and is there.
    """
    return [*_made_where(dataset), *_not_run(dataset)]


def _not_run(dataset: xr.Dataset) -> list[str]:
    """What names the networks that were not trained; many of one kind are counted, and folded."""
    runs: dict[str, list[str]] = {}
    for run, priors in dataset.attrs.get("not_run", {}).items():
        for prior, seeds in priors.items():
            where = f"on {name_of(prior)}, {_seeds(seeds)}"
            runs.setdefault(where, []).append(name_of(run))
    few = [
        f"{name} {where}" for where, names in runs.items() for name in names if len(names) <= _FEW
    ]
    parts = [paragraph(f"Not run: {'; '.join(few)}.", "missing")] if few else []
    for where, names in runs.items():
        if len(names) > _FEW:
            parts.append(folded(f"Not run: {len(names)} training runs {where}", ", ".join(names)))
    return parts


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
