"""A zoo: network files in a directory, by the names that its networks may have."""

import os
from os import PathLike
from pathlib import Path
from typing import Any

from switchpoint import neural
from switchpoint._files import digest_of
from switchpoint._text import did_you_mean
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


class Zoo:
    """The networks in one directory; each file carries a checksum of its content.

    >>> from switchpoint.zoo import Zoo
    >>> zoo = Zoo()
    >>> zoo.names()[:2], zoo.card("rnn-ptw")["test"]["length"]
    (['rnn-ptw', 'rnn-lin'], 256)
    >>> zoo.network("rnn-ptw").log_probs([0, 1, 1]).shape
    (3, 2)
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = PACKAGED if directory is None else directory

    def names(self) -> list[str]:
        """The networks that are there, in the usual order."""
        return [name for name in NAMES if self.file(name).exists()]

    def file(self, name: str) -> Path:
        """The path of a network of this name."""
        return self.directory / f"{name}.safetensors"

    def path(self, name: str) -> Path:
        """The file of a network, which must be there."""
        if name not in NAMES:
            raise ValueError(f"the zoo has no network {name!r}{_nearest(name)}")
        if not self.file(name).exists():
            raise ValueError(f"the zoo holds no {name}: {self.contents()}")
        return self.file(name)

    def card(self, name: str) -> dict[str, Any]:
        """The card in a network's file, verified by the file's checksum."""
        path = self.path(name)
        card = neural.read_card(path, verify=True)
        missing = [key for key in ("name", "test", "sources", "config") if key not in card]
        if missing:
            raise ValueError(f"{path} has no card of a zoo: it does not say {', '.join(missing)}")
        return card

    def network(self, name: str) -> Network:
        """A network, ready to predict."""
        return neural.load(self.path(name))

    def contents(self) -> str:
        """The names of the networks, in words."""
        names = self.names()
        return f"it has {', '.join(names)}" if names else "there are no networks in it yet"

    def digests(self) -> dict[str, str]:
        """The SHA-256 of each file, by the name of its network."""
        return {name: digest_of(self.file(name)) for name in self.names()}

    def size(self) -> int:
        """The bytes of all files together."""
        return sum(self.file(name).stat().st_size for name in self.names())


def path_of(network: str | PathLike[str], zoo: Zoo | None = None) -> Path:
    """The file or directory of a network, given as a name of the zoo or as a path.

    A name of the zoo wins over a path that is spelled the same: write ./lstm-ptw for that.

    >>> from switchpoint.zoo import path_of
    >>> path_of("rnn-ptw").name, path_of("./rnn-ptw").name
    ('rnn-ptw.safetensors', 'rnn-ptw')
    """
    path, text = Path(network), os.fspath(network)
    zoo = Zoo() if zoo is None else zoo
    if text in zoo.names():
        return zoo.path(text)
    looks_like_path = text.endswith(".safetensors") or os.sep in text or text in ("", ".", "..")
    if path.exists() or looks_like_path:
        return path
    if text in NAMES:
        raise ValueError(
            f"{text} is not in the zoo: {zoo.contents()}; there is no such path either"
        )
    raise ValueError(
        f"there is no file or directory {text}, nor a network in the zoo{_nearest(text)}"
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

    >>> import switchpoint as sp
    >>> network = sp.load("rnn-ptw")
    >>> bool(sp.Stream(network).extend([1] * 50)[-1] > -0.1)  # ln P(1 | 49 times 1)
    True
    """
    return neural.load(path_of(network), member, prior, like)


def load_members(network: str | PathLike[str], *, like: Like = None) -> list[Network]:
    """All networks of a file or of the directory of a run; of the zoo, the one of that name.

    Those of your own class need `like`, as in `load`.

    >>> import switchpoint as sp
    >>> len(sp.load_members("rnn-ptw"))
    1
    """
    return neural.load_members(path_of(network), like)


def _nearest(name: str) -> str:
    return did_you_mean(name, NAMES) or f"; its names are {', '.join(NAMES)}"
