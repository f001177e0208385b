"""A zoo: network files in a directory, and the manifest that says what each must be."""

import difflib
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from switchpoint import neural
from switchpoint._files import check_writable, make_directory, read_json, write_json
from switchpoint._formats import FORMAT, NEWEST
from switchpoint.neural import Network
from switchpoint.neural.storage import Like

MODELS = ("rnn", "lstm", "stack-rnn", "stack-lstm", "transformer")
"""The architectures of the paper."""

SOURCES = ("ptw", "lin", "regular", "uniform")
"""The sources of the paper, by the names of their priors."""

NAMES = tuple(f"{model}-{prior}" for model in MODELS for prior in SOURCES)
"""All networks that the zoo may hold, in the order of its tables."""

PACKAGED = Path(__file__).parent / "files"
"""The networks that come with the package."""

_MANIFEST = "manifest.json"


def _near_names(name: str) -> str:
    """A question for the names that `name` may have been meant for; empty if none is near."""
    near = difflib.get_close_matches(name, NAMES, n=3)
    return f"did you mean {' or '.join(near)}?" if near else ""


@dataclass(frozen=True)
class Entry:
    """The entry of a file in the manifest."""

    file: str
    size: int
    """In bytes."""
    sha256: str


class Zoo:
    """The networks in one directory; a file is read only if it is the one in the manifest."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = PACKAGED if directory is None else directory
        self.entries: Mapping[str, Entry] = _read_manifest(self.directory / _MANIFEST)

    def names(self) -> list[str]:
        """The networks that are there, in the usual order."""
        return [name for name in NAMES if name in self.entries]

    def path(self, name: str) -> Path:
        """The file of a network, checked to be the one that the manifest means."""
        if name not in NAMES:
            raise ValueError(f"the zoo has no network {name!r}; {_nearest(name)}")
        if name not in self.entries:
            raise ValueError(f"the zoo holds no {name}: {self.contents()}")
        entry = self.entries[name]
        path = self.directory / entry.file
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(
                f"{name} is missing from the zoo: {path} ({error.strerror})"
            ) from error
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise ValueError(
                f"{path} is damaged: its SHA-256 is not the one in {_MANIFEST}, so {name} is "
                "refused; install switchpoint again"
            )
        return path

    def card(self, name: str) -> dict[str, Any]:
        """The card in a network's file, verified against the manifest's SHA-256."""
        path = self.path(name)
        card = neural.read_card(path)
        missing = [key for key in ("name", "test", "sources", "config") if key not in card]
        if missing:
            raise ValueError(f"{path} has no card of a zoo: it does not say {', '.join(missing)}")
        return card

    def parameters(self, name: str) -> int:
        """The number of weights of a network."""
        return neural.count_parameters(self.path(name))

    def network(self, name: str) -> Network:
        """A network, ready to predict."""
        return neural.load(self.path(name))

    def contents(self) -> str:
        """The names of the networks, in words."""
        names = self.names()
        return f"it has {', '.join(names)}" if names else "there are no networks in it yet"

    def prepare(self, names: Iterable[str]) -> None:
        """Create the directory; a `ValueError` if files of these networks cannot be written."""
        make_directory(self.directory)
        for path in (self.directory / _MANIFEST, *map(self.file, names)):
            check_writable(path)

    def add(self, name: str) -> None:
        """Enter the file of a network, which has just been written, in the manifest."""
        data = self.file(name).read_bytes()
        entry = Entry(self.file(name).name, len(data), hashlib.sha256(data).hexdigest())
        known = {**self.entries, name: entry}
        self.entries = {each: known[each] for each in NAMES if each in known}
        entries = {each: asdict(entry) for each, entry in self.entries.items()}
        content = {FORMAT: NEWEST, "networks": entries}
        write_json(self.directory / _MANIFEST, content, "manifest")

    def file(self, name: str) -> Path:
        """The path of a network of this name."""
        return self.directory / f"{name}.safetensors"


def path_of(network: str | PathLike[str], zoo: Zoo | None = None) -> Path:
    """The file or directory of a network, given as a name of the zoo or as a path.

    A name of the zoo wins over a path that is spelled the same: write ./lstm-ptw for that.
    """
    path, text = Path(network), os.fspath(network)
    zoo = Zoo() if zoo is None else zoo
    if text in zoo.entries:
        return zoo.path(text)
    looks_like_path = text.endswith(".safetensors") or os.sep in text or text in ("", ".", "..")
    if path.exists() or looks_like_path:
        return path
    if text in NAMES:
        raise ValueError(
            f"{text} is not in the zoo: {zoo.contents()}; there is no such path either"
        )
    raise ValueError(
        f"there is no file or directory {text}, nor a network in the zoo; {_nearest(text)}"
    )


def load(
    network: str | PathLike[str],
    member: int | None = None,
    prior: str | None = None,
    *,
    like: Like = None,
) -> Network:
    """A network of the zoo, such as `lstm-ptw`, or from a file or the directory of a run.

    If there are several members: the one with the index `member`, or the best of all, or the
    best of those that were trained on `prior` (see `switchpoint.neural.best_member`). A network
    of your own class needs `like`: the function of a key that makes one, or any network of the
    same class and shapes.
    """
    return neural.load(path_of(network), member, prior, like)


def load_members(network: str | PathLike[str], *, like: Like = None) -> list[Network]:
    """All networks of a file or of the directory of a run; of the zoo, the one of that name.

    Those of your own class need `like`, as in `load`.
    """
    return neural.load_members(path_of(network), like)


def _nearest(name: str) -> str:
    return _near_names(name) or f"its names are {', '.join(NAMES)}"


def _read_manifest(path: Path) -> dict[str, Entry]:
    """The entries of a manifest; none if there is no manifest."""
    if not path.exists():
        return {}
    networks = read_json(path, networks=dict)["networks"]
    try:
        entries = {name: Entry(**entry) for name, entry in networks.items()}
    except TypeError as error:
        raise ValueError(f"{path} is no manifest of a zoo ({error})") from error
    for name, entry in entries.items():
        types = (type(entry.file), type(entry.size), type(entry.sha256))
        if types != (str, int, str) or Path(entry.file).name != entry.file:
            raise ValueError(f"{path} is no manifest of a zoo: {name} must be a file, got {entry}")
    return entries
