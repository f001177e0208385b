"""Training a user's own network on a user's own source, and loading it again."""

import io
import json
import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import switchpoint as sp
from switchpoint.cli import main
from switchpoint.neural import network_from_name
from switchpoint.neural.density import ValueSpec
from switchpoint.neural.registry import MODELS
from switchpoint.training.custom import CustomConfig, _identity, _named_sources, custom_config

DOCS = Path(__file__).parents[2] / "docs" / "training.md"


class Ramp(sp.Prior):
    """Segments end the sooner the higher `slope`."""

    slope: float = eqx.field(static=True)

    def hazard_after(self, start, run):  # noqa: ARG002
        return jnp.minimum(1.0, self.slope * jnp.asarray(run, float))


class Table(sp.Prior):
    """A law in an array, which a repr shows by its shape alone."""

    hazards: jax.Array

    def hazard_after(self, start, run):  # noqa: ARG002
        return self.hazards[jnp.minimum(run, 2) - 1]


class Last(sp.neural.Network):
    """Sees the last token alone."""

    alphabet_size: int = eqx.field(static=True)
    table: jax.Array

    def __init__(self, alphabet, key, rows=None):
        self.alphabet_size = alphabet
        shape = (alphabet + 1 if rows is None else rows, alphabet)
        self.table = 0.1 * jax.random.normal(key, shape)

    def memory(self, batch, capacity):  # noqa: ARG002
        return ()

    def read(self, memory, tokens):
        return memory, self.table[tokens]


class Other(Last):
    """The same under another name."""


class Odd(Last):
    """Holds what cannot be trained."""

    odd: object = None

    def __init__(self, alphabet, key, odd):
        super().__init__(alphabet, key)
        self.odd = odd


SOURCE = sp.Source(Ramp(0.25))
CONFIG = {"length": 8, "batch": 4, "steps": 20, "report_every": 10, "validation": 10}


def config(**changes):
    return sp.TrainConfig(**{**CONFIG, **changes})


def make(key):
    return Last(2, key)


def train(out=None, source=SOURCE, network=make, **settings):
    return sp.train(config(**settings), out, source=source, network=network)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("runs") / "mine", seeds=2)


@pytest.mark.slow
def test_the_example_of_the_documents_runs(tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    of_states, block, tuning, *_ = blocks  # the next is run by tests/neural/test_density.py
    monkeypatch.chdir(tmp_path)
    exec(of_states, {})
    exec(tuning.replace("length=64, steps=20, batch=8", "length=8, steps=3, batch=2"), {})
    names = {"__name__": "documented"}
    exec(block, names)
    assert names["run"].reports[-1].excess[0] < 0.5
    assert eqx.tree_equal(names["gru"], names["run"].best())
    assert sp.neural.read_card(tmp_path / "runs" / "gru")["network"] == "documented.GRU"


@pytest.mark.slow
def test_the_card_claims_what_was_trained_and_nothing_else(run):
    card = sp.neural.read_card(run.path)
    assert card["model"] == "custom"
    assert card["network"] == f"{__name__}.Last"
    assert "options" not in card
    assert card["sources"] == {"custom": repr(SOURCE)}
    assert {member["prior"] for member in card["members"]} == {"custom"}
    claimed = {name: value for name, value in card["config"].items() if value is not None}
    assert claimed["sources"] == {"custom": repr(SOURCE)}
    assert claimed["leaves"] == {"table": "float32[3, 2]"}
    assert not {"hidden", "readout", "depth", "split", "alpha", "beta"} & set(claimed)
    assert "lstm" not in str(card)
    assert "PTW" not in str(card)


@pytest.mark.slow
def test_the_excess_is_over_the_optimum_of_that_source(run):
    draw = SOURCE.sample(jax.random.key(1), 4000, 8)
    optimum = sp.bayes_optimal(SOURCE).log_probs(draw.symbols)
    bits = sp.excess_regret(draw, run.networks[0].log_probs(draw.symbols), optimum).sum(-1)
    error = 4 * (float(bits.std()) / 4000**0.5 + run.reports[-1].excess_error[0])
    assert run.reports[-1].excess[0] == pytest.approx(float(bits.mean()), abs=error)


def test_a_source_of_ones_own_sampler_has_no_optimum_to_exceed():
    class Skewed(sp.AbstractSource):
        """Bits that are 1 with probability 3/4."""

        segment: sp.Segment = sp.Bernoulli()

        def sample(self, key, batch, length):
            symbols = jax.random.bernoulli(key, 0.75, (batch, length)).astype(jnp.int32)
            probs = jnp.broadcast_to(jnp.array([0.25, 0.75]), (batch, length, 2))
            return sp.Draw(symbols, probs, jnp.zeros((batch, length), bool))

    source = Skewed()
    config = sp.TrainConfig(model="memoryless", **CONFIG)
    with pytest.warns(UserWarning, match="the optimum of Skewed is unknown"):
        run = sp.train(config, source=source)
    measured = sp.evaluate({"own": run.best()}, source, config.length, 50)
    regret = float(measured["regret"].mean())
    assert run.reports[-1].excess[0] == pytest.approx(regret, rel=1e-4)  # the same at every step


@pytest.mark.parametrize("like", [make, Last(2, jax.random.key(5))], ids=["function", "network"])
def test_it_is_loaded_with_what_makes_it(run, like):
    directory = run.path.parent
    assert eqx.tree_equal(sp.load(directory, like=like), run.best())
    assert eqx.tree_equal(sp.load(directory, member=1, like=like), run.networks[1])
    assert eqx.tree_equal(sp.load_members(directory, like=like), list(run.networks))


def test_arrays_that_do_not_fit_are_refused(run):
    with pytest.raises(ValueError, match=rf"{__name__}\.Last.*like="):
        sp.load(run.path)
    with pytest.raises(ValueError, match=r"table must have shape \(2, 4, 3\), got \(2, 3, 2\)"):
        sp.load(run.path, like=lambda key: Last(3, key))
    with pytest.raises(ValueError, match=r"arrays are not those of .*Recurrent"):
        sp.load(run.path, like=lambda key: sp.neural.network_from_name("rnn", 2, 8, key))
    with pytest.raises(ValueError, match=r"must make a .*Network, got 3"):
        sp.neural.storage.network_shapes(lambda _: 3)


@pytest.mark.parametrize("command", [["predict", "-", "--model"], ["evaluate", "--on", "ptw"]])
def test_the_command_line_refuses_it_in_a_sentence(run, command, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("0110"))
    assert main([*command, str(run.path.parent)]) == 2
    err = capsys.readouterr().err
    assert f"{__name__}.Last" in err
    assert "like=" in err
    assert len(err.splitlines()) == 1


SMALL_OPTIONS = {
    "lstm": {"hidden": 4, "readout": 0},
    "stack-rnn": {"stack_depth": 2, "stack_width": 1},
    "transformer": {"layers": 1, "width": 8, "heads": 2, "positions": "alibi"},
    "lru": {"layers": 1, "width": 4, "state_size": 2},
    "mamba": {"layers": 1, "width": 4, "state_size": 2},
    "markov": {"order": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "values"),
    [
        ("lstm", SMALL_OPTIONS["lstm"], None),
        ("rnn", {"hidden": 4, "readout": 0}, ValueSpec((0.0,), (1.0,), components=2)),
    ],
    ids=["symbols", "values"],
)
def test_a_tuned_network_keeps_its_class_options_and_card(tmp_path, name, options, values):
    alphabet = 2 if values is None else None
    start = network_from_name(name, alphabet, 8, jax.random.key(3), values, **options)
    source = SOURCE if values is None else sp.Source(sp.Geometric(0.1), sp.Gaussian())
    plan = sp.TrainConfig(length=8, batch=2, steps=2, validation=2, warmup=0, report_every=1)
    run = sp.train(plan, tmp_path, source=source, network=start)
    card = sp.neural.read_card(tmp_path)
    assert (run.config.model, card["model"]) == (name, name)
    assert card["options"].items() >= options.items()
    assert "network" not in card
    tuned = sp.load(tmp_path)
    assert eqx.tree_equal(tuned, run.best())
    assert type(tuned) is type(start)
    moved = jax.tree.map(lambda a, b: float(abs(a - b).max()), tuned, start)
    assert 0 < max(jax.tree.leaves(moved)) < 0.1  # it started from the given weights
    if values is None:
        other = jax.tree.map(lambda leaf: leaf + 1, start)
        with pytest.raises(ValueError, match="start"):
            sp.train(plan, tmp_path, source=source, network=other)


@pytest.mark.parametrize("model", sp.neural.MODEL_OPTIONS)
def test_a_network_to_start_from_has_its_model_and_options(model):
    start = network_from_name(model, 2, 8, jax.random.key(3), **SMALL_OPTIONS.get(model, {}))
    made = custom_config(sp.TrainConfig(length=8), SOURCE, start)
    described = sp.neural.MODEL_OPTIONS[model] | SMALL_OPTIONS.get(model, {})
    assert (made.model, made.options()) == (model, described)


def test_sources_and_networks_are_replaced_one_without_the_other():
    sources = {"slow": sp.Source(Ramp(0.1)), "fast": SOURCE}
    made = custom_config(config(model="markov"), sources, None)
    assert [member.prior for member in made.members()] == ["slow", "fast"]
    assert made.source("fast") is SOURCE
    assert made.to_dict()["sources"] == {name: repr(each) for name, each in sources.items()}
    made = custom_config(config(prior=["ptw", "lin"]), None, make)
    assert (made.prior, made.model, made.hidden) == (("ptw", "lin"), "custom", None)
    assert made.source("ptw").prior == sp.PTW(3)
    assert isinstance(made.network(jax.random.key(0)), Last)


def test_a_custom_configuration_is_its_description_in_json():
    real = sp.Source(sp.PTW(3), sp.Gaussian())
    spec = ValueSpec((0.0,), (1.5,))
    for made in (
        custom_config(config(model="lstm"), real, None, spec),
        custom_config(config(), {"slow": sp.Source(Ramp(0.1)), "fast": SOURCE}, make),
    ):
        written = json.loads(json.dumps(made.to_dict()))
        assert CustomConfig.from_dict(written).to_dict() == written == made.to_dict()


def test_defaults_follow_the_recipe_of_custom_networks():
    recipe = MODELS["custom"].recipe
    assert recipe.optimizer == "adam"
    given = sp.TrainConfig(model="transformer", length=8, steps=500, batch=3)
    made = custom_config(given, None, make)
    assert (made.steps, made.batch, made.warmup) == (500, 3, 50)
    assert (made.learning_rate, made.optimizer) == ((recipe.learning_rate,), "adam")
    assert made.b2 == recipe.b2 != given.b2


class TestResuming:
    def test_a_stopped_run_ends_with_the_same_bytes(self, run, tmp_path):
        out = tmp_path / "mine"
        stopped = sp.train(config(seeds=2), out, source=SOURCE, network=make, minutes=1e-9)
        assert stopped.reports[-1].step == 1
        train(out, seeds=2)
        for name in ("model.safetensors", "metrics.jsonl", "config.json"):
            assert (out / name).read_bytes() == (run.path.parent / name).read_bytes()

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"source": sp.Source(Ramp(0.5))}, r"Ramp\(slope=0.25\).*now .*Ramp\(slope=0.5\)"),
            ({"network": lambda key: Other(2, key)}, r"network: .*Last', now .*Other"),
            (
                {"network": lambda key: Last(2, key, rows=5)},
                r"leaves table: 'float32\[3, 2\]', now 'float32\[5, 2\]'",
            ),
            ({"network": None}, "model: 'custom', now 'lstm'"),
        ],
    )
    def test_another_source_or_network_is_refused(self, run, changes, message):
        with pytest.raises(ValueError, match=message):
            train(run.path.parent, seeds=2, **changes)

    def test_arrays_are_compared_by_their_values(self):
        sources = [sp.Source(Table(jnp.array([0.1, last]))) for last in (0.2, 0.2, 0.3)]
        first, same, other = map(_identity, sources)
        assert first == same != other
        assert repr(sources[0]) == repr(sources[2])  # for which a repr is not enough


class TestBadInput:
    @pytest.mark.parametrize(
        ("source", "message"),
        [
            (sp.PTW(8), r"Source\(prior, segment\).*got PTW\(depth=8"),
            ({"a": sp.LIN()}, "got 'a': LIN"),
            (sp.Source(sp.PTW(2)), "length must be at most 4"),
            (
                {"a": SOURCE, "b": sp.Source(sp.LIN(), sp.Categorical(3))},
                r"one alphabet, got \{'a': 2, 'b': 3\}",
            ),
            ({}, r"got \{\}"),
        ],
    )
    def test_a_source_is_a_source(self, source, message):
        with pytest.raises(ValueError, match=message):
            _named_sources(source, 8)

    @pytest.mark.parametrize(
        ("network", "settings", "message"),
        [
            (lambda key: Last(3, key), {}, "alphabet of the source, 2, got .*Last with 3"),
            (lambda key: Odd(2, key, jnp.arange(3)), {}, "floating point.*as odd of .*static"),
            (lambda key: Odd(2, key, jnp.tanh), {}, "floating point.*as odd of .*static"),
            (make, {"optimizer": "muon"}, "muon.*Last has none.*adam"),
        ],
    )
    def test_a_network_must_be_fit_for_training(self, network, settings, message):
        with pytest.raises(ValueError, match=message):
            train(network=network, **settings)

    def test_a_model_called_custom_needs_a_network(self):
        with pytest.raises(ValueError, match=r"custom.*network=make_network"):
            sp.train(config(model="custom"))
