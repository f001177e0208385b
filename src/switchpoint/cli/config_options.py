"""Options of commands, made from the fields of a training configuration: each is defined once."""

import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from switchpoint import _checks
from switchpoint._text import name_of, read_text
from switchpoint.cli.check_cost import check_alphabet, check_depth
from switchpoint.cli.sequence_io import parse_number
from switchpoint.neural.names import MODEL_OPTIONS
from switchpoint.priors import Prior, prior_from_name
from switchpoint.segments import Segment, segment_of
from switchpoint.training.config import RENAMED, TrainConfig
from switchpoint.training.recipes import Recipe

_FILE_FIELD = "pmf"  # a list in Python and TOML, on the command line a file that holds it
_METAVARS = {"prior": "NAME", "learning_rate": "RATE", _FILE_FIELD: "FILE"}
_BY_RECIPE = {each.name for each in dataclasses.fields(Recipe)}


PRIOR = ("depth", "split", "period", "longest", "hazard", "pmf")
"""The settings that are parameters of a prior."""
SEGMENT = ("alphabet", "alpha", "beta", "concentration")
"""The settings that describe a segment model."""
EVERY = tuple(each.name for each in dataclasses.fields(TrainConfig))


def with_options(*names: str) -> Callable[[Any], Any]:
    """The command, whose `**options` Typer now sees as one option for each of these settings.

    Their values are None where they were not given.
    """
    fields = {each.name: each for each in dataclasses.fields(TrainConfig)}
    hints = get_type_hints(TrainConfig)
    made = [_parameter(fields[name], hints[name]) for name in names]
    # Options by their former names still work, and are not shown.
    made += [
        _parameter(fields[new], hints[new], former)
        for former, new in RENAMED.items()
        if new in names
    ]

    def decorate(command: Any) -> Any:
        own = inspect.signature(command).parameters.values()
        kept = [each for each in own if each.kind is not inspect.Parameter.VAR_KEYWORD]
        command.__signature__ = inspect.Signature([*kept, *made])
        command.__annotations__ = {each.name: each.annotation for each in [*kept, *made]}
        return command

    return decorate


def prior_of(name: str, length: int, options: Mapping[str, Any]) -> Prior:
    """The prior that the options describe, for sequences of `length`."""
    given = {each: options[each] for each in PRIOR}
    check_depth(given["depth"])
    # Where the prior takes no pmf, the refusal names the file rather than what it holds.
    if given[_FILE_FIELD] is not None and name == "renewal":
        given[_FILE_FIELD] = pmf_numbers(given[_FILE_FIELD])
    return prior_from_name(name, length, **given)


def segment_model(options: Mapping[str, Any], alphabet: int | None = None) -> Segment:
    """The segment model that the options describe; of 2 symbols where nothing else is said."""
    alphabet = options["alphabet"] if alphabet is None else alphabet
    check_alphabet(2 if alphabet is None else alphabet)
    parameters = (options[name] for name in SEGMENT[1:])
    return segment_of(2 if alphabet is None else alphabet, *parameters)


def given_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that options were given for, with the values of the configuration's types."""
    given = {name: value for name, value in settings.items() if value not in (None, [], ())}
    if _FILE_FIELD in given:
        given[_FILE_FIELD] = pmf_numbers(given[_FILE_FIELD])
    return given


def _parameter(field: dataclasses.Field, hint: Any, former: str | None = None) -> inspect.Parameter:
    """The option of a field; None says that it was not given, whatever the field's default."""
    option = typer.Option(
        help=_help(field, hint),
        rich_help_panel=field.metadata["panel"],
        metavar=_METAVARS.get(field.name),
        hidden=former is not None,
    )
    kind: Any = _type_of_option(field.name, hint)
    return inspect.Parameter(
        former or field.name,
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


def pmf_numbers(path: Path) -> tuple[float, ...]:
    """The probabilities P(L=1), P(L=2), ... in a text file, exactly as written there."""
    numbers = []
    for token in filter(None, re.split(r"[\s,;]+", read_text(path))):
        number = parse_number(token)
        if number is None:
            raise ValueError(f"{name_of(path)}: pmf must be numbers, got {token!r}")
        numbers.append(number)
    try:
        _checks.distribution("pmf", numbers)
    except ValueError as error:
        raise ValueError(f"{name_of(path)}: {error}") from error
    return tuple(numbers)
