"""The predictions of one sequence, its code length and its switching points."""

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from rich.panel import Panel
from rich.text import Text

from switchpoint._display import show_progress
from switchpoint._numbers import chance
from switchpoint._text import printable
from switchpoint.cli import output
from switchpoint.cli.check_cost import NETWORK_BLOCK
from switchpoint.cli.reader import SymbolSequence
from switchpoint.evaluation import code_length
from switchpoint.exact import KT, ExactPredictor, Posterior
from switchpoint.neural import Network
from switchpoint.predictor import Predictor
from switchpoint.segments import make_segment

_DYADIC = (
    "PTW switches only at midpoints of a binary tree, so these are no estimate of where the "
    "sequence changed; use --prior geometric for that"
)
_MAX_SWITCHES = 100
_SHOWN_SWITCHES = 20


@dataclass(frozen=True)
class SequenceReport:
    """The predictions of one sequence, and its switching points where the predictor is exact."""

    about: Mapping[str, Any]
    """The description of the predictor."""
    sequence: SymbolSequence
    probs: Float[np.ndarray, "time alphabet"]
    """P(x_t = k | x_<t): before the symbol is seen."""
    posterior: Posterior | None
    """None for a network."""
    summary: Mapping[str, Any]
    """Numbers and texts about the whole sequence, ready for JSON."""

    def text(self, form: str) -> str:
        """A row for each position as `csv`, or the summary and the rows as `json`."""
        import pandas as pd

        symbols, labels = self.sequence.symbols.tolist(), self.sequence.labels
        names = [f"p_{label}" for label in labels]
        names += [f"p{k}" for k in range(len(labels), self.probs.shape[1])]
        numbers = dict(zip(names, self.probs.T, strict=True))
        if self.posterior is not None:
            numbers["switch_filtered"] = np.asarray(self.posterior.switch_filtered)
            numbers["switch_smoothed"] = np.asarray(self.posterior.switch_smoothed)
        # The shortest text that reads back as the same number.
        columns = {name: values.astype(str).astype(float) for name, values in numbers.items()}
        cells = [labels[symbol] for symbol in symbols] if labels else symbols
        frame = pd.DataFrame({"t": range(len(symbols)), "symbol": cells, **columns})
        if form == "csv":
            return str(frame.to_csv(index=False, lineterminator="\n"))
        summary = json.dumps(self.summary, allow_nan=False)
        lines = ",\n".join(map(json.dumps, frame.to_dict("records")))
        return f'{{"summary": {summary},\n"rows": [\n{lines}\n]}}\n'

    def panel(self) -> Panel:
        """The summary for a terminal."""
        count, alphabet = self.probs.shape
        lines: list[tuple[str, str | Text]] = [
            ("read as", "; ".join(self.sequence.notes)),
            ("symbols", f"{count} of the alphabet 0..{alphabet - 1}"),
        ]
        if self.sequence.labels:
            labels = (f"{label} = {k}" for k, label in enumerate(self.sequence.labels))
            lines.append(("labels", output.shortened(", ".join(labels), 100)))
        for name, value in self.about.items():
            if isinstance(value, dict):
                value = ", ".join(f"{key} {number:.1f}" for key, number in value.items())
            lines.append((name.replace("_", " "), output.shortened(str(value), 100)))
        if count > self.about.get("trained_length", count):
            lines.append(("", Text("this sequence is longer than that", "yellow")))
        for name, key in (("code length", "bits"), ("plain KT", "kt_bits")):
            per_symbol = f" bits, {self.summary[key] / count:.4f} per symbol"
            lines.append((name, Text.assemble((f"{self.summary[key]:.2f}", "bold"), per_symbol)))
        if self.posterior is not None:
            switches = self.summary["switches"]
            lines.append(("switches", _describe_counts(np.array(self.summary["switch_count_pmf"]))))
            lines += [("", _describe_switch(**each)) for each in switches[:_SHOWN_SWITCHES]]
            if len(switches) > _SHOWN_SWITCHES:
                lines.append(("", f"and {len(switches) - _SHOWN_SWITCHES} more"))
            if switches:
                log10 = self.summary["map_log_prob"] / math.log(10)
                probability = chance(10**log10) if log10 > -4 else f"10^{log10:.0f}"
                lines.append(("", Text(f"probability of this partition: {probability}", "dim")))
            if self.about["prior"].startswith("PTW"):
                lines.append(("", Text(_DYADIC, "yellow")))
        return output.panel("switchpoint predict", lines)

    def figure(self) -> Any:
        """The data, the predictions and the switching points."""
        from switchpoint.figures import prediction_figure  # imports Matplotlib

        title = self.about.get("prior") or "{network}, trained on {trained_on}".format(**self.about)
        smoothed: dict[str, Any] = {}
        if self.posterior is not None:
            for name in ("probs_smoothed", "switch_smoothed", "map_switches"):
                smoothed[name] = np.asarray(getattr(self.posterior, name))
        return prediction_figure(
            symbols=self.sequence.symbols,
            probs=self.probs,
            title=output.shortened(title, 115),
            labels=[output.shortened(printable(each), 20) for each in self.sequence.labels],
            **smoothed,
        )


def analyse(
    predictor: Predictor[Any], about: Mapping[str, Any], sequence: SymbolSequence
) -> SequenceReport:
    """Predict a sequence symbol by symbol, and find its switches if the predictor is exact.

    `about` describes the predictor.
    """
    symbols = sequence.symbols
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
    segment = getattr(predictor, "segment", None) or make_segment(predictor.alphabet)
    bits, kt_bits = (
        float(np.sum(np.asarray(code_length(symbols, each)), dtype=np.float64))
        for each in (log_probs, KT(segment).log_probs(symbols))
    )
    summary = {
        "read_as": list(sequence.notes),
        "symbols": len(symbols),
        "alphabet": predictor.alphabet,
        **({"labels": sequence.labels} if sequence.labels else {}),
        **about,
        "bits": bits,
        "bits_per_symbol": bits / len(symbols),
        "kt_bits": kt_bits,
        "kt_bits_per_symbol": kt_bits / len(symbols),
    }
    if not isinstance(predictor, ExactPredictor):
        return SequenceReport(about, sequence, probs, None, summary)
    posterior = predictor.posterior(symbols)
    count_pmf = np.asarray(posterior.switch_count_pmf(_MAX_SWITCHES), np.float64).tolist()
    switches = [asdict(each) for each in posterior.switch_intervals()]
    summary |= {
        "no_switch_probability": count_pmf[0],
        "switch_count_pmf": count_pmf,
        "switches": switches,
        "map_switches": [each["position"] for each in switches],
        "map_log_prob": min(float(posterior.map_log_prob), 0.0),  # rounding may leave it above 0
    }
    return SequenceReport(about, sequence, probs, posterior, summary)


def log_probs_in_blocks(
    network: Network, symbols: Int[np.ndarray, " time"], block: int = NETWORK_BLOCK
) -> Float[Array, "time alphabet"]:
    """The predictions of a long sequence, computed block by block to bound the memory."""
    state, blocks = network.init(len(symbols)), []
    with show_progress(sys.stderr, lines=False) as progress:
        for start in range(0, len(symbols), block):
            progress.update("symbols", start / len(symbols))
            state, log_probs = network.extend(state, symbols[start : start + block])
            blocks.append(log_probs.block_until_ready())
    return jnp.concatenate(blocks)


def _describe_counts(pmf: Float[np.ndarray, " counts"]) -> str:
    """The likely numbers of switches, such as `1 (97%), 2 (3%); no switch: <0.01%`."""
    likely = sorted(k for k in np.argsort(-pmf, kind="stable")[:4].tolist() if pmf[k] >= 0.01)
    parts = [f"{k} ({chance(pmf[k])})" for k in likely]
    beyond = 1 - pmf.sum()
    if beyond > 0.01:
        parts.append(f"more than {len(pmf) - 1} ({chance(beyond)})")
    return ", ".join(parts) + ("" if 0 in likely else f"; no switch: {chance(pmf[0])}")


def _describe_switch(
    position: int, probability: float, begin: int, end: int, interval_probability: float
) -> str:
    interval = f"; in {begin}..{end}, {chance(interval_probability)}" if begin < end else ""
    return f"at {position}, {chance(probability)}{interval}"
