"""The backend of a network: fused GPU kernels, or plain JAX, the reference for them."""

import functools
import threading
import warnings
from typing import Literal, get_args

import jax
import jax.numpy as jnp

from switchpoint import _checks

Backend = Literal["auto", "fused", "plain"]
BACKENDS: tuple[str, ...] = get_args(Backend)
"""`auto` is `fused` on a GPU whose kernels compile, and `plain` elsewhere."""


def on_gpu() -> bool:
    """Whether kernels are compiled; on other devices they are interpreted, which is slow."""
    device = getattr(jax.config, "jax_default_device", None)  # a device, or the name of a platform
    return (getattr(device, "platform", device) or jax.default_backend()) == "gpu"


def check_backend(backend: str) -> str:
    """Return `backend`, or raise a `ValueError` if it is unknown."""
    return _checks.one_of("backend", backend, BACKENDS)


def is_fused(backend: Backend) -> bool:
    """Whether this backend uses the kernels of a network that has some; called while tracing.

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
    """Compile the smallest kernel, and return the error, or None if kernels work.

    Without a GPU, where kernels are interpreted, Pallas is only imported.
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

    # In another thread, since this one may be tracing, with a mesh.
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
