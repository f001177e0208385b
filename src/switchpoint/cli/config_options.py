"""An option for each field of a training configuration, made from the fields themselves."""

import dataclasses
import inspect
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from switchpoint.cli import options
from switchpoint.neural.names import MODEL_OPTIONS
from switchpoint.training.config import TrainConfig
from switchpoint.training.recipes import Recipe

_FILE_FIELD = "pmf"  # a list in Python and TOML, on the command line a file that holds it
_METAVARS = {"prior": "NAME", "learning_rate": "RATE", _FILE_FIELD: "FILE"}
_BY_RECIPE = {each.name for each in dataclasses.fields(Recipe)}


def with_an_option_for_every_field(command: Any) -> Any:
    """The command, whose `**settings` Typer now sees as one option for each field."""
    own = inspect.signature(command).parameters.values()
    kept = [each for each in own if each.kind is not inspect.Parameter.VAR_KEYWORD]
    hints = get_type_hints(TrainConfig)
    made = [_parameter(each, hints[each.name]) for each in dataclasses.fields(TrainConfig)]
    command.__signature__ = inspect.Signature([*kept, *made])
    command.__annotations__ = {each.name: each.annotation for each in [*kept, *made]}
    return command


def given_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that options were given for, with the values of the configuration's types."""
    given = {name: value for name, value in settings.items() if value not in (None, [], ())}
    if _FILE_FIELD in given:
        given[_FILE_FIELD] = options.pmf_numbers(given[_FILE_FIELD])
    return given


def _parameter(field: dataclasses.Field, hint: Any) -> inspect.Parameter:
    """The option of a field; None says that it was not given, whatever the field's default."""
    option = typer.Option(
        help=_help(field, hint),
        rich_help_panel=field.metadata["panel"],
        metavar=_METAVARS.get(field.name),
    )
    kind: Any = _type_of_option(field.name, hint)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _type_of_option(name: str, hint: Any) -> Any:
    if name == _FILE_FIELD:
        return Path
    if isinstance(hint, types.UnionType):
        hint = next(each for each in get_args(hint) if each is not types.NoneType)
    if get_origin(hint) is tuple:
        item: Any = get_args(hint)[0]
        return list[item]
    return hint


def _help(field: dataclasses.Field, hint: Any) -> str:
    text: str = field.metadata["help"]
    if field.name == _FILE_FIELD:
        text = text.removesuffix(".") + ", in a text file."
    elif get_origin(hint) is tuple:
        text += " Repeat it for more members."
    default = _default(field)
    # Typer would show the default of the option, which is None, or put a text in brackets twice.
    return text if default is None else f"{text} [default: {default}]"


def _default(field: dataclasses.Field) -> Any:
    if field.name in _BY_RECIPE:
        return "by model"
    for known in MODEL_OPTIONS.values():
        if field.name in known:
            return known[field.name]
    return ", ".join(field.default) if isinstance(field.default, tuple) else field.default
