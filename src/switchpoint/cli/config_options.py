"""Options of commands, derived from the fields of a training configuration."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args, get_origin

import typer

from switchpoint import _checks
from switchpoint._text import locating, name_of, read_text
from switchpoint.cli.check_cost import MAX_ALPHABET
from switchpoint.cli.reader.cells import parse_number
from switchpoint.neural.model import Recipe
from switchpoint.neural.registry import MODEL_OPTIONS
from switchpoint.priors import PARAMETER_OWNERS, PRIOR_NAMES, Prior, prior_from_name
from switchpoint.segments import Segment, make_segment
from switchpoint.training.config import SEGMENT as _SEGMENT
from switchpoint.training.config import TrainConfig

_FILE_FIELD = "pmf"  # a list in Python and TOML, on the command line a file that holds it
_METAVARS = {"prior": "NAME", "learning_rate": "RATE", _FILE_FIELD: "FILE"}
_BY_RECIPE = {each.name for each in dataclasses.fields(Recipe)}

PRIOR = tuple(PARAMETER_OWNERS)
"""The settings that are parameters of a prior."""
SEGMENT = ("alphabet", *_SEGMENT)
"""The settings that describe a segment model."""
EVERY = tuple(TrainConfig.model_fields)

PRIOR_HELP = f"The prior over segment lengths: {', '.join(PRIOR_NAMES)}"
LENGTH: Any = typer.Option(256, help="The number of symbols in each sequence.")
SEED: Any = typer.Option(0, help="The same seed gives the same sequences.")
PLOT: Any = typer.Option(
    None, metavar="FILE", help="Write a plot to this file (.png, .pdf or .svg)."
)
LABELS: Any = typer.Option(
    None,
    metavar="LABEL,LABEL,...",
    help="The labels of the symbols 0, 1 and so on. By default, labels are numbered in order of "
    "appearance, except that False is 0 and True is 1.",
)
HYPOTHESES: Any = typer.Option(
    100, help="The maximum number of possible starts of the current segment; ptw has no limit."
)
MODEL_HELP = "a name from `switchpoint zoo`, the directory of a run or a .safetensors file."
MODEL: Any = typer.Option(
    None, metavar="NAME|PATH", help=f"Predict with a trained network instead: {MODEL_HELP}"
)
MEMBER: Any = typer.Option(
    None,
    metavar="NUMBER",
    help="The index of the network in --model, from 0; by default, the best one.",
)
_READING: Any = {"rich_help_panel": "File format (by default, inferred from the content)"}
SEPARATOR: Any = typer.Option(
    None, metavar="CHARACTER", help="The separator of columns, such as ; or tab.", **_READING
)
DECIMAL: Any = typer.Option(None, metavar=".|,", help="The decimal sign.", **_READING)
HEADER: Any = typer.Option(
    None, "--header/--no-header", help="Whether the first line contains column names.", **_READING
)
SHEET: Any = typer.Option(
    None, metavar="NAME", help="The sheet of an Excel file; by default, the first.", **_READING
)
WHERE: Any = typer.Option(
    [],
    metavar="COLUMN=VALUE",
    help="Use only the rows with this value. May be repeated.",
    **_READING,
)
DAY_FIRST: Any = typer.Option(
    None,
    "--dayfirst/--monthfirst",
    help="Whether 01/02/2024 is 1 February or 2 January.",
    **_READING,
)


def with_options(*names: str, **helps: str) -> Callable[[Any], Any]:
    """A decorator that turns a command's `**options` into one option for each of these settings.

    An option that is not given is None. `helps` replace the help texts of settings.
    """
    options = [_parameter(name, helps.get(name)) for name in names]

    def decorate(command: Any) -> Any:
        given = inspect.signature(command).parameters.values()
        parameters = [each for each in given if each.kind is not inspect.Parameter.VAR_KEYWORD]
        parameters += options
        command.__signature__ = inspect.Signature(parameters)
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


def prior_name(name: str | None, options: Mapping[str, Any], default: str | None) -> str | None:
    """The name of a prior: the given one, that of which an option is a parameter, or a default."""
    owners = (PARAMETER_OWNERS[each] for each in PRIOR if options[each] is not None)
    return next(owners, default) if name is None else name


def make_prior(name: str, length: int, options: Mapping[str, Any]) -> Prior:
    """The prior that the options describe, for sequences of `length`."""
    given: dict[str, Any] = {each: options.get(each) for each in PRIOR}
    # Where the prior takes no pmf, the error names the file rather than its content.
    if given[_FILE_FIELD] is not None and name == "renewal":
        given[_FILE_FIELD] = read_pmf(given[_FILE_FIELD])
    return prior_from_name(name, length, **given)


def segment_model(options: Mapping[str, Any], alphabet: int | None = None) -> Segment:
    """The segment model that the options describe; of 2 symbols unless they say otherwise."""
    alphabet = options["alphabet"] if alphabet is None else alphabet
    alphabet = 2 if alphabet is None else alphabet
    if alphabet > MAX_ALPHABET:
        raise ValueError(f"alphabet must be at most {MAX_ALPHABET}, got {alphabet}")
    return make_segment(alphabet, *(options[name] for name in SEGMENT[1:]))


def given_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for which options were given, with values of the configuration's types."""
    given = {name: value for name, value in settings.items() if value not in (None, [], ())}
    if _FILE_FIELD in given:
        given[_FILE_FIELD] = read_pmf(given[_FILE_FIELD])
    return given


def read_pmf(path: Path) -> tuple[float, ...]:
    """The probabilities P(L=1), P(L=2), ... in a text file, exactly as written there."""
    tokens = list(filter(None, re.split(r"[\s,;]+", read_text(path))))
    numbers = [parse_number(token) for token in tokens]
    with locating(name_of(path)):
        if None in numbers:
            raise ValueError(f"pmf must be numbers, got {tokens[numbers.index(None)]!r}")
        _checks.distribution("pmf", numbers)
    return tuple(map(float, tokens))


def _parameter(name: str, help_text: str | None) -> inspect.Parameter:
    """The option of a field; its default is None, whatever the field's default is."""
    field = TrainConfig.model_fields[name]
    about = cast(dict[str, Any], field.json_schema_extra)
    kind = Path if name == _FILE_FIELD else _option_type(field.annotation)
    if help_text is None:
        help_text = str(field.description)
        if kind is Path:
            help_text = help_text.removesuffix(".") + ", from a text file."
        elif get_origin(kind) is list:
            help_text += " Repeat it for more members."
        # Typer would show the default of the option, which is None.
        default = _default(name)
        help_text += "" if default is None else f" [default: {default}]"
    option = typer.Option(
        help=help_text, rich_help_panel=about["panel"], metavar=_METAVARS.get(name)
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _option_type(annotation: Any) -> Any:
    """The type of the option of a field with this annotation."""
    kind, arguments = get_origin(annotation), get_args(annotation)
    if kind is Literal:
        return str
    if kind is tuple:
        return list[_option_type(arguments[0])]  # type: ignore[misc]
    return annotation if kind is None else _option_type(arguments[0])  # T | None, Annotated[T, ...]


def _default(name: str) -> Any:
    """The default that a help text shows; None where the description of the field has it."""
    if name in _BY_RECIPE:
        return "by model"
    defaults = {options[name] for options in MODEL_OPTIONS.values() if name in options}
    if defaults:
        return defaults.pop() if len(defaults) == 1 else "by model"
    field = TrainConfig.model_fields[name]
    default = None if field.default_factory is not None else field.default
    return ", ".join(default) if isinstance(default, tuple) else default
