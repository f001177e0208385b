"""The page of the playground: one file that allows nothing else, at work in a real browser."""

import re
import shutil
import statistics
import webbrowser

import pytest
from browser import Browser

from switchpoint.cli import main
from switchpoint.playground import build_page

PASTE = """(() => {
  const data = new DataTransfer();
  data.setData("text", %r);
  window.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data }));
})()"""

EDITS = """(() => {
  const times = [];
  for (let i = 0; i < 21; i++) {
    const values = [...playground.sequence.values];
    const t = (i * 97) %% values.length;
    values[t] = 1 - values[t];
    const before = performance.now();
    playground.edit({ ...playground.sequence, values });
    playground.render(%s);
    times.push(performance.now() - before);
  }
  return times;
})()"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("playground") / "playground.html"
    path.write_text(build_page(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    program = shutil.which("chromium")
    assert program, "this test needs Debian's package chromium"
    with Browser(program, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(window, page):
    """The page as it opens, in a window of usual size; it must not complain by the end."""
    window.resize(1400, 1000)
    window.open("about:blank", "true")
    window.open(page.as_uri())
    yield window
    assert window.errors == []


def values(browser):
    return browser.evaluate("playground.sequence.values")


def message(browser):
    return browser.evaluate("document.querySelector('#message').textContent")


def middle_of(browser, name, slot, height=0.5):
    """A point of the window in a slot of a view."""
    return browser.evaluate(
        f"""(() => {{
          playground.render();
          const plot = playground.plots.{name};
          const box = plot.canvas.getBoundingClientRect();
          const y = plot.top + {height} * (plot.bottom - plot.top);
          return [box.left + plot.x({slot}) + plot.slot / 2, box.top + y];
        }})()"""
    )


def test_the_page_is_one_small_file_without_references(page):
    source = page.read_text()
    assert len(source.encode()) < 2_500_000
    without_weights = re.sub(r'<script type="application/json".*?</script>', "", source, flags=re.S)
    namespace = "http://www.w3.org/2000/svg"
    assert "://" not in without_weights.replace(namespace, "")
    assert not re.findall(r"(?:src|href)=|@import|url\(|fetch\(|\bimport\b", without_weights)
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', source)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


@pytest.mark.browser
def test_click_drag_type_undo(browser):
    first = values(browser)
    browser.click(*middle_of(browser, "strip", 10))
    flipped = values(browser)
    assert [t for t in range(128) if flipped[t] != first[t]] == [10]
    browser.click(*middle_of(browser, "strip", 20), to=middle_of(browser, "strip", 26))
    assert values(browser)[26] == 1 - first[20]
    browser.press("z", modifiers=2)  # the whole drag
    assert values(browser) == flipped
    browser.press("z", modifiers=2)
    assert values(browser) == first
    browser.press("y", modifiers=2)
    assert values(browser) == flipped
    browser.click(*middle_of(browser, "strip", 128))  # the slot of the next bit
    browser.press("0", text="0")
    browser.press("1", text="1")
    assert values(browser) == [*flipped, 1, 0, 1]
    browser.press("Backspace")
    assert values(browser) == [*flipped, 1, 0]


@pytest.mark.browser
def test_paste_and_an_empty_strip(browser):
    browser.evaluate(PASTE % "0 1 x 1 1")
    assert values(browser) == [0, 1, 1, 1]
    assert "“x”" in message(browser)
    browser.evaluate(PASTE % "nothing here")
    assert values(browser) == [0, 1, 1, 1]
    assert "no bits or numbers" in message(browser)
    browser.evaluate("document.querySelector('#clear').click(); playground.render()")
    assert values(browser) == []
    assert "empty" in browser.evaluate("document.querySelector('#strip .about').textContent")
    browser.press("1", text="1")
    assert values(browser) == [1]
    browser.evaluate(PASTE % "3 4.5 -2")
    assert browser.evaluate("playground.sequence.kind") == "values"
    browser.click(*middle_of(browser, "strip", 1, height=0))
    assert values(browser) == [3, browser.evaluate("playground.sequence.range[1]"), -2]
    browser.evaluate("playground.render()")
    assert browser.evaluate("document.querySelectorAll('tr.unknown').length") == 3


@pytest.mark.browser
def test_toggles_and_settings(browser):
    rows = "playground.legend.rows"
    lines = f"Object.keys({rows}).filter((name) => {rows}[name].box.checked)"
    before = browser.evaluate(f"playground.render(), {lines}")
    browser.evaluate("playground.legend.rows.rnn.box.click(); playground.render()")
    assert browser.evaluate(lines) == [
        name for name in ("ptw", "lin", "geometric", "kt", "oracle", "rnn", "lstm")
        if name in before or name == "rnn"
    ]  # fmt: skip
    bits = "playground.model.predictors.geometric.bits[128]"
    old = browser.evaluate(bits)
    browser.evaluate(
        """(() => {
          const slider = document.querySelector("#hazard");
          slider.value = -1;
          slider.dispatchEvent(new Event("input"));
          document.querySelector("[data-posterior=ptw]").click();
          document.querySelector("#reveal").click();
          playground.render();
        })()"""
    )
    assert browser.evaluate(bits) != old
    assert browser.evaluate("playground.model.hazard") == 0.1
    assert browser.evaluate("playground.model.posterior === playground.model.laws.ptw")
    x, y = middle_of(browser, "predictions", 60)
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    tip = browser.evaluate("document.querySelector('#tip').innerText")
    assert "observation 60" in tip
    assert "LSTM" in tip
    browser.wait("location.hash.includes('hazard=0.1&posterior=ptw')")
    assert "revealed=1" in browser.evaluate("location.hash")
    browser.evaluate("document.querySelector('#draw').requestSubmit()")
    assert len(values(browser)) == 128
    browser.evaluate("document.querySelector('#theme').click()")
    assert browser.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.browser
def test_the_keyboard_reads_every_view(browser):
    x, y = middle_of(browser, "strip", 60)
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    for name in ("strip", "predictions", "switches", "starts", "code"):
        browser.evaluate(f"document.querySelector('#{name} .plot').focus()")
        browser.press("Home")
        browser.press("ArrowRight")
        # The window scrolls to the view, perhaps after the keys, and away from under the mouse.
        browser.evaluate("window.dispatchEvent(new Event('scroll'))")
        leave = "dispatchEvent(new PointerEvent('pointerleave', { pointerType: 'mouse' }))"
        browser.evaluate(f"document.querySelector('#strip .plot').{leave}")
        browser.evaluate("playground.render()")
        spoken = f"document.querySelector('#{name} .plot').ariaValueText"
        assert browser.evaluate(spoken).startswith("observation 1 of 128: ")
    browser.evaluate("document.querySelector('#strip .plot').focus()")
    before = values(browser)
    browser.press(" ", text=" ")
    assert values(browser) == [before[0], 1 - before[1], *before[2:]]
    assert browser.evaluate("document.querySelector('#live').textContent") != ""


@pytest.mark.browser
def test_links(browser, page):
    whole = "bits=0011&switches=2&hazard=0.1&posterior=lin&hidden=kt&end=4"
    browser.open(f"{page.as_uri()}#{whole}")
    assert (values(browser), message(browser)) == ([0, 0, 1, 1], "")
    browser.open(f"{page.as_uri()}#{whole[:9]}")
    browser.wait("document.querySelector('#message').textContent.includes('damaged')")
    assert values(browser) == [0, 0, 1, 1]
    browser.click(*middle_of(browser, "strip", 0))
    assert values(browser)[0] == 1


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 800, 1400])
def test_nothing_is_wider_than_the_window(browser, width):
    browser.resize(width, 800)
    browser.evaluate("playground.render()")
    assert browser.evaluate("document.documentElement.scrollWidth") == width


def median_edit(browser, patience):
    """The median milliseconds of an edit anywhere, less the share that other programs took."""

    def processor_seconds():
        metrics = browser.call("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in metrics if each["name"] == "TaskDuration")

    before = processor_seconds()
    times = browser.evaluate(EDITS % patience)
    share = 1000 * (processor_seconds() - before) / sum(times)
    return statistics.median(times) * min(1, share)


@pytest.mark.browser
def test_edits_are_redrawn_at_once(browser):
    browser.call("Performance.enable", timeDomain="threadTicks")
    browser.evaluate("playground.drawFrom('geometric', 256); playground.render()")
    assert min(median_edit(browser, "-1") for _ in range(3)) < 16
    # 50 on a core of its own; two threads of one core are slower.
    assert min(median_edit(browser, "Infinity") for _ in range(3)) < 75


def test_the_command_writes_the_page(tmp_path, capsys, monkeypatch, page):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    monkeypatch.setenv("DISPLAY", ":0")
    path = tmp_path / "page.html"
    assert main(["playground", "--out", str(path), "--no-open"]) == 0
    assert path.read_text() == page.read_text()
    assert opened == []
    assert main(["playground", "--out", str(path)]) == 0
    assert opened == [path.as_uri()]
    assert main(["playground", "--out", str(tmp_path / "page.txt")]) == 2
    assert ".html" in capsys.readouterr().err
