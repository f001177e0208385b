"""`switchpoint detect`: the change points of a series of numbers."""

import sys
import warnings
from pathlib import Path
from typing import Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from switchpoint._files import atomic_write
from switchpoint.cli import check_cost, output
from switchpoint.cli import config_options as options
from switchpoint.cli.sequence_report import FORMATS, percent
from switchpoint.cli.table_io import SeriesTable, read_series
from switchpoint.detection import Segmentation
from switchpoint.detection import detect as detect_changes
from switchpoint.detection.defaults import SEGMENTS, SENSITIVITY

_KINDS = " or ".join([", ".join(SEGMENTS[:-1]), SEGMENTS[-1]])
_SHOWN_SEGMENTS = 60


def detect(
    file: Path = typer.Argument(
        metavar="FILE",
        help="A table in a .csv, .tsv, .json or .parquet file, or a list of numbers; - is "
        "standard input. Empty cells and NA are missing observations.",
    ),
    column: list[str] = typer.Option(
        [],
        help="The column of the series, by its name or number from 0; again for several series "
        "with common switches. If not given, the only column of numbers.",
    ),
    time: str | None = typer.Option(
        None,
        help="The column of the times: dates or numbers, which label the observations. If not "
        "given, the first column, if it holds dates or is called date, time, year or the like.",
    ),
    segment: list[str] = typer.Option(
        [],
        help=f"What segments look like: {_KINDS}; trend if not given. One for all columns, or "
        "again for each.",
    ),
    sensitivity: float = typer.Option(
        SENSITIVITY, help="The expected number of switches per 1,000 observations."
    ),
    fit: bool = typer.Option(
        False, "--fit", help="Choose all settings, the sensitivity too, by their evidence."
    ),
    form: str | None = typer.Option(
        None,
        "--format",
        help="Print csv or json rather than a table; if not given, by the suffix of --out.",
    ),
    out: Path | None = typer.Option(
        None, metavar="FILE", help="Write the segments to this file (.csv or .json)."
    ),
    plot: Path | None = options.PLOT,
) -> None:
    """Find the change points of a series of numbers.

    Prints the segments of the most probable partition: where each begins, the probability of a
    switch at exactly that place, an interval that contains a switch with probability 90%, and the
    level, slope and noise of its values. Segments are straight lines with noise of unknown size;
    nothing needs to be set. Of several settings of --sensitivity the higher one finds more.

    For example:

        switchpoint detect flow.csv --plot flow.png
        switchpoint detect sales.csv --time month --column units --out segments.csv
        switchpoint detect accidents.csv --segment counts --sensitivity 20
    """
    if form is not None and form not in FORMATS:
        raise ValueError(f"format must be {' or '.join(FORMATS)}, got {form!r}")
    suffixes = () if form is not None else tuple(f".{each}" for each in FORMATS)
    output.check_output(out, "out", suffixes)
    output.check_output(plot, "plot", output.PICTURE_SUFFIXES)
    table = read_series(file, column, time)
    check_cost.check_detect(*table.values.shape)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = _detect(table, segment, sensitivity, fit)
    screen = output.console(sys.stderr if form is not None and out is None else sys.stdout)
    if form is not None or out is not None:
        form = form or str(out and out.suffix.lower()[1:])
        text = found.to_csv() if form == "csv" else found.to_json()
        if out is None:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            with atomic_write(out) as target:
                target.write(text.encode())
    if plot is not None:
        output.write_picture(plot, found.plot())
    screen.print(_report(found, table, [str(each.message) for each in caught]))


def _detect(table: SeriesTable, segment: list[str], sensitivity: float, fit: bool) -> Segmentation:
    import pandas as pd

    frame = pd.DataFrame(dict(zip(table.names, table.values.T, strict=True)))
    return detect_changes(
        frame, table.times, segment=segment or None, sensitivity=sensitivity, fit=fit
    )


def _report(found: Segmentation, table: SeriesTable, messages: list[str]) -> Any:
    """The summary and the table of segments for a terminal."""
    summary, count = found.summary, len(found.changepoints)
    missing = f", {summary['missing']} missing" if summary["missing"] else ""
    expected = f"; expected number {summary['expected_switches']:.2g}, "
    none = f"probability of none {percent(summary['no_switch_probability'])}"
    lines: list[tuple[str, str | Text]] = [
        ("series", f"{', '.join(table.names)}: {summary['observations']} observations{missing}"),
        ("source", repr(found.source.prior)),
        ("", repr(found.source.segment)),
        (
            "found",
            Text.assemble((f"{count} change point{'s' * (count != 1)}", "bold"), expected, none),
        ),
    ]
    if table.time_name is not None:
        lines.insert(1, ("time", table.time_name))
    lines += [("warning", Text(message, "yellow")) for message in messages]
    parts: list[Any] = [output.panel("switchpoint detect", lines), _segments(found)]
    if len(found.segments) > _SHOWN_SEGMENTS:
        parts.append(f"and {len(found.segments) - _SHOWN_SEGMENTS} more segments")
    return Group(*parts)


def _segments(found: Segmentation) -> Table:
    frame, times = found.segments, found.series.times
    labels = times.labels if times is not None else range(len(found.series.values))
    numbers = list(frame.columns[frame.columns.get_loc("observations") + 1 : -4])
    shown = output.table(
        "Segments", "from", "to", *(name.replace("_", " ") for name in numbers),
        "probability", f"{found.coverage:.0%} interval", texts=2,
    )  # fmt: skip
    for row in frame.head(_SHOWN_SEGMENTS).to_dict("records"):
        switch = ["", ""]
        if row["start"] > 0:
            begin, end = labels[row["interval_begin"]], labels[row["interval_end"]]
            reached = row["interval_probability"]
            doubt = "" if reached >= found.coverage else f" ({percent(reached)})"
            switch = [percent(row["probability"]), f"{begin} to {end}{doubt}"]
        cells = [f"{row[name]:.4g}" if row[name] == row[name] else "" for name in numbers]
        shown.add_row(str(labels[row["start"]]), str(labels[row["end"] - 1]), *cells, *switch)
    return shown
