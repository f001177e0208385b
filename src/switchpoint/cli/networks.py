"""Trained networks that commands work with, and their descriptions."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from switchpoint import neural
from switchpoint._text import did_you_mean, printable
from switchpoint.exact.named import EXACT_NAMES
from switchpoint.neural import Network
from switchpoint.neural.storage import MODEL_FILE
from switchpoint.zoo import NAMES, path_of


def check_model_options(model: str | None, member: int | None, exact: Mapping[str, Any]) -> None:
    """Raise a `ValueError` if --member lacks --model, or an exact predictor's option has it."""
    if model is None and member is not None:
        raise ValueError(f"--member is for the networks of --model, got {member} without it")
    for name, value in exact.items():
        if model is not None and value is not None:
            raise ValueError(
                f"{name} cannot be given with --model: a trained network has its own alphabet and "
                f"takes no prior, got {value}"
            )


def trained_network(model: str, member: int | None) -> tuple[Network, dict[str, Any]]:
    """A network of the zoo, a run or a file, and its description.

    It is the member with this index, or the best one.
    """
    path = path_of(model)
    card = neural.read_card(path)
    index = neural.best_member(card) if member is None else member
    about: dict[str, Any] = {"model": model, "member": index}
    if len(card["members"]) > 1:
        about["members"] = len(card["members"])
        about["chosen_by"] = "lowest excess after training" if member is None else "--member"
    return neural.load(path, index), {**about, **describe_member(card, index)}


@dataclass(frozen=True)
class Ensemble:
    """Networks of one architecture that were trained on one prior, and their description."""

    networks: Sequence[Network]
    about: Mapping[str, Any]


def load_ensembles(text: str) -> dict[str, Ensemble]:
    """The networks at `NAME=PATH` or `PATH`, by labels such as `lstm[ptw]`, one for each prior.

    A path is a file, the directory of a run or a name of the zoo. If not given, the name is that
    of the zoo, the directory or the stem of the file. Networks whose training diverged are left
    out.
    """
    label, equals, path = text.partition("=")
    if not equals or Path(text).exists():
        path = text
        target = Path(os.path.realpath(path))
        target = target.parent if target.name == MODEL_FILE else target
        label = path if path in NAMES else target.name if target.is_dir() else target.stem
    elif not label:
        raise ValueError(f"a name must stand before =, got {text!r}")
    label, path = printable(label), str(path_of(path)) if path in NAMES else path
    if not Path(path).exists():
        raise ValueError(
            f"predictor must be one of {', '.join(EXACT_NAMES)}, a name of the zoo or the path of "
            f"trained networks, got {text!r}{did_you_mean(path, [*EXACT_NAMES, *NAMES])}"
        )
    card, networks = neural.load_with_card(path)
    priors = [member.get("prior") for member in card["members"]]
    named = label in NAMES and len(set(priors)) == 1  # the label already names the prior
    ensembles = {}
    for prior in dict.fromkeys(priors):
        indices = [index for index, each in enumerate(priors) if each == prior]
        kept = [index for index in indices if not card["members"][index].get("diverged", False)]
        full_label = label if prior is None or named else f"{label}[{prior}]"
        if not kept:
            raise ValueError(f"{full_label}: all members in {printable(path)} diverged in training")
        about = {"path": path, "members": kept, "diverged": len(indices) - len(kept)}
        about |= describe_member(card, kept[0])
        ensembles[full_label] = Ensemble([networks[index] for index in kept], about)
    return ensembles


def describe_member(card: Mapping[str, Any], member: int) -> dict[str, Any]:
    """The architecture of a member, the source that it was trained on, and its training."""
    if "options" in card:  # such as `lstm, hidden 256, readout 2`
        pairs = card["options"].items()
        settings = [f"{name} {value}" for name, value in pairs if value is not None]
    else:
        settings = [str(card.get("network"))]
    prior = card["members"][member].get("prior", "an unknown source")
    source = " ".join(card.get("sources", {}).get(prior, prior).split())
    inside = re.fullmatch(r"Source\( ?prior=(.*?)(?:, segment=(.*?))? ?\)", source)
    done, planned = card.get("steps", 0), card.get("planned_steps", 0)
    return {
        "network": ", ".join([card["model"], *settings]),
        "trained_on": ", ".join(filter(None, inside.groups())) if inside else source,
        **({"trained_steps": f"{done:,} of {planned:,}"} if done < planned else {}),
        "trained_length": card["length"],
    }
