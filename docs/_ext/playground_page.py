"""Put the playground beside the pages of the site, for the frame in playground.md."""

from pathlib import Path

from switchpoint.playground import build_page


def _write_page(app, error):
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "playground-page.html").write_text(build_page(), encoding="utf-8")


def setup(app):
    """Register the extension with Sphinx."""
    app.connect("build-finished", _write_page)
    return {"parallel_read_safe": True}
