"""Settings that are typed and validated once, and the TOML files they are read from."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class TomlFile:
    """A TOML file, which can tell the line of a setting."""

    path: Path
    text: str
    values: dict[str, Any]

    @classmethod
    def read(cls, path: Path | str) -> "TomlFile":
        """Read a file, or standard input if the path is `-`."""
        text = read_text(Path(path))
        try:
            return cls(Path(path), text, tomllib.loads(text))
        except RecursionError as error:
            raise ValueError(f"{name_of(path)} is nested too deeply to be read") from error
        except ValueError as error:
            raise ValueError(f"{name_of(path)} is not TOML: {error}") from error

    def place(self, name: str) -> str:
        """The file, and the line on which it sets `name` or opens a table of that name."""
        begins = re.compile(rf"\s*\[*\s*[\"']?{re.escape(name)}\b")
        lines = enumerate(self.text.splitlines(), start=1)
        number = next((number for number, line in lines if begins.match(line)), None)
        return name_of(self.path) + ("" if number is None else f", line {number}")

    @contextmanager
    def locating(self, overrides: Mapping[str, Any]) -> Iterator[None]:
        """Add the place to the error of a setting, unless an override is to blame."""
        try:
            yield
        except SettingError as error:
            if error.name in overrides:
                raise
            raise ValueError(f"{self.place(error.name)}: {error}") from error
