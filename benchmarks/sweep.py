"""The search for recipes: training runs that differ in any settings, in as few programs as can be.

    python benchmarks/sweep.py --model lstm --steps 10000 --limit 300 --out sweep.json \
        --grid learning_rate=1e-3,3e-3 optimizer=adam,muon clip_norm=0.3,1

Every value in the grid with every other, for every prior and seed. Members that differ only in
learning rate, clip_norm, b2 and matrix_decay are trained in one program, the others in one after
the other. Members with the same seed have the same first weights and read the same sequences. A
curriculum goes from phase to phase with the same members, under one schedule:

    --phases 32:2000,64:2000,128:2000,256:4000:256     # length:steps, or length:steps:batch

Excess is in bits per sequence beyond the exact optimum, on the validation sequences of the last
phase. Seconds of training leave out compiling and measuring.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import switchpoint
from switchpoint._files import atomic_write, check_writable
from switchpoint.neural.kernels.backend import BACKENDS
from switchpoint.training import EvalRecord, TrainConfig
from switchpoint.training.program import PER_MEMBER, Program
from switchpoint.training.validation import Validation

COLUMNS = ("excess", "excess_error", "loss")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", default="lstm")
    add("--prior", nargs="+", default=["ptw"])
    add("--set", nargs="+", default=[], help="NAME=VALUE of any training settings: period=20")
    add("--grid", nargs="+", default=[], help="NAME=VALUE,VALUE of any training settings")
    add("--seeds", type=int, default=1)
    add("--steps", type=int, help="the recipe's if not given")
    add("--phases", help="LENGTH:STEPS:BATCH,... instead of --steps; the batch may be left out")
    add("--report", type=int, help="steps between reports; a tenth if not given")
    add("--limit", type=float, help="stop at the first report after so many seconds, all included")
    add("--kernels", choices=BACKENDS, default="auto")
    add("--out", type=Path, help="JSON, written anew at every report")
    options = parser.parse_args()
    if options.phases and options.steps:
        parser.error("--phases says how many steps there are: leave --steps out")
    if options.out:
        check_writable(options.out)
    return options


def value_of(text: str) -> Any:
    """A number, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def configs_of(options: argparse.Namespace) -> list[TrainConfig]:
    """One configuration for each point of the grid."""
    settings = {name: value_of(text) for name, text in (each.split("=") for each in options.set)}
    settings |= {"model": options.model, "prior": options.prior, "seeds": options.seeds}
    phases = [list(map(int, each.split(":"))) for each in (options.phases or "").split(",") if each]
    if phases:
        settings |= {"length": phases[-1][0], "steps": sum(phase[1] for phase in phases)}
    elif options.steps:
        settings["steps"] = options.steps
    axes = [
        [(name, value_of(text)) for text in texts.split(",")]
        for name, texts in (each.split("=") for each in options.grid)
    ]
    return [TrainConfig(**{**settings, **dict(point)}) for point in itertools.product(*axes)]


def packed(configs: list[TrainConfig]) -> list[list[TrainConfig]]:
    """The configurations whose members fit into one program."""
    groups: dict[TrainConfig, list[TrainConfig]] = {}
    for config in configs:
        same = {name: getattr(configs[0], name) for name in PER_MEMBER}
        if config.optimizer != "muon":
            same["matrix_decay"] = 0.0
        key = replace(config, learning_rate=configs[0].learning_rate, **same)
        groups.setdefault(key, []).append(config)
    return list(groups.values())


def phases_of(options: argparse.Namespace, group: list[TrainConfig]) -> Iterator[tuple[int, Any]]:
    """The last step of each phase, and the configurations in it."""
    if not options.phases:
        yield group[0].steps, group
        return
    end = 0
    for text in options.phases.split(","):
        length, steps, *batch = map(int, text.split(":"))
        end += steps
        changes: dict[str, Any] = {"length": length, **({"batch": batch[0]} if batch else {})}
        if "ptw" in group[0].prior:
            changes["depth"] = max(1, (length - 1).bit_length())
        if "uniform" in group[0].prior:
            changes["longest"] = length
        yield end, [replace(config, **changes) for config in group]


def trained(
    options: argparse.Namespace, group: list[TrainConfig], begun: float
) -> Iterator[tuple[Program, EvalRecord, dict[str, float]]]:
    """The members of one program, at each report, with what it took."""
    program = Program(group, options.kernels)
    validation = Validation(group[0], program.mesh)
    state = program.start()
    every = options.report or max(1, group[0].steps // 10)
    done, seconds, compiling = 0, 0.0, 0.0
    for end, configs in phases_of(options, group):
        program = Program(configs, options.kernels)
        start = time.perf_counter()
        state = jax.block_until_ready(program.advance(state, done))  # no step
        compiling += time.perf_counter() - start
        while done < end:
            until = min(end, done + every - done % every)
            start = time.perf_counter()
            state = jax.block_until_ready(program.advance(state, until))
            seconds += time.perf_counter() - start
            record = validation.record(state, done)
            state = eqx.tree_at(lambda s: s.loss, state, jnp.zeros_like(state.loss))
            done = until
            cost = {"training": seconds, "compiling": compiling}
            yield program, record, {**cost, "total": time.perf_counter() - begun}


def show(record: EvalRecord, members: list[dict[str, Any]], seconds: dict[str, float]) -> None:
    """One line for each member, the best first and those that are not finite last."""
    per_step = seconds["training"] / record.step / len(members) * 1e3
    print(f"\nstep {record.step}: {seconds['training']:.1f} s of training,", end=" ")
    print(f"{per_step:.3f} ms per seed-step, {seconds['total']:.1f} s in all")
    print(*(f"{column:>14}" for column in COLUMNS))
    varied = [name for name in members[0] if len({str(each[name]) for each in members}) > 1]
    for index in np.argsort(record.excess):  # NaN is last
        numbers = (f"{getattr(record, column)[index]:14.5g}" for column in COLUMNS)
        print(*numbers, *(f"{n}={members[index][n]}" for n in varied if n not in COLUMNS))


def main() -> None:
    begun = time.perf_counter()
    options = arguments()
    groups = packed(configs_of(options))
    result: dict[str, Any] = {
        "settings": {**vars(options), "out": None},
        "device": jax.devices()[0].device_kind,
        "versions": {module.__name__: module.__version__ for module in (switchpoint, jax, optax)},
        "programs": [],
    }
    for group in groups:
        reports: list[dict[str, Any]] = []
        result["programs"].append({"reports": reports})
        for program, record, seconds in trained(options, group, begun):
            members = [
                {
                    **config.to_dict(),
                    "prior": member.prior,
                    "seed": member.seed,
                    "learning_rate": member.learning_rate,
                    **{column: getattr(record, column)[member.index] for column in COLUMNS},
                }
                for config, member in program.members
            ]
            show(record, members, seconds)
            reports.append({"step": record.step, "seconds": seconds, "members": members})
            if options.out:  # null is a number that is not finite
                strict = json.loads(json.dumps(result), parse_constant=lambda _: None)
                with atomic_write(options.out) as file:
                    file.write(json.dumps(strict, indent=1).encode())
            if options.limit and seconds["total"] > options.limit:
                print(f"stopped at step {record.step}: over {options.limit:g} s")
                return


if __name__ == "__main__":
    main()
