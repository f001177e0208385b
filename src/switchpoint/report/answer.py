"""The answer: how far every network is from the exact optimum, and what was found."""

from collections.abc import Mapping
from html import escape

import numpy as np
import xarray as xr

from switchpoint.experiments import Finding, findings
from switchpoint.figures.identity import name_of, source_name, with_subscripts
from switchpoint.report.elements import paragraph, row_head, whole_table
from switchpoint.report.numbers import bits, listed, percent, with_error
from switchpoint.report.origin import origin

_STEPS = (0.01, 0.03, 0.10, 0.30)  # shares of the optimum's regret where the colour changes
_SAME = 1e-5  # a share below which two ways to compute the same predictor may differ
_KEY = ("within 1 %", "within 3 %", "within 10 %", "within 30 %", "over 30 %")


def lead(dataset: xr.Dataset) -> str:
    """A sentence that says which network is nearest to the optimum of each source."""
    parts = []
    for source in map(str, dataset["source"].values):
        one = dataset.sel(source=source)
        means = one["excess_mean"].values
        if np.isfinite(means).any():
            best = int(np.nanargmin(means))
            share = _distance(float(means[best]) / _optimum(one))
            name = name_of(str(one["architecture"].values[best]))
            parts.append(f"{name} on {source_name(dataset, source)} ({share})")
    text = f"Nearest to the exact Bayes optimum, on average over seeds: {listed(parts)}."
    return paragraph(text, "lead")


def answer_table(dataset: xr.Dataset) -> str:
    """Excess regret of every architecture on every source, coloured by distance."""
    sources = [str(name) for name in dataset["source"].values]
    head = ["<small>bits above the exact optimum</small>"]
    for source in sources:
        one = dataset.sel(source=source, exact="optimum")
        pays = with_error(float(one["exact_regret"]), float(one["exact_regret_error"]))
        name = escape(source_name(dataset, source))
        head.append(f"{name}<small>optimum pays {pays}</small>")
    rows = [
        _row(
            name_of(str(architecture)),
            [
                _network_cell(dataset.sel(source=source, architecture=architecture))
                for source in sources
            ],
        )
        for architecture in dataset["architecture"].values
    ]
    rows += [
        _row(
            name_of(str(exact)),
            [
                _exact_cell(
                    dataset.sel(source=source, exact=exact), _optimum(dataset.sel(source=source))
                )
                for source in sources
            ],
            "exact",
        )
        for exact in dataset["exact"].values
        if exact != "optimum"
    ]
    key = "".join(f'<li class="near-{i}">{text}</li>' for i, text in enumerate(_KEY))
    count = dataset.sizes["seed"]
    seeds = f"{count} seed{'' if count == 1 else 's'}"
    note = (
        f"Regret of a whole sequence of {dataset.attrs['length']} symbols beyond that of the exact "
        f"optimum, in bits: mean over {dataset.attrs['sequences']:,} sequences and "
        f"{seeds} ± its standard error, then the least and the median of the "
        "seeds. Percentages are of the optimum's own regret. Below the networks: exact predictors "
        "of other sources; the KT Oracle is told where the switches are, so it may do better than "
        "any that is not."
    )
    return "\n".join(
        [
            *origin(dataset),
            whole_table(head, "\n".join(rows), "Excess regret by network and source", "answer"),
            f'<ul class="key" aria-label="Colours: distance to the optimum">{key}</ul>',
            paragraph(note, "quiet"),
        ]
    )


def found(results: Mapping[str, xr.Dataset]) -> str:
    """The paper's claims, judged on the results that are shown."""
    return f'<ul class="findings">\n{"".join(map(_finding, findings(results)))}</ul>'


def _finding(finding: Finding) -> str:
    kind, verdict = {
        True: ("holds", "✓ holds"),
        False: ("fails", "✗ fails"),
        None: ("quiet", "? open"),
    }[finding.holds]
    return (
        f'<li><span class="{kind}">{verdict}</span><div>{_text(finding.claim)}'
        f"<small>{_text(finding.evidence)}</small></div></li>\n"
    )


def _text(words: str) -> str:
    return escape(with_subscripts(words))


def _row(name: str, cells: list[str], kind: str = "") -> str:
    opening = f'<tr class="{kind}">' if kind else "<tr>"
    return f"{opening}{row_head(name)}{''.join(cells)}</tr>"


def _network_cell(one: xr.Dataset) -> str:
    mean = float(one["excess_mean"])
    if not np.isfinite(mean):
        return "<td>no result</td>"
    share = mean / _optimum(one)
    value = with_error(mean, float(one["excess_mean_error"]))
    least, median = bits(float(one["excess_minimum"])), bits(float(one["excess_median"]))
    return (
        f'<td class="near-{_step(share)}"><strong>{value}</strong>'
        f"<small>min {least} · median {median}</small><small>{_distance(share)}</small>"
        f"{_here(one)}</td>"
    )


def _here(one: xr.Dataset) -> str:
    """The network of the zoo as it was measured on this machine, where it was."""
    if "here_excess" not in one:
        return ""
    value = with_error(float(one["here_excess"]), float(one["here_excess_error"]))
    return f"<small>zoo, here: {value}</small>"


def _exact_cell(one: xr.Dataset, optimum: float) -> str:
    excess = float(one["exact_excess"])
    value = with_error(excess, float(one["exact_excess_error"]))
    share = excess / optimum
    if share < -_SAME:
        return f"<td>{value}<small>{_distance(share)}</small></td>"
    words = _distance(share) if share > _SAME else "the optimum itself"
    return f'<td class="near-{_step(share)}">{value}<small>{words}</small></td>'


def _distance(share: float) -> str:
    return f"{percent(abs(share))} {'above' if share >= 0 else 'below'}"


def _optimum(one: xr.Dataset) -> float:
    return float(one["exact_regret"].sel(exact="optimum"))


def _step(share: float) -> int:
    """Which colour a distance has: 0 is nearest."""
    return int(np.searchsorted(_STEPS, share))
