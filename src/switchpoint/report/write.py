"""The report: one file that opens from disk and holds every picture."""

from html import escape
from importlib.resources import files
from pathlib import Path

import xarray as xr

from switchpoint._files import atomic_write
from switchpoint.experiments import load_result, result_path
from switchpoint.figures.studies import STUDIES
from switchpoint.report.answer import answer_table, found, lead
from switchpoint.report.captions import study_captions
from switchpoint.report.elements import paragraph, picture, section
from switchpoint.report.origin import origin
from switchpoint.report.provenance import provenance, scales

_TITLE = "How near do meta-trained networks come to the Bayes optimum?"


def write_report(directory: Path) -> Path:
    """Write `directory/index.html` from the results and pictures in `directory`; its path.

    Results are `results/<study>.nc` and pictures `figures/<figure>.png`. A study without
    results is named as not run, and so is one whose file is damaged, with what is wrong; a
    picture that is missing is named with the command that draws it.
    """
    results: dict[str, xr.Dataset] = {}
    damaged: dict[str, str] = {}
    for name in STUDIES:
        path = result_path(directory, name)
        if not path.exists():
            continue
        try:
            results[name] = load_result(directory, name)
        except ValueError as error:
            damaged[name] = str(error)
            continue
        try:
            _body(directory, {name: results[name]}, {})
        except Exception as error:  # of any kind, where a file without a checksum was changed
            del results[name]
            damaged[name] = f"{path} lacks what is shown of {name} ({error!r})"
    path = directory / "index.html"
    with atomic_write(path, "report") as file:
        file.write(_page(results, _body(directory, results, damaged)).encode())
    return path


def _body(directory: Path, results: dict[str, xr.Dataset], damaged: dict[str, str]) -> str:
    parts = [_opening(results), _contents(results)]
    for name in STUDIES:
        if name in results:
            parts.append(_study(name, results[name], directory / "figures"))
        else:
            parts.append(_not_run(name, results, damaged.get(name)))
    if results:
        parts.append(section("made", "How this was made", provenance(results)))
    return "\n".join(parts)


def _page(results: dict[str, xr.Dataset], body: str) -> str:
    style = files("switchpoint.report").joinpath("page.css").read_text(encoding="utf-8")
    scale = f" Scale: {escape(scales(results))}." if results else ""
    # The policy lets nothing be loaded from anywhere: all that is shown is in this file.
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{_TITLE}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header>
<h1>{_TITLE}</h1>
<p class="quiet">Sequences switch at hidden times between biases; regret is what a predictor pays,
in bits, beyond one that knows the bias.{scale}</p>
</header>
<main>
{body}
</main>
<footer>Written by <code>switchpoint reproduce</code> from saved results.</footer>
</body>
</html>
"""


def _opening(results: dict[str, xr.Dataset]) -> str:
    """The answer, before anything else."""
    on = results.get("on-distribution")
    parts = (
        [lead(on), answer_table(on)]
        if on is not None
        else [paragraph("The study on-distribution, which answers this, was not run.", "missing")]
    )
    parts += ["<h3>What was found</h3>", found(results)]
    return section("answer", "The answer", parts)


def _contents(results: dict[str, xr.Dataset]) -> str:
    """Links to the studies."""
    links = "".join(
        f'<li><a href="#{name}">{escape(_title(name, results.get(name)))}</a>'
        f"{'' if name in results else ' (not run)'}</li>"
        for name in STUDIES
    )
    if results:
        links += '<li><a href="#made">How this was made</a></li>'
    return f'<nav aria-label="Studies"><ul>{links}</ul></nav>'


def _not_run(name: str, results: dict[str, xr.Dataset], damage: str | None) -> str:
    """What is said of a study that has no results; they are not filled in from anywhere."""
    if damage is not None:
        words = f"Not shown: {escape(damage)}. The command that made it computes it again."
    elif scales(results) == "zoo":
        command = f"<code>switchpoint reproduce --scale full --only {escape(name)}</code>"
        words = f"Not run: no results of it are recorded. {command} runs it, on a GPU."
    else:
        command = f"<code>switchpoint reproduce --only {escape(name)}</code>"
        words = f"Not run: {command} runs it."
    return section(name, _title(name, None), [f'<p class="missing">{words}</p>'])


def _study(name: str, dataset: xr.Dataset, figures: Path) -> str:
    title = _title(name, dataset)
    parts = [
        paragraph(str(dataset.attrs["question"])),
        paragraph(f"In the paper: {dataset.attrs['paper']}.", "quiet"),
        *origin(dataset),
    ]
    for figure, caption in study_captions(name, dataset).items():
        path = figures / f"{figure}.png"
        if path.is_file() and not path.is_symlink():
            paper = f"The paper: {caption.paper}"
            parts.append(picture(path, caption.alt, [caption.seen, paper]))
        else:
            command = f"<code>switchpoint figure {escape(name)}</code>"
            link = ", once the link in its place is removed" if path.is_symlink() else ""
            parts.append(f'<p class="missing">{escape(figure)} is not drawn: {command}{link}.</p>')
    return section(name, title, parts)


def _title(name: str, dataset: xr.Dataset | None) -> str:
    if dataset is None:
        return name.replace("-", " ").capitalize()
    return str(dataset.attrs["title"])
