"""Captions of the figures that compare networks on sources and lengths."""

import numpy as np
import xarray as xr

from switchpoint.figures.ablations import compared_parts
from switchpoint.figures.identity import name_of, source_name
from switchpoint.report.caption import Caption
from switchpoint.report.numbers import bits, listed


def on_distribution_captions(dataset: xr.Dataset) -> dict[str, Caption]:
    """Captions of networks at home."""
    medians = [
        f"{source_name(dataset, source)} {_range(dataset['excess_median'].sel(source=source))}"
        for source in map(str, dataset["source"].values)
    ]
    seeds, count = dataset.sizes["seed"], f"{dataset.attrs['sequences']:,}"
    return {
        "on-distribution": Caption(
            alt="A panel per source: regret of every seed of every network trained on it, with "
            "dashed lines for the exact predictors.",
            seen=f"{_seeds(seeds)} of each network, each tested on {count} sequences of the source "
            "of its training. An arrow marks exact predictors above the picture.",
            paper="The best seed of every network is near the optimum, the RNN's a little less so "
            "on PTW; on LIN every seed matches LIN; on Regular all reach the KT Oracle. For Random "
            "Uniform, where the paper has no optimum, networks beat LIN.",
        ),
        "on-distribution-excess": Caption(
            alt="A panel per source: regret above the exact optimum, on a logarithmic scale.",
            seen=f"The same above the optimum. Median over seeds, in bits: {listed(medians)}.",
            paper="Not shown in the paper, which lacks the optimum of Random Uniform.",
        ),
    }


def off_distribution_captions(dataset: xr.Dataset) -> dict[str, Caption]:
    """Captions of networks away from home."""
    medians = [
        _away(dataset.sel(test_source=test), train, test)
        for train, test in (("ptw", "uniform"), ("lin", "uniform"))
    ]
    same = dataset["train_source"].values[:, None] == dataset["test_source"].values[None, :]
    excess = dataset["excess_mean"].transpose("train_source", "test_source", "architecture").values
    return {
        "off-distribution": Caption(
            alt="A panel per pair of sources: regret of every seed trained on one, tested on the "
            "other, with dashed lines for the exact predictors.",
            seen="Trained on the source before the arrow, tested on the one after it. Median "
            f"regret over seeds, in bits: {'; '.join(medians)}.",
            paper="On Random Uniform, networks trained on PTW are slightly more robust than PTW, "
            "the less so the better they had learned it; networks trained on LIN are all close "
            "to LIN.",
        ),
        "off-distribution-matrix": Caption(
            alt="A matrix per network: excess regret for each training source (row) and test "
            "source (column).",
            seen="Mean excess over the optimum of the test source. At home networks are "
            f"{_ends(excess[same])} bits above it, away {_ends(excess[~same])}. The panel "
            "of the exact optimum predicts each column with the true posterior of the row's "
            "source.",
            paper="Six of these pairs are in the paper (Figure 4 and appendix C).",
        ),
    }


def longer_lengths_captions(dataset: xr.Dataset) -> dict[str, Caption]:
    """The caption of sequences longer than the training."""
    lengths = dataset["length"].values
    ends = [
        f"{name_of(str(name))} {bits(float(row[0]))} → {bits(float(row[-1]))}"
        for name, row in zip(
            dataset["architecture"].values,
            dataset["excess_mean"].transpose("architecture", "length").values,
            strict=True,
        )
    ]
    return {
        "longer-lengths": Caption(
            alt="Curves of excess regret against the length of the test sequences, one per "
            "network, with a band.",
            seen=f"Mean over seeds, and a band from the lowest to the highest. Excess in bits at "
            f"length {lengths[0]} → {lengths[-1]}: {listed(ends)}.",
            paper="Every network gets worse beyond the length of its training; the LSTM and the "
            "Stack-LSTM generalise best, the Stack-RNN worst.",
        )
    }


def other_lengths_captions(dataset: xr.Dataset) -> dict[str, Caption]:
    """The caption of networks trained on each length."""
    base, lengths = dataset.attrs["base_length"], dataset["length"].values
    last = dataset.isel(length=-1)
    ends = [
        f"{name_of(str(name))} {bits(float(own))} against {bits(float(transferred))}"
        for name, own, transferred in zip(
            last["architecture"].values,
            last["own_mean"].values,
            last["transferred_mean"].values,
            strict=True,
        )
    ]
    return {
        "other-lengths": Caption(
            alt="Curves of excess regret against length: solid for networks trained on that "
            f"length, dashed for networks trained on {base}.",
            seen=f"Mean over seeds, with bars of their standard deviation. At length {lengths[-1]},"
            f" excess in bits when trained on it against trained on {base}: {listed(ends)}.",
            paper="Networks trained on 32 are worse on every other length (a curve like a U), "
            "since the prior changes with the depth of PTW.",
        )
    }


def ablation_captions(dataset: xr.Dataset) -> dict[str, Caption]:
    """Captions of the ablations, without those of parts that have nothing to compare."""
    optimum = bits(float(dataset["optimum_regret"]))
    compared = compared_parts(dataset)
    needs = {"ablations-stack": {"stack"}, "ablations-transformer": {"positions", "context"}}
    panels = {"positions": "positions and layers", "context": "context window"}
    best = [
        f"best {title}: {_best(dataset, part)}"
        for part, title in panels.items()
        if part in compared
    ]
    captions = {
        "ablations-parameters": Caption(
            alt="Regret against number of parameters, recurrent networks at the left, "
            "Transformers at the right.",
            seen=f"Small dots are seeds, large ones their means; the exact optimum pays {optimum} "
            f"bits. Best of the recurrent: {_best(dataset, 'core', 'stack')}; of the Transformers: "
            f"{_best(dataset, 'positions')}.",
            paper="The more parameters, the lower the regret; the best recurrent networks have "
            "256 units and 2 readout layers, the best Transformer 16 layers.",
        ),
        "ablations-stack": Caption(
            alt="Excess regret for each depth of the stack (row) and width of its cells (column).",
            seen=f"Mean excess over seeds. Best: {_best(dataset, 'stack')}.",
            paper="A stack of depth 8 with cells of width 8 is best: larger than small, and "
            "smaller than the whole sequence.",
        ),
        "ablations-transformer": Caption(
            alt="Excess regret of Transformers, one panel each: "
            f"{listed([title for part, title in panels.items() if part in compared])}.",
            seen=f"Mean and standard deviation over seeds; {'; '.join(best)}.",
            paper="All kinds of positions train well, relative ones with 16 layers best; the full "
            "context is better than any window.",
        ),
    }
    return {
        name: caption
        for name, caption in captions.items()
        if name not in needs or needs[name] & compared
    }


def memory_captions(dataset: xr.Dataset) -> dict[str, Caption]:
    """The caption of predictors with little memory."""
    order = int(dataset["order"].values[-1])
    parts = [
        f"{source_name(dataset, source)} {_first_last(dataset.sel(source=source))}"
        for source in map(str, dataset["source"].values)
    ]
    return {
        "memory": Caption(
            alt="A panel per source: regret against the number of last symbols that a predictor "
            "sees, trained and exact lower bound, with the optimum of full memory.",
            seen="Small dots are seeds with two standard errors of the sample, squares their "
            "means; the bound is exact, for a predictor that also knows the position. "
            f"Trained without memory → with the last {order} symbols, and the optimum, "
            f"in bits: {'; '.join(parts)}.",
            paper="Theorem 4.2: a memoryless predictor cannot approach the Bayes mixture, however "
            "large it is. The paper proves it and shows no numbers.",
        )
    }


def _away(one: xr.Dataset, train: str, test: str) -> str:
    """What networks pay on a source, beside the exact predictor of the source they know."""
    known, pays = source_name(one, train), one["exact_regret"]
    return (
        f"{known} → {source_name(one, test)} {_range(one['regret_median'].sel(train_source=train))}"
        f", while exact {known} pays {bits(float(pays.sel(exact=train)))} and the optimum "
        f"{bits(float(pays.sel(exact='optimum')))}"
    )


def _first_last(one: xr.Dataset) -> str:
    means = one["regret_mean"].values
    return (
        f"{bits(float(means[0]))} (bound {bits(float(one['bound'].values[0]))}) → "
        f"{bits(float(means[-1]))}, optimum {bits(float(one['optimum_regret']))}"
    )


def _best(dataset: xr.Dataset, *parts: str) -> str:
    """The configuration of least mean regret in some parts of the ablations, with its excess."""
    chosen = np.isin(dataset["part"].values.astype(str), parts)
    means = np.where(chosen, dataset["excess_mean"].values, np.nan)
    if not np.isfinite(means).any():
        return "none was run"
    best = int(np.nanargmin(means))
    name = str(dataset["configuration"].values[best])
    return f"{name} ({bits(float(means[best]))} bits above the optimum)"


def _range(values: xr.DataArray) -> str:
    """The least and the largest over architectures, with their names."""
    if not np.isfinite(values.values).any():
        return "unknown"
    low, high = int(np.nanargmin(values.values)), int(np.nanargmax(values.values))
    names = [name_of(str(name)) for name in values["architecture"].values]
    return (
        f"{bits(float(values.values[low]))} ({names[low]}) to "
        f"{bits(float(values.values[high]))} ({names[high]})"
    )


def _ends(values: np.ndarray) -> str:
    return f"{bits(float(np.nanmin(values)))} to {bits(float(np.nanmax(values)))}"


def _seeds(count: int) -> str:
    return "One seed" if count == 1 else f"{count} seeds"
