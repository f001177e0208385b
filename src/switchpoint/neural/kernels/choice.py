"""Which path computes: the fused kernels, or plain JAX, which defines what they compute."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Literal, get_args

import jax

Path = Literal["auto", "fused", "plain"]
PATHS: tuple[str, ...] = get_args(Path)
"""`auto` takes the kernels where the platform has them."""

_path: ContextVar[str] = ContextVar("path", default="plain")


@contextlib.contextmanager
def using(path: str) -> Iterator[None]:
    """What is traced inside takes this path; the default is `plain`."""
    if path not in PATHS:
        raise ValueError(f"kernels must be one of {', '.join(PATHS)}, got {path!r}")
    token = _path.set(path)
    try:
        yield
    finally:
        _path.reset(token)


def fused() -> bool:
    """Whether kernels are to be used now."""
    return _path.get() == "fused" or (_path.get() == "auto" and on_gpu())


def on_gpu() -> bool:
    """Whether kernels can be compiled; elsewhere they are interpreted, which is slow."""
    return jax.default_backend() == "gpu"
