"""The playground as one HTML file: modules, style and weights, and a policy that allows no more."""

import base64
import hashlib
import json
import re
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, cast

import numpy as np

from switchpoint import zoo
from switchpoint.neural import Recurrent
from switchpoint.neural.storage import named_leaves

SOURCES = Path(__file__).parent

NETWORKS = {"rnn": "rnn-ptw", "lstm": "lstm-ptw"}
"""The networks of the zoo by their names on the page."""

_IMPORT = re.compile(r'^import [^;]* from "\./(.*)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def build_page() -> str:
    """The playground: a page of HTML that needs neither a server nor a network.

    It has the exact predictors in JavaScript, and the weights of `rnn-ptw` and `lstm-ptw` from the
    zoo in half precision. Its Content-Security-Policy allows its own script and style, by their
    hashes, and nothing else.

        >>> from switchpoint.playground import build_page
        >>> page = build_page()
        >>> page[:15], len(page) < 2_500_000
        ('<!doctype html>', True)
    """
    script = bundle()
    style = _read("style.css")
    parts = {
        "policy": "; ".join(
            [
                "default-src 'none'",
                f"script-src {_digest(script)}",
                f"style-src {_digest(style)}",
                "base-uri 'none'",
                "form-action 'none'",
            ]
        ),
        "style": style,
        "script": script,
        "networks": json.dumps(
            {name: describe(cast(Recurrent, zoo.load(of))) for name, of in NETWORKS.items()}
        ),
    }
    # One pass, so that no part is searched for the names of others.
    return re.sub(r"\{\{(\w+)\}\}", lambda name: parts[name[1]], _read("page.html"))


def bundle() -> str:
    """All modules as one, each after those that it imports; their names must differ."""
    texts = {path.name: _read(path.name) for path in sorted(SOURCES.glob("*.js"))}
    imports = {name: _IMPORT.findall(text) for name, text in texts.items()}
    ordered = TopologicalSorter(imports).static_order()
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", texts[name])) for name in ordered)


def describe(network: Recurrent) -> dict[str, Any]:
    """A recurrent network as the page takes it: its weights as half floats, by their paths."""
    weights = {
        path: {
            "shape": leaf.shape,
            "data": base64.b64encode(np.asarray(leaf, "<f2").tobytes()).decode(),
        }
        for path, leaf in named_leaves(network).items()
    }
    return {"units": network.units, "hidden": network.hidden, "weights": weights}


def _read(name: str) -> str:
    return (SOURCES / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """The source expression that allows an inline element of this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
