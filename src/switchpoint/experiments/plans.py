"""Which training runs the studies need, at a given scale."""

from typing import Any

from switchpoint.experiments.runs import TrainingRun
from switchpoint.experiments.scales import SOURCES, Ablation, Scale, Trial
from switchpoint.training import TrainConfig


def main_run(scale: Scale, architecture: str) -> TrainingRun:
    """One architecture on all sources, the networks that most studies share."""
    settings = {"model": architecture, **scale.architectures[architecture]}
    config = _config(scale, settings, scale.length, scale.seeds, prior=SOURCES, period=scale.period)
    return TrainingRun(architecture, config)


def main_runs(scale: Scale) -> list[TrainingRun]:
    """Every architecture on all sources."""
    return [main_run(scale, architecture) for architecture in scale.architectures]


def length_run(scale: Scale, architecture: str, length: int) -> TrainingRun:
    """One architecture on PTW sequences of any length."""
    if length == scale.length:
        return main_run(scale, architecture)
    settings = {"model": architecture, **scale.architectures[architecture]}
    config = _config(scale, settings, length, scale.seeds, prior="ptw")
    return TrainingRun(f"{architecture}-length-{length}", config)


def length_runs(scale: Scale) -> list[TrainingRun]:
    """All that are compared over lengths."""
    lengths = dict.fromkeys([scale.base_length, *scale.other_lengths])
    return [length_run(scale, a, n) for a in scale.other_architectures for n in lengths]


def ablation_run(scale: Scale, ablation: Ablation) -> TrainingRun:
    """One configuration of the ablation study, trained on PTW.

    Where it is that of a main study, and has no more seeds, it is that run.
    """
    config = _config(scale, ablation.settings, scale.length, scale.ablation_seeds, prior="ptw")
    if config.model in scale.architectures:
        main = main_run(scale, config.model)
        changed = set(config.differences(main.config))
        if changed <= _ONLY_MORE and config.seeds <= main.config.seeds:
            return main
    return TrainingRun("ablation-" + ablation.name.replace(" ", "-"), config)


def ablation_runs(scale: Scale) -> list[TrainingRun]:
    """All configurations of the ablation study."""
    return [ablation_run(scale, ablation) for ablation in scale.ablations]


def memory_run(scale: Scale, order: int) -> TrainingRun:
    """Networks that see the last `order` symbols, on all sources."""
    settings: dict[str, Any] = (
        {"model": "markov", "order": order} if order else {"model": "memoryless"}
    )
    config = _config(
        scale,
        {**settings, **scale.forgetful},
        scale.length,
        scale.seeds,
        prior=SOURCES,
        period=scale.period,
    )
    return TrainingRun(f"markov-{order}" if order else "memoryless", config)


def memory_runs(scale: Scale) -> list[TrainingRun]:
    """Networks that remember too little, for every order."""
    return [memory_run(scale, order) for order in scale.orders]


def no_runs(scale: Scale) -> list[TrainingRun]:
    """What a study needs that trains nothing."""
    del scale
    return []


def longer_trials(scale: Scale) -> list[Trial]:
    """The lengths that networks are tested on beyond that of their training."""
    return [Trial("ptw", length, scale.longer_sequences) for length in scale.longer_lengths]


def length_trials(scale: Scale) -> list[Trial]:
    """The lengths that networks of other lengths are compared on."""
    return [Trial("ptw", length, scale.other_sequences) for length in scale.other_lengths]


def trials_of(scale: Scale, run: TrainingRun, prior: str) -> list[Trial]:
    """All that the studies want to know of the networks of a run that were trained on `prior`.

    Where one trial has the first sequences of another, it is left out.
    """
    wanted: list[Trial] = []
    if run in main_runs(scale):
        wanted += [scale.trial(prior), *(scale.off_trial(source) for source in SOURCES)]
        wanted += longer_trials(scale) if prior == "ptw" else []
    if prior == "ptw" and run in length_runs(scale):
        base = run.config.length == scale.base_length
        wanted += [t for t in length_trials(scale) if base or t.length == run.config.length]
    if prior == "ptw" and run in ablation_runs(scale):
        wanted.append(scale.trial("ptw"))
    if run in memory_runs(scale):
        wanted.append(scale.trial(prior))
    longest: dict[str, Trial] = {}
    for trial in wanted:
        known = longest.setdefault(trial.name, trial)
        if trial.sequences > known.sequences:
            longest[trial.name] = trial
    return list(longest.values())


_ONLY_MORE = {"prior", "period", "longest", "seeds"}  # what does not change a member on PTW


def _config(scale: Scale, settings: Any, length: int, seeds: int, **source: Any) -> TrainConfig:
    own = {"length": length, "seeds": seeds, "first_seed": scale.first_seed, **source}
    return TrainConfig(**{**settings, **own})
