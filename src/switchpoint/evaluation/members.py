"""What may be evaluated: predictors, those that must see the draw, and ensembles of either."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from switchpoint.exact import KTOracle
from switchpoint.predictor import Predictor
from switchpoint.sources import Draw, Source

Member: TypeAlias = Predictor[Any] | Callable[[Draw], Predictor[Any]] | type[KTOracle]
"""A predictor, a function that makes one from what was drawn, or the class `KTOracle`."""

Entry: TypeAlias = Member | Sequence[Member]
"""A member alone, or the members of one ensemble."""


@dataclass(frozen=True)
class Run:
    """One member among the predictors, and its place in the results."""

    name: str
    predictor_index: int
    member_index: int
    member: Member

    def predictor(self, draw: Draw, source: Source) -> Predictor[Any]:
        """The predictor for these sequences."""
        made: Any = self.member
        if made is KTOracle:
            made = KTOracle(draw.switches, source.segment)
        elif not isinstance(made, Predictor):
            made = made(draw)
        if not isinstance(made, Predictor):
            raise ValueError(f"predictor {self.name!r} must make a Predictor, got {made!r}")
        if made.alphabet != source.segment.alphabet:
            raise ValueError(
                f"predictor {self.name!r} must have the alphabet of the source, "
                f"{source.segment.alphabet}, got {made.alphabet}"
            )
        return made


def runs_of(predictors: Mapping[str, Entry]) -> list[Run]:
    """Every member of every predictor, in order."""
    if not predictors:
        raise ValueError("predictors must hold at least one predictor, got none")
    runs = []
    for predictor_index, (name, entry) in enumerate(predictors.items()):
        members = list(entry) if isinstance(entry, Sequence) else [entry]
        if not members:
            raise ValueError(f"predictor {name!r} must have at least one member, got none")
        for member_index, member in enumerate(members):
            if not isinstance(member, Predictor) and not callable(member):
                raise ValueError(
                    f"predictor {name!r} must be a Predictor, or make one of a Draw, got {member!r}"
                )
            runs.append(Run(name, predictor_index, member_index, member))
    return runs
