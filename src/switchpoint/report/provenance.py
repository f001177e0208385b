"""How the results were made: configuration, versions, hardware, time and command."""

import json
from collections.abc import Mapping
from html import escape

import xarray as xr

from switchpoint.report.elements import paragraph, table
from switchpoint.report.numbers import duration, listed


def provenance(results: Mapping[str, xr.Dataset]) -> list[str]:
    """The parts of the section that says how to make the report again."""
    made = {name: dataset.attrs["provenance"] for name, dataset in results.items()}
    commands = list(dict.fromkeys(str(record["command"]) for record in made.values()))
    total = sum(
        float(record["wall_seconds"]) + float(record["training_seconds"])
        for record in made.values()
    )
    rows = [
        [
            name,
            str(results[name].attrs["scale"]),
            duration(float(record["training_seconds"])),
            duration(float(record["wall_seconds"])),
            str(record["device"]),
            f"switchpoint {record['switchpoint']}, jax {record['jax']}, Python {record['python']}",
            str(record["platform"]),
            str(record["seed"]),
        ]
        for name, record in made.items()
    ]
    head = ["study", "scale", "training", "the rest", "device", "versions", "platform", "seed"]
    commands_html = escape("\n".join(commands))
    return [
        paragraph(f"{len(made)} studies took {duration(total)}. This makes them again:"),
        f"<pre><code>{commands_html}</code></pre>",
        paragraph(
            "Studies that are done are not run again. Figures are also in figures/ as PDF and PNG,"
            " the results behind them in results/ as netCDF."
        ),
        table(head, rows, "How each study was made"),
        *(_configuration(name, dataset) for name, dataset in results.items()),
    ]


def scales(results: Mapping[str, xr.Dataset]) -> str:
    """The scales that results were made at, in words."""
    return listed(list(dict.fromkeys(str(one.attrs["scale"]) for one in results.values())))


def _configuration(name: str, dataset: xr.Dataset) -> str:
    text = escape(json.dumps(dataset.attrs["description"], indent=2, sort_keys=True))
    return (
        f"<details><summary>Configuration of {escape(name)}</summary>\n"
        f"<pre><code>{text}</code></pre></details>"
    )
