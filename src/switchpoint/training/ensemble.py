"""One function for all members of an ensemble, in the way that suits the machine."""

import os
from collections.abc import Callable
from typing import Any

import jax
from jax import lax


def over_members(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function` of each member's arguments, which have a leading axis of members.

    A GPU takes all members at once. A CPU takes them one after another, since one member's
    numbers fit in its caches and all of them do not.
    """
    if jax.default_backend() != "cpu":
        return jax.vmap(function)(*arguments)
    return lax.map(lambda member: function(*member), arguments)


def use_all_cores() -> None:
    """Let JAX see every core of a CPU as a device, so that members are trained side by side.

    This must come before anything is computed; afterwards, or where the number of devices has
    been chosen already, it changes nothing.
    """
    chosen = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if chosen or jax.config.values["jax_num_cpu_devices"] > 0:
        return
    try:
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    except RuntimeError:  # something has been computed
        return
