"""What a predictor finds in one sequence: predictions, code length and switching points."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from rich.panel import Panel
from rich.text import Text

from switchpoint._text import printable
from switchpoint.cli import output
from switchpoint.cli.check_cost import NETWORK_BLOCK
from switchpoint.cli.loaded_predictor import LoadedPredictor
from switchpoint.cli.sequence_io import SymbolSequence
from switchpoint.evaluation import code_length
from switchpoint.exact import KT, ExactPredictor, Posterior, SwitchInterval
from switchpoint.neural import Network
from switchpoint.priors import PTW

FORMATS = ("csv", "json")
"""The formats that the rows of a report can be written in."""

_DYADIC = (
    "PTW switches only at midpoints of a binary tree, so these are no estimate of where the "
    "sequence changed; use --prior geometric for that"
)
_MAX_SWITCHES = 100
_SHOWN_SWITCHES = 20
_LINE_WIDTH = 100
_ROUNDING = 1e-3  # by which single precision may leave a log probability above 0


@dataclass(frozen=True)
class SequenceReport:
    """The predictions of one sequence, and its switching points where the predictor is exact."""

    loaded: LoadedPredictor
    sequence: SymbolSequence
    probs: Float[np.ndarray, "time alphabet"]
    """P(x_t = k | x_<t): before the symbol is seen."""
    bits: float
    """The realised code length of the sequence."""
    kt_bits: float
    """The code length under KT, which assumes no switching points."""
    posterior: Posterior | None = None
    """None for a network."""
    count_pmf: Float[np.ndarray, " counts"] | None = None
    """P(k switches | all of x), k = 0, 1, ..."""
    intervals: Sequence[SwitchInterval] = ()
    """The switches of the most probable partition, with their uncertainty."""

    def summary(self) -> dict[str, Any]:
        """The numbers that describe the whole sequence, ready for JSON."""
        count, labels = len(self.probs), self.sequence.labels
        fields: dict[str, Any] = {
            "symbols": count,
            "alphabet": self.probs.shape[1],
            **({"labels": labels} if labels else {}),
            **self.loaded.fields,
            "bits": self.bits,
            "bits_per_symbol": self.bits / count,
            "kt_bits": self.kt_bits,
            "kt_bits_per_symbol": self.kt_bits / count,
        }
        if self.posterior is not None and self.count_pmf is not None:
            fields["no_switch_probability"] = float(self.count_pmf[0])
            fields["switch_count_pmf"] = self.count_pmf.tolist()
            fields["switches"] = [asdict(each) for each in self.intervals]
            fields["map_switches"] = [each.position for each in self.intervals]
            fields["map_log_prob"] = min(float(self.posterior.map_log_prob), 0.0)
        return fields

    def text(self, form: str) -> str:
        """A row for each position as `csv`, or the summary and the rows as `json`."""
        symbols, labels = self.sequence.symbols.tolist(), self.sequence.labels
        names = [f"p_{label}" for label in labels]
        names += [f"p{k}" for k in range(len(labels), self.probs.shape[1])]
        numbers = dict(zip(names, self.probs.T, strict=True))
        if self.posterior is not None:
            numbers["switch_filtered"] = np.asarray(self.posterior.switch_filtered)
            numbers["switch_smoothed"] = np.asarray(self.posterior.switch_smoothed)
        columns: dict[str, Any] = {
            "t": range(len(symbols)),
            "symbol": [labels[symbol] for symbol in symbols] if labels else symbols,
            **numbers,
        }
        if form == "csv":
            import pandas as pd

            return pd.DataFrame(columns).to_csv(index=False, lineterminator="\n")
        for name, values in numbers.items():
            # str of a NumPy float is the shortest text that reads back as the same float.
            columns[name] = [float(str(value)) for value in values]
        rows = (
            json.dumps(dict(zip(columns, row, strict=True)))
            for row in zip(*columns.values(), strict=True)
        )
        summary = json.dumps(self.summary(), allow_nan=False)
        return f'{{"summary": {summary},\n"rows": [\n' + ",\n".join(rows) + "\n]}\n"

    def panel(self) -> Panel:
        """The summary for a terminal."""
        count, alphabet = self.probs.shape
        lines: list[tuple[str, str | Text]] = [
            ("symbols", f"{count} of the alphabet 0..{alphabet - 1}")
        ]
        if self.sequence.labels:
            shown = ", ".join(f"{label} = {k}" for k, label in enumerate(self.sequence.labels))
            lines.append(("labels", output.shortened(shown, _LINE_WIDTH)))
        lines += [
            (name, output.shortened(text, _LINE_WIDTH)) for name, text in self.loaded.lines.items()
        ]
        if self.loaded.trained_length is not None and count > self.loaded.trained_length:
            lines.append(("", Text("this sequence is longer than that", "yellow")))
        for name, bits in (("code length", self.bits), ("plain KT", self.kt_bits)):
            per_symbol = f" bits, {bits / count:.4f} per symbol"
            lines.append((name, Text.assemble((f"{bits:.2f}", "bold"), per_symbol)))
        if self.posterior is not None and self.count_pmf is not None:
            lines.append(("switches", _describe_counts(self.count_pmf)))
            lines += [("", _describe_switch(each)) for each in self.intervals[:_SHOWN_SWITCHES]]
            if len(self.intervals) > _SHOWN_SWITCHES:
                lines.append(("", f"and {len(self.intervals) - _SHOWN_SWITCHES} more"))
            if self.intervals:
                log10 = min(float(self.posterior.map_log_prob), 0.0) / math.log(10)
                probability = f"{10**log10:.3g}" if log10 > -300 else f"10^{log10:.0f}"
                lines.append(("", Text(f"probability of this partition: {probability}", "dim")))
            predictor = self.loaded.predictor
            if isinstance(predictor, ExactPredictor) and isinstance(predictor.prior, PTW):
                lines.append(("", Text(_DYADIC, "yellow")))
        return output.panel("switchpoint predict", lines)

    def figure(self) -> Any:
        """The data, the predictions and the switching points."""
        from switchpoint.figures import prediction_figure  # imports Matplotlib

        labels = [output.shortened(printable(each), 20) for each in self.sequence.labels]
        looking_back: dict[str, Any] = {}
        if self.posterior is not None:
            for name in ("probs_smoothed", "switch_smoothed", "map_switches"):
                looking_back[name] = np.asarray(getattr(self.posterior, name))
        return prediction_figure(
            symbols=self.sequence.symbols,
            probs=self.probs,
            title=output.shortened(self.loaded.title, 115),
            labels=labels,
            **looking_back,
        )


def analyse(loaded: LoadedPredictor, sequence: SymbolSequence) -> SequenceReport:
    """Predict a sequence symbol by symbol, and find its switches if the predictor is exact."""
    predictor, symbols = loaded.predictor, sequence.symbols
    if isinstance(predictor, Network) and len(symbols) > NETWORK_BLOCK:
        log_probs = log_probs_in_blocks(predictor, symbols)
    else:
        log_probs = predictor.log_probs(symbols)
    probs = np.exp(np.asarray(log_probs))
    overflows = np.isnan(probs).any(-1)
    if overflows.any():
        raise ValueError(
            f"the network's numbers overflow at position {int(np.argmax(overflows))}: "
            "it cannot predict this sequence"
        )
    kt_log_probs = KT(loaded.segment).log_probs(symbols)
    bits, kt_bits = (
        float(np.sum(np.asarray(code_length(jnp.asarray(symbols), each)), dtype=np.float64))
        for each in (log_probs, kt_log_probs)
    )
    if not isinstance(predictor, ExactPredictor):
        return SequenceReport(loaded, sequence, probs, bits, kt_bits)
    posterior = predictor.posterior(symbols)
    if not float(posterior.map_log_prob) < _ROUNDING:
        raise RuntimeError(
            f"the most probable partition has log probability {float(posterior.map_log_prob)}"
        )
    count_pmf = np.asarray(posterior.switch_count_pmf(_MAX_SWITCHES), np.float64)
    intervals = posterior.switch_intervals()
    return SequenceReport(loaded, sequence, probs, bits, kt_bits, posterior, count_pmf, intervals)


def log_probs_in_blocks(
    network: Network, symbols: Int[np.ndarray, " time"]
) -> Float[Array, "time alphabet"]:
    """The predictions of a long sequence, computed block by block to bound the memory."""
    tokens = np.concatenate([[network.alphabet], symbols[:-1]])[None]
    memory = network.memory(1, len(symbols))
    read = eqx.filter_jit(lambda network, memory, tokens: network.read(memory, tokens))
    blocks = []
    with output.progress_bar("symbols", len(symbols)) as update:
        for start in range(0, len(symbols), NETWORK_BLOCK):
            block = jnp.asarray(tokens[:, start : start + NETWORK_BLOCK], jnp.int32)
            memory, logits = read(network, memory, block)
            blocks.append(jax.nn.log_softmax(logits[0]).block_until_ready())
            update(start + block.shape[1], len(symbols))
    return jnp.concatenate(blocks)


def _describe_counts(pmf: Float[np.ndarray, " counts"]) -> str:
    """The likely numbers of switches, such as `1 (97%), 2 (3%); no switch: 1e-09`."""
    likely = [int(k) for k in np.argsort(-pmf, kind="stable")[:4] if pmf[k] >= 0.01]
    parts = [f"{k} ({_percent(pmf[k])})" for k in sorted(likely)]
    beyond = 1 - pmf.sum()
    if beyond > 0.01:
        parts.append(f"more than {len(pmf) - 1} ({_percent(beyond)})")
    return ", ".join(parts) + ("" if 0 in likely else f"; no switch: {_percent(pmf[0])}")


def _describe_switch(switch: SwitchInterval) -> str:
    text = f"at {switch.position}, {_percent(switch.probability)}"
    if switch.begin < switch.end:
        text += f"; in {switch.begin}..{switch.end}, {_percent(switch.interval_probability)}"
    return text


def _percent(probability: float) -> str:
    if 0.01 <= probability < 0.995:
        return f"{probability:.0%}"
    return f"{probability:.2g}" if probability < 0.01 else f"{probability:.4g}"
