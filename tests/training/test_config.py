"""Configurations: valid and complete once they exist, the same from Python, JSON and TOML."""

import dataclasses
import json
import sys

import equinox as eqx
import jax
import numpy as np
import pytest

import switchpoint as sp
from switchpoint import _text
from switchpoint.neural.registry import MODEL_OPTIONS, network_from_name
from switchpoint.priors import PARAMETER_OWNERS
from switchpoint.segments import make_segment
from switchpoint.training.config import Member, TrainConfig, read_toml
from switchpoint.training.recipes import RECIPES

FIELDS = [each.name for each in dataclasses.fields(TrainConfig)]
EVERY_PRIOR = {
    "prior": ["ptw", "lin", "regular", "uniform", "geometric", "renewal"],
    "split": 0.25,
    "period": 20,
    "hazard": 0.05,
    "pmf": [1 / 7] * 7,  # normalising it twice is not the same as once
}


# --- what is filled in -----------------------------------------------------------------------


def test_the_registries_fit_the_fields():
    assert RECIPES.keys() == {*MODEL_OPTIONS, "custom"}
    assert set(PARAMETER_OWNERS) <= set(FIELDS)
    assert {name for options in MODEL_OPTIONS.values() for name in options} <= set(FIELDS)


@pytest.mark.parametrize("model", MODEL_OPTIONS)
def test_what_is_left_out_comes_from_the_recipe_and_the_paper(model):
    config = TrainConfig(model=model)
    assert config.options() == MODEL_OPTIONS[model]
    others = set().union(*MODEL_OPTIONS.values()) - set(MODEL_OPTIONS[model])
    assert {getattr(config, name) for name in others} == {None}
    recipe = RECIPES[model]
    assert config.learning_rate == (recipe.learning_rate,)
    assert (config.steps, config.warmup) == (recipe.steps, recipe.warmup)
    assert (config.batch, config.b2, config.clip_norm) == (
        recipe.batch,
        recipe.b2,
        recipe.clip_norm,
    )
    assert (config.optimizer, config.matrix_decay) == (recipe.optimizer, recipe.matrix_decay)
    assert (config.length, config.alphabet) == (256, 2)
    assert (config.prior, config.depth, config.split) == (("ptw",), 8, 0.5)
    assert (config.alpha, config.beta, config.concentration) == (0.5, 0.5, None)


def test_what_is_given_stays():
    config = TrainConfig(
        hidden=64, readout=0, learning_rate=3e-3, steps=50, warmup=0, clip_norm=2, depth=9, alpha=1
    )
    assert config.options() == {"hidden": 64, "readout": 0}
    assert (config.learning_rate, config.steps, config.warmup) == ((3e-3,), 50, 0)
    assert (config.clip_norm, config.depth, config.alpha, config.beta) == (2.0, 9, 1.0, 0.5)


@pytest.mark.parametrize(("steps", "warmup"), [(9, 0), (1000, 100), (2000, 200), (10**6, 200)])
def test_a_short_run_warms_up_for_a_tenth_at_most(steps, warmup):
    assert TrainConfig(model="lstm", steps=steps).warmup == warmup


def test_lists_arrays_and_single_values_are_tuples():
    plain = TrainConfig(prior=("renewal",), learning_rate=(0.5,), pmf=(0.25, 0.75))
    same = TrainConfig(prior="renewal", learning_rate=np.float64(0.5), pmf=np.array([0.25, 0.75]))
    assert same == plain
    assert hash(same) == hash(plain)
    assert plain.pmf == (0.25, 0.75)


def test_equal_runs_have_equal_configurations():
    assert TrainConfig(prior="uniform") == TrainConfig(prior="uniform", longest=256, alpha=0.5)


# --- what it stands for ----------------------------------------------------------------------


def test_members_are_priors_then_rates_then_seeds():
    config = TrainConfig(prior=["lin", "ptw"], learning_rate=[0.1, 0.01], seeds=2, first_seed=7)
    members = config.members()
    assert [(m.prior, m.learning_rate, m.seed) for m in members] == [
        ("lin", 0.1, 7),
        ("lin", 0.1, 8),
        ("lin", 0.01, 7),
        ("lin", 0.01, 8),
        ("ptw", 0.1, 7),
        ("ptw", 0.1, 8),
        ("ptw", 0.01, 7),
        ("ptw", 0.01, 8),
    ]
    assert [m.index for m in members] == list(range(8))
    assert len({m.label for m in members}) == 8
    assert members[2].label == "lin-seed7-lr0.01"
    assert members[2] == Member(2, "lin", 7, 0.01)


def test_each_prior_gets_its_own_parameters():
    config = TrainConfig(**EVERY_PRIOR, length=100)
    expected = {
        "ptw": sp.PTW(7, 0.25),
        "lin": sp.LIN(),
        "regular": sp.RegularPeriodic(20),
        "uniform": sp.RandomUniform(100),
        "geometric": sp.Geometric(0.05),
        "renewal": sp.Renewal([1 / 7] * 7),
    }
    assert {name: config.source(name).prior for name in config.prior} == expected
    assert config.source("lin").segment == sp.Bernoulli()
    with pytest.raises(ValueError, match="prior must be one of lin, got 'ptw'"):
        TrainConfig(prior="lin").source("ptw")


def test_the_segment_model_follows_the_alphabet():
    assert TrainConfig(alpha=2.0).source("ptw").segment == sp.Bernoulli(2.0, 0.5)
    assert TrainConfig(alphabet=4, concentration=0.1).source("ptw").segment == sp.Categorical(
        4, 0.1
    )
    assert make_segment(3) == sp.Categorical(3, 0.5)


def test_the_network_is_the_one_described(key):
    config = TrainConfig(model="rnn", hidden=3, readout=1, alphabet=4)
    same = network_from_name("rnn", 4, 256, key, hidden=3, readout=1)
    assert eqx.tree_equal(config.network(key), same)
    table = eqx.filter_eval_shape(TrainConfig(model="memoryless", length=7).network, key)
    assert sum(leaf.size for leaf in jax.tree.leaves(table)) == 7 * 2


# --- to and from files -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(),
        TrainConfig(
            model="transformer",
            width=24,
            heads=3,
            context=8,
            tbptt_length=64,
            min_length=3,
            schedule="constant",
        ),
        TrainConfig(**EVERY_PRIOR, model="markov", learning_rate=[0.1, 0.2], seeds=3),
        TrainConfig(
            model="stack-rnn", alphabet=5, clip_norm=0.1, validation=7, first_seed=2**32 - 1
        ),
    ],
    ids=lambda config: config.model,
)
def test_json_gives_the_same_configuration_back(config):
    written = json.dumps(config.to_dict(), allow_nan=False)
    assert set(json.loads(written)) == {*FIELDS, "format"}
    assert TrainConfig.from_dict(json.loads(written)) == config


OLD = {"clip": 0.5, "optimiser": "adam", "chunk": 64, "shortest": 3}
NEW = {"clip_norm": 0.5, "optimizer": "adam", "tbptt_length": 64, "min_length": 3}


def test_former_names_are_read_everywhere(tmp_path):
    config = TrainConfig(**NEW)
    assert TrainConfig(**OLD) == TrainConfig.from_dict(OLD) == config
    (tmp_path / "old.toml").write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in OLD.items()))
    assert read_toml(tmp_path / "old.toml") == config
    assert read_toml(tmp_path / "old.toml", clip_norm=2).clip_norm == 2
    with pytest.raises(ValueError, match="clip is the former name of clip_norm"):
        TrainConfig(clip=1.0, clip_norm=1.0)


def test_earlier_files_mean_what_they_meant_then(monkeypatch):
    """Whatever is left unset today: they were made before there were such settings."""
    recipe = dataclasses.replace(RECIPES["transformer"], matrix_decay=0.5, steps=7, warmup=0)
    old = {"model": "transformer", "steps": 5, "prior": ["lin"]}
    before = TrainConfig(**old, matrix_decay=0.0, width=64, heads=8)
    monkeypatch.setitem(sys.modules[TrainConfig.__module__].RECIPES, "transformer", recipe)
    monkeypatch.setitem(MODEL_OPTIONS["transformer"], "width", 128)
    assert TrainConfig(**old).matrix_decay == 0.5
    assert TrainConfig(**old).width == 128
    found = TrainConfig.from_dict(old)
    assert (found.matrix_decay, found.width, found.heads) == (0.0, 64, 8)
    assert found.to_dict() == TrainConfig.from_dict(before.to_dict()).to_dict()


def test_a_newer_format_is_refused():
    with pytest.raises(ValueError, match="format 99; this version of switchpoint reads up to 1"):
        TrainConfig.from_dict({**TrainConfig().to_dict(), "format": 99})


def test_differences_name_the_fields():
    config = TrainConfig(hidden=64)
    assert config.differences(TrainConfig(hidden=64)) == {}
    assert config.differences(TrainConfig(prior=["lin", "ptw"])) == {
        "hidden": (64, 256),
        "prior": (("ptw",), ("lin", "ptw")),
    }


def test_toml_gives_the_configuration(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        'model = "stack-lstm"  # a comment\nprior = ["ptw", "renewal"]\nlearning_rate = 1e-3\n'
        "pmf = [0.5, 0.5]\nclip_norm = 2\nlength = 64\n"
    )
    config = TrainConfig(
        model="stack-lstm",
        prior=("ptw", "renewal"),
        learning_rate=1e-3,
        pmf=(0.5, 0.5),
        clip_norm=2.0,
        length=64,
    )
    assert read_toml(path) == config
    assert read_toml(str(path), length=32, depth=6) == dataclasses.replace(
        config, length=32, depth=6
    )


BAD_TOML = {
    "run.toml, line 2: unknown field 'hiden'; did you mean 'hidden'?": "steps = 5\nhiden = 64",
    "run.toml, line 1: unknown field 'learning-rate'; did you mean 'learning_rate'?": (
        "learning-rate = 0.1"
    ),
    "run.toml, line 3: table 'network' is not allowed": "steps = 5\n\n[network]\nhidden = 64",
    "run.toml is not TOML: Invalid value (at line 2, column 9)": "steps = 5\nmodel = lstm",
    "run.toml, line 2: hidden must be a whole number, got '64'": 'seeds = 2\n hidden = "64"',
    "run.toml, line 1: tbptt_length must divide the length 256, got 100": "chunk = 100",
    "run.toml, line 1: prior 'regular' needs period: give --period": 'prior = "regular"',
}


@pytest.mark.parametrize("message", BAD_TOML)
def test_bad_toml_is_refused_with_its_line(tmp_path, message):
    path = tmp_path / "run.toml"
    path.write_text(BAD_TOML[message])
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_toml(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_fault_of_an_override_is_not_blamed_on_the_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("hidden = 64")
    with pytest.raises(ValueError, match=r"^hidden must be"):
        read_toml(path, hidden=0)


@pytest.mark.parametrize(
    "text",
    [
        "hidden = " + "[" * 5000 + "]" * 5000,
        "hidden = " + "{a=" * 5000 + "1" + "}" * 5000,
        "hidden = " + "[" * 400 + "]" * 400,
        "hidden = " + "9" * 5000,
        ".".join(["a"] * 5000) + " = 1",
    ],
    ids=["lists", "tables", "a few lists", "digits", "dots"],
)
def test_toml_that_is_out_of_proportion(tmp_path, text):
    (tmp_path / "a\x1b.toml").write_text(text)
    with pytest.raises(ValueError, match=r"a\\x1b.toml"):
        read_toml(tmp_path / "a\x1b.toml")


def test_toml_has_a_limit(monkeypatch):
    monkeypatch.setattr(_text, "LARGEST", 2**20)
    with pytest.raises(ValueError, match="/dev/zero holds more than 1 MiB"):
        read_toml("/dev/zero")


def test_toml_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match=r"none.toml cannot be read \(No such file"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"steps = \xff")
    with pytest.raises(ValueError, match=r"bytes.toml is not text \(byte 8"):
        read_toml(tmp_path / "bytes.toml")


# --- what is refused -------------------------------------------------------------------------

BAD = {
    "unknown field 'hiden'; did you mean 'hidden'?": {"hiden": 64},
    "unknown field 'qqq'; the fields are model, hidden,": {"qqq": 1},
    "model must be one of rnn, lstm,": {"model": "gru"},
    "model must be a string, got 3": {"model": 3},
    "model must be a string, got None": {"model": None},
    "stack_depth is not an option of model 'lstm', which takes hidden, readout": {"stack_depth": 8},
    "hidden is not an option of model 'memoryless', which takes no option": {
        "model": "memoryless",
        "hidden": 8,
    },
    "stack_depth must be at most the length 4, got 5": {
        "model": "stack-rnn",
        "stack_depth": 5,
        "length": 4,
    },
    "positions must be one of sincos, alibi, relative, got 'rotary'": {
        "model": "transformer",
        "positions": "rotary",
    },
    "hidden must be a whole number of at least 1, got 0": {"hidden": 0},
    "hidden must be a whole number, got '64'": {"hidden": "64"},
    "prior must be one of ptw, lin, regular, uniform, geometric, renewal, got 'pwt'": {
        "prior": "pwt",
        "depth": 8,
    },
    "prior must be one of ptw, lin, regular, uniform, geometric, renewal, got 3": {"prior": [3]},
    "prior must not hold a value twice, got 'lin' again": {"prior": ["lin", "ptw", "lin"]},
    "prior must hold at least one value, got none": {"prior": []},
    "period is a parameter of prior 'regular', got 5 for 'ptw' and 'lin'": {
        "prior": ["ptw", "lin"],
        "period": 5,
    },
    "prior 'geometric' needs hazard: give --hazard": {"prior": "geometric"},
    "length must be at most 128 for PTW(depth=7, split=0.5), got 256": {"depth": 7},
    "depth must be a whole number, got 7.5": {"depth": 7.5},
    "split must be strictly between 0 and 1, got 1.5": {"split": 1.5},
    "hazard must be a number, got 'often'": {"prior": "geometric", "hazard": "often"},
    "pmf must sum to one, got a sum of 0.5": {"prior": "renewal", "pmf": [0.25, 0.25]},
    "pmf must be a list of numbers, got 'law.txt'": {"prior": "renewal", "pmf": "law.txt"},
    "alphabet must be at least 2, got 1": {"alphabet": 1},
    "concentration is for alphabets above 2, got 0.5": {"concentration": 0.5},
    "alpha is for an alphabet of 2, got 0.5": {"alphabet": 3, "alpha": 0.5},
    "length must be a whole number of at least 1, got 0": {"length": 0},
    "length must be a whole number, got None": {"length": None},
    "seeds must be a whole number of at least 1, got 0": {"seeds": 0},
    "first_seed is not a seed: seed must be from 0 to 4294967295, got -1": {"first_seed": -1},
    "seed must be from 0 to 4294967295, got 4294967296": {"first_seed": 2**32 - 1, "seeds": 2},
    "learning_rate must be a number, got '1e-3'": {"learning_rate": "1e-3"},
    "learning_rate must be a finite number above 0, got 0.0": {"learning_rate": [0.1, 0]},
    "learning_rate must not hold a value twice, got 0.1 again": {"learning_rate": [0.1, 0.1]},
    "steps must be a whole number, got True": {"steps": True},
    "batch must be a whole number of at least 1, got 0": {"batch": 0},
    "schedule must be one of cosine, constant, got 'linear'": {"schedule": "linear"},
    "warmup must be less than the 200 steps of the run, got 200": {"steps": 200, "warmup": 200},
    "warmup must be a whole number of at least 0, got -1": {"warmup": -1},
    "clip_norm must be a finite number above 0, got inf": {"clip_norm": float("inf")},
    "tbptt_length must divide the length 256, got 100": {"tbptt_length": 100},
    "min_length must be at most the length 256, got 257": {"min_length": 257},
    "min_length must be a whole number of at least 1, got 0": {"min_length": 0},
    "steps must be a whole number, got None": {"steps": None},
    "matrix_decay is for optimizer 'muon', got 0.1": {"optimizer": "adam", "matrix_decay": 0.1},
    "matrix_decay must be a finite number of at least 0, got -1": {"matrix_decay": -1},
    "report_every must be a whole number of at least 1, got 0": {"report_every": 0},
    "validation must be at least 2, for a standard error, got 1": {"validation": 1},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_settings_are_refused(message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        TrainConfig.from_dict(BAD[message])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
