"""How much work a command takes on."""

from switchpoint.priors import PTW, Prior

LONGEST_QUADRATIC = 20_000
"""The longest sequence for priors whose exact predictor takes work in n^2: all but PTW."""


def check_work(prior: Prior, length: int) -> None:
    """Raise a `ValueError` where the exact predictor would take too long."""
    if length > LONGEST_QUADRATIC and not isinstance(prior, PTW):
        raise ValueError(
            f"{length} symbols are too many for {prior!r}, whose work grows with the square "
            f"(at most {LONGEST_QUADRATIC}); ptw has no such limit"
        )
