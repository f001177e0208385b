"""The report opens in a real browser, shows every figure, and says what is missing."""

import io
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from switchpoint import evaluation
from switchpoint._files import write_json
from switchpoint._numbers import bits, duration, join_and, percent, plus_minus
from switchpoint.paper import STUDIES, load_result
from switchpoint.paper.labels import with_subscripts
from switchpoint.paper.report import write_markdown, write_report
from switchpoint.paper.results import copy_result, cost_path, recorded_path
from switchpoint.paper.scale import RECORDED

QUICK = Path(__file__).parents[1] / "quick"
"""Results of `switchpoint reproduce --scale quick`."""

WRAPPER = """<!DOCTYPE html><body><iframe id="page" src="{address}"
style="width:{width}px;height:800px;border:0"></iframe><pre id="found"></pre><script>
document.getElementById("page").onload = (event) => {{
  const page = event.target.contentDocument;
  for (const fold of page.querySelectorAll("details")) fold.open = true;
  const images = [...page.images].map((image) => image.naturalWidth > 0 && image.alt.length > 20);
  const root = page.documentElement;
  document.getElementById("found").textContent =
    `images ${{images.length}} good ${{images.filter(Boolean).length}} ` +
    `wide ${{root.scrollWidth}} of ${{root.clientWidth}}`;
  console.log("measured");
}};
</script></body>"""


class Page(HTMLParser):
    """The words, images, links and identifiers of a page; its tags must be balanced."""

    VOID = ("meta", "link", "img", "br")

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.words, self.plain, self.images, self.links, self.names = [], [], [], [], []
        self.open = []
        self.feed(self.source)
        assert self.open == []
        self.text, self.unfolded = (
            re.sub(r"\s+", " ", " ".join(words)) for words in (self.words, self.plain)
        )
        """All words, and those that are seen before any fold is opened."""

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "img":
            self.images.append(attributes)
        if tag == "a":
            self.links.append(attributes["href"])
        if "id" in attributes:
            self.names.append(attributes["id"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)
            if "details" not in self.open or "summary" in self.open:
                self.plain.append(data)


@pytest.fixture(scope="module")
def results():
    files = [QUICK / "results" / f"{name}.nc" for name in STUDIES]
    return {path.stem: load_result(QUICK, path.stem).shown for path in files if path.exists()}


@pytest.fixture(scope="module")
def report(results, tmp_path_factory):
    """A report of all studies; one picture stands for all of them, to be quick."""
    directory = tmp_path_factory.mktemp("report")
    shutil.copytree(QUICK / "results", directory / "results")
    (figure,) = STUDIES["mean-regret"].figures(results["mean-regret"]).values()
    picture = io.BytesIO()
    figure.savefig(picture, dpi=20)
    (directory / "figures").mkdir()
    for name in figure_names(results):
        (directory / "figures" / f"{name}.png").write_bytes(picture.getvalue())
    return write_report(directory)


@pytest.fixture(scope="module")
def page(report):
    return Page(report)


def figure_names(results):
    return [figure for name in results for figure in STUDIES[name].captions(results[name])]


def written(directory, **results):
    """The page of a directory to which these results were saved."""
    (directory / "results").mkdir(exist_ok=True)
    for name, result in results.items():
        path = directory / "results" / f"{name.replace('_', '-')}.nc"
        evaluation.save(result, path)
        cost = {"wall_seconds": 1.0, "training_seconds": 0.0, "command": "unknown"}
        write_json(cost_path(path), {"format": 1, "study": path.stem, "cost": cost})
    return Page(write_report(directory))


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1200])
def test_a_browser_shows_every_figure_without_an_error(results, report, tmp_path, width):
    browser = shutil.which("chromium")
    assert browser, "this test needs Debian's package chromium"
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(WRAPPER.format(address=report.as_uri(), width=width))
    options = "headless no-sandbox disable-gpu hide-scrollbars allow-file-access-from-files "
    options += f"enable-logging=stderr v=0 user-data-dir={tmp_path / 'profile'} dump-dom "
    options += "virtual-time-budget=10000"
    command = [browser, *(f"--{option}" for option in options.split()), wrapper.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    (line,) = (line for line in done.stderr.splitlines() if "CONSOLE" in line)
    assert "measured" in line  # the wrapper's own: the page logs no error
    # Every image has pixels and words, and the page itself does not scroll sideways, even with
    # all folds open.
    count = len(figure_names(results))
    found = re.search(r'id="found">(.*?)<', done.stdout).group(1)
    assert found == f"images {count} good {count} wide {width} of {width}"
    assert count >= 20


def test_everything_is_in_the_file(results, page):
    assert set(results) <= set(page.names)
    assert {f"figure-{name}" for name in figure_names(results)} <= set(page.names)
    assert len(page.images) == len(figure_names(results))
    assert all(image["src"].startswith("data:image/png;base64,") for image in page.images)
    assert "<script" not in page.source
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", page.source)
    assert "@import" not in page.source
    assert "url(" not in page.source
    assert {link.removeprefix("#") for link in page.links} <= set(page.names)
    assert len(set(page.names)) == len(page.names)


def test_every_figure_has_its_caption_and_every_study_its_tables(results, page):
    for name, result in results.items():
        count = result.attrs.get("sequences")
        size = "one sequence" if count is None else f"{count:,} sequences"
        if seeds := result.sizes.get("seed"):
            size = f"{seeds} seed{'s' * (seeds > 1)}, {size} each"
        for caption in STUDIES[name].captions(result).values():
            assert caption.alt in [image["alt"] for image in page.images]
            text = f"{caption.observed} Size: {caption.size or size}. The paper: {caption.paper}"
            assert re.sub(r"\s+", " ", text) in page.text
        for table in STUDIES[name].tables(results):
            assert table.title in page.unfolded
            for row in (table.head, *table.rows):
                assert with_subscripts(" ".join(cell for cell in row if cell)) in page.text


def test_findings_are_judged(results, page, tmp_path):
    findings = [f for name in results for f in STUDIES[name].judge(results[name])]
    assert len(findings) >= 6
    words = {True: "✓ confirmed", False: "✗ not confirmed", None: "? open"}
    assert {finding.holds for finding in findings} == set(words)
    for finding in findings:
        told = f"{finding.claim} {finding.evidence}".replace("\xa0", " ")
        assert f"{words[finding.holds]} {with_subscripts(told)}" in page.text
    order = re.findall("|".join(map(re.escape, words.values())), page.text)
    assert order == sorted(order, key=list(words.values()).index)
    lengths = results["longer-lengths"]
    shorter = lengths.assign(excess_mean=-lengths["excess_mean"])
    claim, _ = STUDIES["longer-lengths"].claims
    text = written(tmp_path, longer_lengths=shorter).text
    assert f"✗ not confirmed {claim}" in text
    assert text.count("? open") == len(findings) - 2


def test_recorded_and_local_results_are_told_apart(page, tmp_path):
    assert "recorded" not in page.unfolded.lower().replace("results/ and recorded/", "")
    for name in ("on-distribution", "memory"):
        copy_result(RECORDED / f"{name}.nc", recorded_path(tmp_path, name))
    record = load_result(tmp_path, "on-distribution").shown
    variables = ("excess", "excess_error")  # of one seed, as of the networks of the zoo
    here = {name: 1.1 * record[name].where(record["seed"] == 3) for name in variables}
    found = written(
        tmp_path, on_distribution=record.assign(here).assign_attrs(sequences=20, scale="zoo")
    )
    for source in record["source"].values:
        for network in record["architecture"].values:
            one = record.sel(source=source, architecture=network, seed=3)
            pair = float(one["excess"]), float(one["excess_error"])
            value = plus_minus(1.1 * pair[0], 1.1 * pair[1])
            assert f"zoo, here: {value}" in found.text
            assert f"{value} ({plus_minus(*pair)})" in found.text
    assert "Recorded at scale full" in found.text
    start = found.text.index(STUDIES["memory"].question)
    assert found.text.index("not computed on this machine", start) > start
    # What the machine of the record was is in a fold, what was done here at the end.
    device = record.attrs["provenance"]["device"]
    assert device in found.text
    assert device not in found.unfolded
    assert "on-distribution, recorded" in found.text
    assert "no results of it are recorded" in found.text  # of what the zoo cannot do


def test_what_is_missing_is_named(results, tmp_path):
    page = written(tmp_path)
    claims = sum(len(study.claims) for study in STUDIES.values())
    assert "on-distribution, which answers this, was not run" in page.text
    assert page.text.count("? open") == claims
    assert page.text.count("Not run:") == len(STUDIES)
    assert {link.removeprefix("#") for link in page.links} <= set(page.names)
    text = written(tmp_path, memory=results["memory"]).text
    assert text.count("Not run:") == len(STUDIES) - 1
    assert "report DIR --redraw memory" in text


def test_runs_that_a_record_lacks_are_counted_and_named(results, tmp_path):
    lacking = [f"stack-rnn-length-{length}" for length in (8, 16, 32, 64, 128)]
    missing = {name: {"ptw": [0, 1, 2]} for name in lacking}
    lengths = results["other-lengths"].assign_attrs(missing_runs=missing)
    page = written(tmp_path, other_lengths=lengths)
    assert "Not run: 5 training runs" in page.unfolded
    assert ", ".join(lacking) in page.text


def test_a_damaged_result_is_named_and_not_shown(results, tmp_path):
    kept = {"memory": results["memory"], "on_distribution": results["on-distribution"]}
    written(tmp_path, **kept)
    path = tmp_path / "results" / "on-distribution.nc"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    text = Page(write_report(tmp_path)).text
    assert "on-distribution, which answers this, was not run" in text
    assert f"Not shown: {path} is damaged" in text
    assert STUDIES["memory"].question in text
    assert STUDIES["on-distribution"].question not in text
    with pytest.raises(ValueError, match="damaged") as error:
        write_markdown(tmp_path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    "changed",
    [
        lambda result: result.assign_attrs(study="priors"),
        lambda result: result.assign_attrs(format=99),
        lambda result: result.drop_vars("regret_mean"),
        lambda result: result.assign_attrs(provenance=None),
        lambda result: result.assign_attrs(labels=3),
    ],
)
def test_a_result_that_is_not_what_it_should_be_is_named_and_not_shown(results, tmp_path, changed):
    text = written(tmp_path, memory=changed(results["memory"])).text
    assert f"Not shown: {tmp_path / 'results' / 'memory.nc'}" in text
    assert STUDIES["memory"].question not in text


def test_what_a_file_says_is_text_on_the_page(results, tmp_path):
    labels = results["memory"].attrs["labels"] | {"lin": "<img src=x>"}
    made = results["memory"].attrs["provenance"] | {"command": "switchpoint </pre><script>"}
    changed = results["memory"].assign_attrs(labels=labels, provenance=made)
    page = written(tmp_path, memory=changed)
    assert "<script" not in page.source
    assert page.images == []
    assert "<img src=x>" in page.text
    assert "switchpoint </pre><script>" in page.text


def test_a_link_in_place_of_a_picture_is_not_followed(results, tmp_path):
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"not for this page")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "memory.png").symlink_to(secret)
    page = written(tmp_path, memory=results["memory"])
    assert page.images == []
    assert "--redraw memory , once the link" in page.text
    assert secret.read_bytes() == b"not for this page"


def rows_of(markdown, title):
    """The table below a title, as lists of cells by the first of each row."""
    lines = markdown.split(f"**{title}**")[1].strip().split("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert set(rows[1]) == {"---"}
    assert len({len(row) for row in rows}) == 1
    return {row[0]: row[1:] for row in (rows[0], *rows[2:])}


def test_markdown_tables_have_the_numbers_of_the_results(results):
    text = write_markdown(QUICK)
    for study in (STUDIES[name] for name in results):
        for table in study.tables(results):
            assert len(rows_of(text, table.title)) == 1 + len({row[0] for row in table.rows})
    result = results["on-distribution"]
    rows = rows_of(text, "Excess over the exact optimum, bits")
    assert rows[""] == [result.attrs["labels"][str(name)] for name in result["source"].values]
    for network in map(str, result["architecture"].values):
        seeds = result["excess"].sel(architecture=network)
        optimum = result["exact_regret"].sel(exact="optimum").values
        for cell, own, least in zip(rows[network], seeds.values, optimum, strict=True):
            told = [float(number) for number in re.findall(r"-?[\d.]+", cell)]
            median = float(sum(own) / 2)  # of two seeds
            expected = [median, 100 * median / least, min(own), max(own)]
            assert told == pytest.approx(expected, abs=0.006)
    for study, variable, dimension in (
        ("memory", "regret_mean", "order"),
        ("longer-lengths", "excess_mean", "architecture"),
    ):
        rows = rows_of(text, STUDIES[study].tables(results)[0].title)
        for label, means in results[study][variable].groupby(dimension):
            told = [float(cell.split(" ± ")[0]) for cell in rows[str(label)]]
            assert told == pytest.approx(means.values.ravel(), abs=0.006)


def test_markdown_without_results_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="switchpoint reproduce") as error:
        write_markdown(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_numbers():
    assert [bits(x) for x in (123.4, 28.31, 12.163, 0.0421, -2.3, 0.0, -0.0001)] == [
        "123", "28.3", "12.16", "0.042", "−2.30", "0.000", "0.000",
    ]  # fmt: skip
    assert plus_minus(12.1634, 0.081) == "12.16 ± 0.08"
    assert plus_minus(12.1634, 0.0123) == "12.163 ± 0.012"
    assert plus_minus(-123.4, 20.0) == "−123 ± 20"
    assert plus_minus(3.0, float("nan")) == "3.00"
    assert plus_minus(1e-9, 1e-8) == "0.000"
    shares = {0.00042: "0.04 %", 0.0099: "0.99 %", 0.042: "4.2 %", 0.123: "12 %", 1.95: "195 %"}
    assert {share: percent(share).replace("\xa0", " ") for share in shares} == shares
    assert join_and(["a"]) == "a"
    assert join_and(["a", "b", "c"]) == "a, b and c"
    assert [duration(x) for x in (1.234, 42.4, 600, 7500)] == [
        "1.2 s",
        "42 s",
        "10 min",
        "2 h 05 min",
    ]
