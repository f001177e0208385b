"""Series and DataFrames of pandas and polars: what is computed from them keeps their labels."""

import datetime as dt
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

import switchpoint as sp
from switchpoint.neural import Recurrent

pl = pytest.importorskip("polars")

KEY = jax.random.key(0)
BITS = [0, 1, 1, 0, 1, 1]
DAYS = pd.date_range("2024-01-01", periods=len(BITS))
NILE = pd.read_csv(Path(__file__).parents[2] / "examples" / "nile.csv")
ptw = sp.bayes_optimal(sp.Source(sp.PTW(3)))
columns = sp.bayes_optimal(sp.Source(sp.PTW(1), sp.Independent(sp.Gaussian(), sp.Poisson())))


@pytest.mark.parametrize(
    "predictor",
    [ptw, sp.KT(), sp.KTOracle([False] * len(BITS)), Recurrent(2, "rnn", key=KEY, hidden=4)],
    ids=lambda predictor: type(predictor).__name__,
)
def test_predictions_have_the_index_of_the_symbols(predictor):
    exact = np.asarray(predictor.log_probs(np.array(BITS)))
    assert isinstance(predictor.log_probs(BITS), jax.Array)
    found = predictor.log_probs(pd.Series(BITS, index=DAYS, name="bit"))
    pd.testing.assert_frame_equal(found, pd.DataFrame(exact, index=DAYS))
    found = predictor.log_probs(symbols=pl.Series("bit", BITS))
    assert found.equals(pl.DataFrame(exact, schema=["0", "1"]))
    assert predictor.log_probs(pl.DataFrame({"bit": BITS})).equals(found)
    _, found = predictor.extend(predictor.init(), pd.Series(BITS, index=DAYS))
    assert found.index.equals(DAYS)
    np.testing.assert_allclose(found, exact, rtol=1e-5)


def test_code_lengths_keep_the_index():
    series = pd.Series(BITS, index=DAYS)
    bits = sp.code_length(series, ptw.log_probs(series))
    exact = sp.code_length(np.array(BITS), ptw.log_probs(np.array(BITS)))
    pd.testing.assert_series_equal(bits, pd.Series(np.asarray(exact), DAYS, name="code_length"))


def test_several_columns_with_gaps_are_one_sequence():
    table = {"x": [0.1, None], "n": [None, 2]}
    exact = np.asarray(columns.log_density(np.array(pd.DataFrame(table), float)))
    frame = pd.DataFrame(table, index=["a", "b"])
    for each in (frame, frame.astype({"n": "Int64"})):
        found = columns.log_density(each)
        pd.testing.assert_series_equal(found, pd.Series(exact, frame.index, name="log_density"))
    found = columns.log_density(pl.DataFrame(table))
    assert found.name == "log_density"
    np.testing.assert_array_equal(found.to_numpy(), exact)


def test_a_posterior_is_a_table():
    series = pd.Series(BITS, index=DAYS)
    posterior = ptw.posterior(series)
    table = posterior.to_frame()
    assert table.index.equals(DAYS)
    np.testing.assert_array_equal(table["switch_smoothed"], posterior.switch_smoothed)
    np.testing.assert_array_equal(table["probs_smoothed_1"], posterior.probs_smoothed[:, 1])
    assert table["map_switches"].dtype == bool
    assert ptw.posterior(np.array(BITS)).to_frame().equals(table.reset_index(drop=True))
    assert isinstance(ptw.posterior(pl.Series(BITS)).to_frame(), pl.DataFrame)
    with pytest.raises(ValueError, match=r"one sequence.*\(2,\)"):
        ptw.posterior([BITS, BITS]).to_frame()


def test_a_posterior_of_several_columns_has_their_names():
    table = pl.DataFrame({"x": [0.1, 0.2], "n": [1, 2]})
    found = columns.posterior(table).to_frame()
    exact = columns.posterior(table.to_numpy())
    np.testing.assert_array_equal(found["level_mean_n"].to_numpy(), exact.level_mean[:, 1])
    assert "level_std_x" in found.columns


def test_the_evidence_of_a_series_is_that_of_its_values():
    values = np.array([0.1, 0.3, 0.2, 5.1, 5.0, 4.8])
    source = sp.Source(sp.PTW(3), sp.Gaussian())
    exact = sp.compare({"source": source}, values).log_evidence
    for series in (pd.Series(values, index=DAYS), pl.Series(values), pl.DataFrame({"x": values})):
        assert sp.compare({"source": source}, series).log_evidence == exact


def test_a_stream_keeps_the_index():
    exact = sp.Stream(ptw).extend(BITS)
    found = sp.Stream(ptw).extend(pd.Series(BITS, index=DAYS))
    pd.testing.assert_series_equal(found, pd.Series(exact, DAYS, name="log_density"))
    assert sp.Stream(ptw).extend(pl.Series(BITS)).equals(pl.Series("log_density", exact))
    table = {"x": [0.1, None], "n": [None, 2]}
    exact = sp.Stream(columns).extend(np.array(pd.DataFrame(table), float))
    np.testing.assert_array_equal(sp.Stream(columns).extend(pl.DataFrame(table)), exact)


def test_a_stream_takes_a_frame_of_one_column():
    exact = sp.Stream(ptw).extend(BITS)
    network = sp.load("transformer-ptw")
    for frame in (pd.DataFrame({"x": BITS}), pl.DataFrame({"x": BITS})):
        np.testing.assert_array_equal(sp.Stream(ptw).extend(frame), exact)
        np.testing.assert_allclose(
            sp.Stream(network).extend(frame), network.log_density(BITS), atol=1e-5
        )


def test_a_stream_with_named_columns_takes_those_of_a_frame_by_name():
    rows = [[0.1, 3], [0.2, 2]]
    exact = sp.Stream(columns).extend(rows)
    frame = pd.DataFrame(rows, columns=["x", "n"])
    for swapped in (frame[["n", "x"]], pl.DataFrame(frame).select("n", "x")):
        stream = sp.Stream(columns, columns=("x", "n"))
        np.testing.assert_array_equal(stream.extend(swapped), exact)
    stream = sp.Stream(columns, columns=("x", "n"))
    logs = [stream.update(row) for _, row in frame[["n", "x"]].iterrows()]
    np.testing.assert_array_equal(logs, exact)
    stream = sp.Stream(columns, columns=("x", "n"))
    assert stream.extend(frame[["n"]])[0] == sp.Stream(columns).update([np.nan, 3])
    with pytest.raises(ValueError, match="'x', 'n', got 'y'"):
        stream.extend(frame.rename(columns={"n": "y"}))


def test_missing_values_of_every_kind():
    exact = np.asarray(ptw.log_density([0, np.nan, 1]))
    assert exact[1] == 0
    for series in (
        pd.Series([0, pd.NA, 1], dtype="Int64"),
        pd.Series([False, None, True], dtype="boolean"),
        pl.Series([0, None, 1]),
        pl.Series([False, None, True]),
    ):
        np.testing.assert_array_equal(ptw.log_density(series), exact)


def test_a_query_is_executed_by_its_owner():
    lazy = pl.DataFrame({"x": BITS}).lazy()
    for call in (ptw.log_probs, ptw.log_density, ptw.posterior, sp.detect):
        with pytest.raises(ValueError, match=r"LazyFrame.*collect\(\)"):
            call(lazy)


# --- detect -----------------------------------------------------------------------------------

YEARS = pl.from_pandas(NILE)
DATED = YEARS.select("flow", day=pl.date("year", 1, 1))


def test_segments_of_the_nile_however_it_is_labelled():
    known = sp.detect(NILE["flow"], NILE["year"])
    expected = known.segments.to_dict("list")
    for values, times in (
        (NILE, "year"),
        (NILE.set_index("year")["flow"], None),
        (NILE.set_index("year"), None),
        (YEARS, "year"),
        (YEARS["flow"], YEARS["year"]),
    ):
        found = sp.detect(values, times)
        np.testing.assert_array_equal(found.changepoints, [28])
        polars = isinstance(values, pl.DataFrame | pl.Series)
        assert isinstance(found.segments, pl.DataFrame if polars else pd.DataFrame)
        assert list(found.segments.columns) == list(expected)
        assert list(found.segments["first_time"]) == ["1871", "1899"]
        assert found.to_csv() == known.to_csv()
        assert found.to_json().replace('"flow"', '""') == known.to_json().replace('"flow"', '""')


def test_the_observations_of_the_nile_keep_their_labels():
    plain = sp.detect(NILE["flow"].tolist()).to_frame()
    assert list(plain.columns) == ["segment", "switch_probability", "level"]
    assert plain.index.equals(pd.RangeIndex(100))
    assert plain["segment"].tolist() == [0] * 28 + [1] * 72
    assert plain["switch_probability"].idxmax() == 28
    means = NILE["flow"].groupby(plain["segment"]).mean()
    np.testing.assert_allclose(plain["level"].groupby(plain["segment"]).mean(), means)
    by_year = sp.detect(NILE.set_index("year")["flow"]).to_frame()
    assert by_year.index.equals(pd.Index(NILE["year"]))
    pd.testing.assert_frame_equal(by_year.reset_index(drop=True), plain)
    by_day = sp.detect(DATED).to_frame()  # its only column of dates is the time
    assert by_day["time"].to_list()[28] == dt.date(1899, 1, 1)
    assert by_day.drop("time").equals(pl.from_pandas(plain))
    pd.testing.assert_frame_equal(
        sp.detect(DATED.to_pandas()).to_frame().drop(columns="time"), plain
    )


def test_a_column_of_periods_is_the_time():
    years = NILE.assign(year=pd.PeriodIndex(NILE["year"].astype(str), freq="Y"))
    found = sp.detect(years)
    assert found.segments["first_time"].tolist() == ["1871", "1899"]
    assert found.to_frame()["time"].iloc[28] == 1899


def test_no_change_points_in_a_polars_frame():
    noise = np.random.default_rng(0).normal(size=100)
    found = sp.detect(pl.DataFrame({"x": noise}))
    assert len(found.segments) == 1
    assert found.segments["interval_begin"].dtype == pl.Int64
    assert found.segments["probability"].to_list() == [None]


def test_an_index_that_is_no_time_is_kept_and_not_used():
    noise = np.random.default_rng(0).normal(size=100)
    for index in (np.arange(100)[::-1], [f"row {i}" for i in range(100)], [0.0] * 100):
        found = sp.detect(pd.Series(noise, index=index))
        assert found.series.times is None
        assert list(found.to_frame().index) == list(index)


def test_symbols_have_no_level():
    source = sp.Source(sp.PTW(3))
    table = sp.detect(pl.Series(BITS), source=source).to_frame()
    assert table.columns == ["segment", "switch_probability"]
