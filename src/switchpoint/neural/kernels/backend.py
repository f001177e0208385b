"""The backend of a network: fused GPU kernels, or plain JAX, the reference for them."""

import functools
import threading
import warnings
from typing import Literal, get_args

import jax
import jax.numpy as jnp

from switchpoint.neural.kernels.device import on_gpu

Backend = Literal["auto", "fused", "plain"]
BACKENDS: tuple[str, ...] = get_args(Backend)
"""`auto` is `fused` on a GPU whose kernels compile, and `plain` elsewhere."""


def check_backend(backend: str) -> str:
    """`backend`, or a `ValueError` if there is none of that name."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    return backend


def is_fused(backend: Backend) -> bool:
    """Whether this backend uses the kernels of a network that has some; evaluated in tracing.

    Where kernels do not compile, `auto` is `plain`, with one warning, and `fused` is refused.
    """
    gpu = on_gpu()
    if backend == "plain" or (backend == "auto" and not gpu):
        return False
    failure = kernel_failure(gpu)
    if failure is None:
        return True
    if backend == "fused":
        raise ValueError(
            f"backend 'fused' needs the Triton backend of Pallas, which JAX {jax.__version__} does "
            f"not provide here ({failure}): use 'auto' or 'plain'"
        )
    _warn_of_plain_path(failure)
    return False


@functools.cache
def kernel_failure(gpu: bool) -> str | None:
    """The error that kernels end with, found by compiling the smallest one; None if they work.

    Without a GPU it is only imported, since it would be interpreted.
    """
    failures: list[str] = []

    def probe() -> None:
        try:
            # Imported here: Pallas is slow to import, and only GPUs need it.
            from jax.experimental import pallas as pl
            from jax.experimental.pallas import triton

            if gpu:
                smallest = pl.pallas_call(
                    lambda _: None,
                    out_shape=jax.ShapeDtypeStruct((16,), jnp.float32),
                    out_specs=pl.BlockSpec(memory_space=pl.ANY),
                    grid=(1,),
                    compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
                    name="probe",
                )
                with jax.default_device(jax.local_devices(backend="gpu")[0]):
                    jax.jit(smallest).lower().compile()
        except Exception as error:  # JAX has several for a backend that it lacks
            failures.append(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")

    # In a thread of its own, since a trace may be under way in this one, with its mesh.
    thread = threading.Thread(target=probe)
    thread.start()
    thread.join()
    return failures[0] if failures else None


@functools.cache
def _warn_of_plain_path(failure: str) -> None:
    warnings.warn(
        f"the GPU kernels of networks need the Triton backend of Pallas, which JAX "
        f"{jax.__version__} does not provide here ({failure}): networks take the plain path, which "
        "is slower",
        stacklevel=2,
    )
