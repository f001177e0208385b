"""The device that kernels run on."""

import jax


def on_gpu() -> bool:
    """Whether kernels are compiled; on other devices they are interpreted, which is slow."""
    device = getattr(jax.config, "jax_default_device", None)  # a device, or the name of a platform
    return (getattr(device, "platform", device) or jax.default_backend()) == "gpu"
