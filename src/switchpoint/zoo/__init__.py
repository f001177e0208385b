"""Trained networks that come with the package, each with a card that says how good it is."""

from switchpoint.zoo.building import build
from switchpoint.zoo.manifest import NAMES, Zoo, load, load_members, path_of
from switchpoint.zoo.scoring import Check, verify

__all__ = [
    "NAMES",
    "Check",
    "Zoo",
    "build",
    "load",
    "load_members",
    "path_of",
    "verify",
]
