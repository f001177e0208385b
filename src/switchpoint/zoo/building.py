"""A zoo from finished runs: of each architecture and source the network that did best."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import numpy as np

from switchpoint._files import check_writable, make_directory
from switchpoint._progress import Part, Progress
from switchpoint._provenance import environment_info
from switchpoint.neural import Network, load_with_card, save_networks
from switchpoint.zoo.manifest import NAMES, Zoo
from switchpoint.zoo.scoring import score, trained_source

TEST_SEQUENCES = 10_000
"""The number of test sequences behind the score on a card."""

LARGEST = 40 * 2**20
"""The bytes that all files together may have."""

_TOLERANCE = 0.005
"""Bits by which the same network may differ on the same sequences between machines.

An H200, which rounds products to 10 bits, and a CPU differ by less than 0.0001 on 10,000.
"""


@dataclass(frozen=True)
class Candidate:
    """A network that might be taken, by what is known without the test sequences."""

    name: str
    path: Path
    member: int
    excess: float
    """On the validation sequences of its run."""
    validated_on: tuple[Any, ...]
    """The settings that determine these sequences."""


def candidates(runs: Iterable[str | PathLike[str]]) -> dict[str, list[Candidate]]:
    """All networks of these runs that were trained to the end, by their name in a zoo."""
    by_name: dict[str, list[Candidate]] = {}
    for run in runs:
        card, _ = load_with_card(run)  # proved whole: its numbers decide
        for index, member in enumerate(card["members"]):
            name = f"{card['model']}-{member['prior']}"
            if name in NAMES and not member["diverged"] and member["excess"] is not None:
                source, length = card["sources"][member["prior"]], card["length"]
                validated_on = (source, length, card["config"]["validation"])
                each = Candidate(name, Path(run), index, member["excess"], validated_on)
                by_name.setdefault(name, []).append(each)
    return {name: by_name[name] for name in NAMES if name in by_name}


def lowest_excess(rivals: Sequence[Candidate]) -> Candidate:
    """The one with the lowest excess on validation sequences, which are the same for all."""
    validated_on = {each.validated_on for each in rivals}
    if len(validated_on) > 1:
        raise ValueError(
            f"the runs of {rivals[0].name} cannot be compared, since they were validated on "
            f"different sequences: {' and '.join(sorted(map(str, validated_on)))}"
        )
    return min(rivals, key=lambda each: each.excess)


def build(
    runs: Iterable[str | PathLike[str]],
    zoo: Zoo,
    sequences: int = TEST_SEQUENCES,
    progress: Progress | None = None,
    provenance: Callable[[Path], Mapping[str, Any] | None] = lambda _: None,
) -> list[str]:
    """Write the best network of each architecture and source into the zoo; their names.

    The choice is made on validation sequences alone. Then the chosen one is measured on the
    test sequences, and its card says both, and what `provenance` returns for the path of its run.
    What is in the zoo already is not measured again, so that a build that was stopped can be
    repeated.

    See `Zoo` for an example of what it writes.
    """
    by_name = candidates(runs)
    if not by_name:
        raise ValueError(f"these runs hold no network that the zoo could take: {', '.join(NAMES)}")
    make_directory(zoo.directory)
    for name in by_name:
        check_writable(zoo.file(name))
    for name, rivals in by_name.items():
        best = lowest_excess(rivals)
        run, networks = load_with_card(best.path)
        network, member = networks[best.member], run["members"][best.member]
        card = {  # as if the run had trained this network alone
            **run,
            "sources": {member["prior"]: run["sources"][member["prior"]]},
            "members": [member],
            "chosen": {
                "by": "the lowest excess on validation sequences",
                "sequences": run["config"]["validation"],
                "excess": best.excess,
                "candidates": len(rivals),
            },
        }
        known = _known(zoo, name, network, sequences)
        if known is None:
            part = Part(progress or Progress(), 0.0, 1.0, f"measuring {name}: ")
            test = score(network, trained_source(card), card["length"], sequences, progress=part)
            card |= {
                "name": name,
                "test": {**test, "tolerance": _TOLERANCE},
                "provenance": {
                    "training": provenance(best.path),
                    "measuring": environment_info(),
                },
            }
        else:
            card = {**known, "chosen": card["chosen"]}  # of more rivals, or fewer, than before
        if card != known:
            save_networks(zoo.file(name), [network], card)
    if zoo.size() > LARGEST:
        raise ValueError(f"the zoo must have at most {LARGEST} bytes, got {zoo.size()}")
    return list(by_name)


def _known(zoo: Zoo, name: str, network: Network, sequences: int) -> dict[str, Any] | None:
    """The card of this very network, if the zoo has it already, measured on as many sequences."""
    try:
        card, there = zoo.card(name), zoo.network(name)
    except ValueError:
        return None
    pairs = zip(jax.tree.leaves(there), jax.tree.leaves(network), strict=True)
    same = all(np.array_equal(*each) for each in pairs)
    return card if same and card["test"]["sequences"] == sequences else None
