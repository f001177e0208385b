"""The predictor of an archive: described in its header, and made again from that."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from switchpoint._files import digest_of
from switchpoint._text import printable
from switchpoint.cli import config_options as options
from switchpoint.exact import KT, bayes_optimal
from switchpoint.neural import best_member, load, read_card
from switchpoint.neural.storage import MODEL_FILE
from switchpoint.predictor import Predictor
from switchpoint.priors import PRIOR_NAMES
from switchpoint.segments.dirichlet import as_dirichlet
from switchpoint.sources import Source
from switchpoint.streams.storage import describe_predictor, make_predictor
from switchpoint.zoo import path_of

_NETWORK = "file"  # the type of a predictor that is a network in a file


def describe_exact(
    prior: str, hypotheses: int, given: Mapping[str, Any], alphabet: int, length: int
) -> dict[str, Any]:
    """The optimum of a prior, or KT, with the parameters among the options `given`."""
    segment = options.segment_model(given, alphabet)
    predictor: Predictor[Any] = KT(as_dirichlet(segment))
    if prior != "kt":
        if prior not in PRIOR_NAMES:
            raise ValueError(f"prior must be one of {', '.join(PRIOR_NAMES)} or kt, got {prior!r}")
        source = Source(options.make_prior(prior, max(1, length), given), segment)
        predictor = bayes_optimal(source, None if prior == "ptw" else hypotheses)
    elif odd := [name for name in options.PRIOR if given[name] is not None]:
        raise ValueError(f"{odd[0]} is not a parameter of kt, which takes none")
    return describe_predictor(predictor)[0]


def describe_network(model: str, member: int | None) -> dict[str, Any]:
    """A trained network by its name or path, and by the SHA-256 of its file."""
    path = path_of(model)
    index = best_member(read_card(path)) if member is None else member
    return {"type": _NETWORK, "name": model, "member": index, "sha256": digest_of(_file(path))}


def predictor_from(about: Mapping[str, Any], model: str | None = None) -> Predictor[Any]:
    """The predictor that was described; `model` is where its network is, if it was moved."""
    if about["type"] != _NETWORK:
        if model is not None:
            raise ValueError(f"the archive was made without a network, got --model {model}")
        return make_predictor(about, {})
    name = about["name"] if model is None else model
    try:
        path = path_of(name)
        found = digest_of(_file(path))
    except (ValueError, OSError) as error:
        raise ValueError(
            f"the archive needs the network {printable(name)}, which is not here ({error}); say "
            "where it is with --model"
        ) from error
    if found != about["sha256"]:
        raise ValueError(
            f"{printable(name)} is not the network of the archive: its SHA-256 is "
            f"{found[:12]}..., not {about['sha256'][:12]}...; say where that one is with --model"
        )
    return load(path, about["member"])


def _file(path: Path) -> Path:
    return path / MODEL_FILE if path.is_dir() else path
