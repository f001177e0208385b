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
from switchpoint.training.optimizer import lr_schedule, make_optimizer


class TrainState(eqx.Module):
    """The state of a run.

    Arrays of members have two leading axes: the prior, and the replica, which is a learning
    rate and a seed. Priors are different programs, replicas the same one on other numbers.
    """

    step: Int[Array, ""]
    """How many steps have been taken."""
    networks: Network
    opt_state: Any
    diverged_at: Int[Array, "prior replica"]
    """The step at which a loss or gradient was not finite; -1 if all have been."""
    loss: Float[Array, "prior replica"]
    """The sum of the losses since the last report, in bits per symbol."""


class MemberKeys(eqx.Module):
    """Per-member keys and settings."""

    keys: Any
    learning_rates: Float[Array, "prior replica"]
    settings: dict[str, Float[Array, "prior replica"]]
    """Settings that differ between members; all other settings are constants."""


def use_all_cores() -> None:
    """Let JAX see every core of a CPU as a device, so that members are trained side by side.

    Networks are measured on parts of the test sequences side by side too.

    This must come before anything is computed; afterwards, or if the number of devices has
    been chosen already, it changes nothing.

    See `train` for what is divided among them.
    """
    chosen = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if chosen or jax.config.values["jax_num_cpu_devices"] > 0:
        return
    try:
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    except RuntimeError:  # something has been computed
        return


class Program:
    """The initial state of members, and their progress by any number of steps.

    If there are several devices, each has an equal share of the replicas.
    """

    config: TrainConfig
    """It may hold several: see `PackedConfig`."""
    mesh: Mesh
    """The devices that replicas are divided among."""

    def __init__(self, config: TrainConfig, backend: str = "auto") -> None:
        self.config = config
        self.backend = backend
        members = config.members()
        self._places = (len(config.prior), len(members) // len(config.prior))
        self._sources = [config.source(prior) for prior in config.prior]
        self._seeds = [member.seed for member in members]
        self._varied = [name for name, _ in members[0].settings]
        devices = jax.devices()
        share = max(d for d in range(1, len(devices) + 1) if self._places[1] % d == 0)
        self.mesh = Mesh(np.asarray(devices[:share]), ("replica",))
        keys = jnp.stack([key_for(seed, "training") for seed in self._seeds])

        def placed(values: list[float]) -> Float[Array, "prior replica"]:
            return jnp.asarray(values).reshape(self._places)

        self._member_keys = self._on_devices(
            MemberKeys(
                keys.reshape(self._places),
                placed([member.learning_rate for member in members]),
                {n: placed([dict(each.settings)[n] for each in members]) for n in self._varied},
            )
        )
        self._advance = self._compiled()

    def start(self) -> TrainState:
        """The state before the first step."""
        keys = jnp.stack([key_for(seed, "weights") for seed in self._seeds])
        networks = jax.jit(jax.vmap(self.config.network))(keys).with_backend(self.backend)
        networks = jax.tree.map(lambda leaf: leaf.reshape(*self._places, *leaf.shape[1:]), networks)
        settings = dict.fromkeys(self._varied, jnp.ones(()))  # any; the state does not depend on it
        optimizer = make_optimizer(self.config, **settings)
        return self._on_devices(
            TrainState(
                step=jnp.zeros((), jnp.int32),
                networks=networks,
                opt_state=jax.vmap(jax.vmap(optimizer.init))(networks),
                diverged_at=jnp.full(self._places, -1, jnp.int32),
                loss=jnp.zeros(self._places),
            )
        )

    def restored(self, leaves: list[np.ndarray]) -> TrainState:
        """The state whose leaves these are; raises if they are not those of this run."""
        shapes = jax.eval_shape(self.start)
        check_leaves(leaves, jax.tree.leaves(shapes))
        return self._on_devices(jax.tree.unflatten(jax.tree.structure(shapes), leaves))

    def advance(self, state: TrainState, until: int) -> TrainState:
        """The state when `until` steps have been taken; the old one can no longer be used."""
        return self._advance(state, self._member_keys, jnp.asarray(until, jnp.int32))

    def _on_devices(self, tree: Any) -> Any:
        """Arrays of members divided among the devices, all else on each of them."""
        return jax.tree.map(
            lambda leaf, spec: jax.device_put(leaf, NamedSharding(self.mesh, spec)),
            tree,
            _specs(tree),
        )

    def _compiled(self) -> Any:
        specs = _specs(jax.eval_shape(self.start))
        run = jax.shard_map(
            self._run,
            mesh=self.mesh,
            in_specs=(specs, _specs(self._member_keys), PartitionSpec()),
            out_specs=specs,
            check_vma=False,
        )
        return jax.jit(run, donate_argnums=0)

    def _run(self, state: TrainState, members: MemberKeys, until: Int[Array, ""]) -> TrainState:
        return lax.while_loop(
            lambda state: state.step < until, functools.partial(self._step, members), state
        )

    def _step(self, members: MemberKeys, state: TrainState) -> TrainState:
        """One step of every member on this device."""
        config = self.config
        keys = jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, state.step)))(members.keys)
        values = jnp.stack(
            [self._draw(source, row) for source, row in zip(self._sources, keys, strict=True)]
        )
        weights = jax.vmap(jax.vmap(self._weights))(keys)
        flat = functools.partial(jax.tree.map, lambda leaf: leaf.reshape(-1, *leaf.shape[2:]))
        square = functools.partial(
            jax.tree.map, lambda leaf: leaf.reshape(*state.loss.shape, *leaf.shape[1:])
        )
        before = flat((state.networks, state.opt_state))
        losses, gradients = over_members(
            functools.partial(loss_and_gradient, tbptt_length=config.tbptt_length),
            before[0],
            flat(values),
            flat(weights),
        )
        finite = jnp.isfinite(losses) & jnp.isfinite(jax.vmap(optax.tree.norm)(gradients))
        directions, opt_state = jax.vmap(self._direction)(
            flat(members.settings), gradients, *before
        )
        rates = flat(members.learning_rates) * lr_schedule(config, state.step)
        networks = jax.tree.map(
            lambda weight, direction: weight - _like(rates, weight) * direction,
            before[0],
            directions,
        )
        active = (flat(state.diverged_at) < 0) & finite
        networks, opt_state = jax.tree.map(
            lambda new, old: jnp.where(_like(active, new), new, old), (networks, opt_state), before
        )
        return TrainState(
            step=state.step + 1,
            networks=square(networks),
            opt_state=square(opt_state),
            diverged_at=jnp.where(
                square(active) | (state.diverged_at >= 0), state.diverged_at, state.step
            ),
            loss=state.loss + square(losses) * BITS_PER_NAT,
        )

    def _direction(
        self, settings: dict[str, Any], gradient: Network, network: Network, opt_state: Any
    ) -> tuple[Network, Any]:
        """The direction of one member, which the learning rate scales, and its next state."""
        return make_optimizer(self.config, **settings).update(gradient, opt_state, network)

    def _draw(self, source: Any, keys: Any) -> Shaped[Array, "replica batch time *event"]:
        batch, length = self.config.batch, self.config.length
        return jax.vmap(lambda key: source.sample(key, batch, length).values)(keys)

    def _weights(self, key: Any) -> Float[Array, " time"]:
        """The weight of each position in the mean loss: equal, up to the drawn length."""
        length, min_length = self.config.length, self.config.min_length
        if min_length is None:
            return jnp.full(length, 1 / length)
        length_key = jax.random.fold_in(key, _LENGTH)
        drawn = jax.random.randint(length_key, (), min_length, length + 1)
        return jnp.where(jnp.arange(length) < drawn, 1 / drawn, 0.0)


_LENGTH = 2**31 - 1  # beyond any number that `split` gives a key


def _like(values: Shaped[Array, " member"], leaf: Array) -> Array:
    """One value per member, broadcast to a leaf with any number of axes."""
    return values.reshape(-1, *[1] * (leaf.ndim - 1))


def _specs(tree: Any) -> Any:
    """The sharding of each leaf: the step is replicated, all others are sharded over replicas."""
    return jax.tree.map(
        lambda leaf: PartitionSpec(None, "replica") if leaf.ndim >= 2 else PartitionSpec(), tree
    )
