"""Predictors that commands work with: the optimum of a source, or trained networks."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from switchpoint import neural
from switchpoint._text import printable
from switchpoint.evaluation import code_length
from switchpoint.exact import KT, bayes_optimal
from switchpoint.neural import Network
from switchpoint.neural.storage import MODEL_FILE
from switchpoint.predictor import Predictor
from switchpoint.priors import PRIOR_NAMES, Geometric, Prior, prior_from_name
from switchpoint.segments import Segment, segment_of
from switchpoint.sources import Source
from switchpoint.zoo import NAMES, near_names, path_of

EXACT_NAMES = (*PRIOR_NAMES, "kt", "oracle", "optimum")
"""The names of the exact predictors: each prior's optimum, and those that need no prior."""


@dataclass(frozen=True)
class LoadedPredictor:
    """A predictor of one sequence, and its description."""

    predictor: Predictor[Any]
    segment: Segment
    """The segment model of plain KT, for comparison."""
    title: str
    """Its name in pictures."""
    lines: Mapping[str, str]
    """Its description by headings; the last says what a network was trained on."""
    fields: Mapping[str, Any]
    """The same for programs, ready for JSON."""
    trained_length: int | None = None
    """The length of the sequences that a network was trained on."""


def optimum_of(source: Source) -> LoadedPredictor:
    """The Bayes optimum of a source."""
    prior = repr(source.prior)
    fields = {"prior": prior, "segment": repr(source.segment)}
    return LoadedPredictor(bayes_optimal(source), source.segment, prior, {"prior": prior}, fields)


def fitted_optimum(segment: Segment, symbols: Int[np.ndarray, " time"]) -> LoadedPredictor:
    """The optimum of the geometric prior whose hazard, from 1/2 to 1/(4 n), has most evidence.

    Its switches may be anywhere, so that it shows where a sequence changed. PTW's may not: it is
    one of the predictors that the code length is compared with.
    """

    def bits(prior: Prior) -> float:
        log_probs = bayes_optimal(Source(prior, segment)).log_probs(symbols)
        return float(code_length(symbols, log_probs).sum())

    time = len(symbols)
    hazards = 2.0 ** -np.arange(1, max(4, time.bit_length() + 2))
    coarse = min(hazards, key=lambda hazard: bits(Geometric(hazard)))
    finer = np.clip(coarse * 2.0 ** np.linspace(-0.75, 0.75, 7), hazards[-1], 0.5)
    hazard = min(finer, key=lambda hazard: bits(Geometric(hazard)))
    prior = Geometric(float(f"{hazard:.2g}"))  # the data determine no more than two digits
    lengths = {
        "geometric": bits(prior),
        **{name: bits(prior_from_name(name, time)) for name in ("lin", "uniform", "ptw")},
        "kt": float(code_length(symbols, KT(segment).log_probs(symbols)).sum()),
    }
    lengths = dict(sorted(lengths.items(), key=lambda item: item[1]))
    compared = ", ".join(f"{name} {bits:.1f}" for name, bits in lengths.items())
    optimum = optimum_of(Source(prior, segment))
    return replace(
        optimum,
        lines={
            "prior": f"{prior!r}, with the hazard of highest evidence",
            "bits": f"{compared}; {next(iter(lengths))} is best",
        },
        fields={**optimum.fields, "bits_by_prior": lengths},
    )


def trained_network(model: str, member: int | None) -> LoadedPredictor:
    """A network of the zoo, a run or a file: the member with this index, or the best one."""
    path = path_of(model)
    card = neural.read_card(path)
    index = neural.best_member(card) if member is None else member
    network = neural.load(path, index)
    name, source, count = network_name(card), trained_on(card, index), len(card["members"])
    lines = {"network": name}
    if count > 1:
        best = ", the best at the end of training" if member is None else ""
        lines["member"] = f"{index} of 0..{count - 1}{best}"
    done, planned = card.get("steps", 0), card.get("planned_steps", 0)
    stopped = f", {done:,} of {planned:,} steps" if done < planned else ""
    lines["trained on"] = f"{source}, length {card['length']}{stopped}"
    return LoadedPredictor(
        predictor=network,
        segment=segment_of(network.alphabet),
        title=f"{name}, trained on {source}",
        lines=lines,
        fields={"model": model, "member": index, **_training(card, index)},
        trained_length=card["length"],
    )


@dataclass(frozen=True)
class Ensemble:
    """Networks of one architecture that were trained on one prior."""

    label: str
    """Its name in the results, such as `lstm[ptw]`."""
    networks: Sequence[Network]
    members: Sequence[int]
    """The indices of these networks in the file: those whose training did not diverge."""
    path: str
    description: str
    fields: Mapping[str, Any]
    """What the networks are, ready for JSON."""


def load_ensembles(text: str) -> list[Ensemble]:
    """The networks at `NAME=PATH` or `PATH`, grouped by the prior they were trained on.

    A path is a file, the directory of a run or a name of the zoo. Its label, if not given, is the
    name of the zoo, the directory or the stem of the file.
    """
    label, equals, path = text.partition("=")
    if not equals or Path(text).exists():
        path = text
        label = path if path in NAMES else _label_of(Path(os.path.realpath(path)))
    elif not label:
        raise ValueError(f"a name must stand before =, got {text!r}")
    label, path = printable(label), str(path_of(path)) if path in NAMES else path
    if not Path(path).exists():
        meant = near_names(path)
        raise ValueError(
            f"predictor must be one of {', '.join(EXACT_NAMES)}, a name of the zoo or the path of "
            f"trained networks, got {text!r}{f'; {meant}' if meant else ''}"
        )
    card, networks = neural.load_with_card(path)
    priors = [member.get("prior") for member in card["members"]]
    named = label in NAMES and len(set(priors)) == 1  # the label already names the prior
    ensembles = []
    for prior in dict.fromkeys(priors):
        indices = [index for index, each in enumerate(priors) if each == prior]
        kept = [index for index in indices if not card["members"][index].get("frozen", False)]
        full_label = label if prior is None or named else f"{label}[{prior}]"
        if not kept:
            raise ValueError(f"{full_label}: all members in {printable(path)} diverged in training")
        diverged = len(indices) - len(kept)
        training = _training(card, kept[0])
        description = (
            f"{training['network']}; trained on {training['trained_on']}, length {card['length']}"
            + (f"; diverged in training, left out: {diverged}" if diverged else "")
        )
        ensembles.append(
            Ensemble(
                full_label,
                [networks[index] for index in kept],
                kept,
                path,
                description,
                {"path": path, "members": kept, **training},
            )
        )
    return ensembles


def network_name(card: Mapping[str, Any]) -> str:
    """The architecture, such as `lstm, hidden 256, readout 2`."""
    if "options" not in card:
        return f"{card['model']}, {card.get('network')}"
    options = [f"{name} {value}" for name, value in card["options"].items() if value is not None]
    return ", ".join([card["model"], *options])


def trained_on(card: Mapping[str, Any], member: int) -> str:
    """The source that a member was trained on, such as `PTW(depth=8, split=0.5)`, if known."""
    prior = card["members"][member].get("prior", "an unknown source")
    source = " ".join(card.get("sources", {}).get(prior, prior).split())
    inside = re.fullmatch(r"Source\( ?prior=(.*?)(?:, segment=(.*?))? ?\)", source)
    return source if inside is None else ", ".join(part for part in inside.groups() if part)


def _training(card: Mapping[str, Any], member: int) -> dict[str, Any]:
    return {
        "network": network_name(card),
        "trained_on": trained_on(card, member),
        "trained_length": card["length"],
    }


def _label_of(path: Path) -> str:
    if path.is_dir():
        return path.name
    return path.parent.name if path.name == MODEL_FILE else path.stem
