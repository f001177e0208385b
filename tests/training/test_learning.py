"""Networks learn what they can, and no more than their memory allows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import known_flags

import switchpoint as sp

LENGTH = 32
FLAGS = {
    "xla_backend_optimization_level": "1",
    "xla_cpu_use_fusion_emitters": "false",
    "xla_cpu_parallel_codegen_split_count": "1",
}
TRAIN = """
import json, sys
from switchpoint.training import TrainConfig, train
for directory, config in json.loads(sys.argv[1]).items():
    train(TrainConfig(**config), out=directory)
"""
# On PTW, and on sequences of one Bernoulli segment.
DATA = {"length": LENGTH, "prior": ["ptw", "regular"], "period": LENGTH, "validation": 100}
RUNS = {
    "lstm": {"model": "lstm", "hidden": 32, "readout": 1, "batch": 32, "steps": 1500},
    "memoryless": {"model": "memoryless", "batch": 64, "steps": 500},
}


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """A function from a source to its networks by name.

    They are trained in a process that compiles with more effort than the tests.
    """
    directory = tmp_path_factory.mktemp("learning")
    flags = " ".join(known_flags(FLAGS))
    environment = os.environ | {"PYTHONPATH": str(Path(sp.__file__).parents[1]), "XLA_FLAGS": flags}
    runs = {
        str(directory / name): {**DATA, **run, "learning_rate": 1e-2} for name, run in RUNS.items()
    }
    subprocess.run([sys.executable, "-c", TRAIN, json.dumps(runs)], env=environment, check=True)
    return lambda prior: {name: sp.load(directory / name, prior=prior) for name in RUNS}


def arcsine_bound():
    """The regret per symbol of saying 1/2 when P(1) is from Beta(1/2, 1/2), in bits."""
    p = np.sin(np.pi / 2 * (np.arange(10**6) + 0.5) / 10**6) ** 2
    return 1 + np.mean(p * np.log2(p) + (1 - p) * np.log2(1 - p))


@pytest.mark.slow
def test_an_lstm_learns_partition_tree_weighting(networks):
    source = sp.Source(sp.PTW(5))
    predictors = {"optimum": sp.bayes_optimal(source), "kt": sp.KT(), **networks("ptw")}
    dataset = sp.evaluate(predictors, source, LENGTH, 4000, seed=7)
    summary = sp.summarise(dataset, "optimum").isel(member=0)

    def excess(name):
        row = summary.sel(predictor=name)
        return float(row["excess"]), float(row["excess_error"])

    mean, error = excess("lstm")
    assert 5 * error < mean  # not the optimum itself
    assert mean + 5 * error < 0.3
    kt, kt_error = excess("kt")
    assert kt - 5 * kt_error > 5 * mean
    # Whatever came before, nothing is better than 1/2 for one who remembers nothing.
    bound = LENGTH * arcsine_bound()
    row = summary.sel(predictor="memoryless")
    regret, regret_error = float(row["regret"]), float(row["regret_error"])
    assert abs(regret - bound) < 4 * regret_error + 0.01 * bound
    assert regret > 2 * float(summary.sel(predictor="lstm")["regret"])


@pytest.mark.slow
def test_regret_falls_with_time_only_for_those_who_remember(networks):
    """Theorem 4.2, on sequences of one Bernoulli segment."""
    source = sp.Source(sp.RegularPeriodic(LENGTH))
    predictors = {"optimum": sp.KT(), **networks("regular")}
    dataset = sp.evaluate(predictors, source, LENGTH, 4000, seed=8)
    by_time = dataset["regret_by_time"].isel(member=0)
    error = dataset["regret_by_time_error"].isel(member=0)

    def early_and_late(name):
        rows, errors = by_time.sel(predictor=name), error.sel(predictor=name)
        early, late = rows[2:10].mean(), rows[24:].mean()
        return float(early), float(late), float(np.hypot(errors[2:10].max(), errors[24:].max()))

    early, late, either = early_and_late("memoryless")
    assert abs(early - late) < 4 * either
    assert abs(late - arcsine_bound()) < 4 * either
    early, late, either = early_and_late("lstm")
    assert late < early / 2 - 5 * either
    assert late < 0.1 * arcsine_bound()
