"""The reader of data for every command: tables, sequences of symbols, and lines of a stream."""

from switchpoint.cli.reader.lines import Line, LineReader
from switchpoint.cli.reader.observations import LineFormat, guess_format
from switchpoint.cli.reader.series import FileSeries, read_series
from switchpoint.cli.reader.symbols import SAMPLE_COLUMNS, SymbolSequence, read_symbols
from switchpoint.cli.reader.tables import Layout

__all__ = [
    "SAMPLE_COLUMNS",
    "FileSeries",
    "Layout",
    "Line",
    "LineFormat",
    "LineReader",
    "SymbolSequence",
    "guess_format",
    "read_series",
    "read_symbols",
]
