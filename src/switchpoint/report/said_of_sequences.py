"""Captions of the figures that follow sequences in time."""

import numpy as np
import xarray as xr

from switchpoint.figures.identity import name_of, source_name
from switchpoint.report.caption import Caption
from switchpoint.report.numbers import bits, listed, with_error

_MOST_SWITCHES = 6  # more places than this are not read


def trajectory_captions(dataset: xr.Dataset) -> dict[str, Caption]:
    """A caption for the sequence of each source."""
    return {
        f"trajectory-{source}": _trajectory(dataset.sel(source=source), source)
        for source in map(str, dataset["source"].values)
    }


def mean_regret_captions(dataset: xr.Dataset) -> dict[str, Caption]:
    """The caption of the mean cumulative regret."""
    last = dataset.isel(time=-1)
    ends = [
        f"{name_of(str(name))} {with_error(float(value), float(error))}"
        for name, value, error in zip(
            last["predictor"].values,
            last["cumulative_regret"].values,
            last["cumulative_regret_error"].values,
            strict=True,
        )
    ]
    source, count = source_name(dataset, "ptw"), f"{dataset.attrs['sequences']:,}"
    return {
        "mean-regret": Caption(
            alt=f"Curves of mean cumulative regret over time on {source}, one per predictor.",
            seen=f"Mean over {count} sequences from {source}, with a band of two standard errors. "
            f"At the end, in bits: {listed(ends)}.",
            paper="The LSTM follows the optimal PTW so closely that the curves coincide; LIN is "
            "a good predictor, but not the best for this source.",
        )
    }


def by_index_captions(dataset: xr.Dataset) -> dict[str, Caption]:
    """Captions of the regret at each position."""
    source = source_name(dataset, "ptw")
    optimum = dataset["optimum_regret"].values
    difference = dataset["difference"].values
    rows = [
        f"{name_of(str(name))} {bits(float(np.nanmax(row)))} at {int(np.nanargmax(row))}"
        for name, row in zip(dataset["architecture"].values, difference, strict=True)
        if np.isfinite(row).any()
    ]
    below = [
        name_of(str(name))
        for name, row in zip(dataset["architecture"].values, difference, strict=True)
        if np.nanmin(row, initial=0.0) < 0
    ]
    under = (
        f"At some positions {listed(below)} {'is' if len(below) == 1 else 'are'} below it."
        if below
        else "None is below it anywhere."
    )
    return {
        "regret-by-index": Caption(
            alt=f"Mean regret at every position of sequences from {source}, one curve per network.",
            seen=f"The exact optimum pays {bits(float(optimum[0]))} bits for the first symbol, "
            f"{bits(float(optimum[-1]))} for the last. It pays most where switches are likely.",
            paper="The networks match PTW almost perfectly at every position.",
        ),
        "regret-by-index-difference": Caption(
            alt="A panel per network: its mean regret minus the optimum's at every position.",
            seen="Network minus exact optimum on the same sequences, with two standard errors. "
            f"Largest, in bits, with its position: {listed(rows)}. {under}",
            paper="A network can beat PTW at single positions, but never in the sum of all.",
        ),
    }


def longer_sequence_captions(dataset: xr.Dataset) -> dict[str, Caption]:
    """Captions of the sequences of twice the length of the training."""
    trained, tested = dataset.attrs["length"], dataset.attrs["test_length"]
    last = dataset["cumulative_regret"].isel(time=-1)
    ends = [
        f"{name_of(str(name))} {bits(float(value))}"
        for name, value in zip(last["predictor"].values, last.values, strict=True)
    ]
    counts = dataset["switch_count"].values
    return {
        "length-512-sequence": Caption(
            alt=f"One sequence of {tested} symbols without switches: predictions of every network "
            "against the exact optimum, and cumulative regret below.",
            seen=f"Networks trained on {trained} symbols predict {tested}; the dotted line is where"
            f" the training ended. Cumulative regret at the end, in bits: {listed(ends)}.",
            paper="The LSTM stays close, paying most where switches were likely in training (at "
            "128 and 384 of 512); the Transformer has trouble from 256 on.",
        ),
        "length-512-map": Caption(
            alt=f"Heat maps, one per network: {len(counts)} sequences by {tested} positions, "
            "coloured by regret above PTW of matching depth.",
            seen=f"Each row is one of {len(counts)} sequences, ordered by number of switches; "
            f"{int((counts == 0).sum())} have none. Orange: the network is worse than PTW; blue: "
            f"better. The mark on top is position {trained}, the first beyond the training.",
            paper="Without a switch, all networks but the Transformer do better than PTW at 256, "
            "since they expect a switch there less; with one, they do worse.",
        ),
    }


def _trajectory(one: xr.Dataset, source: str) -> Caption:
    switches = [str(at) for at in np.flatnonzero(one["switches"].values)]
    many = len(switches) > _MOST_SWITCHES
    where = f" (the first at {switches[0]})" if many else f" (at {listed(switches)})"
    count = f"{len(switches) or 'no'} switch{'' if len(switches) == 1 else 'es'}"
    last = one["cumulative_regret"].isel(time=-1)
    ends = [
        f"{name_of(str(name))} {bits(float(value))}"
        for name, value in zip(last["predictor"].values, last.values, strict=True)
    ]
    paper = {
        "ptw": "The LSTM and PTW adapt quickly after switches, and almost alike (Figure 1).",
        "lin": "An example draw, on which LIN and the network predict almost alike (appendix B).",
        "regular": "An example draw with its regular switches (appendix B).",
        "uniform": "An example draw; the paper has no exact optimum for this source (appendix B).",
    }
    return Caption(
        alt=f"A sequence from {source_name(one, source)}: symbols, true bias and predictions; "
        "regret of every symbol; cumulative regret.",
        seen=f"{one.sizes['time']} symbols with {count}{where if switches else ''}. Cumulative "
        f"regret at the end, in bits: {listed(ends)}.",
        paper=paper.get(source, "Not in the paper."),
    )
