"""A page for the browser that shows exact predictors and networks at work on a sequence."""

from switchpoint.playground.page import build_page

__all__ = ["build_page"]
