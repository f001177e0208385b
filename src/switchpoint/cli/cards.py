"""What the card of trained networks says, in words."""

import re
from collections.abc import Mapping
from typing import Any


def network_name(card: Mapping[str, Any]) -> str:
    """The architecture, such as `lstm, hidden 256, readout 2`."""
    options = [f"{name} {value}" for name, value in card["options"].items() if value is not None]
    return ", ".join([card["model"], *options])


def trained_on(card: Mapping[str, Any], member: int) -> str:
    """What a member learned from, such as `PTW(depth=8, split=0.5)`, if the card says so."""
    prior = card["members"][member].get("prior", "an unknown source")
    # A long one was written over several lines.
    source = " ".join(card.get("sources", {}).get(prior, prior).split())
    inside = re.fullmatch(r"Source\( ?prior=(.*?)(?:, segment=(.*?))? ?\)", source)
    return source if inside is None else ", ".join(part for part in inside.groups() if part)
