"""Fixtures that several of these modules use."""

from fakes.report_browser import browser, visit

__all__ = ["browser", "visit"]
