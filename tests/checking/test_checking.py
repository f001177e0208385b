"""`sp.check` passes correct parts, and names the fault of others."""

import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import PRIORS, name
from test_families import documented_family

import switchpoint as sp
from switchpoint.checking.properties import findings
from switchpoint.checking.subject import Subject
from switchpoint.segments import Discrete, Normal, StudentT

ROOT = Path(__file__).parents[2]


def documented(path, name):
    """The class of this name in the first block of Python that defines it."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), re.DOTALL)
    block = next(block for block in blocks if f"class {name}(" in block)
    names = {"__name__": "documented"}
    exec(block.split("\n\n\ndef ")[0], names)
    return names[name]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        documented_family,
        lambda: documented("CONTRIBUTING.md", "Fatigue")(0.01),
        lambda: documented("docs/training.md", "GRU")(2, 4, key=jax.random.key(0)),
    ],
    ids=["segment", "prior", "network"],
)
def test_the_documented_parts_pass(make):
    report = sp.check(make(), length=30).raise_if_failed()
    assert report.ok
    assert len(report.findings) >= 7
    assert not report.failed


def findings_of(part, thing, values=None):
    return findings(Subject(thing, values, 20, 0), [part])


def assert_failed(found, fault, consequences=()):
    """That this property fails, and only it and perhaps its consequences."""
    failed = {each.name for each in found if not each.ok}
    assert failed - set(consequences) == ({fault} if fault else set()), found


LINES = sp.Independent(sp.NormalGamma(1.0, 2.0, 3.0, 0.5), sp.Trend())
OTHERS = sp.Independent(sp.Gaussian(), sp.Poisson(), sp.Exponential(2.0, 3.0), sp.Bernoulli())


@pytest.mark.slow
@pytest.mark.parametrize("segment", [sp.MarkovChain(3), OTHERS, LINES], ids=["1", "2", "3"])
def test_families_of_the_package_pass(segment):
    found = findings_of("segment", segment)
    assert_failed(found, None)
    names = {each.name for each in found}
    assert {"normalised", "merge is associative", "empty is neutral", "sampler"} <= names
    assert ("translate" in names) == (segment.event_shape != ())
    assert ("run_log_density" in names) == (segment is LINES)


@pytest.mark.parametrize("prior", PRIORS, ids=name)
def test_priors_of_the_package_pass(prior):
    assert_failed(findings_of("prior", prior), None)


class Noise(sp.Segment):
    """Gaussian noise with variance 1 around an unknown mean, as counts and sums."""

    fault: str = eqx.field(static=True, default="")

    def statistic(self, x):
        return jnp.ones_like(x), x

    def predictive(self, statistics):
        count, total = statistics
        mean, variance = total / (count + 1), 1 + 1 / (count + 1)
        return (Loud if self.fault == "normalised" else Normal)(mean, variance)

    def merge(self, before, after):
        if self.fault == "merge is associative":
            return before[0] + after[0], before[1] + after[1] * (1 + before[0] * after[0])
        count, total = super().merge(before, after)
        return count + (self.fault == "empty is neutral"), total

    def run_log_density(self, before, run):
        if self.fault == "run_log_density":
            return jnp.zeros(()), self.predictive(before).log_density(run[1])
        return None

    def emission(self, parameters, statistics):
        del parameters
        if self.fault == "sampler":  # every observation has a mean of its own
            return self.predictive(self.initial())
        return self.predictive(statistics)


class Still(Noise):
    """The origin does not move with the values."""

    level: float = sp.segments.location(0.0)

    def translate(self, statistics, by):
        del by
        return statistics


class Loud(Normal):
    """A density that is 2% too high."""

    def log_density(self, x):
        return super().log_density(x) + 0.02


@pytest.mark.parametrize(
    "fault",
    [
        "",
        "normalised",
        "merge is associative",
        "empty is neutral",
        "run_log_density",
        "translate",
        "sampler",
    ],
)
def test_the_fault_of_a_family_is_named(fault):
    family = Still if fault == "translate" else Noise
    assert_failed(
        findings_of("segment", family(fault)), fault, {"sampler"} if "merge" in fault else ()
    )


class Coin(sp.Prior):
    """A constant hazard of 0.2."""

    fault: str = eqx.field(static=True, default="")

    def hazard_after(self, start, run):
        start, run = jnp.broadcast_arrays(start, run)
        return jnp.where(run == 7, 1.2 if self.fault == "hazards" else 0.2, 0.2)

    def survival_after(self, start, run):
        survival = 1 - self.hazard_after(start, run)
        return survival - 0.01 if self.fault == "survival" else survival

    def log_survival(self, start, run):
        _, run = jnp.broadcast_arrays(start, run)
        return run * jnp.log(0.8) * (0.5 if self.fault == "log_survival" else 1)

    @property
    def max_length(self):
        return 9 if self.fault == "max_length" else None

    def sample_starts(self, key, batch, length):
        if self.fault != "switches drawn":
            return super().sample_starts(key, batch, length)
        return jnp.broadcast_to(jnp.arange(length) // 5 * 5, (batch, length))


@pytest.mark.parametrize(
    ("fault", "failing", "consequences"),
    [
        ("", "", ()),
        ("hazards", "hazards", ()),
        ("survival", "survival", ("lengths", "switches drawn")),
        ("log_survival", "lengths", ("switches drawn",)),
        ("max_length", "lengths", ()),
        ("switches drawn", "switches drawn", ()),
    ],
)
def test_the_fault_of_a_prior_is_named(fault, failing, consequences):
    assert_failed(findings_of("prior", Coin(fault)), failing, consequences)


class Tally(sp.neural.Network):
    """Logits are a decayed tally of the symbols."""

    decay: jax.Array
    fault: str = eqx.field(static=True, default="")
    alphabet_size: int = eqx.field(static=True, default=2)

    def memory(self, batch, capacity):
        del capacity
        return jnp.zeros((batch, 2))

    def read(self, memory, tokens):
        if self.fault == "stream":  # it forgets what it read before
            memory = 0 * memory
        decay = self.decay
        if self.fault == "gradients":
            decay = jax.lax.stop_gradient(decay)

        def step(memory, token):
            memory = decay * memory + jax.nn.one_hot(token, 2)
            return memory, memory

        memory, logits = jax.lax.scan(step, memory, tokens.T)
        logits = jnp.swapaxes(logits, 0, 1)
        if self.fault == "causal":
            logits = logits + 0.1 * jnp.flip(logits, 1)
        if self.fault == "jit and vmap":  # sequences of a batch see each other
            logits = logits + 0.1 * logits.mean(0)
        if self.fault == "predictions":
            logits = logits[..., :1]
        return memory, logits


FORMS = {"stream", "chunks", "jit and vmap"}


@pytest.mark.parametrize(
    ("fault", "consequences"),
    [
        ("", ()),
        ("predictions", ()),
        ("leaves", ()),
        ("causal", FORMS),
        ("stream", FORMS),
        ("jit and vmap", FORMS),
        ("gradients", ()),
    ],
)
def test_the_fault_of_a_network_is_named(fault, consequences):
    symbols = np.random.default_rng(0).integers(0, 2, (2, 20))
    decay = np.arange(1, 2) if fault == "leaves" else jnp.asarray(0.7)
    found = findings_of("predictor", Tally(decay, fault), symbols)
    assert_failed(found, fault, set(consequences) - {fault})


class Gaps(Noise):
    """Missing values leave no number behind."""

    def missing(self):
        return (jnp.asarray(jnp.nan), jnp.asarray(0.0))


class Rough(Noise):
    """The prior's scale has a wrong gradient."""

    scale: float = 1.0

    def predictive(self, statistics):
        count, total = statistics
        return StudentT(
            5.0, total / (count + 1), self.scale - jax.lax.stop_gradient(self.scale) + 2.0
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("segment", "fault"),
    [(Gaps(), "missing values"), (Rough(), "gradients")],
    ids=["gaps", "rough"],
)
def test_the_fault_of_a_predictor_is_named(segment, fault):
    predictor = sp.bayes_optimal(sp.Source(sp.Geometric(0.1), segment))
    values = np.random.default_rng(0).normal(size=(1, 20))
    found = findings_of("predictor", predictor, values)
    assert_failed(found, fault)
    if fault == "gradients":  # the log likelihood does not depend on the value of `scale`
        detail = next(each.detail for each in found if not each.ok)
        assert "segment.scale" in detail
        assert " 0 by finite differences" in detail


class Biased(sp.Source):
    """Symbols that do not follow the probabilities of their draw."""

    def sample(self, key, batch, length):
        draw = super().sample(key, batch, length)
        return eqx.tree_at(lambda draw: draw.values, draw, jnp.zeros_like(draw.values))


def test_draws_follow_their_true_probabilities():
    for segment in (sp.Bernoulli(), sp.Categorical(5, 0.7)):
        assert_failed(findings_of("sampler", sp.Source(sp.LIN(), segment)), None)
    (finding,) = findings_of("sampler", Biased(sp.LIN()))
    assert not finding.ok
    assert finding.detail.startswith("symbols against their true probabilities: at time ")


class Symbols(sp.Segment):
    """Three symbols, with probabilities that sum to `total`."""

    total: float = 1.0

    finite = True
    alphabet = 3

    def statistic(self, x):
        return jax.nn.one_hot(x.astype(jnp.int32), 3)

    def predictive(self, statistics):
        return Discrete(self.total * (statistics + 1) / (statistics.sum() + 3))


def test_symbols_whose_probabilities_do_not_sum_to_one_are_refused():
    sp.Source(sp.LIN(), Symbols())
    jax.jit(lambda total: sp.Source(sp.LIN(), Symbols(total)).segment.total)(0.5)  # not known here
    with pytest.raises(ValueError, match=r"Symbols\.predictive must .* sum to one, .* sum 0\.5 "):
        sp.Source(sp.LIN(), Symbols(0.5))


def test_a_report_is_a_table_and_raises():
    report = sp.check(Symbols(0.5))
    assert not report.ok
    heading, row = str(report).splitlines()
    assert heading == "Symbols(total=0.5): 1 checks, 1 failed"
    assert re.fullmatch(r"  FAILED  source  Symbols\.predictive must .* sum to one.*", row)
    with pytest.raises(ValueError, match=r"Symbols\(total=0.5\) fails 1 checks: source: .* to one"):
        report.raise_if_failed()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((5,), "thing must be a Prior, a Segment, a Source, a Network .* got 5"),
        ((sp.Prior,), "thing must be a Prior"),
        ((sp.LIN(), None, 3), "length must be at least 10, got 3"),
        ((sp.LIN(), [0, 1]), r"at least 10 observations, got shape \(1, 2\)"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    thing, values, length = (*arguments, *(None, 20)[len(arguments) - 1 :])
    with pytest.raises(ValueError, match=message):
        sp.check(thing, values, length=length)
