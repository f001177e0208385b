"""Change points of many series at once: one for each group of rows of a table."""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from switchpoint._labels import Labels
from switchpoint._progress import Progress
from switchpoint.detection.notebook import result_html
from switchpoint.detection.segmentation import Segmentation
from switchpoint.detection.series import Series, parse_groups
from switchpoint.detection.tables import CHANGE_COLUMNS, make_table, write_text


@dataclass(frozen=True, eq=False, repr=False)
class GroupedSegmentation(Mapping[Any, Segmentation]):
    """The segmentation of each group of rows, by the name of the group.

    A mapping: `result[group]` is the `Segmentation` of a group, and groups are in the order of
    their first rows. `segments` and `changepoints` are tables of all of them.

    >>> import numpy as np
    >>> import switchpoint as sp
    >>> noise = np.random.default_rng(0).normal(size=60)
    >>> both = np.append(noise, noise + 5 * (np.arange(60) >= 20))
    >>> found = sp.detect(both, group_by=60 * ["quiet"] + 60 * ["loud"])
    >>> found, found["loud"].changepoints.tolist()
    (GroupedSegmentation(2 groups by group, 1 change point in 1), [20])
    """

    by: str
    """The name of the column of the groups."""
    results: Mapping[Any, Segmentation]
    failed: Mapping[Any, str]
    """What is wrong with each group that could not be analysed, in a sentence."""

    def __getitem__(self, group: Any) -> Segmentation:
        if group in self.failed:
            raise KeyError(self.failed[group])
        return self.results[group]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    @cached_property
    def segments(self) -> Any:
        """The `segments` of all groups, with the group in the first column."""
        return make_table(self._rows(Segmentation.segment_rows), self._labels)

    @cached_property
    def changepoints(self) -> Any:
        """A row for each change point: its group, its position, its time and its uncertainty.

        Columns of the same name are those of `segments`; `position` is the `start` there.
        """
        rows = self._rows(Segmentation.changepoint_rows)
        return make_table(rows, self._labels, (self.by, *CHANGE_COLUMNS))

    @cached_property
    def warnings(self) -> list[str]:
        """The warnings of all groups, each with the name of its group."""
        return [
            f"group {group}: {text}" for group, result in self.items() for text in result.warnings
        ]

    def to_csv(self, path: Path | str | None = None) -> str:
        """The table of the segments of all groups as CSV; also written to `path`, if given."""
        table = make_table(self._rows(Segmentation.segment_rows))
        return write_text(table.to_csv(index=False, lineterminator="\n"), path)

    def to_json(
        self, path: Path | str | None = None, *, about: Mapping[str, Any] | None = None
    ) -> str:
        """What `Segmentation.to_json` writes, for each group in a list, and a summary.

        Entries of `about` are added to the summary.
        """
        texts = [
            json.dumps({"group": group, **result.content()}, allow_nan=False, default=str)
            for group, result in self.items()
        ]
        summary = json.dumps(self.summary | dict(about or {}))
        listed = ",\n".join(texts)
        return write_text(f'{{"summary": {summary},\n"groups": [\n{listed}]}}\n', path)

    @property
    def summary(self) -> dict[str, Any]:
        """The description of all groups together, ready for JSON."""
        return {
            "group_by": self.by,
            "groups": len(self) + len(self.failed),
            "changed": sum(len(each.changepoints) > 0 for each in self.values()),
            "changepoints": sum(len(each.changepoints) for each in self.values()),
            "failed": list(self.failed.values()),
        }

    def __repr__(self) -> str:
        summary, count = self.summary, self.summary["changepoints"]
        failed = f", {len(self.failed)} of them failed" if self.failed else ""
        return (
            f"GroupedSegmentation({summary['groups']} groups by {self.by}{failed}, "
            f"{count} change point{'s' * (count != 1)} in {summary['changed']})"
        )

    def _repr_html_(self) -> str:
        """The change points of all groups, for notebooks."""
        rows = self._rows(Segmentation.changepoint_rows)
        return result_html(repr(self), list(self.failed.values()), rows)

    @property
    def _labels(self) -> Labels | None:
        return next(iter(self.values())).series.labels

    def _rows(self, rows: Callable[[Segmentation], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        return [{self.by: group, **row} for group, result in self.items() for row in rows(result)]


def detect_groups(
    values: Any,
    times: Any,
    group_by: Any,
    detect: Callable[[Series], Segmentation],
    progress: Progress,
) -> GroupedSegmentation:
    """The segmentation of each group by `detect`.

    A group that cannot be analysed stops no other, unless all of them fail for one reason.
    """
    results: dict[Any, Segmentation] = {}
    failed: dict[Any, str] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        groups = parse_groups(values, times, group_by)
        for group, series in groups.items():
            try:
                results[group] = detect(series())
            except ValueError as error:
                failed[group] = f"group {group}: {error}"
            count = len(results) + len(failed)
            progress.update(f"{count} of {len(groups)} groups", count / len(groups))
    for each in {str(each.message): each for each in caught}.values():
        warnings.warn(str(each.message), each.category, stacklevel=3)
    if not results:
        raise ValueError(next(iter(failed.values()), "there is no group"))
    by = group_by if isinstance(group_by, str) else getattr(group_by, "name", None) or "group"
    return GroupedSegmentation(str(by), results, failed)
