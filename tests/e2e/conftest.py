"""Fixtures that several of these modules use; and what a test that measures is worth where much CPU time was stolen."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from fakes.report_browser import browser, visit
from powerband.search.noise import cpu_times

__all__ = ["browser", "visit"]

STOLEN_MAX = 0.10  # of the time in which a CPU had work; five times what spoils a trial
_BEFORE = pytest.StashKey[dict[str, float]]()


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_BEFORE] = cpu_times()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where much was stolen a failure of a test that measures becomes a skip, which tells of it. Tests that others may
    run beside (`crowded`) assert nothing that this could upset."""
    report = yield
    measures = item.get_closest_marker("e2e") and not item.get_closest_marker("crowded")
    if report.failed and call.when == "call" and call.excinfo and measures:
        stolen = _stolen_since(item.stash[_BEFORE])
        if stolen > STOLEN_MAX:
            told = f"Skipped: the hypervisor took {stolen:.0%} of the CPUs' time meanwhile; {call.excinfo.exconly()}"
            path, line, _ = item.location
            report.outcome, report.longrepr = "skipped", (path, line or 0, told)
    return report


def _stolen_since(before: dict[str, float]) -> float:
    now = cpu_times()
    busy, stolen = (now[name] - before[name] for name in ("busy", "steal"))
    return stolen / max(1.0, busy + stolen)
