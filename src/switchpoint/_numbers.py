"""Numbers, lists and durations as text for people."""

import math
from collections.abc import Sequence

_NO_ERROR = 5e-5  # would be written as 0


def bits(value: float) -> str:
    """A number of bits with as many digits as matter."""
    if not math.isfinite(value):
        return "unknown"
    size = abs(value)
    digits = 0 if size >= 99.5 else 1 if size >= 19.95 else 2 if size >= 0.0995 else 3
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) else text.removeprefix("-")


def plus_minus(value: float, error: float) -> str:
    """A number with its standard error, to the first digit of the error (two if that is 1)."""
    if not math.isfinite(value) or not math.isfinite(error) or error < _NO_ERROR:
        return bits(value)
    power = math.floor(math.log10(error))
    digits = min(max(0, (1 if error < 1.95 * 10**power else 0) - power), 4)
    return f"{value:.{digits}f} ± {error:.{digits}f}".replace("-", "−")


def percent(share: float) -> str:
    """A share in percent, with more digits the smaller it is."""
    if 0 < abs(share) < 5e-5:
        return "under 0.01\N{NO-BREAK SPACE}%"
    digits = 2 if abs(share) < 0.00995 else 1 if abs(share) < 0.0995 else 0
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def chance(probability: float) -> str:
    """A probability in percent; a bound where it is almost 0 or 1."""
    if probability < 1e-4:
        return "<0.01%"
    if probability > 0.9999:
        return ">99.99%"
    return f"{probability:.0%}" if 0.01 <= probability < 0.995 else f"{probability:.2%}"


def expected_count(number: float) -> str:
    """An expected number of things: whole if it has two digits, else to one or two places."""
    if number >= 9.95:
        return f"{number:,.0f}"
    if number < 0.01:
        return "<0.01"
    return f"{number:.1f}" if number >= 0.95 else f"{number:.2f}"


def join_and(parts: Sequence[str]) -> str:
    """A list in words: a, b and c."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def duration(seconds: float) -> str:
    """A length of time in the unit that suits it."""
    if math.isnan(seconds):
        return "unknown"
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
