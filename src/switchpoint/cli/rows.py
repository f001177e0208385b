"""One row for each position of an analysed sequence, as CSV or JSON."""

import json
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from jaxtyping import Float

from switchpoint.cli.analysis import Analysis


def csv_lines(analysis: Analysis) -> Iterator[str]:
    """A header, then a line for each position."""
    yield ",".join(["t", "symbol", *_columns(analysis)]) + "\n"
    for row in _rows(analysis):
        yield ",".join(row) + "\n"


def json_lines(analysis: Analysis) -> Iterator[str]:
    """One object of a `summary` and of `rows`, with a line for each position."""
    yield f'{{"summary": {json.dumps(analysis.summary(), allow_nan=False)},\n"rows": [\n'
    names = [json.dumps(name) for name in ["t", "symbol", *_columns(analysis)]]
    last = len(analysis.symbols) - 1
    for position, row in enumerate(_rows(analysis)):
        fields = ", ".join(f"{name}: {cell}" for name, cell in zip(names, row, strict=True))
        yield f"{{{fields}}}{'' if position == last else ','}\n"
    yield "]}\n"


FORMATS: Mapping[str, Callable[[Analysis], Iterator[str]]] = {"csv": csv_lines, "json": json_lines}
"""The writers of rows, by the name of their format."""


def _columns(analysis: Analysis) -> dict[str, Float[np.ndarray, " time"]]:
    """The probabilities at each position, by the name of their column."""
    columns = {f"p{k}": probs for k, probs in enumerate(analysis.probs.T)}
    if analysis.switching is not None:
        columns["switch_filtered"] = analysis.switching.filtered
        columns["switch_smoothed"] = analysis.switching.smoothed
    return columns


def _rows(analysis: Analysis) -> Iterator[list[str]]:
    """The cells of each position; they are numbers in CSV and in JSON alike."""
    numbers = np.column_stack(list(_columns(analysis).values()))
    for position, (symbol, values) in enumerate(zip(analysis.symbols, numbers, strict=True)):
        # str of a NumPy float is the shortest text that reads back as the same float.
        yield [str(position), str(symbol), *map(str, values)]
