"""The compiled program of a run: it draws data, differentiates and updates all members."""

import functools
import os
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Shaped

from switchpoint._random import key_for
from switchpoint._tensors import check_leaves
from switchpoint.evaluation.measure import over_members
from switchpoint.evaluation.metrics import BITS_PER_NAT
from switchpoint.neural import Network
from switchpoint.training.config import TrainConfig
from switchpoint.training.loss import loss_and_gradient
from switchpoint.training.optimizer import optimiser_of, rate_at


class TrainState(eqx.Module):
    """All that changes while a run goes on.

    Arrays of members have two leading axes: the prior, and the replica, which is a learning
    rate and a seed. Priors are different programs, replicas the same one on other numbers.
    """

    step: Int[Array, ""]
    """How many steps have been taken."""
    networks: Network
    moments: Any
    """The optimiser's state."""
    frozen_at: Int[Array, "prior replica"]
    """The step at which a loss or gradient was not finite; -1 where all have been."""
    loss: Float[Array, "prior replica"]
    """The sum of the losses since the last report, in bits per symbol."""


class Replicas(eqx.Module):
    """What tells replicas apart; seeds are already made into keys."""

    keys: Any
    learning_rates: Float[Array, "prior replica"]


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


class Program:
    """A run's initial state, and its progress by any number of steps.

    Where there are several devices, each has an equal share of the replicas.
    """

    config: TrainConfig
    backend: str
    """What computes its networks: auto, fused or plain."""
    mesh: Mesh
    """The devices that replicas are divided among."""

    def __init__(self, config: TrainConfig, backend: str = "auto") -> None:
        self.config = config
        self.backend = backend
        self._sources = [config.source(prior) for prior in config.prior]
        self._optimiser = optimiser_of(config)
        members = config.members()
        self._places = (len(config.prior), len(members) // len(config.prior))
        devices = jax.devices()
        share = max(d for d in range(1, len(devices) + 1) if self._places[1] % d == 0)
        self.mesh = Mesh(np.asarray(devices[:share]), ("replica",))
        self._seeds = [member.seed for member in members]
        keys = jnp.stack([key_for(seed, "training") for seed in self._seeds])
        rates = jnp.asarray([member.learning_rate for member in members])
        self._replicas = self._placed(
            Replicas(keys.reshape(self._places), rates.reshape(self._places))
        )
        self._advance = self._compiled()

    def start(self) -> TrainState:
        """The state before the first step."""
        keys = jnp.stack([key_for(seed, "weights") for seed in self._seeds])
        networks = jax.jit(jax.vmap(self.config.network))(keys).with_backend(self.backend)
        networks = jax.tree.map(lambda leaf: leaf.reshape(*self._places, *leaf.shape[1:]), networks)
        return self._placed(
            TrainState(
                step=jnp.zeros((), jnp.int32),
                networks=networks,
                moments=jax.vmap(jax.vmap(self._optimiser.init))(networks),
                frozen_at=jnp.full(self._places, -1, jnp.int32),
                loss=jnp.zeros(self._places),
            )
        )

    def restored(self, leaves: list[np.ndarray]) -> TrainState:
        """The state whose leaves these are; raises where they are not those of this run."""
        shapes = jax.eval_shape(self.start)
        check_leaves(leaves, jax.tree.leaves(shapes))
        return self._placed(jax.tree.unflatten(jax.tree.structure(shapes), leaves))

    def advance(self, state: TrainState, until: int) -> TrainState:
        """The state when `until` steps have been taken; the old one can no longer be used."""
        return self._advance(state, self._replicas, jnp.asarray(until, jnp.int32))

    def _placed(self, tree: Any) -> Any:
        """Arrays of members divided among the devices, all else on each of them."""
        return jax.tree.map(
            lambda leaf, spec: jax.device_put(leaf, NamedSharding(self.mesh, spec)),
            tree,
            _specs(tree),
        )

    def _compiled(self) -> Any:
        state = jax.eval_shape(self.start)
        specs = _specs(state)
        run = jax.shard_map(
            self._run,
            mesh=self.mesh,
            in_specs=(specs, _specs(self._replicas), PartitionSpec()),
            out_specs=specs,
            check_vma=False,
        )
        return jax.jit(run, donate_argnums=0)

    def _run(self, state: TrainState, replicas: Replicas, until: Int[Array, ""]) -> TrainState:
        return lax.while_loop(
            lambda state: state.step < until, functools.partial(self._step, replicas), state
        )

    def _step(self, replicas: Replicas, state: TrainState) -> TrainState:
        """One step of every member on this device."""
        config = self.config
        keys = jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, state.step)))(replicas.keys)
        symbols = jnp.stack(
            [self._drawn(source, row) for source, row in zip(self._sources, keys, strict=True)]
        )
        weights = jax.vmap(jax.vmap(self._weights))(keys)
        flat = functools.partial(jax.tree.map, lambda leaf: leaf.reshape(-1, *leaf.shape[2:]))
        square = functools.partial(
            jax.tree.map, lambda leaf: leaf.reshape(*state.loss.shape, *leaf.shape[1:])
        )
        losses, gradients = over_members(
            functools.partial(loss_and_gradient, chunk=config.chunk),
            flat(state.networks),
            flat(symbols),
            flat(weights),
        )
        finite = jnp.isfinite(losses) & jnp.isfinite(jax.vmap(optax.tree.norm)(gradients))
        directions, moments = jax.vmap(self._optimiser.update)(gradients, flat(state.moments))
        rates = flat(replicas.learning_rates) * rate_at(config, state.step)
        networks = jax.tree.map(
            lambda weight, direction: weight - _like(rates, weight) * direction,
            flat(state.networks),
            directions,
        )
        going = (flat(state.frozen_at) < 0) & finite

        def kept(new: Any, old: Any) -> Any:
            return jax.tree.map(lambda a, b: jnp.where(_like(going, a), a, b), new, old)

        return TrainState(
            step=state.step + 1,
            networks=square(kept(networks, flat(state.networks))),
            moments=square(kept(moments, flat(state.moments))),
            frozen_at=jnp.where(
                square(going) | (state.frozen_at >= 0), state.frozen_at, state.step
            ),
            loss=state.loss + square(losses) * BITS_PER_NAT,
        )

    def _drawn(self, source: Any, keys: Any) -> Int[Array, "replica batch time"]:
        batch, length = self.config.batch, self.config.length
        return jax.vmap(lambda key: source.sample(key, batch, length).symbols)(keys)

    def _weights(self, key: Any) -> Float[Array, " time"]:
        """What each time counts in the mean loss: all the same, up to the drawn length."""
        length, shortest = self.config.length, self.config.shortest
        if shortest is None:
            return jnp.full(length, 1 / length)
        own = jax.random.fold_in(key, _LENGTH)
        drawn = jax.random.randint(own, (), shortest, length + 1)
        return jnp.where(jnp.arange(length) < drawn, 1 / drawn, 0.0)


_LENGTH = 2**31 - 1  # beyond any number that `split` gives a key


def _like(values: Shaped[Array, " member"], leaf: Array) -> Array:
    """One value per member, to go with a leaf of any number of axes."""
    return values.reshape(-1, *[1] * (leaf.ndim - 1))


def _specs(tree: Any) -> Any:
    """How each leaf is divided: the step is one number for all, the rest goes by replica."""
    return jax.tree.map(
        lambda leaf: PartitionSpec(None, "replica") if leaf.ndim >= 2 else PartitionSpec(), tree
    )
