"""Streams and detection on a Ray cluster of two nodes, one of which is killed."""

import numpy as np
import pandas as pd
import pytest

import switchpoint as sp

PREDICTOR = sp.bayes_optimal(sp.Source(sp.Geometric(0.02), sp.NormalGamma()), max_hypotheses=8)
OPTIONS = {"alarm": sp.Alarm(one_in=500), "outliers": 0.02}
KEYS = 40


def batches(first=0):
    rng = np.random.default_rng(0)
    for offset in range(45):
        keys = [f"host-{i}" for i in rng.integers(0, KEYS, 60)]
        values = rng.normal(6.0 * (offset // 15 % 2), 1.0, 60)
        if offset >= first:
            yield offset, keys, values, float(offset)


def identified(changes):
    return {(key, change.position, change.began, change.interval) for key, change in changes}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # within Ray Data
def test_nothing_is_lost_with_a_node(ray_cluster, tmp_path):
    import ray

    from switchpoint.adapters.ray import RayStreams, detect_dataset

    expected, alone = [], sp.Streams(PREDICTOR, **OPTIONS)
    for _, keys, values, now in batches():
        expected += alone.update(keys, values, now).changes
    assert len(expected) > KEYS
    ray.init(address=ray_cluster.address, log_to_driver=False, logging_level="ERROR")
    streams = RayStreams(PREDICTOR, tmp_path, snapshot_every=10, cpus=0.4, **OPTIONS)
    found = []
    for offset, keys, values, now in batches():
        if offset == 17:
            ray_cluster.remove_node(ray_cluster.second, allow_graceful=False)
        if offset == 33:  # an actor alone
            ray.kill(streams._shards[0])
        found += streams.update(offset, keys, values, now)
    assert len(found) == len(expected)  # each once
    assert identified(found) == identified(expected)
    # Another process resumes after the last snapshot, which has the first 40 batches.
    for shard in streams._shards:
        ray.kill(shard)
    with pytest.raises(ValueError, match="actors must be 2"):
        RayStreams(PREDICTOR, tmp_path, actors=3, **OPTIONS)
    streams = RayStreams(PREDICTOR, tmp_path, cpus=0.4, **OPTIONS)
    assert streams.offset == 39
    again = [each for batch in batches(first=40) for each in streams.update(*batch)]
    assert identified(again) <= identified(found)
    with pytest.raises(ValueError, match="larger than 44, got 44"):
        streams.update(44, [], [], 0.0)
    streams.close()
    series = pd.DataFrame(
        {
            "host": np.repeat(["calm", "jumps", "empty"], 60),
            "load": np.r_[np.zeros(60), np.zeros(30), np.full(30, 9.0), np.full(60, np.nan)]
            + np.tile(np.random.default_rng(0).normal(size=60), 3),
        }
    )
    changes = detect_dataset(ray.data.from_pandas(series), "host").to_pandas()
    assert changes[changes.error.isna()][["host", "position"]].values.tolist() == [["jumps", 30]]
    assert changes[changes.error.notna()].host.tolist() == ["empty"]
