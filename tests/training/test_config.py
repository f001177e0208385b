"""Configurations: valid and complete once they exist, the same from Python, JSON and TOML."""

import json

import numpy as np
import pytest

import switchpoint as sp
from switchpoint._settings import SettingError
from switchpoint.neural.registry import MODEL_OPTIONS, MODELS
from switchpoint.segments import make_segment
from switchpoint.training.config import Member, TrainConfig, read_toml

FIELDS = tuple(TrainConfig.model_fields)
EVERY_PRIOR = {
    "prior": ["ptw", "lin", "regular", "uniform", "geometric", "renewal"],
    "split": 0.25,
    "period": 20,
    "hazard": 0.05,
    "pmf": [1 / 7] * 7,  # normalising it twice is not the same as once
}


# --- defaults --------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODEL_OPTIONS)
def test_defaults_come_from_the_recipe_and_the_paper(model):
    config = TrainConfig(model=model)
    assert config.options() == MODEL_OPTIONS[model]
    others = set().union(*MODEL_OPTIONS.values()) - set(MODEL_OPTIONS[model])
    assert {getattr(config, name) for name in others} == {None}
    recipe = MODELS[model].recipe
    assert config.learning_rate == (recipe.learning_rate,)
    for name in ("steps", "warmup", "batch", "b2", "clip_norm", "optimizer", "matrix_decay"):
        assert getattr(config, name) == getattr(recipe, name)
    assert (config.length, config.alphabet) == (256, 2)
    assert (config.prior, config.depth, config.split) == (("ptw",), 8, 0.5)
    assert (config.alpha, config.beta, config.concentration) == (0.5, 0.5, None)


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
    with pytest.raises(ValueError, match="frozen"):
        TrainConfig().steps = 5


# --- members, sources and networks -----------------------------------------------------------


def test_members_are_priors_then_rates_then_seeds():
    config = TrainConfig(prior=["lin", "ptw"], learning_rate=[0.1, 0.01], seeds=2, first_seed=7)
    members = config.members()
    assert [(m.prior, m.learning_rate, m.seed) for m in members] == [
        (prior, rate, seed) for prior in ("lin", "ptw") for rate in (0.1, 0.01) for seed in (7, 8)
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
    config = TrainConfig(alphabet=4, concentration=0.1)
    assert config.source("ptw").segment == sp.Categorical(4, 0.1)
    assert TrainConfig(alphabet=3).source("ptw").segment == make_segment(3)


# --- to and from files -----------------------------------------------------------------------

TRANSFORMER = {"model": "transformer", "width": 24, "heads": 3, "context": 8, "tbptt_length": 64}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {**TRANSFORMER, "min_length": 3, "schedule": "constant"},
        {**EVERY_PRIOR, "model": "markov", "learning_rate": [0.1, 0.2], "seeds": 3},
        {"model": "stack-rnn", "alphabet": 5, "clip_norm": 0.1, "first_seed": 2**32 - 1},
    ],
)
def test_json_gives_the_same_configuration_back(settings):
    config = TrainConfig(**settings)
    written = json.loads(json.dumps(config.to_dict(), allow_nan=False))
    assert set(written) == {*FIELDS, "format"}
    assert TrainConfig.from_dict(written) == config
    with pytest.raises(ValueError, match="format 99"):
        TrainConfig.from_dict({**written, "format": 99})


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
    assert read_toml(str(path), length=32, depth=6) == config.replace(length=32, depth=6)


BAD_TOML = {
    "run.toml, line 2: unknown field 'hiden'; did you mean 'hidden'?": "steps = 5\nhiden = 64",
    "run.toml, line 1: unknown field 'learning-rate'; did you mean 'learning_rate'?": (
        "learning-rate = 0.1"
    ),
    "run.toml, line 3: unknown field 'network'": "steps = 5\n\n[network]\nhidden = 64",
    "run.toml, line 3: hidden must be": "steps = 5\n\n[hidden]\nunits = 64",
    "run.toml is not TOML: Invalid value (at line 2, column 9)": "steps = 5\nmodel = lstm",
    "run.toml, line 2: hidden must be": 'seeds = 2\n hidden = "64"',
    "run.toml, line 1: tbptt_length must divide the length 256, got 100": "tbptt_length = 100",
    "run.toml, line 1: prior 'regular' needs period": 'prior = "regular"',
    "run.toml, line 2: length must be at most 4 for PTW": "steps = 5\ndepth = 2",
}


@pytest.mark.parametrize("message", BAD_TOML)
def test_bad_toml_is_refused_with_its_line(tmp_path, message):
    path = tmp_path / "run.toml"
    path.write_text(BAD_TOML[message])
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_toml(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


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


# --- invalid settings ------------------------------------------------------------------------

BAD = [  # the settings, the field that is to blame, and a part of the message
    ({"hiden": 64}, "hiden", "did you mean 'hidden'?"),
    ({"qqq": 1}, "qqq", "the fields are model, hidden,"),
    ({"model": "gpt"}, "model", "one of "),
    ({"stack_depth": 8}, "stack_depth", "model 'lstm', which takes hidden, readout"),
    ({"model": "memoryless", "hidden": 8}, "hidden", "takes no option"),
    ({"model": "stack-rnn", "stack_depth": 5, "length": 4}, "stack_depth", "length 4, got 5"),
    ({"model": "transformer", "positions": "rope"}, "positions", "got 'rope'"),
    ({"model": "transformer", "width": 7}, "width", "divisible by the 8 heads, got 7"),
    ({"hidden": 0}, "hidden", "got 0"),
    ({"model": "markov", "order": 2.5}, "order", "valid integer, got 2.5"),
    ({"prior": "pwt", "depth": 8}, "prior", "one of ptw, lin,"),
    ({"prior": ["lin", "ptw", "lin"]}, "prior", "twice"),
    ({"prior": []}, "prior", "at least one value"),
    ({"prior": ["ptw", "lin"], "period": 5}, "period", "prior 'regular', got 5 for 'ptw' and"),
    ({"prior": "geometric"}, "prior", "needs hazard: give --hazard"),
    ({"depth": 7}, "depth", "length must be at most 128 for PTW(depth=7, split=0.5), got 256"),
    ({"depth": 10**11}, "depth", "at most 62"),
    ({"length": 10**30}, "length", "depth must be at most 62"),
    ({"split": 1.5}, "split", "less than 1, got 1.5"),
    ({"prior": "renewal", "pmf": [0.25, 0.25]}, "pmf", "sum to one, got a sum of 0.5"),
    ({"prior": "renewal", "pmf": "law.txt"}, "pmf", "got 'law.txt'"),
    ({"alphabet": 1}, "alphabet", "at least 2, got 1"),
    ({"concentration": 0.5}, "concentration", "for alphabets above 2, got 0.5"),
    ({"alphabet": 3, "alpha": 0.5}, "alpha", "for an alphabet of 2, got 0.5"),
    ({"first_seed": -1}, "first_seed", "got -1"),
    ({"first_seed": 2**32 - 1, "seeds": 2}, "seeds", "2^32"),
    ({"learning_rate": [0.1, 0]}, "learning_rate", "greater than 0, got 0"),
    ({"learning_rate": [0.1, 0.1]}, "learning_rate", "twice"),
    ({"steps": True}, "steps", "got True"),
    ({"schedule": "linear"}, "schedule", "'cosine' or 'constant', got 'linear'"),
    ({"steps": 200, "warmup": 200}, "warmup", "below the 200 steps, got 200"),
    ({"clip_norm": float("inf")}, "clip_norm", "finite number, got inf"),
    ({"tbptt_length": 100}, "tbptt_length", "divide the length 256, got 100"),
    ({"min_length": 257}, "min_length", "at most 256, got 257"),
    ({"optimizer": "adam", "matrix_decay": 0.1}, "matrix_decay", "for optimizer 'muon', got 0.1"),
    ({"validation": 1}, "validation", "got 1"),
]


@pytest.mark.parametrize(("settings", "name", "words"), BAD)
def test_bad_settings_are_refused(settings, name, words):
    with pytest.raises(SettingError) as caught:
        TrainConfig(**settings)
    assert caught.value.name == name
    assert words in str(caught.value)
    assert name in str(caught.value) or name in ("length", "prior")
    assert "\n" not in str(caught.value)
