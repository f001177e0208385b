"""What the card of trained networks says, in words."""

import re
from collections.abc import Mapping
from typing import Any


def network_name(card: Mapping[str, Any]) -> str:
    """The architecture, such as `lstm, hidden 256, readout 2`."""
    if "options" not in card:
        return f"{card['model']}, {card.get('network')}"
    options = [f"{name} {value}" for name, value in card["options"].items() if value is not None]
    return ", ".join([card["model"], *options])


def trained_length(card: Mapping[str, Any]) -> str:
    """How long the sequences were, and how many steps of the plan were done if not all."""
    done, planned = card.get("steps", 0), card.get("planned_steps", 0)
    stopped = f", {done:,} of {planned:,} steps" if done < planned else ""
    return f"length {card['length']}{stopped}"


def trained_on(card: Mapping[str, Any], member: int) -> str:
    """What a member learned from, such as `PTW(depth=8, split=0.5)`, if the card says so."""
    prior = card["members"][member].get("prior", "an unknown source")
    # A long one was written over several lines.
    source = " ".join(card.get("sources", {}).get(prior, prior).split())
    inside = re.fullmatch(r"Source\( ?prior=(.*?)(?:, segment=(.*?))? ?\)", source)
    return source if inside is None else ", ".join(part for part in inside.groups() if part)
