"""The report opens in a real browser, shows every figure, and says what is missing."""

import io
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from saved_studies import all_studies, save_all

from switchpoint.experiments import findings
from switchpoint.figures.studies import STUDIES, study_figures
from switchpoint.report import write_report
from switchpoint.report.answer import found
from switchpoint.report.captions import study_captions
from switchpoint.report.numbers import bits, duration, listed, percent, with_error

PHONE, DESK = 360, 1200

WRAPPER = """<!DOCTYPE html><body><iframe id="page" src="{address}"
style="width:{width}px;height:800px;border:0"></iframe><pre id="found"></pre><script>
document.getElementById("page").onload = (event) => {{
  const page = event.target.contentDocument;
  const images = [...page.images].map((image) => image.naturalWidth > 0 && image.alt.length > 20);
  const root = page.documentElement;
  document.getElementById("found").textContent =
    `images ${{images.length}} good ${{images.filter(Boolean).length}} ` +
    `wide ${{root.scrollWidth}} of ${{root.clientWidth}}`;
}};
</script></body>"""


class Page(HTMLParser):
    """The words, images, links and identifiers of a page; its tags must be balanced."""

    VOID = ("meta", "link", "img", "br")

    def __init__(self, text):
        super().__init__()
        self.words, self.images, self.links, self.names, self.open = [], [], [], [], []
        self.feed(text)
        assert self.open == []

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

    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture(scope="module")
def studies():
    return all_studies(length=16, seeds=2)


@pytest.fixture(scope="module")
def report(studies, tmp_path_factory):
    """A report of all studies; one picture stands for all of them, to be quick."""
    directory = tmp_path_factory.mktemp("report")
    save_all(studies, directory)
    (figure,) = study_figures("mean-regret", studies["mean-regret"]).values()
    picture = io.BytesIO()
    figure.savefig(picture, dpi=20)
    (directory / "figures").mkdir()
    for name in figure_names(studies):
        (directory / "figures" / f"{name}.png").write_bytes(picture.getvalue())
    return write_report(directory)


def figure_names(studies):
    return [figure for name in studies for figure in study_captions(name, studies[name])]


def browse(address, profile, *options):
    """What the browser makes of a page, and what it logs."""
    browser = shutil.which("chromium")
    assert browser, "this test needs Debian's package chromium"
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--allow-file-access-from-files",
        "--enable-logging=stderr",
        "--v=0",
        f"--user-data-dir={profile}",
        "--virtual-time-budget=10000",
        "--dump-dom",
        *options,
        address,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.browser
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_a_browser_shows_every_figure_without_an_error(studies, report, tmp_path, width):
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(WRAPPER.format(address=report.as_uri(), width=width))
    dom, errors = browse(wrapper.as_uri(), tmp_path / "profile")
    count = len(figure_names(studies))
    assert errors == []
    # Every image has pixels and words, and the page itself does not scroll sideways.
    found = re.search(r'id="found">(.*?)<', dom).group(1)
    assert found == f"images {count} good {count} wide {width} of {width}"
    assert count >= 20


@pytest.mark.browser
def test_errors_would_be_seen(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<!DOCTYPE html><script>missing();</script>")
    _, errors = browse(page.as_uri(), tmp_path / "profile")
    assert len(errors) == 1


def test_everything_is_in_the_file(studies, report):
    text = report.read_text(encoding="utf-8")
    page = Page(text)
    assert set(studies) <= set(page.names)
    assert {f"figure-{name}" for name in figure_names(studies)} <= set(page.names)
    assert all(image["src"].startswith("data:image/png;base64,") for image in page.images)
    assert "<script" not in text
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", text)
    assert "@import" not in text
    assert "url(" not in text
    assert {link.removeprefix("#") for link in page.links} <= set(page.names)
    assert len(set(page.names)) == len(page.names)


def test_it_leads_with_the_answer(studies, report):
    text = Page(report.read_text(encoding="utf-8")).text()
    dataset = studies["on-distribution"].sel(source="ptw", architecture="lstm")
    cell = " ".join(
        [
            with_error(float(dataset["excess_mean"]), float(dataset["excess_mean_error"])),
            f"min {bits(float(dataset['excess_minimum']))} ·",
            f"median {bits(float(dataset['excess_median']))}",
            f"{percent(float(dataset['excess_mean']) / 12.2)} above",
        ]
    ).replace("\xa0", " ")
    assert 0 < text.index(cell) < text.index("What was found") < text.index("symbols with 3 switch")
    assert "Nearest to the exact Bayes optimum" in text
    assert "optimum pays 12.20 ± 0.08" in text
    for finding in findings(studies):
        evidence = finding.evidence.replace("PTW_4", "PTW₄")
        assert f"✓ holds {finding.claim} {evidence}" in text


def test_a_claim_that_fails_is_told_from_one_that_is_open(studies):
    shorter = studies["longer-lengths"].assign(excess_mean=-studies["longer-lengths"].excess_mean)
    text = Page(found({"longer-lengths": shorter})).text()
    assert "✗ fails The excess over PTW grows with length" in text
    assert text.count("? open") == len(findings({})) - 1


def test_it_ends_with_how_it_was_made(report):
    text = Page(report.read_text(encoding="utf-8")).text()
    end = text[text.index("How this was made", text.index("The paper:")) :]
    for words in (
        "11 studies took 10 min",  # 11 times 12.3 + 40.1 seconds
        "switchpoint reproduce --scale quick",
        "switchpoint 0.1.0, jax 0.10.0, Python 3.12.1",
        "Linux",
        '"lstm": 1500',
    ):
        assert words in end


def test_captions_are_whole_sentences(studies):
    for name, dataset in studies.items():
        for caption in study_captions(name, dataset).values():
            for words in (caption.alt, caption.seen, caption.paper):
                assert words.endswith(".")
                assert "nan" not in words
                assert "unknown" not in words


def test_captions_say_the_numbers(studies):
    seen = study_captions("longer-lengths", studies["longer-lengths"])["longer-lengths"].seen
    lstm = studies["longer-lengths"]["excess_mean"].sel(architecture="lstm").values
    assert "16 → 256: RNN" in seen
    assert f"LSTM {bits(lstm[0])} → {bits(lstm[-1])}" in seen
    seen = study_captions("trajectory", studies["trajectory"])["trajectory-ptw"].seen
    assert seen.startswith("16 symbols with 3 switches (at 4, 8 and 12).")
    seen = study_captions("priors", studies["priors"])["priors-ptw-positions"].seen
    assert "a switch at 8: exact 0.500, sampled " in seen


def test_what_is_missing_is_named(studies, tmp_path):
    path = write_report(tmp_path)
    page = Page(path.read_text(encoding="utf-8"))
    text = page.text()
    assert "The study on-distribution, which answers this, was not run." in text
    assert text.count("? open") == len(findings({}))
    assert text.count("Not run:") == len(STUDIES)
    assert {link.removeprefix("#") for link in page.links} <= set(page.names)
    save_all({"memory": studies["memory"]}, tmp_path)
    text = Page(write_report(tmp_path).read_text(encoding="utf-8")).text()
    assert text.count("Not run:") == len(STUDIES) - 1
    assert "memory is not drawn: switchpoint figure memory" in text


def test_many_networks_that_were_not_run_are_counted_and_each_is_named(studies, tmp_path):
    lacking = [f"stack-rnn-length-{length}" for length in (8, 16, 32, 64, 128)]
    not_run = {name: {"ptw": [0, 1, 2]} for name in lacking} | {"lstm": {"lin": [1]}}
    save_all({"other-lengths": studies["other-lengths"].assign_attrs(not_run=not_run)}, tmp_path)
    text = Page(write_report(tmp_path).read_text(encoding="utf-8")).text()
    assert "Not run: LSTM on LIN, seed 1." in text
    assert "Not run: 5 training runs on PTW, seeds 0 to 2" in text
    assert ", ".join(lacking) in text


def test_a_damaged_result_is_named_and_not_shown(studies, tmp_path):
    save_all({name: studies[name] for name in ("memory", "on-distribution")}, tmp_path)
    path = tmp_path / "results" / "on-distribution.nc"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    text = Page(write_report(tmp_path).read_text(encoding="utf-8")).text()
    assert "on-distribution, which answers this, was not run" in text
    assert f"Not shown: {path} is damaged" in text
    assert studies["memory"].attrs["question"] in text
    assert studies["on-distribution"].attrs["question"] not in text


@pytest.mark.parametrize(
    "changed",
    [
        lambda result: result.assign_attrs(study="priors"),
        lambda result: result.drop_vars("regret_mean"),
        lambda result: result.assign_attrs(provenance=None),
        lambda result: result.assign_attrs(labels=3),
    ],
)
def test_a_result_that_is_not_what_it_should_be_is_named_and_not_shown(studies, tmp_path, changed):
    save_all({"memory": changed(studies["memory"])}, tmp_path)
    text = Page(write_report(tmp_path).read_text(encoding="utf-8")).text()
    assert f"Not shown: {tmp_path / 'results' / 'memory.nc'}" in text
    assert studies["memory"].attrs["question"] not in text


def test_saved_findings_are_not_trusted(studies, tmp_path):
    save_all({"memory": studies["memory"]}, tmp_path)
    before = write_report(tmp_path).read_bytes()
    for text in ("null", "3", '[{"claim": 1}]', "[" * 10**5, '[{"claim": "a lie", "holds": true}]'):
        (tmp_path / "results" / "findings.json").write_text(text)
        assert write_report(tmp_path).read_bytes() == before


def test_a_link_in_place_of_a_picture_is_not_followed(studies, tmp_path):
    save_all({"memory": studies["memory"]}, tmp_path)
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"not for this page")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "memory.png").symlink_to(secret)
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert page.images == []
    assert "memory is not drawn: switchpoint figure memory , once the link" in page.text()
    assert secret.read_bytes() == b"not for this page"


def test_numbers():
    assert [bits(x) for x in (123.4, 28.31, 12.163, 0.0421, -2.3, 0.0, -0.0001)] == [
        "123", "28.3", "12.16", "0.042", "−2.30", "0.000", "0.000",
    ]  # fmt: skip
    assert with_error(12.1634, 0.081) == "12.16 ± 0.08"
    assert with_error(12.1634, 0.0123) == "12.163 ± 0.012"
    assert with_error(-123.4, 20.0) == "−123 ± 20"
    assert with_error(3.0, float("nan")) == "3.00"
    assert with_error(1e-9, 1e-8) == "0.000"
    shares = {0.00042: "0.04 %", 0.0099: "0.99 %", 0.042: "4.2 %", 0.123: "12 %", 1.95: "195 %"}
    assert {share: percent(share).replace("\xa0", " ") for share in shares} == shares
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert [duration(x) for x in (1.234, 42.4, 600, 7500)] == [
        "1.23 s",
        "42 s",
        "10 min",
        "2 h 05 min",
    ]
