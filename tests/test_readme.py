"""The documents are true: the README's Python runs as written, files and names exist."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import switchpoint
from switchpoint import evaluation
from switchpoint.paper.labels import display_name
from switchpoint.paper.report import write_markdown
from switchpoint.paper.scale import RECORDED

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.slow
def test_python_blocks_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # they save a state
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) >= 2
    names = {}
    for block in blocks:
        exec(block, names)
    regret = float(capsys.readouterr().out.split()[0])
    errors = float(np.asarray(names["bits"]).sum(-1).std()) / 1000**0.5
    assert regret == pytest.approx(12.1, abs=5 * errors)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_refer_to_existing_files(document):
    text = document.read_text()
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (document.parent / link).is_file(), link
    for file in re.findall(r"\bpython ([\w/]+\.py)|`(tests/[\w/]+\.py)`", text):
        assert (ROOT / "".join(file)).is_file(), file


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_use_the_public_api(document):
    for name, attribute in re.findall(r"\bsp\.(\w+)(?:\.(\w+))?", document.read_text()):
        if (ROOT / "src" / "switchpoint" / name / "__init__.py").exists():
            module = importlib.import_module(f"switchpoint.{name}")
            assert not attribute or attribute in module.__all__, f"sp.{name}.{attribute}"
        else:
            assert name in switchpoint.__all__, f"sp.{name}"


def test_its_table_is_that_of_the_recorded_results():
    result = evaluation.load(RECORDED / "on-distribution.nc")
    optimum = result["exact_regret"].sel(exact="optimum")
    rows = dict(re.findall(r"^\| ([\w' -]+?) \| (.*) \|$", README, re.MULTILINE))
    assert rows["the optimum's regret"] == " | ".join(f"{bits:.2f}" for bits in optimum.values)
    for architecture in map(str, result["architecture"].values):
        cells = []
        for source in result["source"].values:
            one = result.sel(architecture=architecture, source=source)
            median, count = float(one["excess_median"]), int(one["excess"].notnull().sum())
            share = median / float(optimum.sel(source=source))
            few = "" if count == one.sizes["seed"] else f", {count} seeds"
            cells.append(f"{median:.3f} ({share:.2%}){few}")
        assert rows[display_name(architecture)] == " | ".join(cells)


def test_the_tables_of_the_results_are_recorded():
    documented, recorded = (
        {line for line in text.splitlines() if line.startswith("|")}  # the page may split a table
        for text in ((ROOT / "docs" / "results.md").read_text(), write_markdown(RECORDED))
    )
    assert len(recorded) > 25
    assert documented == recorded
