"""One renderer: results of the studies into an HTML report, or into Markdown tables."""

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import xarray as xr
from markupsafe import Markup

from switchpoint._files import atomic_write
from switchpoint._numbers import bits, duration, join_and, percent, plus_minus
from switchpoint.paper import STUDIES, Result, Study, Table
from switchpoint.paper.labels import display_name, slices, source_label, with_subscripts
from switchpoint.paper.results import find_result, result_path

_STEPS = (0.01, 0.03, 0.10, 0.30)  # shares of the optimum's regret where the colour changes
_SAME = 1e-5  # a share below which two ways to compute the same predictor may differ
_PREDICTORS = ("architecture", "predictor")  # dimensions

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
    count = shown.attrs.get("sequences")
    size = "one sequence" if count is None else f"{count:,} sequences"
    if seeds := shown.sizes.get("seed"):
        size = f"{seeds} seed{'' if seeds == 1 else 's'}, {size} each"
    return {
        "figures": pictures,
        "tables": [*study.tables(every), *_measured_here(result)],
        "missing": list(shown.attrs.get("missing_runs", {})),
        "source": _source(result),
        "size": size,
    }


def _measured_here(result: Result) -> Iterator[Table]:
    """The networks of the zoo as measured on this machine, beside the record of the same ones."""
    local, record = result.beside, result.recorded
    if local is None or record is None:
        return
    for name in ("excess", "difference", "cumulative_regret"):
        if name in local and name in record:
            both = [each[[name, f"{name}_error"]] for each in (local, record)]
            step = max(1, local.sizes.get("time", 8) // 8)  # at the end of every eighth
            here, there = (
                each.isel(time=slice(step - 1, None, step), missing_dims="ignore")
                for each in xr.align(*both)
            )
            if "seed" in here.dims:  # the zoo has one seed of each kind
                here, there = (
                    each.where(here[name].notnull()).mean("seed") for each in (here, there)
                )
            *rows, column = sorted(here[name].dims, key=lambda each: each in _PREDICTORS)
            frame = xr.merge([here, there.rename({key: f"{key}_there" for key in there})])
            texts = frame.to_dataframe([*rows, column]).dropna().apply(_beside, axis=1)
            table = texts.unstack(column, sort=False)
            cells = zip(table.index.to_frame(index=False).values, table.values, strict=True)
            title = f"{name.replace('_', ' ').capitalize()} on this machine (recorded), bits"
            head = [", ".join(map(str, rows)).replace("_", " "), *map(display_name, table.columns)]
            yield Table(title, head, [[", ".join(map(str, label)), *row] for label, row in cells])
            return


def _beside(row: Any) -> str:
    """A mean with its error, and both of the record."""
    value, error, known, known_error = row
    return f"{plus_minus(value, error)} ({plus_minus(known, known_error)})"


def _source(result: Result) -> dict[str, Any]:
    """The origin of numbers that were not all computed on this machine."""
    shown = result.shown
    made = shown.attrs["provenance"]
    commit = f" ({str(made['commit'])[:8]})" if made.get("commit") else ""
    networks = made.get("networks", {}).values()
    return {
        "recorded": shown is result.recorded,
        "local": result.beside is not None,
        "pretrained": shown.attrs["scale"] == "zoo",
        "scale": shown.attrs["scale"],
        "made": f"switchpoint {made['switchpoint']}{commit}, jax {made['jax']}, {made['device']}",
        "networks": sorted({str(each["device"]) for each in networks if each}),
    }


def _answer(result: Result) -> dict[str, Any]:
    """The distance of every network from the optimum of every source."""
    dataset, local = result.shown, result.beside
    dataset = dataset.assign(optimum=dataset["exact_regret"].sel(exact="optimum", drop=True))
    if local is not None:  # the zoo has one seed of each kind
        here = {name: local[name].mean("seed") for name in ("excess", "excess_error")}
        dataset = dataset.assign(here=here["excess"], here_error=here["excess_error"])
    columns, best = [], []
    for source, one in slices(dataset, "source"):
        label = source_label(dataset, source)
        error = float(one["exact_regret_error"].sel(exact="optimum"))
        columns.append({"label": label, "optimum": plus_minus(float(one["optimum"]), error)})
        means = one["excess_mean"].dropna("architecture")
        if means.size:
            nearest, share = str(means.idxmin().item()), float(means.min() / one["optimum"])
            best.append(f"{display_name(nearest)} on {label} ({_distance(share)})")
    networks, exact = (
        [
            (display_name(name), [cell(one) for _, one in slices(row, "source")])
            for name, row in slices(dataset, dimension)
            if name != "optimum"
        ]
        for dimension, cell in (("architecture", _network_cell), ("exact", _exact_cell))
    )
    return {
        "best": join_and(best),
        "columns": columns,
        "networks": networks,
        "exact": exact,
        "attrs": dataset.attrs,
        "seeds": dataset.sizes["seed"],
        "source": _source(result),
        "missing": list(dataset.attrs.get("missing_runs", {})),
    }


def _network_cell(one: xr.Dataset) -> dict[str, Any]:
    mean = float(one["excess_mean"])
    if not np.isfinite(mean):
        return {"value": None}
    share = mean / float(one["optimum"])
    known = "here" in one and one["here"].notnull().item()
    return {
        "value": plus_minus(mean, float(one["excess_mean_error"])),
        "lowest": bits(float(one["excess_minimum"])),
        "median": bits(float(one["excess_median"])),
        "distance": _distance(share),
        "step": int(np.searchsorted(_STEPS, share)),
        "local": plus_minus(float(one["here"]), float(one["here_error"])) if known else None,
    }


def _exact_cell(one: xr.Dataset) -> dict[str, Any]:
    excess = float(one["exact_excess"])
    share = excess / float(one["optimum"])
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
    both = local | {
        f"{name}, recorded": each.shown
        for name, each in results.items()
        if each.shown is each.recorded
    }
    rows = [(name, each.attrs["scale"], each.attrs["provenance"]) for name, each in both.items()]
    networks: dict[str, Any] = {}
    for _, _, record in rows:
        networks |= {name: each for name, each in record.get("networks", {}).items() if each}
    times = [each.attrs["provenance"] for each in local.values()]
    return {
        "count": len(local),
        "seconds": sum(float(t["wall_seconds"]) + float(t["training_seconds"]) for t in times),
        "commands": list(dict.fromkeys(str(t["command"]) for t in times)),
        "rows": rows,
        "networks": networks,
        "plans": {name: each.attrs["plan"] for name, each in both.items() if each.attrs["plan"]},
    }
