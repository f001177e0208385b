"""The directory of a run: its configuration, metrics, checkpoints, and networks with their card."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax

from switchpoint._files import atomic_write
from switchpoint.neural import Network, read_card, save_networks
from switchpoint.neural.registry import CUSTOM
from switchpoint.neural.storage import MODEL_FILE
from switchpoint.training.checkpoints import Checkpoints, remove_temporaries
from switchpoint.training.config import TrainConfig
from switchpoint.training.metrics_log import EvalRecord, parse_reports, read_reports
from switchpoint.training.program import TrainState
from switchpoint.training.progress import RunProgress

_METRICS = "metrics"  # the array of a checkpoint that holds the metrics file up to its step
_CONFIG_FILE = "config.json"

METRICS_FILE = "metrics.jsonl"
"""The records of a run, in its directory."""


class RunDirectory:
    """The files of a run."""

    def __init__(self, path: Path, config: TrainConfig) -> None:
        remove_temporaries(path)
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints", config.to_dict())
        self._config = config
        self._metrics = b""  # complete even if the file has lost a part

    def restore(self, progress: RunProgress) -> tuple[list[np.ndarray] | None, list[EvalRecord]]:
        """The leaves of the state to resume from, None at the beginning, and the records."""
        checkpoint, notes = self.checkpoints.restore()
        for warning in notes:
            progress.warning(warning)
        if checkpoint is not None:
            progress.note(f"resuming from step {checkpoint.step} ({checkpoint.path.name})")
            self._metrics = checkpoint.arrays.pop(_METRICS).tobytes()
        elif notes:
            progress.warning("no checkpoint can be used: starting again from step 0")
        settings = json.dumps(self._config.to_dict(), indent=2) + "\n"
        for name, content in ((METRICS_FILE, self._metrics), (_CONFIG_FILE, settings.encode())):
            found = self._replace(name, content)
            if checkpoint is not None and not found.startswith(content):
                progress.warning(f"{self.path / name} was damaged: repaired from {checkpoint.path}")
        if checkpoint is None:
            return None, []
        records = parse_reports(self._metrics, checkpoint.path)
        return [checkpoint.arrays[name] for name in sorted(checkpoint.arrays)], records

    def append(self, record: EvalRecord) -> None:
        """Add a record; when this returns, it is on disk."""
        self._metrics += record.to_json_line().encode() + b"\n"
        self._replace(METRICS_FILE, self._metrics)

    def save(self, step: int, state: TrainState) -> None:
        """Begin to write a checkpoint of a state, which may be donated meanwhile."""
        leaves = jax.tree.leaves(jax.tree.map(jnp.copy, state))
        arrays = {f"{i:04d}": leaf for i, leaf in enumerate(leaves)}
        metrics = np.frombuffer(self._metrics, np.uint8)
        self.checkpoints.save(step, {**arrays, _METRICS: metrics})

    def save_networks(self, networks: Sequence[Network], record: EvalRecord) -> Path:
        """Write the networks with a card; the file's path."""
        path = self.path / MODEL_FILE
        save_networks(path, networks, make_card(self._config, record))
        return path

    def _replace(self, name: str, content: bytes) -> bytes:
        """Write a file unless it has this content; what it had."""
        path = self.path / name
        found = path.read_bytes() if path.exists() else b""
        if found != content:
            with atomic_write(path) as file:
                file.write(content)
        return found


def is_trained(path: Path, config: TrainConfig) -> bool:
    """Whether the directory of a run has networks trained as `config` says, with all reports.

    Otherwise `train` repairs it from its last checkpoint, or trains it.
    """
    try:
        card = read_card(path)
        written = card["config"], json.loads((path / _CONFIG_FILE).read_bytes())
        same = all(type(config).from_dict(each).to_dict() == config.to_dict() for each in written)
        final_reports(path / METRICS_FILE, config)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return same and card.get("steps") == config.steps


def final_reports(path: Path, config: TrainConfig) -> list[EvalRecord]:
    """All records of a run that has ended; a `ValueError` if the file lacks any of them."""
    records = read_reports(path)
    expected = sorted(
        {*range(config.report_every, config.steps, config.report_every), config.steps}
    )
    if [record.step for record in records] != expected:
        raise ValueError(
            f"{path} is damaged: it must have the {len(expected)} reports of a run of "
            f"{config.steps} steps, got {len(records)}"
        )
    return records


def make_card(config: TrainConfig, record: EvalRecord) -> dict[str, Any]:
    """The card of a file of networks; it has no times, so that equal runs are equal files."""
    from switchpoint import __version__  # defined once the package is imported

    settings = config.to_dict()
    custom = config.model == CUSTOM

    def finite(number: float) -> float | None:
        return number if math.isfinite(number) else None

    return {
        "model": config.model,
        "alphabet": config.alphabet,
        "length": config.length,
        **({"values": settings["values"]} if "values" in settings else {}),
        **({"network": settings["network"]} if custom else {"options": config.options()}),
        "sources": {prior: repr(config.source(prior)) for prior in config.prior},
        "steps": record.step,
        "planned_steps": config.steps,
        "members": [
            {
                "prior": member.prior,
                "seed": member.seed,
                "learning_rate": member.learning_rate,
                **dict(member.settings),
                "excess": finite(record.excess[member.index]),
                "excess_error": finite(record.excess_error[member.index]),
                "diverged": member.index in record.diverged,
            }
            for member in config.members()
        ],
        "config": settings,
        "versions": {
            "switchpoint": __version__,
            **{each.__name__: each.__version__ for each in (jax, equinox, optax)},
        },
    }
