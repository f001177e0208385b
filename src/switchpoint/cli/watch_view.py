"""A live view of a stream in the terminal."""

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from switchpoint.cli.output import labelled

_LEVELS, _ASCII_LEVELS = "▁▂▃▄▅▆▇█", ".:-=+*#%"
_MOST, _BESIDE = 60, 36  # characters of a line of values, and of what stands beside it
_REFRESH_SECONDS, _RATE_SECONDS = 0.125, 5.0
_SHOWN_ALARMS = 3
_SHOWN_COLUMNS = 4


class WatchView:
    """The last values, the probability of a switch and the rate, several times a second."""

    def __init__(self, name: str, within: int, console: Console) -> None:
        self._name, self._within = name, within
        self._levels = _ASCII_LEVELS if console.options.ascii_only else _LEVELS
        self._console = console
        self._values: deque[Any] = deque(maxlen=_MOST)
        self._probabilities: deque[float] = deque(maxlen=_MOST)
        self._alarms: deque[str] = deque(maxlen=_SHOWN_ALARMS)
        self._times: deque[tuple[float, int]] = deque()
        self._last: Mapping[str, Any] | None = None
        self._refreshed = 0.0
        self._live = Live(console=console, get_renderable=self.render, auto_refresh=False)

    def __enter__(self) -> "WatchView":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()  # shows the last state

    def add(self, record: Mapping[str, Any]) -> None:
        """Show one more observation."""
        if self._last is None:
            self._times.append((time.monotonic(), record["position"] - 1))
        self._last = record
        self._values.append(record["value"])
        self._probabilities.append(record["switch_probability"])
        if record.get("alarm"):
            probability = record["switch_probability"]
            self._alarms.append(f"{record['position']:,} at {record['time']} ({probability:.0%})")

    def refresh(self) -> None:
        """Draw the view, unless it has just been drawn."""
        now = time.monotonic()
        if now - self._refreshed < _REFRESH_SECONDS:
            return
        self._refreshed = now
        if self._last is not None:
            self._times.append((now, self._last["position"]))
            while len(self._times) > 2 and now - self._times[0][0] > _RATE_SECONDS:
                self._times.popleft()
        self._live.refresh()

    def render(self) -> RenderableType:
        """The view as it is now."""
        last = self._last
        if last is None:
            return Panel(Text("waiting for observations"), title=self._name, border_style="dim")
        lines: list[tuple[str, str | Text]] = [("position", f"{last['position']:,}")]
        names = list(last["value"]) if isinstance(last["value"], dict) else [None]
        for name in names[:_SHOWN_COLUMNS]:
            values = [each if name is None else each[name] for each in self._values]
            value = "missing" if values[-1] is None else values[-1]
            shown = value if isinstance(value, str) else f"{value:.6g}"
            lines.append((name or "value", Text.assemble(self._spark(values), f"  {shown}")))
        probability = last["switch_probability"]
        style = "bold red" if probability >= 0.5 else ""
        spark = self._spark(list(self._probabilities), 0.0, 1.0)
        lines += [
            (f"switch in {self._within}", Text.assemble(spark, (f"  {probability:.1%}", style))),
            ("run length", f"{last['run_length']:,} (mean {last['run_length_mean']:,})"),
            ("code length", f"{last['code_length']:,.1f} bits"),
            ("rate", f"{self._rate():,.0f} per second"),
        ]
        lines += [("alarm", Text(alarm, "red")) for alarm in reversed(self._alarms)]
        return Panel(Group(labelled(lines)), title=self._name, expand=False, border_style="dim")

    def _rate(self) -> float:
        if len(self._times) < 2:
            return 0.0
        (begin, first), (end, last) = self._times[0], self._times[-1]
        return (last - first) / (end - begin) if end > begin else 0.0

    def _spark(
        self, values: Sequence[Any], low: float | None = None, high: float | None = None
    ) -> Text:
        """One character for each of the last values; words have their rank as a height."""
        width = max(8, min(_MOST, self._console.width - _BESIDE))  # a terminal can be resized
        values = values[-width:]
        words = sorted({value for value in values if isinstance(value, str)})
        heights = [words.index(v) if isinstance(v, str) else v for v in values]
        seen = [v for v in heights if v is not None and math.isfinite(v)]
        low = min(seen, default=0.0) if low is None else low
        high = max(seen, default=1.0) if high is None else high
        top = len(self._levels) - 1
        scale = top / (high - low) if high > low else 0.0
        marks = [" " if v is None else self._levels[round(scale * (v - low))] for v in heights]
        return Text("".join(marks).rjust(width), "cyan")
