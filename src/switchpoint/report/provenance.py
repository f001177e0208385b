"""How the results were made: configuration, versions, hardware, time and command."""

import json
from collections.abc import Mapping
from html import escape
from typing import Any

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
    rows = [_row(name, str(results[name].attrs["scale"]), record) for name, record in made.items()]
    for name, dataset in results.items():
        recorded = dataset.attrs.get("recorded")
        if recorded is not None:
            rows.append(_row(f"{name}, recorded", recorded["scale"], recorded["provenance"]))
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
        *_networks(results),
        *(_configuration(name, dataset) for name, dataset in results.items()),
    ]


def _row(name: str, scale: str, record: Mapping[str, Any]) -> list[str]:
    commit = f" ({str(record['commit'])[:8]})" if record.get("commit") else ""
    return [
        name,
        scale,
        duration(float(record["training_seconds"])),
        duration(float(record["wall_seconds"])),
        str(record["device"]),
        f"switchpoint {record['switchpoint']}{commit}, jax {record['jax']}, "
        f"Python {record['python']}",
        str(record["platform"]),
        str(record["seed"]),
    ]


def _networks(results: Mapping[str, xr.Dataset]) -> list[str]:
    """A table of what trained the networks, where that was done before."""
    made: dict[str, Mapping[str, Any]] = {}
    for dataset in results.values():
        made |= dataset.attrs["provenance"].get("networks", {})
        made |= dataset.attrs.get("recorded", {}).get("provenance", {}).get("networks", {})
    rows = [
        [
            name,
            str(record["members"]),
            duration(float(record["training_seconds"])),
            str(record["device"]),
            f"{str(record.get('commit') or 'unknown')[:8]}, jax {record['jax']}",
            str(record["finished"]),
        ]
        for name, record in made.items()
        if record
    ]
    head = ["networks", "members", "training", "device", "commit", "finished"]
    return [table(head, rows, "What trained the networks")] if rows else []


def scales(results: Mapping[str, xr.Dataset]) -> str:
    """The scales that results were made at, in words."""
    return listed(list(dict.fromkeys(str(one.attrs["scale"]) for one in results.values())))


def _configuration(name: str, dataset: xr.Dataset) -> str:
    text = escape(json.dumps(dataset.attrs["description"], indent=2, sort_keys=True))
    return (
        f"<details><summary>Configuration of {escape(name)}</summary>\n"
        f"<pre><code>{text}</code></pre></details>"
    )
