"""Many streams in one table: the numbers and the alarms of one stream per key; saved states."""

import copy
import pickle
import zlib
from unittest import mock

import numpy as np
import pytest
from reference import name

import switchpoint as sp

COLUMNS = sp.Independent(sp.NormalGamma(), sp.Poisson())


def optimal(prior, segment, most=6):
    return sp.bayes_optimal(sp.Source(prior, segment), max_hypotheses=most)


CASES = [
    (optimal(sp.PTW(10), sp.Bernoulli(), None), {}),
    (optimal(sp.LIN(), sp.Categorical(3)), {}),
    (optimal(sp.PTW(10), sp.Poisson(), None), {}),
    (optimal(sp.LIN(), sp.NormalGamma()), {"outliers": 0.02}),
    (optimal(sp.RandomUniform(9), sp.Trend(), None), {}),
    (optimal(sp.Geometric(0.05), COLUMNS), {"outliers": 0.02}),
    (optimal(sp.Geometric(0.05), sp.MarkovChain(2, order=1)), {}),
]


def batches(segment, keys=6, seed=0):
    """Observations of keys that switch, with repeated keys, outliers and a long gap."""
    rng = np.random.default_rng(seed)
    for time in range(45):
        some = rng.integers(0, keys, 7)
        high = time // 15 % 2
        if segment.finite:
            values = (rng.random(7) < (0.9 if high else 0.1)).astype(float)
        else:
            columns = segment.event_shape or ()
            values = rng.poisson(8.0 if high else 1.0, (7, *columns)).astype(float)
            values[rng.random(7) < 0.02] = 90.0
        values[rng.random(7) < (0.9 if 18 < time < 27 else 0.1)] = np.nan
        yield some, values


@pytest.mark.parametrize(("predictor", "options"), CASES, ids=lambda each: name(each)[:60])
def test_every_key_is_a_stream_of_its_own(predictor, options):
    many = sp.Streams(predictor, alarm=sp.Alarm(200, horizon=20), **options)
    streams, found, expected = {}, [], []
    for batch, (keys, values) in enumerate(batches(predictor.segment)):
        logs, changes = many.update(keys, values)
        found += [(batch, key, change) for key, change in changes]
        for key, x, log_density in zip(keys.tolist(), values, logs, strict=True):
            if key not in streams:
                streams[key] = sp.Stream(predictor, **options), sp.Alarm(200, horizon=20)
            stream, alarm = streams[key]
            assert log_density == pytest.approx(stream.update(x), abs=1e-9)
            if change := alarm.check(stream, x):
                expected.append((batch, key, change))
    assert len(found) == len(expected) > 0
    for (*where, one), (*place, other) in zip(found, expected, strict=True):
        assert where == place
        assert (one.position, one.began, one.interval) == (
            other.position,
            other.began,
            other.interval,
        )
        np.testing.assert_allclose(one.level_before, other.level_before, rtol=1e-7)
        np.testing.assert_allclose(one.level_after, other.level_after, rtol=1e-7)
    for key, (stream, _) in streams.items():
        ours = many.stream(key)
        assert ours.position == stream.position
        assert ours.code_length == pytest.approx(stream.code_length, abs=1e-9)
        assert ours.run_length.mean == pytest.approx(stream.run_length.mean, abs=1e-9)
        assert ours.update(1 if not predictor.segment.event_shape else [1, 1]) == pytest.approx(
            stream.update(1 if not predictor.segment.event_shape else [1, 1]), abs=1e-9
        )


def fed(count=300, **options):
    streams = sp.Streams(CASES[3][0], alarm=sp.Alarm(), **options)
    rng = np.random.default_rng(0)
    for time in range(8):
        streams.update(np.arange(count), rng.normal(size=count), now=time)
    streams.update(["text", 5, 5], [1.0, np.nan, 2.0], now=8)
    return streams


def assert_equal(one, other, keys=(5, 17, "text")):
    assert set(one) == set(other)
    for key in keys:
        np.testing.assert_array_equal(
            one._table[one._rows[key]], other._table[other._rows[key]], strict=True
        )
    values = np.linspace(-1, 1, len(keys))
    expected = copy.copy(one).update(keys, values).log_density
    np.testing.assert_array_equal(other.update(keys, values).log_density, expected)


def test_states_continue_from_files_and_bytes(tmp_path):
    streams, path = fed(), tmp_path / "states"
    for other in (copy.copy(streams), pickle.loads(pickle.dumps(streams))):
        assert_equal(streams, other)
    streams.save(path)
    assert_equal(streams, sp.Streams.load(path))
    # To the same file, only what has changed; a file that has changed since is written whole.
    streams.drop(5)
    streams.update(["new", 17], [0.5, 4.0], now=9)
    other = copy.copy(streams)
    loaded = sp.Streams.load(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("switchpoint.streams.storage.write_states", None)
        streams.save(path)
    assert_equal(streams, sp.Streams.load(path), (17, "new"))
    loaded.save(path)
    other.save(path)
    assert_equal(other, sp.Streams.load(path), (17, "new"))
    assert sp.Streams.loads(streams.dumps()).stream(17).position == 9


def test_a_failed_save_leaves_the_file(tmp_path, monkeypatch):
    streams, path = fed(), tmp_path / "states"
    streams.save(path)
    before = sp.Streams.load(path)
    streams.update([17, 20], [0.5, 4.0])
    with monkeypatch.context() as patch:
        patch.setattr(zlib, "crc32", mock.Mock(side_effect=[0, 0, MemoryError]))  # the second state
        with pytest.raises(MemoryError):
            streams.save(path)
    assert_equal(before, sp.Streams.load(path))
    streams.save(path)
    assert_equal(streams, sp.Streams.load(path))


def test_idle_keys_leave_and_begin_anew():
    streams = fed(idle=5.0)
    streams.update([17], [0.0], now=12.9)
    assert set(streams) == {17, "text", 5}
    fresh = sp.Stream(streams.predictor)
    assert streams.update([18], [0.3], now=14.0).log_density == pytest.approx(fresh.update(0.3))
    assert 18 in streams
    streams.drop(18)
    streams.update([17], [0.0], now=20.0)
    assert list(streams) == [17]
    assert streams.update([], []).log_density.shape == (0,)


def test_bad_input_is_refused_whole(tmp_path):
    streams = sp.Streams(CASES[0][0])
    streams.update(["a"], [1])
    for keys, values, message in (
        (["a", "b"], [1], r"shape \(2,\), got shape \(1,\)"),
        (["b", "a"], [1, 2], "got 2 at position 1"),
        (["a"], ["1"], "numbers"),
        ([1.5], [1], "whole numbers, got 1.5"),
        ([*"b", *["a"] * 1025], [0] * 1026, "at most 1024 .* got 1026"),
    ):
        with pytest.raises(ValueError, match=message):
            streams.update(keys, values)
        assert (streams.stream("a").position, list(streams)) == (1, ["a"])
    for call in (streams.drop, streams.stream):
        with pytest.raises(ValueError, match="observed, got 'z'"):
            call("z")
    for predictor in (sp.KT(), sp.bayes_optimal(sp.Source(sp.LIN())), 3):
        with pytest.raises(ValueError, match="bounded number of hypotheses"):
            sp.Streams(predictor)
    with pytest.raises(ValueError, match="a float can hold"):
        sp.Streams(sp.bayes_optimal(sp.Source(sp.PTW(40, 1e-7))))
    content = streams.dumps()
    for damaged in (b"abc", content[:9000], sp.Stream(sp.KT()).dumps()):
        with pytest.raises(ValueError, match="content is not a saved state of many streams"):
            sp.Streams.loads(damaged)
    with pytest.raises(ValueError, match="content is not a saved stream"):
        sp.Stream.loads(content)
    with pytest.raises(ValueError, match="another predictor than ForwardPredictor"):
        sp.Streams.loads(content, predictor=CASES[1][0])
    with pytest.raises(ValueError, match=r"format 99.*upgrade"):
        sp.Streams.loads(content.replace(b'"format": 1', b'"format":99'))
    at = content.index(streams._table[0].tobytes()) + 40
    with pytest.raises(ValueError, match=r"checksum|damaged|malformed"):
        sp.Streams.loads(content[:at] + b"\x01" + content[at + 1 :])
    with pytest.raises(ValueError, match=r"no file .*nowhere"):
        sp.Streams.load(tmp_path / "nowhere")


def test_large_batches_are_computed_in_chunks(monkeypatch):
    monkeypatch.setattr("switchpoint.streams.many._CHUNKS", (16,))
    streams, one = sp.Streams(CASES[0][0]), sp.Stream(CASES[0][0])
    keys = np.random.default_rng(0).permutation(100)
    for bit in (0, 1, 1):
        logs = streams.update(keys, np.full(100, bit)).log_density
        np.testing.assert_allclose(logs, one.update(bit), rtol=1e-12)
