"""Evaluation: the same sequences for all, numbers that equal the metrics, files that round-trip."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import switchpoint as sp
from switchpoint._progress import Progress
from switchpoint.cli import main
from switchpoint.evaluation import evaluate, load, regrets, save, summarise
from switchpoint.evaluation.measure import chunks, measure, over_networks
from switchpoint.evaluation.metrics import mean_and_error, moments
from switchpoint.neural.registry import network_from_name

LENGTH = 32
CHUNK = 40
SOURCE = sp.Source(sp.PTW(5))
PREDICTORS = {
    "optimum": sp.bayes_optimal(SOURCE),
    "lin": sp.bayes_optimal(sp.Source(sp.LIN())),
    "kt": sp.KT(),
    "oracle": sp.KTOracle,
}


def run(sequences=100, predictors=PREDICTORS, **options):
    return evaluate(predictors, SOURCE, LENGTH, sequences, seed=3, chunk=CHUNK, **options)


@pytest.fixture(scope="module")
def results():
    return run(keep="all")


def draws(sequences):
    """The sequences of an evaluation, drawn by the rule that is promised."""
    key = jax.random.key(3)
    parts = [
        SOURCE.sample(jax.random.fold_in(key, i), CHUNK, LENGTH)
        for i in range(-(-sequences // CHUNK))
    ]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:sequences], *parts)


# --- the numbers ----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_numbers_are_those_of_the_metrics(results):
    draw = draws(100)
    for name, predictor in PREDICTORS.items():
        if name == "oracle":
            predictor = sp.KTOracle(draw.switches)
        log_probs = predictor.log_probs(draw.symbols)
        bits = np.asarray(sp.regret(draw, log_probs), np.float64)
        here = results.sel(predictor=name, member=0)
        close = {"rtol": 1e-5, "atol": 1e-5}
        np.testing.assert_allclose(here["regret_by_symbol"], bits, **close)
        np.testing.assert_allclose(here["regret"], bits.sum(-1), **close)
        np.testing.assert_allclose(here["regret_by_time"], bits.mean(0), **close)
        error = bits.std(0, ddof=1) / math.sqrt(100)
        np.testing.assert_allclose(here["regret_by_time_error"], error, **close)
        code = np.asarray(sp.code_length(draw.symbols, log_probs), np.float64)
        np.testing.assert_allclose(here["code_length"], code.sum(-1), **close)
    np.testing.assert_array_equal(results["switches"], draw.switches.sum(-1))


@pytest.mark.parametrize("sequences", [1, 40, 57])
def test_the_first_sequences_are_the_same_however_many_there_are(results, sequences):
    fewer = run(sequences)
    first = results.isel(sequence=slice(sequences))
    for name in ("regret", "code_length", "switches"):
        xr.testing.assert_equal(fewer[name], first[name])


def test_labels(results):
    xr.testing.assert_identical(run(), results.drop_vars("regret_by_symbol"))
    assert results["regret_by_symbol"].dims == ("predictor", "member", "sequence", "time")
    assert list(results["predictor"].values) == list(PREDICTORS)
    assert results["regret"].dims == ("predictor", "member", "sequence")
    assert results["regret_by_time"].dims == ("predictor", "member", "time")
    assert dict(results.sizes) == {"predictor": 4, "member": 1, "sequence": 100, "time": LENGTH}
    assert results.attrs == {
        "prior": "PTW(depth=5, split=0.5)",
        "segment": "Bernoulli(alpha=0.5, beta=0.5)",
        "length": LENGTH,
        "seed": 3,
        "chunk": CHUNK,
        "version": sp.__version__,
        "jax": jax.__version__,
    }


def test_members_of_an_ensemble_are_padded():
    ensemble = [sp.KT(), sp.bayes_optimal(SOURCE)]
    dataset = run(60, {"pair": ensemble, "kt": sp.KT()})
    xr.testing.assert_equal(
        dataset["regret"].sel(predictor="pair", member=0, drop=True),
        dataset["regret"].sel(predictor="kt", member=0, drop=True),
    )
    summary = summarise(dataset, "pair")
    missing = summary.sel(predictor="kt", member=1)
    assert all(np.isnan(missing[name]) for name in missing.data_vars)
    present = summary.sel(predictor="pair")
    assert all(np.isfinite(present[name]).all() for name in present.data_vars)
    assert present["excess"].sum() == pytest.approx(0, abs=1e-9)


def test_given_draws_are_measured_like_those_of_a_source(results):
    draw = draws(100)
    told = {**PREDICTORS, "oracle": lambda draw: sp.KTOracle(draw.switches, SOURCE.segment)}
    given = evaluate(told, draw, chunk=CHUNK, keep="all")
    xr.testing.assert_equal(given, results)
    assert given.attrs.keys() == {"length", "chunk", "version", "jax"}
    one = jax.tree.map(lambda leaf: leaf[7], draw)
    np.testing.assert_allclose(
        evaluate({"kt": sp.KT()}, one)["regret"].item(),
        results["regret"].sel(predictor="kt", sequence=7).item(),
        rtol=1e-5,
    )


@pytest.mark.parametrize("kind", [np.asarray, lambda array: np.asarray(array).tolist()])
def test_given_sequences_have_code_lengths(kind, results):
    members = {name: each for name, each in PREDICTORS.items() if name != "oracle"}
    given = evaluate(members, kind(draws(100).symbols), chunk=CHUNK, keep="all")
    known = results.sel(predictor=list(members))
    np.testing.assert_allclose(given["code_length"], known["code_length"], rtol=1e-5)
    by_symbol = given["code_length_by_symbol"].values
    np.testing.assert_allclose(by_symbol.sum(-1), given["code_length"], rtol=1e-5)
    np.testing.assert_allclose(given["code_length_by_time"], by_symbol.mean(2), rtol=1e-5)
    assert not {"regret", "regret_by_time", "switches"} & set(given.variables)
    summary = summarise(given, "optimum").sel(member=0)
    gap = known["code_length"] - known["code_length"].sel(predictor="optimum")
    np.testing.assert_allclose(summary["excess"], gap.mean("sequence")[:, 0], atol=1e-4)


def test_given_values_may_be_missing_and_have_columns():
    source = sp.Source(sp.Geometric(0.1), sp.Independent(sp.Gaussian(), sp.Poisson()))
    bayes = sp.bayes_optimal(source)
    values = np.array(source.sample(jax.random.key(1), 5, 12).values, np.float64)
    values[1, 3] = values[2, :] = np.nan
    given = evaluate({"bayes": bayes}, values, chunk=2, keep="all")  # the last chunk is filled up
    expected = -np.asarray(bayes.log_density(values)) / math.log(2)
    np.testing.assert_allclose(given["code_length_by_symbol"][0, 0], expected, atol=1e-4)
    assert np.all(given["code_length_by_symbol"][0, 0, 2] == 0)
    alone = evaluate({"bayes": bayes}, values[0])
    assert alone["code_length"].item() == pytest.approx(expected[0].sum(), abs=1e-4)


def test_a_source_of_ones_own_sampler_is_measured_without_an_optimum():
    class Alternating(sp.Source):
        """Fair bits, each followed by its opposite: not the law of any prior and segment."""

        def sample(self, key, batch, length):
            del key
            symbols = jnp.broadcast_to(jnp.arange(length) % 2, (batch, length))
            return sp.Draw(symbols, jax.nn.one_hot(symbols, 2), jnp.zeros((batch, length), bool))

    source = Alternating(sp.PTW(5))
    with pytest.raises(
        ValueError, match=r"Alternating.*sampler is its own.*Source\(prior, segment\)"
    ):
        sp.bayes_optimal(source)
    measured = evaluate({"kt": sp.KT()}, source, LENGTH, 3)
    np.testing.assert_allclose(measured["regret"], measured["code_length"])
    bayes = sp.bayes_optimal(sp.Source(source.prior, source.segment))  # if that is what is meant
    assert isinstance(bayes, sp.PTWPredictor)


class Wide(sp.KT):
    """A predictor of one's own with an axis too many."""

    def log_probs(self, symbols):
        return super().log_probs(symbols)[..., None]


def test_progress_counts_sequences():
    seen = []

    class Recorder(Progress):
        def update(self, text, done):
            seen.append((text.split()[0], done))

    run(predictors={"kt": sp.KT()}, progress=Recorder())
    assert seen == [("40", 0.4), ("80", 0.8), ("100", 1.0)]


BITS = np.zeros((300, 4))
DRAW = SOURCE.sample(jax.random.key(0), 2, 4)
GAUSSIAN = sp.bayes_optimal(sp.Source(sp.LIN(), sp.Gaussian()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predictors": {}}, "predictors must hold at least one"),
        ({"predictors": {"none": []}}, "'none' must have at least one member"),
        ({"predictors": {"wide": sp.KT(sp.Categorical(3))}}, "'wide' must have the alphabet"),
        ({"predictors": {"odd": lambda _: 5}}, "'odd' must make a Predictor, got 5"),
        ({"sequences": 0}, "sequences must be"),
        ({"length": 33}, "length must be at most 32"),
        ({"chunk": 0}, "chunk must be"),
        ({"seed": -1}, "seed must be from 0"),
        ({"source": DRAW, "sequences": None}, "given sequences have their own, got 32 and None"),
        ({"length": None}, "length and sequences are required for a source, got None and 2"),
        (
            {"predictors": {"wide": Wide()}},
            r"'wide' must predict .* \(2, 32, 2\) .*got \(2, 32, 2, 1\)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_arguments_are_named(change, message):
    good = {"predictors": {"kt": sp.KT()}, "source": SOURCE, "length": LENGTH, "sequences": 2}
    with pytest.raises(ValueError, match=message):
        evaluate(**(good | change))


@pytest.mark.parametrize(
    ("predictors", "data", "message"),
    [
        ({"kt": sp.KT()}, [[0, 1], [1, 2]], "from 0 to 1, got 2.* at position 1 of sequence 1"),
        ({"kt": sp.KT()}, [0, np.nan], "got nan"),
        ({"kt": sp.KT()}, np.where(np.arange(300)[:, None] < 299, BITS, 7), "of sequence 299"),
        ({"real": GAUSSIAN}, [1.0, np.inf], "must be finite, or NaN where missing, got inf"),
        ({"kt": sp.KT()}, np.zeros((2, 3, 4)), r"shape \(sequences, time\), got \(2, 3, 4\)"),
        ({"kt": sp.KT()}, [], r"shape \(sequences, time\), got \(0,\)"),
        ({"kt": sp.KT()}, [[0], [1, 0]], "sequences must have sequences of the same length"),
        ({"kt": sp.KT()}, "0101", "sequences must be numbers in a list or an array"),
        ({"kt": sp.KT()}, sp.PTW(4), "sequences must be"),
        ({"kt": sp.KT(), "real": GAUSSIAN}, BITS, "all be for symbols, or all for values"),
        ({"oracle": sp.KTOracle}, BITS, "'oracle' is made from a Draw"),
        ({"oracle": sp.KTOracle}, DRAW, "needs the segment of a source: give lambda draw"),
        ({"real": GAUSSIAN}, DRAW, "'real' must have the alphabet of the source, 2, got None"),
        ({"wide": Wide()}, BITS, r"'wide' must predict .* \(250, 4, 2\) .*got"),
    ],
    ids=range(14),
)
def test_given_sequences_that_do_not_fit_are_named(predictors, data, message):
    with pytest.raises(ValueError, match=message):
        evaluate(predictors, data)


def networks(count):
    return [network_from_name("lstm", 2, LENGTH, jax.random.key(i), hidden=4) for i in range(count)]


def test_regrets_are_those_of_evaluate():
    members = [*networks(2), None, sp.KT(), sp.KTOracle]
    found = regrets(members, SOURCE, LENGTH, 60, seed=3, chunk=CHUNK)
    assert found.dtype == np.float64
    assert np.isnan(found[2]).all()
    known = [member for member in members if member is not None]
    expected = run(60, {"all": known})["regret"].sel(predictor="all")
    np.testing.assert_array_equal(np.delete(found, 2, axis=0), expected)


@pytest.mark.slow
def test_an_accelerator_runs_equal_networks_together(monkeypatch):
    members = networks(3)
    members.insert(1, network_from_name("rnn", 2, LENGTH, jax.random.key(9), hidden=4))
    members = [*(each.with_backend("plain") for each in members), sp.KT()]
    expected = regrets(members, SOURCE, LENGTH, 60, chunk=CHUNK)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    jax.clear_caches()
    named = [("", member) for member in members]
    (draw,) = (draw for _, draw in chunks(SOURCE, LENGTH, CHUNK, 0, CHUNK))
    groups = [indices for indices, *_ in measure(named, [(slice(0, CHUNK), draw)], SOURCE.segment)]
    assert groups == [[0, 2, 3], [1], [4]]
    np.testing.assert_allclose(
        regrets(members, SOURCE, LENGTH, 60, chunk=CHUNK), expected, atol=1e-3
    )
    equal = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(members[i] for i in groups[0]))
    metric = partial(sp.regret, draw)
    two, three = (
        over_networks(metric, equal, draw, values_at_once=count * draw.probs.size)
        for count in (2, 3)
    )
    jax.clear_caches()
    np.testing.assert_allclose(two, three, atol=1e-4)


# --- the summary ----------------------------------------------------------------------------


def test_summary_is_mean_and_paired_error(results):
    summary = summarise(results, "optimum").sel(member=0)
    regret = results["regret"].sel(member=0)
    for name in PREDICTORS:
        own = regret.sel(predictor=name).values
        gap = own - regret.sel(predictor="optimum").values
        row = summary.sel(predictor=name)
        assert float(row["regret"]) == pytest.approx(own.mean())
        assert float(row["regret_error"]) == pytest.approx(own.std(ddof=1) / 10)
        assert float(row["excess"]) == pytest.approx(gap.mean(), abs=1e-9)
        assert float(row["excess_error"]) == pytest.approx(gap.std(ddof=1) / 10, abs=1e-9)
    lin = summary.sel(predictor="lin")
    unpaired = math.hypot(lin["regret_error"], summary.sel(predictor="optimum")["regret_error"])
    assert float(lin["excess_error"]) < unpaired / 2


def test_one_sequence_has_no_error():
    summary = summarise(run(1), "kt")
    assert np.isfinite(summary["regret"]).all()
    assert np.isnan(summary["regret_error"]).all()
    assert np.isnan(summary["excess_error"]).all()


def test_infinite_regret_stays_infinite():
    class Sure(sp.KT):
        def log_probs(self, symbols):
            return jnp.broadcast_to(jnp.asarray([0.0, -jnp.inf]), (*symbols.shape, 2))

    dataset = run(predictors={"sure": Sure(), "kt": sp.KT()})
    assert np.isinf(dataset["regret_by_time"].sel(predictor="sure")).all()
    summary = summarise(dataset, "kt").sel(predictor="sure")
    assert np.isinf(summary["regret"]).all()
    assert np.isinf(summary["excess"]).all()
    assert np.isnan(summary["regret_error"]).all()


def test_moments_do_not_cancel():
    rows = 1e8 + np.random.default_rng(0).standard_normal((90, 3))
    mean, error = mean_and_error([moments(part) for part in np.split(rows, [7, 50])])
    np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-14)
    np.testing.assert_allclose(error, rows.std(0, ddof=1) / math.sqrt(90), rtol=1e-7)


@pytest.mark.slow
def test_ptw_on_its_own_source_has_the_reference_regret():
    source = sp.Source(sp.PTW(8))
    dataset = evaluate({"ptw": sp.bayes_optimal(source)}, source, 256, 1000)
    summary = summarise(dataset).squeeze()
    # From an independent float64 computation: 12.16 bits with an error of 0.08.
    error = math.hypot(0.08, summary["regret_error"])
    assert error < 0.6
    assert float(summary["regret"]) == pytest.approx(12.16, abs=3 * error)


# --- files ----------------------------------------------------------------------------------


def test_save_and_load(results, tmp_path):
    dataset = results.assign_attrs(seed=2**32 - 1)
    save(dataset, tmp_path / "results.nc")
    loaded = load(tmp_path / "results.nc")
    xr.testing.assert_identical(loaded, dataset)
    assert {name: v.dtype for name, v in loaded.data_vars.items()} == {
        name: v.dtype for name, v in dataset.data_vars.items()
    }
    xr.testing.assert_identical(summarise(loaded, "kt"), summarise(dataset, "kt"))
    assert [path.name for path in tmp_path.iterdir()] == ["results.nc"]


def test_files_of_others_are_refused(tmp_path):
    path = tmp_path / "results.nc"
    xr.Dataset({"a": ("x", [1.0, 2.0])}).to_netcdf(path, engine="scipy")
    with pytest.raises(ValueError, match=r"results\.nc is not a whole evaluation file"):
        load(path)
    with pytest.raises(ValueError, match="cannot be read"):
        load(tmp_path / "missing.nc")


# --- the command ----------------------------------------------------------------------------


def command(capsys, *arguments):
    """The status, stdout and stderr of `switchpoint evaluate`."""
    status = main(["evaluate", *map(str, arguments)])
    return status, *capsys.readouterr()


def table_of(text):
    """The numbers of each predictor in the printed table."""
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: row[1:] for row in rows if len(row) == 6 and row[1][0].isdigit()}


@pytest.mark.slow
def test_the_command_prints_what_it_saves(capsys, tmp_path):
    path = tmp_path / "results.nc"
    arguments = ("ptw", "kt", "oracle", "--length", LENGTH, "--sequences", 60, "--out", path)
    status, out, err = command(capsys, *arguments)
    assert (status, err) == (0, "")
    assert "PTW(depth=5, split=0.5)" in out
    table = table_of(out)
    assert list(table) == ["ptw", "kt", "oracle", "optimum"]
    dataset = load(path)
    summary = summarise(dataset, "optimum").sel(member=0)
    columns = ("regret", "regret_error", "excess", "excess_error")
    for name, cells in table.items():
        row = summary.sel(predictor=name)
        assert cells[:4] == [f"{float(row[column]):.3f}" for column in columns]
        assert cells[4] == f"{float(row['code_length']) / LENGTH:.4f}"
    assert table["ptw"] == table["optimum"]
    arguments = ("regular", "--on", "ptw", "--period", 4, "--split", 0.2, "--reference", "kt")
    status, out, _ = command(capsys, *arguments, "--length", LENGTH, "--sequences", 60)
    assert "PTW(depth=5, split=0.2)" in out
    assert "excess over kt" in out
    assert list(table_of(out)) == ["regular", "kt", "optimum"]
    expected = evaluate({"kt": sp.KT()}, SOURCE, LENGTH, 60)
    np.testing.assert_array_equal(dataset["regret"].sel(predictor="kt"), expected["regret"][0])
