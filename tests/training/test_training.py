"""Training: the same numbers however a run is cut, and networks that learn what they can."""

import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import switchpoint as sp
from switchpoint._display import LineProgress
from switchpoint._progress import Progress
from switchpoint.neural import network_from_name
from switchpoint.training import TrainConfig, read_reports, train, use_all_cores
from switchpoint.training.checkpoints import run_lock
from switchpoint.training.loss import loss_and_gradient
from switchpoint.training.optimizer import lr_schedule
from switchpoint.training.program import Program
from switchpoint.training.train import Pace

jitted_loss = jax.jit(loss_and_gradient, static_argnames="tbptt_length")

SMALL = {
    "model": "lstm",
    "hidden": 8,
    "readout": 0,
    "length": 8,
    "batch": 4,
    "steps": 30,
    "report_every": 10,
    "validation": 10,
    "learning_rate": 1e-2,
}


def small(**changes):
    return TrainConfig(**{**SMALL, **changes})


def weights(run):
    return [np.asarray(leaf) for network in run.networks for leaf in jax.tree.leaves(network)]


def assert_same(run, other):
    assert run.reports == other.reports
    for a, b in zip(weights(run), weights(other), strict=True):
        np.testing.assert_array_equal(a, b)


class TestReproducible:
    @pytest.fixture(scope="class")
    @staticmethod
    def many(tmp_path_factory):
        config = small(prior=["ptw", "lin"], seeds=2, learning_rate=[1e-2, 1e-3])
        return train(config, out=tmp_path_factory.mktemp("many"))

    @pytest.mark.slow
    def test_a_member_is_the_same_alone_and_among_others(self, many):
        alone = train(small(prior="lin", first_seed=1, learning_rate=1e-3))
        which = [
            member.index
            for member in many.members
            if (member.prior, member.seed, member.learning_rate) == ("lin", 1, 1e-3)
        ]
        together = jax.tree.leaves(many.networks[which[0]])
        for a, b in zip(together, jax.tree.leaves(alone.networks[0]), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)
        assert many.reports[-1].excess[which[0]] == pytest.approx(alone.reports[-1].excess[0])

    @pytest.mark.slow
    def test_the_best_has_the_lowest_excess_of_its_prior(self, many):
        excess = many.reports[-1].excess
        assert many.best() is many.networks[int(np.argmin(excess))]
        for prior in (None, "ptw", "lin"):
            assert eqx.tree_equal(sp.load(many.path, prior=prior), many.best(prior))
        with pytest.raises(ValueError, match="prior must be one of ptw, lin, got 'regular'"):
            many.best("regular")
        weights = {np.asarray(network.input.weight).tobytes() for network in many.networks}
        assert len(weights) == 8


RUN = """
import sys, json
from switchpoint.training import train, TrainConfig
config = TrainConfig(**json.loads(sys.argv[2]))
train(config, out=sys.argv[1], device_seconds=0, checkpoint_seconds=0)  # one after every step
"""


def start_run(directory, config):
    environment = {**os.environ, "PYTHONPATH": str(Path(sp.__file__).parents[1])}
    command = [sys.executable, "-c", RUN, str(directory), json.dumps(config)]
    return subprocess.Popen(command, env=environment)


class TestResuming:
    @pytest.mark.slow
    def test_a_killed_run_resumes_to_the_same_bytes(self, tmp_path):
        config = {**SMALL, "steps": 120, "report_every": 20, "seeds": 2}
        train(TrainConfig(**config), out=tmp_path / "whole")
        cut = tmp_path / "cut"
        process = start_run(cut, config)
        while process.poll() is None and latest(cut) < 30:
            time.sleep(0.005)
        assert process.poll() is None
        process.kill()
        process.wait()
        assert 30 <= latest(cut) < 120
        train(TrainConfig(**config), out=cut)
        for name in ("metrics.jsonl", "model.safetensors", "config.json"):
            assert (cut / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
        reports = read_reports(cut / "metrics.jsonl")
        assert [report.step for report in reports] == list(range(20, 121, 20))

    @pytest.mark.slow
    def test_an_interrupt_saves_and_the_run_resumes(self, tmp_path, capsys):
        """Also with chunks and random lengths, and past a damaged checkpoint."""
        config = small(tbptt_length=2, min_length=3, schedule="constant")
        interrupt(config, 7, tmp_path)
        assert latest(tmp_path) == 7
        last = tmp_path / "checkpoints" / "step-000000007.safetensors"
        last.with_name("step-000000008.safetensors").write_bytes(last.read_bytes()[:-9])
        resumed = train(config, out=tmp_path, progress=LineProgress(sys.stdout))
        out = capsys.readouterr().out
        assert "skipped the checkpoint" in out
        assert f"resuming from step 7 ({last.name})" in out
        assert_same(resumed, train(config))
        assert np.isfinite(resumed.reports[-1].loss).all()

    @pytest.mark.slow
    def test_a_run_resumes_with_the_other_kernels(self, tmp_path):
        config = small(model="rnn", hidden=16, length=4, batch=16, steps=6, report_every=3)
        plain = train(config, kernels="plain")
        interrupt(config, 4, tmp_path, kernels="plain")
        saved = (tmp_path / "config.json").read_bytes()
        mixed = train(config, out=tmp_path, kernels="fused")
        assert (tmp_path / "config.json").read_bytes() == saved
        assert [report.step for report in mixed.reports] == [3, 6]
        assert mixed.reports[0] == plain.reports[0]
        difference = max(
            np.abs(a - b).max() for a, b in zip(weights(mixed), weights(plain), strict=True)
        )
        assert 0 < difference < 0.02  # two steps were taken by kernels, from the same place
        loaded = jax.tree.structure(sp.load(tmp_path))
        assert all(jax.tree.structure(network) == loaded for network in mixed.networks)

    @pytest.mark.slow
    def test_the_run_directory_holds_what_it_should(self, tmp_path):
        run = train(small(prior=["ptw", "regular"], period=3), out=tmp_path, tensorboard=True)
        assert run.path == tmp_path / "model.safetensors"
        assert json.loads((tmp_path / "config.json").read_text())["period"] == 3
        assert read_reports(tmp_path / "metrics.jsonl") == list(run.reports)
        assert list((tmp_path / "tensorboard").iterdir())
        card = sp.neural.read_card(tmp_path)
        assert card["model"] == "lstm"
        assert card["steps"] == 30
        assert card["sources"]["regular"].startswith("Source(prior=RegularPeriodic(period=3)")
        assert [member["seed"] for member in card["members"]] == [0, 0]
        assert card["members"][1]["excess"] == run.reports[-1].excess[1]
        assert set(card["versions"]) == {"switchpoint", "jax", "equinox", "optax"}
        loaded = sp.load_members(tmp_path)
        for a, b in zip(loaded, run.networks, strict=True):
            assert eqx.tree_equal(a, b)


def interrupt(config, step, directory, **options):
    """Begin a run, and press Ctrl-C after a step."""

    class Impatient(Progress):
        def update(self, text, done):  # noqa: ARG002
            if round(done * config.steps) == step:
                os.kill(os.getpid(), signal.SIGINT)

    # Python's own handler, also where the tests run in the background, which ignores Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            train(config, out=directory, progress=Impatient(), device_seconds=0, **options)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def latest(directory):
    """The step of the newest checkpoint in a run's directory."""
    names = [path.name for path in (directory / "checkpoints").glob("step-*.safetensors")]
    return max((int(name[5:14]) for name in names), default=-1)


def python(program, *arguments, flags):
    """Start a program in a process of its own, with these flags of XLA."""
    environment = {
        **os.environ,
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}",
        "PYTHONPATH": str(Path(sp.__file__).parents[1]),
    }
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)


def printed(process):
    """What a process printed as JSON before it ended well."""
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(out)


DEVICE_COUNT = "--xla_force_host_platform_device_count"
DEVICES = """
import sys, json, numpy as np, jax
import switchpoint as sp
from switchpoint.evaluation import regrets
from switchpoint.training import train, TrainConfig

def numbers(config):
    run = train(TrainConfig(**config))
    leaves = [np.asarray(x).ravel() for n in run.networks for x in jax.tree.leaves(n)]
    bits = regrets([run.best(), sp.KTOracle], sp.Source(sp.PTW(5)), 32, 131, chunk=131)
    return len(jax.devices()), np.concatenate(leaves).tolist(), bits.tolist()
"""


@pytest.mark.slow
def test_several_devices_train_and_measure_what_one_does():
    config = {**SMALL, "model": "rnn", "prior": ["ptw", "lin"], "seeds": 3, "steps": 10}
    program = f"{DEVICES}\nprint(json.dumps(numbers(json.loads(sys.argv[1]))))"
    several = python(program, json.dumps(config), flags=f"{DEVICE_COUNT}=3")
    names = {}
    exec(DEVICES, names)
    one, weights, bits = names["numbers"](config)
    three, same_weights, same_bits = printed(several)
    assert (one, three) == (1, 3)
    np.testing.assert_allclose(same_weights, weights, atol=1e-6)
    np.testing.assert_allclose(same_bits, bits, atol=1e-3)  # sums of 32 symbols
    assert np.std(bits) > 1  # sequences differ


CORES = """
import os, jax
from switchpoint.training import use_all_cores
os.cpu_count = lambda: 5  # on any machine
use_all_cores()
print(len(jax.devices("cpu")))
"""


@pytest.mark.slow
def test_every_core_can_be_a_device():
    early = python(CORES, flags="")
    chosen = python(CORES, flags=f"{DEVICE_COUNT}=3")
    before = jax.local_device_count()
    use_all_cores()  # too late
    assert jax.local_device_count() == before
    assert [printed(process) for process in (early, chosen)] == [5, 3]


@pytest.mark.slow
def test_a_member_that_is_not_finite_is_frozen_and_the_others_go_on(capsys):
    config = small(model="rnn", seeds=2, learning_rate=[1e-2, 1e30], clip_norm=1e9)
    run = train(config, progress=LineProgress(sys.stdout))
    assert run.reports[-1].diverged == (2, 3)
    out = capsys.readouterr().out
    assert out.count("diverged: at step") == 2
    assert "member ptw-seed1-lr1e+30 diverged" in out
    alone = train(small(model="rnn", seeds=2, learning_rate=1e-2, clip_norm=1e9))
    for a, b in zip(weights(alone), weights(run), strict=False):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert all(np.isfinite(leaf).all() for leaf in weights(run))  # as they were before


class TestBudget:
    @pytest.mark.slow
    def test_a_run_that_is_out_of_time_goes_on_as_if_it_had_not_been(self, tmp_path):
        config = small(steps=6, report_every=2)
        whole = train(config, out=tmp_path / "whole")
        cut = tmp_path / "cut"
        told = io.StringIO()
        stopped = train(config, out=cut, minutes=1e-9, progress=LineProgress(told))
        assert "after step 1 of 6" in told.getvalue()
        card = sp.neural.read_card(cut)
        assert (card["steps"], card["planned_steps"]) == (1, 6)
        assert [report.step for report in stopped.reports] == [1]
        assert card["members"][0]["excess"] == stopped.reports[-1].excess[0]
        assert np.isfinite(stopped.reports[-1].loss).all()
        assert eqx.tree_equal(sp.load(cut), stopped.best())
        assert not (cut / "metrics.jsonl").exists()  # the first report is due at step 2
        for steps in ([2], [2, 3]):
            stopped = train(config, out=cut, minutes=1e-9)
            assert [report.step for report in stopped.reports] == steps
        assert_same(train(config, out=cut, minutes=60), whole)
        for name in ("metrics.jsonl", "model.safetensors", "config.json"):
            assert (cut / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()

    def test_the_last_trip_ends_in_time(self):
        pace = Pace(seconds=3.0)
        pace.steps, pace.steps_per_second = 300, 100.0
        assert pace.steps_until(math.inf) == 300
        assert pace.steps_until(time.monotonic() + 2) in range(150, 201)
        assert pace.steps_until(time.monotonic() - 1) == 1


class TestLoss:
    def test_is_the_mean_code_length(self, key):
        network = network_from_name("lstm", 3, 12, key, hidden=5)
        symbols = jax.random.randint(key, (4, 12), 0, 3)
        loss, _ = jitted_loss(network, symbols, jnp.full(12, 1 / 12))
        bits = sp.code_length(symbols, network.log_probs(symbols))
        assert float(loss) / np.log(2) == pytest.approx(float(bits.mean()), rel=1e-5)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("model", "options"),
        [("stack-rnn", {"hidden": 5}), ("mamba", {"layers": 1, "width": 4})],
    )
    def test_truncation_keeps_the_loss_and_cuts_the_gradient(self, key, model, options):
        network = network_from_name(model, 2, 12, key, **options)
        symbols = jax.random.randint(key, (4, 12), 0, 2)
        even = jnp.full(12, 1 / 12)
        whole, slope = jitted_loss(network, symbols, even)
        cut, cut_slope = jitted_loss(network, symbols, even, tbptt_length=4)
        assert float(cut) == pytest.approx(float(whole), rel=1e-5)

        # The last layer sees no other time than its own: its gradient is not cut.
        def last(network):
            return jax.tree.leaves(network.output)[-2]

        np.testing.assert_allclose(last(cut_slope), last(slope), atol=1e-6)
        differ = [
            float(jnp.abs(a - b).max())
            for a, b in zip(jax.tree.leaves(cut_slope), jax.tree.leaves(slope), strict=True)
        ]
        assert max(differ) > 1e-5

    def test_random_lengths_weigh_a_prefix(self):
        program = Program(small(min_length=3))
        keys = jax.random.split(jax.random.key(0), 500)
        rows = np.asarray(jax.vmap(program._weights)(keys))
        np.testing.assert_allclose(rows.sum(1), 1, atol=1e-6)
        lengths = (rows > 0).sum(1)
        assert np.array_equal(rows > 0, np.arange(8) < lengths[:, None])
        assert set(lengths) == {3, 4, 5, 6, 7, 8}


def test_the_rate_rises_and_falls():
    config = small(steps=100, warmup=10)
    rates = np.asarray([float(lr_schedule(config, jnp.asarray(step))) for step in range(100)])
    np.testing.assert_allclose(rates[:10], np.arange(1, 11) / 10, atol=1e-6)
    done = (np.arange(10, 100) - 10) / 90
    np.testing.assert_allclose(rates[10:], (1 + np.cos(np.pi * done)) / 2, atol=1e-6)
    constant = small(steps=100, warmup=10, schedule="constant")
    assert float(lr_schedule(constant, jnp.asarray(90))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("clip_norm", [0.01, 1e9])
def test_steps_are_those_of_adam_on_clipped_gradients(clip_norm):
    settings = {"warmup": 0, "schedule": "constant", "optimizer": "adam", "b2": 0.6}
    config = small(steps=2, learning_rate=0.01, clip_norm=clip_norm, **settings)
    program = Program(config)
    state = program.start()
    key = program._member_keys.keys[0, 0]
    mean = square = 0.0
    for step in (1, 2):
        network = jax.tree.map(lambda leaf: leaf[0, 0], state.networks)
        symbols = config.source("ptw").sample(jax.random.fold_in(key, step - 1), 4, 8).symbols
        _, gradient = jitted_loss(network, symbols, jnp.full(8, 1 / 8))
        before, slope = (np.array(ravel_pytree(tree)[0]) for tree in (network, gradient))
        norm = np.linalg.norm(slope)
        assert norm > 0.01
        slope *= min(1, clip_norm / norm)
        mean = 0.9 * mean + 0.1 * slope
        square = 0.6 * square + 0.4 * slope**2
        unbiased = np.sqrt(square / (1 - 0.6**step)) + 1e-8
        expected = before - 0.01 * mean / (1 - 0.9**step) / unbiased
        state = program.advance(state, step)
        after, _ = ravel_pytree(jax.tree.map(lambda leaf: leaf[0, 0], state.networks))
        np.testing.assert_allclose(after, expected, atol=2e-6)


@pytest.mark.parametrize(
    ("place", "options", "message"),
    [
        ("run", {"kernels": "x"}, "must be one of auto, fused, plain, got 'x'"),
        ("run", {"minutes": 0}, "minutes must be a finite number above 0, got"),
        ("run", {"minutes": math.nan}, "minutes must be a finite number above 0, got"),
        (None, {"tensorboard": True}, "tensorboard needs a directory"),
        ("file/run", {}, "out cannot be created"),
        (".", {}, "another process is training"),
    ],
)
def test_bad_arguments_are_refused_before_there_are_files(tmp_path, place, options, message):
    (tmp_path / "file").write_text("")
    with run_lock(tmp_path), pytest.raises(ValueError, match=message):
        train(small(), out=place and tmp_path / place, **options)
    assert not (tmp_path / "run").exists()
