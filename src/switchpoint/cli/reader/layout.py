"""The layout of a file, as far as it is not guessed."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """The layout of a file; None where it is to be guessed."""

    separator: str | None = None
    decimal: str | None = None
    header: bool | None = None
    sheet: str | None = None
    where: tuple[str, ...] = ()
    """COLUMN=VALUE: only the rows with these values."""
    names: tuple[str, ...] = ()
    """Columns that were asked for, which a header may have."""
    labels: tuple[str, ...] = ()
    """Labels of symbols, which no header has."""

    def __post_init__(self) -> None:
        named = {"tab": "\t", "\\t": "\t", "space": " "}
        object.__setattr__(self, "separator", named.get(str(self.separator), self.separator))
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '\r\n"'):
            raise ValueError(
                f"separator must be one character, tab or space, got {self.separator!r}"
            )
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"decimal must be a point or a comma, got {self.decimal!r}")
        for each in self.where:
            if "=" not in each:
                raise ValueError(f"where must be COLUMN=VALUE, got {each!r}")


GUESSED = Layout()
