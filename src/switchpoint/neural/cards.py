"""The card of a network file: its format, and the checks that it is well formed."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from switchpoint._checks import shown
from switchpoint._formats import check_format
from switchpoint._settings import NaturalNumber
from switchpoint._tensors import DamagedError

_Count = Annotated[int, Field(gt=0, lt=2**31)]


class _Part(BaseModel):
    """A part of a card, which may have more fields than these."""

    model_config = ConfigDict(
        strict=True, extra="ignore", allow_inf_nan=False, protected_namespaces=()
    )


class _Member(_Part):
    prior: str = ""
    seed: NaturalNumber = 0
    learning_rate: float = 0.0
    excess: float | None = None
    excess_error: float | None = None
    diverged: bool = False


class _Test(_Part):
    sequences: _Count = 1
    length: _Count = 1
    seed: NaturalNumber = 0
    excess: float = 0.0
    excess_error: float = 0.0
    regret: float = 0.0
    regret_error: float = 0.0
    optimum_regret: float = 0.0
    optimum_regret_error: float = 0.0
    tolerance: float = 0.0
    excess_of_blocks: Annotated[list[float], Field(min_length=1)] = []


class _Card(_Part):
    model: str
    alphabet: _Count | None
    length: _Count
    members: Annotated[list[_Member], Field(min_length=1)]
    name: str = ""
    options: dict[str, Any] = {}
    values: dict[str, Any] = {}
    config: dict[str, Any] = {}
    versions: dict[str, Any] = {}
    chosen: dict[str, Any] = {}
    test: _Test = _Test()
    steps: NaturalNumber = 0
    sources: dict[str, str] = {}
    provenance: dict[str, Any] | None = None


def check_card(card: Mapping[str, Any], shapes: Collection[tuple[int, ...]], path: Path) -> None:
    """Check the card of a file at `path`, whose tensors have these shapes.

    Raises a `DamagedError` for a malformed card, and a `ValueError` for a later format.
    """
    check_format(card, str(path))
    try:
        options = _Card(**card).options
    except ValidationError as error:
        problem = error.errors()[0]
        where, got = ".".join(map(str, problem["loc"])), shown(problem["input"])
        if problem["type"] == "missing":
            raise DamagedError(f"its card lacks {where}") from error
        raise DamagedError(f"its card has {where} {got}: {problem['msg']}") from error
    # Layers have tensors of their own, or lie along the first axis of common ones.
    most_layers = max([len(shapes), *(shape[1] for shape in shapes if len(shape) > 1)])
    for name in ("layers", "readout"):
        count = options.get(name, 0)
        if type(count) is int and count > most_layers:
            raise DamagedError(f"its card has {name} {count}, more than its tensors have")
