"""Adam with clipped gradients, and how its rate changes over a run."""

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from switchpoint.training.config import TrainConfig


def optimiser_of(config: TrainConfig) -> optax.GradientTransformation:
    """Clipping by the global norm, then Adam's direction; the rate is multiplied afterwards."""
    return optax.chain(optax.clip_by_global_norm(config.clip), optax.scale_by_adam(b2=config.b2))


def rate_at(config: TrainConfig, step: Int[Array, ""]) -> Float[Array, ""]:
    """The share of the peak learning rate that is used at a step, from 0.

    It rises linearly over the warm-up, then stays, or falls to zero along a cosine.
    """
    time = step.astype(float)
    rise = jnp.minimum(1.0, (time + 1) / max(config.warmup, 1))
    if config.schedule == "constant":
        return rise
    done = jnp.clip((time - config.warmup) / max(config.steps - config.warmup, 1), 0, 1)
    return rise * 0.5 * (1 + jnp.cos(jnp.pi * done))
