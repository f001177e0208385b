"""Networks by a name of the zoo or by a path: the same to whoever asks for one."""

import os
from os import PathLike
from pathlib import Path

from switchpoint import neural
from switchpoint.neural import Network
from switchpoint.neural.storage import Like
from switchpoint.zoo.collection import Zoo
from switchpoint.zoo.names import NAMES, nearest


def path_of(network: str | PathLike[str], zoo: Zoo | None = None) -> Path:
    """The file or directory of a network, given as a name of the zoo or as a path.

    A name of the zoo wins over a path that is spelled the same: write ./lstm-ptw for that.
    """
    path, text = Path(network), os.fspath(network)
    zoo = Zoo() if zoo is None else zoo
    if text in zoo.entries:
        return zoo.path(text)
    if path.exists() or not _could_be_a_name(text):
        return path
    if text in NAMES:
        raise ValueError(
            f"{text} is not in the zoo: {zoo.contents()}; there is no such path either"
        )
    raise ValueError(
        f"there is no file or directory {text}, nor a network in the zoo; {nearest(text)}"
    )


def load(
    network: str | PathLike[str],
    member: int | None = None,
    prior: str | None = None,
    *,
    like: Like = None,
) -> Network:
    """A network of the zoo, such as `lstm-ptw`, or from a file or the directory of a run.

    Where there are several members: the one with the index `member`, or the best of all, or the
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


def _could_be_a_name(text: str) -> bool:
    """Whether somebody who wrote this may have meant a name, and not a path."""
    return not text.endswith(".safetensors") and os.sep not in text and text not in ("", ".", "..")
