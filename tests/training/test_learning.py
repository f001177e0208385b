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
FLAGS = {  # the runs are long enough for more effort in compilation than that of the tests
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
RUNS = {
    "lstm": {"model": "lstm", "hidden": 32, "readout": 1, "batch": 32, "steps": 1500},
    "memoryless": {"model": "memoryless", "batch": 64, "steps": 500},
}


@pytest.mark.slow
def test_an_lstm_learns_partition_tree_weighting(tmp_path):
    data = {"length": LENGTH, "validation": 100, "learning_rate": 1e-2}
    runs = {str(tmp_path / name): {**data, **run} for name, run in RUNS.items()}
    environment = os.environ | {
        "PYTHONPATH": str(Path(sp.__file__).parents[1]),
        "XLA_FLAGS": " ".join(known_flags(FLAGS)),
    }
    subprocess.run([sys.executable, "-c", TRAIN, json.dumps(runs)], env=environment, check=True)
    source = sp.Source(sp.PTW(5))
    predictors = {name: sp.load(tmp_path / name) for name in RUNS}
    predictors |= {"optimum": sp.bayes_optimal(source), "kt": sp.KT()}
    dataset = sp.evaluate(predictors, source, LENGTH, 4000, seed=7)
    rows = sp.summarise(dataset, "optimum").isel(member=0).to_dataframe()
    lstm, kt, memoryless = (rows.loc[name] for name in ("lstm", "kt", "memoryless"))
    assert 5 * lstm["excess_error"] < lstm["excess"]  # not the optimum itself
    assert lstm["excess"] + 5 * lstm["excess_error"] < 0.3
    assert kt["excess"] - 5 * kt["excess_error"] > 5 * lstm["excess"]
    # Whatever came before, nothing is better than 1/2 for one who remembers nothing: in bits, with
    # P(1) from Beta(1/2, 1/2).
    p = np.sin(np.pi / 2 * (np.arange(10**6) + 0.5) / 10**6) ** 2
    bound = LENGTH * (1 + np.mean(p * np.log2(p) + (1 - p) * np.log2(1 - p)))
    assert abs(memoryless["regret"] - bound) < 4 * memoryless["regret_error"] + 0.01 * bound
