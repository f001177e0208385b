"""Configurations in TOML files."""

import re
import tomllib
from pathlib import Path
from typing import Any

from switchpoint.training.config import TrainConfig, check_field_name


def read_toml(path: Path | str, **overrides: Any) -> TrainConfig:
    """The configuration in a TOML file of fields and values; `overrides` win over the file.

    A `ValueError` names the file, and the line where the fault lies in one.
    """
    content = _text(Path(path))
    try:
        values = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply; fields hold numbers and text") from error
    for name, value in values.items():
        try:
            if isinstance(value, dict):
                raise ValueError(f"table {name!r} is not allowed; fields stand outside of tables")
            check_field_name(name)
        except ValueError as error:
            raise ValueError(f"{_place(path, content, name)}: {error}") from error
    try:
        return TrainConfig.from_dict({**values, **overrides})
    except ValueError as error:
        # A refusal begins with the name of the field, which tells where its value came from.
        name = str(error).split(" ", 1)[0]
        if name in values and name not in overrides:
            raise ValueError(f"{_place(path, content, name)}: {error}") from error
        raise


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text (byte {error.start} is not UTF-8)") from error


def _place(path: Path | str, content: str, name: str) -> str:
    """The file, and the line on which it sets `name` or opens a table of that name."""
    begins = re.compile(rf"\s*\[*\s*[\"']?{re.escape(name)}\b")
    for number, line in enumerate(content.splitlines(), start=1):
        if begins.match(line):
            return f"{path}, line {number}"
    return str(path)
