"""Trained networks that come with the package, each with a card that says how good it is."""

from switchpoint.zoo.building import build
from switchpoint.zoo.collection import Zoo
from switchpoint.zoo.loading import load, load_members, path_of
from switchpoint.zoo.names import NAMES, near_names
from switchpoint.zoo.verifying import Check, verify

__all__ = [
    "NAMES",
    "Check",
    "Zoo",
    "build",
    "load",
    "load_members",
    "near_names",
    "path_of",
    "verify",
]
