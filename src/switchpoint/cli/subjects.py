"""What `switchpoint predict` predicts with: the optimum of a source, or a trained network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from switchpoint import neural
from switchpoint.cli.cards import network_name, trained_length, trained_on
from switchpoint.exact import bayes_optimal
from switchpoint.predictor import Predictor
from switchpoint.segments import Segment, make_segment
from switchpoint.sources import Source
from switchpoint.zoo import path_of


@dataclass(frozen=True)
class Subject:
    """A predictor, and what is to be said about it."""

    predictor: Predictor[Any]
    segment: Segment
    """What plain KT, for comparison, takes a sequence to be made of."""
    title: str
    """A name for pictures."""
    lines: Mapping[str, str]
    """What a reader is told, by headings; the last is what a trained one was trained on."""
    fields: Mapping[str, Any]
    """The same for programs, ready for JSON."""
    trained_length: int | None = None
    """How long the sequences were that it was trained on, if it was."""


def optimum_of(source: Source) -> Subject:
    """The Bayes optimum of a source."""
    prior = repr(source.prior)
    return Subject(
        predictor=bayes_optimal(source),
        segment=source.segment,
        title=prior,
        lines={"prior": prior},
        fields={"prior": prior, "segment": repr(source.segment)},
    )


def trained_network(model: str, member: int | None) -> Subject:
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
    lines["trained on"] = f"{source}, {trained_length(card)}"
    return Subject(
        predictor=network,
        segment=make_segment(network.alphabet),
        title=f"{name}, trained on {source}",
        lines=lines,
        fields={
            "model": model,
            "network": name,
            "member": index,
            "trained_on": source,
            "trained_length": card["length"],
        },
        trained_length=card["length"],
    )
