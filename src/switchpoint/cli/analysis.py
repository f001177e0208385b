"""What a predictor says about one sequence, as arrays on the host."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from rich.console import Console
from rich.progress import Progress

from switchpoint.cli.check_cost import NETWORK_BLOCK
from switchpoint.cli.subjects import Subject
from switchpoint.evaluation import code_length
from switchpoint.exact import KT, ExactPredictor, Posterior, SwitchInterval
from switchpoint.neural import Network

_MOST_SWITCHES = 100
_ROUNDING = 1e-3  # by which single precision may leave a log probability above 0


@dataclass(frozen=True)
class Switching:
    """What a source makes of the switching points of a sequence."""

    filtered: Float[np.ndarray, " time"]
    """P(a switch at t | x_<=t)."""
    smoothed: Float[np.ndarray, " time"]
    """P(a switch at t | all of x)."""
    probs_smoothed: Float[np.ndarray, "time alphabet"]
    """The expected distribution of x_t given all of x."""
    best: Bool[np.ndarray, " time"]
    """The switches of the most probable partition."""
    best_log_prob: float
    count_pmf: Float[np.ndarray, " counts"]
    """P(k switches | all of x), k = 0, 1, ..."""
    intervals: Sequence[SwitchInterval]
    """The switches of the most probable partition, each with where it may have been."""


@dataclass(frozen=True)
class Analysis:
    """Predictions of one sequence, and where its switching points are if that can be told."""

    subject: Subject
    symbols: Int[np.ndarray, " time"]
    probs: Float[np.ndarray, "time alphabet"]
    """P(x_t = k | x_<t): before the symbol is seen."""
    bits: float
    """The realised code length of the sequence."""
    kt_bits: float
    """The same under KT, which knows no switching points."""
    switching: Switching | None
    """None where a network predicted, which has no posterior."""

    def summary(self) -> dict[str, Any]:
        """The few numbers that describe the whole, ready for JSON."""
        fields = {
            "symbols": len(self.symbols),
            "alphabet": self.probs.shape[1],
            **self.subject.fields,
            "bits": self.bits,
            "bits_per_symbol": self.bits / len(self.symbols),
            "kt_bits": self.kt_bits,
            "kt_bits_per_symbol": self.kt_bits / len(self.symbols),
        }
        if self.switching is not None:
            fields["no_switch_probability"] = float(self.switching.count_pmf[0])
            fields["switch_count_pmf"] = [float(share) for share in self.switching.count_pmf]
            fields["switches"] = [asdict(each) for each in self.switching.intervals]
            fields["map_switches"] = [each.position for each in self.switching.intervals]
            fields["map_log_prob"] = self.switching.best_log_prob
        return fields


def analyse(subject: Subject, symbols: Int[np.ndarray, " time"]) -> Analysis:
    """Predict the sequence symbol by symbol; an exact predictor then looks back at it."""
    predictor = subject.predictor
    if isinstance(predictor, Network) and len(symbols) > NETWORK_BLOCK:
        log_probs = _in_blocks(predictor, symbols)
    else:
        log_probs = predictor.log_probs(symbols)
    probs = np.exp(np.asarray(log_probs))
    _check_numbers(probs)
    switching = None
    if isinstance(predictor, ExactPredictor):
        switching = _on_host(predictor.posterior(symbols))
    return Analysis(
        subject=subject,
        symbols=symbols,
        probs=probs,
        bits=_total_bits(symbols, log_probs),
        kt_bits=_total_bits(symbols, KT(subject.segment).log_probs(symbols)),
        switching=switching,
    )


def _in_blocks(
    network: Network, symbols: Int[np.ndarray, " time"]
) -> Float[Array, "time alphabet"]:
    """The predictions of a long sequence, a block at a time; with progress on a terminal."""
    tokens = np.concatenate([[network.alphabet], symbols[:-1]])[None]
    memory = network.memory(1, len(symbols))
    read = eqx.filter_jit(lambda network, memory, tokens: network.read(memory, tokens))
    blocks = []
    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("symbols", total=len(symbols))
        for start in range(0, len(symbols), NETWORK_BLOCK):
            block = jnp.asarray(tokens[:, start : start + NETWORK_BLOCK], jnp.int32)
            memory, logits = read(network, memory, block)
            blocks.append(jax.nn.log_softmax(logits[0]).block_until_ready())
            bar.update(task, completed=start + block.shape[1])
    return jnp.concatenate(blocks)


def _check_numbers(probs: Float[np.ndarray, "time alphabet"]) -> None:
    """Raise a `ValueError` where a network that ran too far from its training gave up."""
    bad = np.isnan(probs).any(-1)
    if bad.any():
        raise ValueError(
            f"the network's numbers overflow at position {int(np.argmax(bad))}: "
            "it cannot predict this sequence"
        )


def _on_host(posterior: Posterior) -> Switching:
    log_prob = float(posterior.map_log_prob)
    if not log_prob < _ROUNDING:
        raise RuntimeError(f"the most probable partition has log probability {log_prob}")
    return Switching(
        filtered=np.asarray(posterior.switch_filtered),
        smoothed=np.asarray(posterior.switch_smoothed),
        probs_smoothed=np.asarray(posterior.probs_smoothed),
        best=np.asarray(posterior.map_switches),
        best_log_prob=min(log_prob, 0.0),
        count_pmf=np.asarray(posterior.switch_count_pmf(_MOST_SWITCHES), np.float64),
        intervals=posterior.switch_intervals(),
    )


def _total_bits(
    symbols: Int[np.ndarray, " time"], log_probs: Float[Array, "time alphabet"]
) -> float:
    bits = code_length(jnp.asarray(symbols), log_probs)
    return float(np.sum(np.asarray(bits), dtype=np.float64))
