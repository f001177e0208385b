"""The scales that studies can be carried out at."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from switchpoint.experiments.scales import Ablation, Scale, Settings
from switchpoint.experiments.shipped import Shipped

_RECURRENT = ("rnn", "lstm", "stack-rnn", "stack-lstm")


def _core(
    models: tuple[str, ...], sizes: tuple[int, ...], readouts: tuple[int, ...], more: Settings
) -> Iterator[Ablation]:
    for model in models:
        for hidden in sizes:
            for readout in readouts:
                yield Ablation(
                    "core", {"model": model, "hidden": hidden, "readout": readout, **more}
                )


def _stacks(
    models: tuple[str, ...], depths: tuple[int, ...], widths: tuple[int, ...], more: Settings
) -> Iterator[Ablation]:
    for model in models:
        for depth in depths:
            for width in widths:
                stack = {"model": model, "stack_depth": depth, "stack_width": width}
                yield Ablation("stack", {**stack, **more})


def _positions(layers: tuple[int, ...], more: Settings) -> Iterator[Ablation]:
    for positions in ("sincos", "alibi", "relative"):
        for count in layers:
            settings = {"model": "transformer", "positions": positions, "layers": count}
            yield Ablation("positions", {**settings, **more})


def _contexts(contexts: tuple[int, ...], more: Settings) -> Iterator[Ablation]:
    yield Ablation("context", {"model": "transformer", **more})  # sees all
    for context in contexts:
        yield Ablation("context", {"model": "transformer", "context": context, **more})


FULL = Scale(
    name="full",
    length=256,
    period=20,
    seeds=10,
    sequences=10_000,
    architectures={model: {} for model in (*_RECURRENT, "transformer")},
    longer_lengths=(256, 512, 1024, 2048, 4096),
    longer_sequences=1_000,
    base_length=32,
    other_lengths=(8, 16, 32, 64, 128, 256),
    other_architectures=(*_RECURRENT, "transformer"),
    other_sequences=1_000,
    ablations=(
        *_core(_RECURRENT, (64, 128, 256), (0, 1, 2), {}),
        *_stacks(("stack-rnn", "stack-lstm"), (1, 8, 256), (1, 2, 8), {}),
        *_positions((2, 4, 8, 16), {}),
        *_contexts((16, 32, 64, 128), {}),
    ),
    ablation_seeds=5,
    prior_sequences=10_000,
    deepest=9,
    most_switches=100,
    heat_sequences=500,
    orders=(0, 1, 2, 4, 8, 16, 32),
    forgetful={},
    bound_order=12,
    seconds={
        "trajectory": 400,
        "mean-regret": 20,
        "on-distribution": 4000,
        "off-distribution": 600,
        "longer-lengths": 400,
        "other-lengths": 3000,
        "ablations": 20_000,
        "priors": 30,
        "regret-by-index": 60,
        "length-512": 60,
        "memory": 300,
    },
)
"""The paper's setting, for a GPU; networks are trained by the recipes of their models."""

# Every setting of its own: recipes are for the paper's size, and change when better ones are found.
_OPTIMISER: Settings = {"optimiser": "muon", "clip": 1.0, "b2": 0.999}
_SMALL: Settings = {**_OPTIMISER, "batch": 32, "validation": 250, "report_every": 10_000}
_CELL: Settings = {**_SMALL, "hidden": 48, "readout": 0}
_STACK: Settings = {**_CELL, "stack_depth": 8, "stack_width": 8}
_TRANSFORMER: Settings = {**_SMALL, "batch": 8, "learning_rate": 5e-3}
_BRIEF: Settings = {**_SMALL, "steps": 300, "learning_rate": 1e-2}

QUICK = Scale(
    name="quick",
    hasty=True,
    length=32,
    period=8,
    seeds=2,
    sequences=1_000,
    architectures={
        "rnn": {**_CELL, "steps": 1500, "learning_rate": 1e-2},
        "lstm": {**_CELL, "steps": 1800, "learning_rate": 1e-2},
        "stack-rnn": {**_STACK, "steps": 1000, "learning_rate": 1e-2},
        "stack-lstm": {**_STACK, "steps": 1000, "learning_rate": 1e-2},
        "transformer": {**_TRANSFORMER, "layers": 2, "steps": 1000},
    },
    longer_lengths=(32, 64, 128, 256),
    longer_sequences=250,
    base_length=16,
    other_lengths=(8, 16, 32),
    other_architectures=("rnn", "lstm"),
    other_sequences=1_000,
    ablations=(
        *_core(("rnn", "lstm"), (8, 32), (0,), _BRIEF),
        *_core(("lstm",), (32,), (1,), _BRIEF),
        *_stacks(("stack-lstm",), (1, 8), (1,), {**_BRIEF, "hidden": 32, "readout": 0}),
        *_positions((1, 2), {**_TRANSFORMER, "steps": 300}),
        *_contexts((4, 16), {**_TRANSFORMER, "steps": 300, "layers": 1}),
    ),
    ablation_seeds=1,
    prior_sequences=2_000,
    deepest=9,
    most_switches=64,
    heat_sequences=250,
    orders=(0, 1, 2, 4, 8),
    forgetful={**_SMALL, "batch": 16, "steps": 500, "learning_rate": 1e-2},
    bound_order=10,
    seconds={
        "trajectory": 55,
        "mean-regret": 2,
        "on-distribution": 180,
        "off-distribution": 18,
        "longer-lengths": 22,
        "other-lengths": 28,
        "ablations": 120,
        "priors": 12,
        "regret-by-index": 3,
        "length-512": 6,
        "memory": 40,
    },
)
"""Small networks on short sequences: all studies in minutes on two cores."""

ZOO = replace(
    FULL,
    name="zoo",
    seeds=1,
    sequences=250,
    off_sequences=50,
    longer_lengths=(256, 512, 1024),  # a Transformer takes seconds for one of 4096
    longer_sequences=50,
    heat_sequences=250,
    shipped=Shipped(),
    seconds={
        "trajectory": 20,
        "mean-regret": 2,
        "on-distribution": 90,
        "off-distribution": 70,
        "longer-lengths": 75,
        "other-lengths": 1,
        "ablations": 1,
        "priors": 10,
        "regret-by-index": 20,
        "length-512": 65,
        "memory": 1,
    },
)
"""The paper's setting with networks that were trained before, for any machine."""

SCALES: Mapping[str, Scale] = {scale.name: scale for scale in (QUICK, FULL, ZOO)}
"""All scales by name."""
