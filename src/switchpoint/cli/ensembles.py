"""The trained networks of a run, as predictors to be evaluated."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from switchpoint import neural
from switchpoint._text import printable
from switchpoint.cli.cards import network_name, trained_on
from switchpoint.neural import Network
from switchpoint.neural.storage import MODEL_FILE
from switchpoint.zoo import NAMES, path_of


@dataclass(frozen=True)
class Ensemble:
    """Networks of one architecture that were trained on one prior."""

    label: str
    """Its name in the results, such as `lstm[ptw]`."""
    networks: Sequence[Network]
    members: Sequence[int]
    """Which networks of the file these are: those whose training came to its end."""
    frozen: int
    """How many others there were, whose loss turned NaN or infinite."""
    path: str
    architecture: str
    trained_on: str
    trained_length: int

    def describe(self) -> str:
        """What these networks are, in a line."""
        trained = f"trained on {self.trained_on}, length {self.trained_length}"
        frozen = f"; diverged in training, left out: {self.frozen}" if self.frozen else ""
        return f"{self.architecture}; {trained}{frozen}"

    def fields(self) -> dict[str, Any]:
        """What these networks are, ready for JSON."""
        return {
            "path": self.path,
            "network": self.architecture,
            "members": list(self.members),
            "trained_on": self.trained_on,
            "trained_length": self.trained_length,
        }


def split_label(text: str) -> tuple[str, str]:
    """The label and path in `NAME=PATH`; the label of a path alone is its directory or stem.

    A name of the zoo stands for the path of its file.
    """
    label, equals, path = text.partition("=")
    if not equals or Path(text).exists():
        if text in NAMES:
            return text, str(path_of(text))
        return printable(_label_of(Path(os.path.realpath(text)))), text
    if not label:
        raise ValueError(f"a name must stand before =, got {text!r}")
    return printable(label), str(path_of(path)) if path in NAMES else path


def ensembles_of(label: str, path: str) -> list[Ensemble]:
    """The networks in a file or in the directory of a run, by the prior they were trained on."""
    card, networks = neural.load_with_card(path)
    members = card["members"]
    priors = dict.fromkeys(member.get("prior") for member in members)
    alone = label in NAMES and len(priors) == 1  # the name says it already
    return [
        _ensemble(
            label if prior is None or alone else f"{label}[{prior}]",
            path,
            card,
            networks,
            [index for index, member in enumerate(members) if member.get("prior") == prior],
        )
        for prior in priors
    ]


def _label_of(path: Path) -> str:
    if path.is_dir():
        return path.name
    return path.parent.name if path.name == MODEL_FILE else path.stem


def _ensemble(
    label: str,
    path: str,
    card: Mapping[str, Any],
    networks: Sequence[Network],
    members: Sequence[int],
) -> Ensemble:
    trained = [index for index in members if not card["members"][index].get("diverged", False)]
    if not trained:
        raise ValueError(
            f"{label}: all members in {printable(path)} diverged in training, none can be evaluated"
        )
    return Ensemble(
        label=label,
        networks=[networks[index] for index in trained],
        members=trained,
        frozen=len(members) - len(trained),
        path=path,
        architecture=network_name(card),
        trained_on=trained_on(card, members[0]),
        trained_length=card["length"],
    )
