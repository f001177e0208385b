"""Settings that are typed and validated once, and the TOML files they are read from."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from switchpoint._checks import shown
from switchpoint._text import did_you_mean, name_of, read_text

T = TypeVar("T")


class SettingError(ValueError):
    """An invalid setting; `name` is the field, and the message is a complete sentence."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class Settings(BaseModel):
    """Fields that are checked when an object is created, and frozen.

    None is a setting that is not given. A `SettingError` has the name of an invalid field.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
        protected_namespaces=(),
    )

    if not TYPE_CHECKING:  # a type checker derives the signature from the fields

        def __init__(self, **values: Any) -> None:
            given = {name: _plain(value) for name, value in values.items() if value is not None}
            try:
                super().__init__(**given)
            except ValidationError as error:
                raise self._first_problem(error) from error

    @property
    def given(self) -> dict[str, Any]:
        """The fields that the object was created with; all other fields have defaults."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    def replace(self, **changes: Any) -> Any:
        """The same settings with these changes, validated again."""
        return type(self)(**{**self.given, **changes})

    @classmethod
    def _first_problem(cls, error: ValidationError) -> SettingError:
        """The first problem that Pydantic reports, in one sentence."""
        problem = error.errors()[0]
        cause = problem.get("ctx", {}).get("error")
        names = [each for each in problem["loc"] if isinstance(each, str)]
        if isinstance(cause, SettingError):
            return SettingError(names[-1], f"{'.'.join(names)}: {cause}") if names else cause
        if problem["type"] == "extra_forbidden":
            return SettingError(names[-1], unknown_field(names[-1], cls.model_fields))
        words = str(cause or problem["msg"]).replace("Input should be", "must be")
        got = shown(problem["input"]) + "".join(getattr(cause, "__notes__", ()))
        return SettingError(names[-1], f"{'.'.join(names)} {words}, got {got}")


def unknown_field(name: str, fields: Iterable[str]) -> str:
    """A message about an unknown field, with the nearest valid name."""
    advice = did_you_mean(name, fields) or f"; the fields are {', '.join(fields)}"
    return f"unknown field {name!r}{advice}"


def _plain(value: Any) -> Any:
    """A value without the types of NumPy."""
    return value.tolist() if hasattr(value, "tolist") else value


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    if not values:
        raise ValueError("must hold at least one value")
    if any(value in values[:index] for index, value in enumerate(values)):
        raise ValueError("must not hold a value twice")
    return values


def one_of(*choices: str) -> Any:
    """The annotation of a string that is one of `choices`."""

    def check(value: str) -> str:
        if value not in choices:
            error = ValueError(f"must be one of {', '.join(choices)}")
            error.add_note(did_you_mean(value, choices))
            raise error
        return value

    return AfterValidator(check)


PositiveInt: TypeAlias = Annotated[int, Field(ge=1)]
NaturalNumber: TypeAlias = Annotated[int, Field(ge=0)]
PositiveFloat: TypeAlias = Annotated[float, Field(gt=0)]
Seed: TypeAlias = Annotated[int, Field(ge=0, lt=2**32)]
SampleSize: TypeAlias = Annotated[int, Field(ge=2)]
"""A number of observations that has a standard error."""
Numbers: TypeAlias = Annotated[tuple[float, ...], BeforeValidator(_as_tuple)]
OneOrMore: TypeAlias = Annotated[
    tuple[T, ...], BeforeValidator(_as_tuple), AfterValidator(_distinct)
]
"""One value, or a list of different ones."""


@contextmanager
def toml_settings(path: Path | str, overrides: Iterable[str] = ()) -> Iterator[dict[str, Any]]:
    """The content of a TOML file, or of standard input if the path is `-`.

    A `SettingError` in the block, unless it is about one of the `overrides`, becomes a `ValueError`
    that begins with the file and the line that sets the field or opens a table of that name.
    """
    text, name = read_text(Path(path)), name_of(path)
    try:
        values = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError(f"{name} is nested too deeply to be read") from error
    except ValueError as error:
        raise ValueError(f"{name} is not TOML: {error}") from error
    try:
        yield values
    except SettingError as error:
        if error.name in overrides:
            raise
        begins = re.compile(rf"\s*\[*\s*[\"']?{re.escape(error.name)}\b")
        lines = enumerate(text.splitlines(), start=1)
        place = next((f", line {number}" for number, line in lines if begins.match(line)), "")
        raise ValueError(f"{name}{place}: {error}") from error
