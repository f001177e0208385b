"""The search for recipes: members of one architecture that differ in optimiser settings.

    python benchmarks/sweep.py --model lstm --prior ptw --steps 10000 --limit 300 --out sweep.json \
        --grid learning_rate=1e-3,3e-3 muon=0,1 clip=0.3,1

Every value in the grid with every other, for every prior and seed, all in one program. Members
with the same seed have the same first weights and read the same sequences. A curriculum goes
from phase to phase with the same members, under one schedule:

    --phases 32:2000,64:2000,128:2000,256:4000:256     # length:steps, or length:steps:batch

Excess is in bits per sequence beyond the exact optimum, on sequences of the full length drawn for
this purpose alone. Seconds of training leave out compiling and measuring.
"""

import argparse
import functools
import itertools
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Int

import switchpoint
from switchpoint._files import atomic_write, check_writable
from switchpoint._random import key_for
from switchpoint.evaluation import excess_regret
from switchpoint.evaluation.measure import over_members
from switchpoint.evaluation.metrics import BITS_PER_NAT
from switchpoint.exact import bayes_optimal
from switchpoint.neural import Network
from switchpoint.neural.kernels.backend import BACKENDS
from switchpoint.neural.registry import MODEL_OPTIONS
from switchpoint.training import TrainConfig
from switchpoint.training.loss import loss_and_gradient
from switchpoint.training.optimizer import is_matrix, with_muon
from switchpoint.training.recipes import RECIPES

SETTINGS: dict[str, float] = {  # what may differ between members; NaN is the recipe's value
    "learning_rate": math.nan,
    "warmup": math.nan,  # steps in which the rate rises from 0
    "clip": math.nan,  # the global norm of the gradient
    "muon": math.nan,  # 1 is Muon for matrices, 0 is Adam for all
    "b1": 0.9,
    "b2": math.nan,
    "eps": 1e-8,
    "shape": 0,  # of the fall after the warm-up: 0 cosine, 1 linear, 2 constant, then linear
    "tail": 0.2,  # shape 2: the share of the steps after the warm-up in which the rate falls
    "final": 0,  # the share of the peak rate at the end
    "weight_decay": 0,  # decoupled, of all weights
    "matrix_decay": 0,  # decoupled, of the matrices that Muon trains
    "average": 0,  # the decay of the moving average of the weights; 0 is the last weights
}
COLUMNS = ("excess", "error", "averaged", "averaged_error", "loss")
MEASURED_AT_ONCE = 4096  # sequences of all members together, which bounds the memory


class State(NamedTuple):
    """All that changes while members are trained; arrays have a leading axis of members."""

    step: Int[Array, ""]
    networks: Network
    averages: Network
    moments: Any
    loss: Float[Array, " member"]  # the sum since the last report, in bits per symbol


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", choices=MODEL_OPTIONS, default="lstm")
    add("--option", action="append", default=[], help="of the model: hidden=256")
    add("--prior", nargs="+", default=["ptw"], help="ptw, lin, regular (period 20), uniform")
    add("--grid", nargs="+", default=[], help=f"NAME=VALUE,VALUE of {', '.join(SETTINGS)}")
    add("--seeds", type=int, default=1)
    add("--first-seed", type=int, default=0)
    add("--length", type=int, default=256, help="also of the sequences measured on")
    add("--batch", type=int, help="the recipe's if not given")
    add("--steps", type=int, help="the recipe's if not given")
    add("--phases", help="LENGTH:STEPS:BATCH,... instead of --steps; the batch may be left out")
    add("--report", type=int, help="steps between reports; a tenth if not given")
    add("--validation", type=int, default=2000, help="sequences of each prior to measure on")
    add("--limit", type=float, help="stop at the first report after so many seconds, all included")
    add("--kernels", choices=BACKENDS, default="auto")
    add("--out", type=Path, help="JSON, written anew at every report")
    options = parser.parse_args()
    if options.phases and options.steps:
        parser.error("--phases says how many steps there are: leave --steps out")
    steps = options.steps or RECIPES[options.model].steps
    options.batch = options.batch or RECIPES[options.model].batch
    parts = [text.split(":") for text in (options.phases or f"{options.length}:{steps}").split(",")]
    options.phases = [tuple(map(int, [*part, options.batch][:3])) for part in parts]
    options.steps = sum(steps for _, steps, _ in options.phases)
    options.report = options.report or max(1, options.steps // 10)
    options.option = dict(text.split("=") for text in options.option)
    options.grid = dict(text.split("=") for text in options.grid)
    if unknown := set(options.grid) - set(SETTINGS):
        parser.error(f"--grid takes {', '.join(SETTINGS)}, got {', '.join(unknown)}")
    if options.out:
        check_writable(options.out)
    return options


def config_of(options: argparse.Namespace, length: int) -> TrainConfig:
    """The sources and the network; the depth of PTW follows the length."""
    texts = options.option.items()
    given: dict[str, Any] = {name: int(text) if text.isdigit() else text for name, text in texts}
    return TrainConfig(
        model=options.model,
        prior=tuple(options.prior),
        period=20 if "regular" in options.prior else None,
        length=length,
        steps=options.steps,
        **given,
    )


def members_of(options: argparse.Namespace, config: TrainConfig) -> list[dict[str, Any]]:
    """Prior, seed and settings of each member."""
    recipe = {name: getattr(config, name) for name in ("warmup", "clip", "b2")}
    recipe["learning_rate"] = config.learning_rate[0]
    fixed = {**SETTINGS, **recipe, "muon": float(config.optimiser == "muon")}
    axes = [[(name, float(v)) for v in text.split(",")] for name, text in options.grid.items()]
    return [
        {"prior": prior, "seed": seed, **fixed, **dict(chosen)}
        for prior in config.prior
        for chosen in itertools.product(*axes)
        for seed in range(options.first_seed, options.first_seed + options.seeds)
    ]


def rate_at(settings: dict[str, Array], time: Array, steps: int) -> Float[Array, ""]:
    """The learning rate at a step, from 0."""
    warmup, final = settings["warmup"], settings["final"]
    rise = jnp.minimum(1, (time + 1) / jnp.maximum(warmup, 1))
    left = 1 - jnp.clip((time - warmup) / jnp.maximum(steps - warmup, 1), 0, 1)
    falls = [0.5 * (1 - jnp.cos(jnp.pi * left)), left, jnp.minimum(1, left / settings["tail"])]
    fall = jnp.select([settings["shape"] == number for number in range(3)], falls, jnp.nan)
    return settings["learning_rate"] * rise * (final + (1 - final) * fall)


def optimisers_with(settings: dict[str, Any]) -> tuple[optax.GradientTransformation, ...]:
    """Adam, and Muon with Adam, of clipped gradients; the rate is multiplied afterwards."""
    adam = optax.scale_by_adam(settings["b1"], settings["b2"], settings["eps"])
    return tuple(
        optax.chain(
            optax.clip_by_global_norm(settings["clip"]),
            optimiser,
            optax.add_decayed_weights(settings["weight_decay"]),
            optax.add_decayed_weights(settings["matrix_decay"], is_matrix),
        )
        for optimiser in (adam, with_muon(adam))
    )


def updated(
    settings: dict[str, Array], time: Array, steps: int, before: Any, gradient: Network
) -> tuple[Network, Network, Any]:
    """One member's network, average and moments after a step."""
    network, average, moments = before
    (by_adam, of_adam), (by_muon, of_muon) = (
        optimiser.update(gradient, state, network)
        for optimiser, state in zip(optimisers_with(settings), moments, strict=True)
    )
    moments = (of_adam, of_muon)
    chosen = functools.partial(jnp.where, settings["muon"] > 0)
    direction = jax.tree.map(chosen, by_muon, by_adam)
    rate = rate_at(settings, time, steps)
    network = jax.tree.map(lambda weight, way: weight - rate * way, network, direction)
    # Corrected as Adam's moments are: the first weights count for no more than later ones.
    share = (1 - settings["average"]) / (1 - settings["average"] ** (time + 1))
    average = jax.tree.map(lambda mean, weight: mean + share * (weight - mean), average, network)
    return network, average, moments


class Sweep:
    """The members of a sweep, and the programs that train and measure them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.config = config_of(options, options.length)
        self.members = members_of(options, self.config)
        self._seeds = range(options.first_seed, options.first_seed + options.seeds)
        self._seed = jnp.asarray([self._seeds.index(each["seed"]) for each in self.members])
        self._prior = jnp.asarray([options.prior.index(each["prior"]) for each in self.members])
        self._settings = {
            name: jnp.asarray([float(each[name]) for each in self.members]) for name in SETTINGS
        }
        tests = []
        for source in map(self.config.source, self.config.prior):
            draw = source.sample(key_for(0, "sweep"), options.validation, options.length)
            tests.append((draw, bayes_optimal(source).log_probs(draw.symbols)))
        self._tests = jax.tree.map(lambda *leaves: jnp.stack(leaves), *tests)
        self._size = min(options.validation, max(1, MEASURED_AT_ONCE // len(self.members)))
        self._excess_on_some = jax.jit(self._excess_from)

    def start(self) -> State:
        """The members before the first step."""
        keys = jnp.stack([key_for(seed, "weights") for seed in self._seeds])
        networks = jax.jit(jax.vmap(self.config.network))(keys[self._seed])
        networks = networks.with_backend(self.options.kernels)
        averages = jax.tree.map(jnp.zeros_like, networks)
        moments = tuple(jax.vmap(each.init)(networks) for each in optimisers_with(SETTINGS))
        return State(jnp.int32(0), networks, averages, moments, jnp.zeros(len(self.members)))

    def program(self, length: int, batch: int, state: State) -> Callable[[State, Array], State]:
        """What brings a state to a later step; the old one can no longer be used."""
        config = config_of(self.options, length)
        seed_keys = jnp.stack([key_for(seed, "training") for seed in self._seeds])
        weights = jnp.full(length, 1 / length)

        def drawn(prior: str, keys: Any) -> Int[Array, "seed batch time"]:
            source = config.source(prior)
            return jax.vmap(lambda key: source.sample(key, batch, length).symbols)(keys)

        def step(state: State) -> State:
            keys = jax.vmap(lambda key: jax.random.fold_in(key, state.step))(seed_keys)
            symbols = jnp.stack([drawn(prior, keys) for prior in config.prior])
            losses, gradients = over_members(
                lambda network, own: loss_and_gradient(network, own, weights),
                state.networks,
                symbols[self._prior, self._seed],
            )
            before = (state.networks, state.averages, state.moments)
            after = jax.vmap(updated, (0, None, None, 0, 0))(
                self._settings, state.step.astype(float), self.options.steps, before, gradients
            )
            return State(state.step + 1, *after, state.loss + losses * BITS_PER_NAT)

        def run(state: State, until: Int[Array, ""]) -> State:
            return lax.while_loop(lambda state: state.step < until, step, state)

        return jax.jit(run, donate_argnums=0).lower(state, state.step).compile()

    def report(self, state: State, since: int) -> dict[str, Any]:
        """One number for each member in every column; the loss is the mean since a step."""
        loss = np.asarray(state.loss) / (int(state.step) - since)
        raw = averaged = self._excess(state.networks)
        if self._settings["average"].any():
            averaged = self._excess(state.averages)
        return dict(zip(COLUMNS, (*raw, *averaged, loss.tolist()), strict=True))

    def _excess(self, networks: Network) -> tuple[list[float], list[float]]:
        """The mean of each member and its standard error, in bits per sequence."""
        count = self.options.validation
        bits = np.empty((len(self.members), count))
        for start in range(0, count, self._size):
            first = min(start, count - self._size)  # the last piece may overlap the one before
            bits[:, first : first + self._size] = self._excess_on_some(networks, self._tests, first)
        with np.errstate(invalid="ignore"):  # members that are not finite
            return bits.mean(-1).tolist(), (bits.std(-1, ddof=1) / count**0.5).tolist()

    def _excess_from(self, networks: Network, tests: Any, first: Array) -> Array:
        some = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, self._size, 1), tests)

        def of_one(network: Network, prior: Array) -> Float[Array, " sequence"]:
            draw, optimum = jax.tree.map(lambda leaf: leaf[prior], some)
            return excess_regret(draw, network.log_probs(draw.symbols), optimum).sum(-1)

        return over_members(of_one, networks, self._prior)


def show(report: dict[str, Any], members: list[dict[str, Any]]) -> None:
    """One line for each member, the best first and those that are not finite last."""
    training = report["training_seconds"]
    print(f"\nstep {report['step']}: {training:.1f} s of training,", end=" ")
    print(f"{training / report['step'] / len(members) * 1e3:.3f} ms per seed-step,", end=" ")
    print(f"{report['seconds']:.1f} s in all")
    print(*(f"{column:>14}" for column in COLUMNS))
    varied = [name for name in members[0] if len({member[name] for member in members}) > 1]
    for index in np.argsort(np.fmin(report["excess"], report["averaged"])):  # NaN is last
        numbers = (f"{report[column][index]:14.5g}" for column in COLUMNS)
        print(*numbers, *(f"{name}={members[index][name]}" for name in varied), flush=True)


def save(path: Path, result: dict[str, Any]) -> None:
    """JSON, where null is a number that is not finite."""
    strict = json.loads(json.dumps(result), parse_constant=lambda _: None)
    with atomic_write(path) as file:
        file.write(json.dumps(strict, indent=1).encode())


def main() -> None:
    begun = time.perf_counter()
    options = arguments()
    sweep = Sweep(options)
    result: dict[str, Any] = {
        "settings": {**vars(options), "option": sweep.config.options(), "out": None},
        "device": jax.devices()[0].device_kind,
        "versions": {module.__name__: module.__version__ for module in (switchpoint, jax, optax)},
        "compile_seconds": [],
        "reports": [],
    }
    print(f"{len(sweep.members)} members of {options.model} on {result['device']}", flush=True)
    state = sweep.start()
    done, end, training = 0, 0, 0.0
    for length, steps, batch in options.phases:
        start = time.perf_counter()
        advance = sweep.program(length, batch, state)
        result["compile_seconds"].append(time.perf_counter() - start)
        end += steps
        while done < end:
            until = min(end, done + options.report - done % options.report)
            start = time.perf_counter()
            state = jax.block_until_ready(advance(state, jnp.int32(until)))
            training += time.perf_counter() - start
            report = {"step": until, "training_seconds": training, **sweep.report(state, done)}
            report["seconds"] = time.perf_counter() - begun
            show(report, sweep.members)
            result["reports"].append(report)
            result["members"] = [
                {**member, **{column: report[column][index] for column in COLUMNS}}
                for index, member in enumerate(sweep.members)
            ]
            if options.out:
                save(options.out, result)
            if until < options.steps and options.limit and report["seconds"] > options.limit:
                print(f"stopped at step {until} of {options.steps}: over {options.limit:g} s")
                return
            state, done = state._replace(loss=jnp.zeros_like(state.loss)), until


if __name__ == "__main__":
    main()
