"""A zoo: network files in a directory, and the manifest that says what each must be."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from switchpoint._files import read_json, write_json
from switchpoint.neural import Network, count_parameters, read_card
from switchpoint.neural import load as load_network
from switchpoint.zoo.names import NAMES, nearest

PACKAGED = Path(__file__).parent / "files"
"""The networks that come with the package."""

_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Entry:
    """What the manifest says of one file."""

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
        """The file of a network, proved to be the one that the manifest means."""
        if name not in NAMES:
            raise ValueError(f"the zoo has no network {name!r}; {nearest(name)}")
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
        """What a network's file says about it; the manifest's SHA-256 proves it whole."""
        path = self.path(name)
        card = read_card(path)
        lacking = [key for key in ("name", "test", "sources", "config") if key not in card]
        if lacking:
            raise ValueError(f"{path} has no card of a zoo: it does not say {', '.join(lacking)}")
        return card

    def parameters(self, name: str) -> int:
        """How many weights a network has."""
        return count_parameters(self.path(name))

    def network(self, name: str) -> Network:
        """A network, ready to predict."""
        return load_network(self.path(name))

    def contents(self) -> str:
        """What is there, in words."""
        names = self.names()
        return f"it has {', '.join(names)}" if names else "there are no networks in it yet"

    def add(self, name: str) -> None:
        """Enter the file of a network, which has just been written, in the manifest."""
        data = self.file(name).read_bytes()
        entry = Entry(self.file(name).name, len(data), hashlib.sha256(data).hexdigest())
        known = {**self.entries, name: entry}
        self.entries = {each: known[each] for each in NAMES if each in known}
        entries = {each: asdict(entry) for each, entry in self.entries.items()}
        write_json(self.directory / _MANIFEST, {"networks": entries}, "manifest")

    def file(self, name: str) -> Path:
        """Where a network of this name belongs."""
        return self.directory / f"{name}.safetensors"


def _read_manifest(path: Path) -> dict[str, Entry]:
    """The entries of a manifest; none where there is no manifest."""
    if not path.exists():
        return {}
    networks = read_json(path, unsealed=True, networks=dict)["networks"]
    try:
        entries = {name: Entry(**entry) for name, entry in networks.items()}
    except TypeError as error:
        raise ValueError(f"{path} is no manifest of a zoo ({error})") from error
    for name, entry in entries.items():
        types = (type(entry.file), type(entry.size), type(entry.sha256))
        if types != (str, int, str) or Path(entry.file).name != entry.file:
            raise ValueError(f"{path} is no manifest of a zoo: {name} must be a file, got {entry}")
    return entries
