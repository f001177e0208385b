"""Trained networks by run, training source and seed: trained here, pretrained, or from shards."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from switchpoint._files import digest_of
from switchpoint.neural import Network, best_member, load_with_card, read_card
from switchpoint.paper.base import Run, main_runs, network_plan
from switchpoint.paper.scale import Scale
from switchpoint.priors import PARAMETER_OWNERS
from switchpoint.training import EvalRecord, TrainConfig
from switchpoint.training.run_directory import METRICS_FILE, final_reports, is_trained
from switchpoint.zoo import Zoo
from switchpoint.zoo.manifest import SOURCES


@dataclass(frozen=True)
class TrainingLog:
    """The records of one process of training, with the configuration that has its members."""

    config: TrainConfig
    records: Sequence[EvalRecord]

    @staticmethod
    def read(path: Path, card: Mapping[str, Any]) -> "TrainingLog":
        """The log in a file, of networks with this card."""
        config = TrainConfig.from_dict(card["config"])
        return TrainingLog(config, final_reports(path, config))


class Networks:
    """Network files, indexed by the cards inside them; weights are read when asked for."""

    identity = "trained"
    """Names the directory of measurements of these networks."""

    def __init__(self) -> None:
        self._members: dict[tuple[str, str, int], tuple[Path, int, dict[str, Any]]] = {}
        self._loaded: dict[Path, Sequence[Network]] = {}
        self._provenance: dict[str, dict[str, Any]] = {}
        self.measurements: list[Path] = []
        """Files of measurements that were taken of these networks elsewhere."""
        self.recorded: Path | None = None
        """Recorded results, which have the numbers of networks that are not here."""

    def prepare(self, run: Run) -> None:
        """Find the networks of a run; where they are given, there is nothing to do."""

    def members(self, run: Run, trained_on: str) -> dict[int, Network | None]:
        """The networks of a run by seed; None where training diverged, missing ones left out."""
        self.prepare(run)
        by_seed: dict[int, Network | None] = {}
        for seed in run.seeds:
            if (key := (run.name, trained_on, seed)) in self._members:
                card = self._members[key][2]
                by_seed[seed] = None if card["diverged"] else self._network(key)
        return by_seed

    def best(self, run: Run, trained_on: str) -> Network:
        """The network with the lowest excess on the validation sequences."""
        self.prepare(run)
        rivals = [key for key in self._members if key[:2] == (run.name, trained_on)]
        if not rivals:
            raise ValueError(f"there is no network of {run.name} trained on {trained_on}")
        cards = [self._members[key][2] for key in rivals]
        return self._network(rivals[best_member({"members": cards})])

    def can_have(self, run: Run) -> bool:
        """Whether there is, or can be made, a network of every training source of a run."""
        return {trained_on for name, trained_on, _ in self._members if name == run.name} >= set(
            run.config.prior
        )

    def provenance(self, runs: Iterable[str]) -> dict[str, Any]:
        """The provenance of networks that were trained elsewhere, by file."""
        wanted = set(runs)
        return {
            each: about["provenance"]
            for each, about in self._provenance.items()
            if about["run"] in wanted and about["provenance"]
        }

    def logs(self, run: Run) -> list[TrainingLog]:
        """The training logs of a run."""
        self.prepare(run)
        paths = dict.fromkeys(p for (n, _, _), (p, _, _) in self._members.items() if n == run.name)
        return [log for log in map(self._log, paths) if log is not None]

    def _log(self, path: Path) -> TrainingLog | None:
        del path
        return None

    def add(self, run: str, name: str, path: Path) -> None:
        """Add the networks of a file, or of the directory of a training run, to a run."""
        card = read_card(path)
        provenance = card.get("provenance") or {}
        training = provenance.get("training", provenance)  # a zoo adds that of its measurements
        self._provenance[name] = {"run": run, "provenance": training}
        for index, member in enumerate(card["members"]):
            self._members[run, member["prior"], member["seed"]] = path, index, member

    def _network(self, key: tuple[str, str, int]) -> Network:
        path, index, _ = self._members[key]
        if path not in self._loaded:
            self._loaded[path] = load_with_card(path)[1]
        return self._loaded[path][index]


class TrainedNetworks(Networks):
    """The training runs below one directory, each trained as a whole or in shards."""

    def __init__(self, directory: Path, shard_members: int | None = None) -> None:
        super().__init__()
        self.directory = directory
        self._shard_members = shard_members
        self._prepared: set[str] = set()

    def parts(self, run: Run) -> list[Run]:
        """The run itself, or the shards that it is trained in."""
        trained = is_trained(self.directory / run.name, run.config)
        return [run] if trained else divide(run, self._shard_members)

    def prepare(self, run: Run) -> None:
        if run.name not in self._prepared:
            for part in self.parts(run):
                self.add(run.name, part.name, self.directory / part.name)
            self._prepared.add(run.name)

    def can_have(self, run: Run) -> bool:
        del run
        return True

    def _log(self, path: Path) -> TrainingLog:
        return TrainingLog.read(path / METRICS_FILE, read_card(path))


class PretrainedNetworks(Networks):
    """The networks of a zoo, each of the seed that did best in validation."""

    def __init__(self, zoo: Zoo, scale: Scale) -> None:
        super().__init__()
        self.identity = "pretrained"
        runs = {
            (run.config.model, on): run.name for run in main_runs(scale) for on in run.config.prior
        }
        for name in zoo.names():
            card = zoo.card(name)
            run = runs.get((card["model"], card["members"][0]["prior"]), card["model"])
            self.add(run, name, zoo.path(name))
        if zoo.entries:
            self.identity += "-" + digest_of(zoo.directory / "manifest.json")[:16]
        self._cards = {name: zoo.card(name) for name in zoo.names()}

    def check(self, scale: Scale) -> None:
        """Raise a `ValueError` where networks are missing, or were trained for another scale."""
        needed = [f"{model}-{prior}" for model in scale.architectures for prior in SOURCES]
        missing = [name for name in needed if name not in self._cards]
        if missing:
            raise ValueError(
                f"this scale needs {len(needed)} pretrained networks, and {len(missing)} of them "
                f"are not in the zoo, such as {missing[0]}; --scale quick trains its own"
            )
        for name in needed:
            config: Mapping[str, Any] = self._cards[name]["config"]
            if config["length"] != scale.length:
                raise ValueError(
                    f"the networks of the zoo were trained with length {config['length']}, "
                    f"got {scale.length}"
                )


class ShardNetworks(Networks):
    """The networks that shards of training runs left in one directory."""

    identity = "shards"

    def __init__(
        self, directory: Path, runs: Mapping[str, Run], recorded: Path | None = None
    ) -> None:
        super().__init__()
        self.measurements = sorted(directory.glob("*.nc"))
        self.recorded = recorded
        for path in sorted(directory.glob("*.safetensors")):
            card = read_card(path)
            name = str(card.get("run"))
            shard = path.name.removesuffix(".safetensors").rpartition(".")[0]
            if name not in runs:
                raise ValueError(f"{path} is of the run {name}, which no study of this scale has")
            for member in card["members"]:
                prior = member["prior"]
                if network_plan(card["config"], prior) != runs[name].plan(prior):
                    raise ValueError(
                        f"{path} is of another configuration of {name} than this scale has"
                    )
            self.add(name, shard, path)

    def _log(self, path: Path) -> TrainingLog | None:
        log = path.with_name(path.name.removesuffix(".safetensors").rpartition(".")[0] + ".jsonl")
        return TrainingLog.read(log, read_card(path)) if log.exists() else None


def shard(run: Run, sources: Sequence[str], seeds: range) -> Run:
    """The part of a run with these of its training sources and seeds."""
    for source in sources:
        if source not in run.config.prior:
            known = ", ".join(run.config.prior)
            raise ValueError(f"prior of {run.name} must be one of {known}, got {source!r}")
    if not seeds or seeds.start not in run.seeds or seeds[-1] not in run.seeds:
        raise ValueError(
            f"seeds of {run.name} must be among {run.seeds.start} to {run.seeds[-1]}, "
            f"got {seeds.start} to {seeds.stop - 1}"
        )
    others = {name for name, owner in PARAMETER_OWNERS.items() if owner not in sources}
    own = {"prior": list(sources), "first_seed": seeds.start, "seeds": len(seeds)}
    whole = {name: value for name, value in run.config.to_dict().items() if name not in others}
    name = f"{run.name}.{'_'.join(sources)}.{seeds.start}-{seeds[-1]}"
    return Run(name, TrainConfig.from_dict({**whole, **own}))


def divide(run: Run, members: int | None = None) -> list[Run]:
    """The shards of a run with at most that many members each; the run itself where it has no more.

    The members of a shard are trained in one program, and how many it has decides how their
    numbers are rounded. So the division depends on nothing else, least of all on who trains.
    """
    priors, seeds, rates = run.config.prior, run.seeds, len(run.config.learning_rate)
    if members is None or members >= len(run.config.members()):
        return [run]
    together = max(1, members // (len(seeds) * rates))  # priors with all their seeds
    at_once = len(seeds) if together > 1 else max(1, min(len(seeds), members // rates))
    return [
        shard(run, priors[first : first + together], seeds[start : start + at_once])
        for first in range(0, len(priors), together)
        for start in range(0, len(seeds), at_once)
    ]
