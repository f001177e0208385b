"""One renderer: results of the studies into an HTML report, or into Markdown tables."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import xarray as xr
from markupsafe import Markup

from switchpoint._files import atomic_write
from switchpoint._numbers import bits, duration, join_and, percent, plus_minus
from switchpoint.paper import STUDIES, Result, Study
from switchpoint.paper.figures.labels import display_name, source_label, with_subscripts
from switchpoint.paper.figures.seeds import one_network
from switchpoint.paper.results import find_result, result_path

_STEPS = (0.01, 0.03, 0.10, 0.30)  # shares of the optimum's regret where the colour changes
_SAME = 1e-5  # a share below which two ways to compute the same predictor may differ

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("switchpoint.paper"),
    autoescape=lambda name: name is not None and ".html" in name,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.filters |= {"duration": duration, "subscripts": with_subscripts}
_TEMPLATES.filters["json"] = lambda value: json.dumps(value, indent=2, sort_keys=True)


def write_report(directory: Path, read: Mapping[str, Result] | None = None) -> Path:
    """Write `directory/index.html` from the results and figures in `directory`; its path.

    `read` are results that were read before, by the names of their studies. A study without
    results is named as not run, and so is one whose file is damaged, with the error; a figure that
    is missing is named with the command that draws it.
    """
    results, damaged = _load(directory, read or {})
    sections = {}
    for name, result in list(results.items()):
        try:
            sections[name] = _section(STUDIES[name], result, results, directory / "figures")
            if name == "on-distribution":
                _answer(result)
        except Exception as error:  # of any kind, where a file without a checksum was changed
            path = result_path(directory, name)
            del results[name]
            damaged[name] = f"{path} lacks what the report shows of {name} ({error!r})"
    shown = {name: result.shown for name, result in results.items()}
    findings = [f for study in STUDIES.values() for f in study.judge(shown.get(study.name))]
    main = results.get("on-distribution")
    local = [each.local for each in results.values() if each.local is not None]
    datasets = local or [each.shown for each in results.values()]
    scales = list(dict.fromkeys(str(each.attrs["scale"]) for each in datasets))
    page = _TEMPLATES.get_template("report.html").render(
        css=Markup(_TEMPLATES.get_template("page.css").render()),
        scales=join_and(scales),
        answer=None if main is None else _answer(main),
        findings=sorted(findings, key=lambda finding: (True, False, None).index(finding.holds)),
        studies=STUDIES.values(),
        sections=sections,
        damaged=damaged,
        full=scales == ["zoo"],
        made=_provenance(results),
    )
    path = directory / "index.html"
    with atomic_write(path, "report") as file:
        file.write(page.encode())
    return path


def write_markdown(directory: Path) -> str:
    """The tables of every study in a report's directory, or a directory of result files."""
    results, damaged = _load(directory, {})
    if damaged:
        raise ValueError(next(iter(damaged.values())))
    if not results:
        raise ValueError(f"there are no results in {directory}; switchpoint reproduce makes them")
    shown = {name: result.shown for name, result in results.items()}
    tables = [(STUDIES[name], STUDIES[name].tables(shown), shown[name].attrs) for name in shown]
    return _TEMPLATES.get_template("tables.md").render(studies=[each for each in tables if each[1]])


def _load(directory: Path, read: Mapping[str, Result]) -> tuple[dict[str, Result], dict[str, str]]:
    """The results that can be read, and the errors of the others."""
    results, damaged = {}, {}
    for name in STUDIES:
        try:
            if (found := read.get(name) or find_result(directory, name)) is not None:
                results[name] = found
        except ValueError as error:
            damaged[name] = str(error)
    return results, damaged


def _section(
    study: Study, result: Result, results: Mapping[str, Result], figures: Path
) -> dict[str, Any]:
    shown = result.shown
    pictures = []
    for name, caption in study.captions(shown).items():
        path = figures / f"{name}.png"
        there = path.is_file() and not path.is_symlink()
        data = base64.b64encode(path.read_bytes()).decode("ascii") if there else None
        pictures.append({"name": name, "caption": caption, "data": data, "link": path.is_symlink()})
    every = {name: each.shown for name, each in results.items()}
    return {
        "figures": pictures,
        "tables": study.tables(every),
        "missing": list(shown.attrs.get("missing_runs", {})),
        "source": _source(result),
        "size": _size(result),
    }


def _size(result: Result) -> dict[str, str]:
    """The seeds and test sequences behind a study's figures, and behind the local marks in them."""
    counts = {}
    for kind, each in (("shown", result.shown), ("local", result.beside)):
        if each is not None:
            count = each.attrs.get("sequences")
            counts[kind] = "one sequence" if count is None else f"{count:,} sequences"
    if seeds := result.shown.sizes.get("seed"):
        counts["shown"] = f"{seeds} seed{'' if seeds == 1 else 's'}, {counts['shown']} each"
    return counts


def _source(result: Result) -> dict[str, Any]:
    """The origin of numbers that were not all computed on this machine."""
    shown = result.shown
    provenance = shown.attrs["provenance"]
    return {
        "recorded": result.recorded is not None and shown is result.recorded,
        "local": result.beside is not None,
        "pretrained": shown.attrs["scale"] == "zoo",
        "scale": shown.attrs["scale"],
        "made": _machine(provenance),
        "networks": sorted(
            {str(each["device"]) for each in provenance.get("networks", {}).values() if each}
        ),
    }


def _machine(provenance: Mapping[str, Any]) -> str:
    commit = f" ({str(provenance['commit'])[:8]})" if provenance.get("commit") else ""
    jax, device = provenance["jax"], provenance["device"]
    return f"switchpoint {provenance['switchpoint']}{commit}, jax {jax}, {device}"


def _answer(result: Result) -> dict[str, Any]:
    """The distance of every network from the optimum of every source."""
    dataset, local = result.shown, result.beside
    sources = [str(name) for name in dataset["source"].values]
    optimum = {s: float(dataset["exact_regret"].sel(source=s, exact="optimum")) for s in sources}
    columns, best = [], []
    for source in sources:
        one = dataset.sel(source=source)
        error = float(one["exact_regret_error"].sel(exact="optimum"))
        label = source_label(dataset, source)
        columns.append({"label": label, "optimum": plus_minus(optimum[source], error)})
        means = one["excess_mean"].values
        if np.isfinite(means).any():
            index = int(np.nanargmin(means))
            name = display_name(str(one["architecture"].values[index]))
            best.append(f"{name} on {label} ({_distance(float(means[index]) / optimum[source])})")
    networks = {
        str(name): [
            _network_cell(dataset.sel(source=s, architecture=name), optimum[s], local, s, str(name))
            for s in sources
        ]
        for name in dataset["architecture"].values
    }
    exact = {
        str(name): [_exact_cell(dataset.sel(source=s, exact=name), optimum[s]) for s in sources]
        for name in dataset["exact"].values
        if name != "optimum"
    }
    return {
        "best": join_and(best),
        "columns": columns,
        "networks": [(display_name(name), cells) for name, cells in networks.items()],
        "exact": [(display_name(name), cells) for name, cells in exact.items()],
        "attrs": dataset.attrs,
        "seeds": dataset.sizes["seed"],
        "source": _source(result),
        "missing": list(dataset.attrs.get("missing_runs", {})),
    }


def _network_cell(
    one: xr.Dataset, optimum: float, local: xr.Dataset | None, source: str, architecture: str
) -> dict[str, Any]:
    mean = float(one["excess_mean"])
    if not np.isfinite(mean):
        return {"value": None}
    measured = None
    if local is not None and architecture in local["architecture"]:
        own = local.sel(source=source, architecture=architecture)
        pair = (float(one_network(own, name)) for name in ("excess", "excess_error"))
        measured = plus_minus(*pair)
    return {
        "value": plus_minus(mean, float(one["excess_mean_error"])),
        "lowest": bits(float(one["excess_minimum"])),
        "median": bits(float(one["excess_median"])),
        "distance": _distance(mean / optimum),
        "step": int(np.searchsorted(_STEPS, mean / optimum)),
        "local": measured,
    }


def _exact_cell(one: xr.Dataset, optimum: float) -> dict[str, Any]:
    excess = float(one["exact_excess"])
    share = excess / optimum
    return {
        "value": plus_minus(excess, float(one["exact_excess_error"])),
        "distance": "the optimum itself" if abs(share) <= _SAME else _distance(share),
        "step": None if share < -_SAME else int(np.searchsorted(_STEPS, share)),
    }


def _distance(share: float) -> str:
    return f"{percent(abs(share))} {'above' if share >= 0 else 'below'}"


def _provenance(results: Mapping[str, Result]) -> dict[str, Any]:
    """The provenance of the results: commands, times, machines, plans and networks."""
    local = {name: each.local for name, each in results.items() if each.local is not None}
    recorded = {
        f"{name}, recorded": each.recorded
        for name, each in results.items()
        if each.recorded is not None and each.shown is each.recorded
    }
    both = {**local, **recorded}
    rows = [(name, each.attrs["scale"], each.attrs["provenance"]) for name, each in both.items()]
    networks: dict[str, Any] = {}
    for _, _, record in rows:
        networks |= {name: each for name, each in record.get("networks", {}).items() if each}
    plans = {name: each.attrs["plan"] for name, each in both.items() if each.attrs["plan"]}
    times = [each.attrs["provenance"] for each in local.values()]
    return {
        "count": len(local),
        "seconds": sum(float(t["wall_seconds"]) + float(t["training_seconds"]) for t in times),
        "commands": list(dict.fromkeys(str(t["command"]) for t in times)),
        "rows": rows,
        "networks": networks,
        "plans": plans,
    }
