"""Several configurations in one program: their members share all but a few settings."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from switchpoint._files import json_digest
from switchpoint.training.config import Member, TrainConfig

PER_MEMBER = ("clip_norm", "b2", "matrix_decay")
"""The settings that may differ between the members of a program, besides those of a `Member`."""

OF_MEMBERS = {*PER_MEMBER, "learning_rate", "seeds", "first_seed"}
"""The settings in which the configurations of one program may differ."""

_PACKED = "packed"  # the key of those settings


class PackedConfig(TrainConfig):
    """Configurations that differ in nothing but `OF_MEMBERS`, trained in one program.

    As a configuration it is the first of them, with the members of all.
    """

    configs: tuple[TrainConfig, ...] = Field(exclude=True)

    @classmethod
    def pack(cls, configs: Sequence[TrainConfig]) -> "PackedConfig":
        """The program of these configurations."""
        first = configs[0]
        for other in configs[1:]:
            if odd := set(first.differences(other)) - OF_MEMBERS:
                raise ValueError(
                    f"members of one program must have the same {', '.join(sorted(odd))}"
                )
        return cls(**first.given, configs=tuple(configs))

    @property
    def varied(self) -> list[str]:
        """Those of `PER_MEMBER` that differ between members."""
        return [name for name in PER_MEMBER if len({getattr(c, name) for c in self.configs}) > 1]

    def members(self) -> tuple[Member, ...]:
        """Every prior, then every configuration with its learning rates and seeds."""
        every = [
            replace(member, settings=tuple((name, getattr(config, name)) for name in self.varied))
            for prior in self.prior
            for config in self.configs
            for member in config.members()
            if member.prior == prior
        ]
        return tuple(replace(member, index=index) for index, member in enumerate(every))

    def to_dict(self) -> dict[str, Any]:
        """Every field, and of each configuration those that may differ."""
        settings = [
            {name: each.to_dict()[name] for name in sorted(OF_MEMBERS)} for each in self.configs
        ]
        return {**super().to_dict(), _PACKED: settings}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "PackedConfig":
        """The configurations that `to_dict` wrote."""
        common = {name: value for name, value in values.items() if name != _PACKED}
        return cls.pack([TrainConfig.from_dict({**common, **each}) for each in values[_PACKED]])

    def digest(self) -> str:
        """A short name that no other configuration has."""
        return json_digest(self.to_dict())[:10]


def pack(configs: Iterable[TrainConfig], members: int) -> list[PackedConfig]:
    """Pack into as few programs as possible, each of at most `members`, or of one configuration."""
    groups: dict[str, list[list[TrainConfig]]] = {}
    for config in configs:
        same = {name: value for name, value in config.to_dict().items() if name not in OF_MEMBERS}
        programs = groups.setdefault(json.dumps(same), [[]])
        if programs[-1] and sum(len(c.members()) for c in (*programs[-1], config)) > members:
            programs.append([])
        programs[-1].append(config)
    return [PackedConfig.pack(program) for group in groups.values() for program in group]
