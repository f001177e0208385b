"""`switchpoint detect`: the change points of a series of numbers."""

import math
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from switchpoint._checks import one_line
from switchpoint._display import show_progress
from switchpoint._files import atomic_write
from switchpoint._numbers import chance, expected_count
from switchpoint.cli import config_options as options
from switchpoint.cli import output
from switchpoint.cli.reader import FileSeries, Layout, read_series
from switchpoint.detection import GroupedSegmentation, Segmentation
from switchpoint.detection import detect as detect_changes
from switchpoint.detection.defaults import SEGMENTS, SENSITIVITY
from switchpoint.segments.values import families_by_column

_KINDS = " or ".join([", ".join(SEGMENTS[:-1]), SEGMENTS[-1]])
_SHOWN_OUTLIERS = 12
_SHOWN_SEGMENTS, _SHOWN_WARNINGS = 60, 10
_CHANGE_HEADINGS = ("switch", "90% interval")


def detect(
    file: Path = typer.Argument(
        metavar="FILE",
        help="A table or a list of numbers: text such as .csv, .json, .xlsx, .parquet or .npy, "
        "also compressed; - is standard input. Empty cells and NA are missing observations.",
    ),
    column: list[str] = typer.Option(
        [],
        help="The column of the series, by name or number from 0; repeat it for several series "
        "with common switches. By default, the only column of numbers.",
    ),
    time: str | None = typer.Option(
        None,
        help="The time column: dates or numbers that label the observations, or none. By "
        "default, the only column of dates, or one that is called date, time, year or similar.",
    ),
    group_by: str | None = typer.Option(
        None,
        "--group-by",
        metavar="COLUMN",
        help="The column of the groups, each of which is a series of its own.",
    ),
    segment: list[str] = typer.Option(
        [],
        help=f"The kind of segments: {_KINDS}; one for all columns, or repeated for each. By "
        "default, the kind of highest evidence.",
    ),
    season: float | None = typer.Option(
        None, help="The period of a season, in observations, for trends and levels."
    ),
    sensitivity: float = typer.Option(
        SENSITIVITY, help="The expected number of switches per 1,000 observations."
    ),
    spacing: str | None = typer.Option(
        None,
        metavar="regular|irregular",
        help="Whether the model counts observations or time. By default, time where its "
        "steps differ.",
    ),
    fit: bool = typer.Option(
        False,
        "--fit",
        help="Choose the sensitivity and the scales of the segments by their evidence, for long "
        "series that switch many times. On short or irregular series the defaults give better "
        "change points.",
    ),
    form: str | None = typer.Option(
        None,
        "--format",
        help="Print csv or json rather than a table; by default, by the suffix of --out.",
    ),
    out: Path | None = typer.Option(
        None, metavar="FILE", help="Write the segments to this file (.csv or .json)."
    ),
    plot: Path | None = options.PLOT,
    separator: str | None = options.SEPARATOR,
    decimal: str | None = options.DECIMAL,
    header: bool | None = options.HEADER,
    dayfirst: bool | None = options.DAY_FIRST,
    sheet: str | None = options.SHEET,
    where: list[str] = options.WHERE,
) -> None:
    """Find the change points of a series of numbers.

    Prints the segments between the change points: where each begins, the probability of a switch
    at exactly that observation, an interval that contains a switch with probability 90%, and the
    level, slope and noise of its values. The kind of segments is chosen by its evidence. A higher
    --sensitivity reports more switches. No setting is required.

    For example:

        switchpoint detect flow.csv --plot flow.png
        switchpoint detect sales.csv --time month --column units --out segments.csv
        switchpoint detect accidents.csv --segment counts --sensitivity 20
        switchpoint detect stores.csv --time day --column units --group-by store --out changes.csv
    """
    if plot is not None and group_by is not None:
        raise ValueError(
            f"plot shows one series, and group_by is {group_by}: choose a group with --where "
            f"{group_by}=VALUE, or leave out --plot"
        )
    form = output.check_result(form, out, plot)
    layout = Layout(separator, decimal, header, sheet, tuple(where))
    series = read_series(file, column, time, dayfirst, layout, group_by)
    with (
        warnings.catch_warnings(record=True) as caught,
        show_progress(sys.stderr, lines=False) as progress,
    ):
        warnings.simplefilter("always")
        result = detect_changes(
            series.frame,
            series.times,
            group_by=series.groups,
            segment=segment or None,
            season=season,
            sensitivity=sensitivity,
            spacing=spacing,
            fit=fit,
            progress=progress,
        )
    screen = output.console(sys.stderr if form and out is None else sys.stdout)
    if form:
        text = (
            result.to_csv() if form == "csv" else result.to_json(about={"read_as": series.read_as})
        )
        if out is None:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            with atomic_write(out) as target:
                target.write(text.encode())
    if plot is not None:
        output.write_picture(plot, result.plot())
    messages = [str(each.message) for each in caught]
    if isinstance(result, Segmentation):
        screen.print(_report(result, series, [*messages, *result.warnings], screen.width))
    else:
        messages += [*result.failed.values(), *result.warnings]
        screen.print(_report_groups(result, series, messages, screen.width))


def _report(result: Segmentation, series: FileSeries, messages: list[str], width: int) -> Any:
    """The summary and the table of segments for a terminal."""
    summary, count = result.summary, len(result.changepoints)
    seen = summary["observations"]
    observations = f"{seen} observation{'s' * (seen != 1)}"
    missing = f", {summary['missing']} missing" if summary["missing"] else ""
    expected = f"; expected number {expected_count(summary['expected_switches'])}, "
    none = f"probability of none {chance(summary['no_switch_probability'])}"
    families = [one_line(each) for each in families_by_column(result.source.segment)]
    lines: list[tuple[str, str | Text]] = [
        ("read as", "; ".join(series.notes)),
        ("series", f"{', '.join(result.series.names)}: {observations}{missing}"),
        ("time", f"{series.time}{', of irregular steps' * (result.steps is not None)}"),
        ("source", repr(result.source.prior)),
        *(("", family) for family in dict.fromkeys(families)),
        *_choices(result),
        (
            "found",
            Text.assemble((f"{count} change point{'s' * (count != 1)}", "bold"), expected, none),
        ),
    ]
    lines += [("warning", Text(message, "yellow")) for message in messages]
    tables = [_segments(result, ends) for ends in (True, False)]
    whole = (each for each in tables if output.keep_words(each, width))
    parts: list[Any] = [output.panel("switchpoint detect", lines), next(whole, tables[0])]
    if len(result.bounds) > _SHOWN_SEGMENTS:
        parts.append(f"and {len(result.bounds) - _SHOWN_SEGMENTS} more segments")
    outliers = result.outlier_rows()
    if outliers:
        parts.append(_outliers(result, outliers[:_SHOWN_OUTLIERS]))
    if len(outliers) > _SHOWN_OUTLIERS:
        parts.append(f"and {len(outliers) - _SHOWN_OUTLIERS} more outliers")
    return Group(*parts)


def _choices(result: Segmentation) -> Iterator[tuple[str, str]]:
    """How the kind of segments was chosen, and other readings."""
    for name, choice in zip(result.series.names, result.choices, strict=False):
        if choice is None:
            continue
        of_column = f"{name}: " if len(result.series.names) > 1 else ""
        yield "chosen", f"{of_column}{choice}"
        if choice.alternative:
            yield "or", f"{of_column}{choice.alternative}"
    if result.joint:
        yield "columns", result.joint


def _outliers(result: Segmentation, rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each outlier."""
    columns = ["column"] if len(result.series.names) > 1 else []
    shown = output.table(
        "Outliers", "at", *columns, "value", "expected", "probability", texts=1 + len(columns)
    )
    labels = _labels(result)
    for row in rows:
        cells = [_number(row["value"]), _number(row["expected"]), chance(row["probability"])]
        shown.add_row(str(labels[row["position"]]), *(row[each] for each in columns), *cells)
    return shown


def _report_groups(
    result: GroupedSegmentation, series: FileSeries, messages: list[str], width: int
) -> Any:
    """The summary and the table of all change points for a terminal."""
    summary = result.summary
    count, groups = summary["changepoints"], summary["groups"]
    found = Text(f"{count} change point{'s' * (count != 1)}", "bold")
    found.append(f" in {summary['changed']} of {groups} groups", "not bold")
    lines: list[tuple[str, str | Text]] = [
        ("read as", "; ".join(series.notes)),
        ("series", f"{', '.join(series.frame.columns)}: {len(series.frame)} observations"),
        ("time", series.time),
        ("found", found),
        *(("warning", Text(message, "yellow")) for message in messages[:_SHOWN_WARNINGS]),
    ]
    if len(messages) > _SHOWN_WARNINGS:
        lines.append(("", f"and {len(messages) - _SHOWN_WARNINGS} more warnings"))
    shown = output.table("Change points", "group", "from", *_CHANGE_HEADINGS, texts=2)
    rows = 0
    for group, each in result.items():
        for number, position in enumerate(each.changepoints.tolist()):
            rows += 1
            if rows <= _SHOWN_SEGMENTS:
                labels = _labels(each)
                shown.add_row(str(group), str(labels[position]), *_switch(each, number, labels))
    output.keep_words(shown, width)
    parts: list[Any] = [output.panel("switchpoint detect", lines)]
    parts += [shown] if rows else []
    if rows > _SHOWN_SEGMENTS:
        parts.append(f"and {rows - _SHOWN_SEGMENTS} more: --out FILE writes all of them")
    return Group(*parts)


def _segments(result: Segmentation, ends: bool) -> Table:
    """A row for each segment, or for each of its columns; with or without the segments' ends."""
    names, several = result.series.names, len(result.series.names) > 1
    labels = _labels(result)
    numbers = list(dict.fromkeys(key for row in result.descriptions[0] for key in row))
    shown = output.table(
        "Segments", "from", *["to"] * ends, *["column"] * several, *numbers,
        *_CHANGE_HEADINGS, texts=1 + ends + several,
    )  # fmt: skip
    for number, (start, end) in enumerate(result.bounds[:_SHOWN_SEGMENTS]):
        where, switch = [str(labels[start]), str(labels[end - 1])][: 1 + ends], ["", ""]
        if number > 0:
            switch = _switch(result, number - 1, labels)
        for name, description in zip(names, result.descriptions[number], strict=True):
            cells = [_number(description.get(key, math.nan)) for key in numbers]
            shown.add_row(*where, *[name] * several, *cells, *switch)
            where, switch = [""] * len(where), ["", ""]
    return shown


def _labels(result: Segmentation) -> Sequence[Any]:
    """What names the observations of a series: their times or positions."""
    times = result.series.times
    return times.short if times is not None else range(len(result.series.values))


def _switch(result: Segmentation, number: int, labels: Sequence[Any]) -> list[str]:
    """The probability and the interval of a change point."""
    first, last = (labels[each] for each in result.intervals[number].tolist())
    reached = result.interval_probability[number]
    doubt = "" if reached >= result.coverage else f" ({chance(reached)})"
    interval = f"{first} to {last}" if first != last else f"{first}"
    return [chance(result.probability[number]), f"{interval}{doubt}"]


def _number(value: float) -> str:
    """Four digits, three below 1, and all before the decimal point where there are more."""
    if math.isnan(value):
        return ""
    size = abs(value)
    return f"{value:.0f}" if 1e3 <= size < 1e9 else f"{value:.{3 if size < 1 else 4}g}"
