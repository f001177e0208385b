"""The backend of a network: fused GPU kernels, or plain JAX, the reference for them."""

from typing import Literal, get_args

import jax

Backend = Literal["auto", "fused", "plain"]
BACKENDS: tuple[str, ...] = get_args(Backend)
"""`auto` is `fused` on a GPU and `plain` elsewhere."""


def check_backend(backend: str) -> str:
    """`backend`, or a `ValueError` if there is none of that name."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    return backend


def is_fused(backend: Backend) -> bool:
    """Whether this backend uses the kernels of a network that has some; evaluated in tracing."""
    return backend == "fused" or (backend == "auto" and on_gpu())


def on_gpu() -> bool:
    """Whether kernels are compiled; on other devices they are interpreted, which is slow."""
    device = getattr(jax.config, "jax_default_device", None)  # a device, or the name of a platform
    return (getattr(device, "platform", device) or jax.default_backend()) == "gpu"
