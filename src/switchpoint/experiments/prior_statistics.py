"""How many switching points the sources have, and where: sampled against the exact law."""

import jax
import numpy as np
import xarray as xr

from switchpoint._random import key_for
from switchpoint.experiments.scales import SOURCES, Scale
from switchpoint.experiments.work import Work
from switchpoint.priors import PTW, Prior, statistics

_BATCHES = 10  # the paper's number, whose spread shows the error


def prior_statistics(work: Work) -> xr.Dataset:
    """The exact laws of number and place, and what samples say of them."""
    scale = work.scale
    priors = [scale.source(name).prior for name in SOURCES]
    samples = [_samples(prior, scale.prior_sequences, scale.length) for prior in priors]
    places = np.stack([each.mean(0) for each in samples])
    counts = np.stack([_frequencies(each, scale.length) for each in samples])
    by_place, by_count = ("source", "time"), ("source", "count")
    return xr.Dataset(
        {
            "switch_probability": (by_place, [p.switch_probability(scale.length) for p in priors]),
            "switch_frequency": (by_place, places),
            "switch_frequency_error": (by_place, _error(places, scale.prior_sequences)),
            "count_law": (by_count, [p.switch_count_pmf(scale.length) for p in priors]),
            "count_frequency": (by_count, counts),
            "count_frequency_error": (by_count, _error(counts, scale.prior_sequences)),
            **_ptw_counts(scale),
        },
        coords={
            "source": list(SOURCES),
            "time": np.arange(scale.length),
            "count": np.arange(scale.length),
            "depth": np.arange(scale.deepest + 1),
            "switches": np.arange(scale.most_switches + 1),
        },
    )


def _ptw_counts(scale: Scale) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """The number of switching points under PTW of every depth, in theory and in batches."""
    depths, most = range(scale.deepest + 1), scale.most_switches
    sequences = scale.prior_sequences // _BATCHES * _BATCHES
    laws = np.stack([statistics.ptw_switch_count_pmf(depth, most=most) for depth in depths])
    batches = np.zeros((_BATCHES, len(depths), most + 1))
    batches[:, 0, 0] = 1  # a sequence of one symbol has no switch
    for depth in depths[1:]:
        samples = _samples(PTW(depth), sequences, 2**depth)
        for batch, rows in zip(batches, np.split(samples, _BATCHES), strict=True):
            batch[depth] = _frequencies(rows, most + 1)
    deviation = batches.std(0, ddof=1)
    both = ("depth", "switches")
    return {
        "ptw_count_law": (both, laws),
        "ptw_count_limit": (("switches",), statistics.ptw_switch_count_limit(most)),
        "ptw_count_sampled": (both, batches.mean(0)),
        "ptw_count_sampled_deviation": (both, deviation),
        "ptw_count_sampled_error": (both, deviation / _BATCHES**0.5),
    }


def _samples(prior: Prior, sequences: int, length: int) -> np.ndarray:
    key: jax.Array = key_for(0, "partitions")
    return np.asarray(prior.sample_switches(key, sequences, length))


def _frequencies(switches: np.ndarray, most: int) -> np.ndarray:
    """How often there are 0, 1, ... switching points, of fewer than `most`."""
    counts = np.bincount(switches.sum(-1), minlength=most)[:most]
    return counts / len(switches)


def _error(frequency: np.ndarray, sequences: int) -> np.ndarray:
    return np.sqrt(frequency * (1 - frequency) / sequences)
