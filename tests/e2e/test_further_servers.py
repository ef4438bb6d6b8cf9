"""Bottlenecks planted in servers on which the rules were not developed, each in a real trial. The test tries some of
them; the others are rows of a published table. A case that other programs or the hypervisor disturb is tried again."""

from __future__ import annotations

import shutil

import pytest

from fakes.needs import need_jdk, without
from fakes.planted_further import FURTHER_CASES, FURTHER_HEALTHY
from fakes.planted_real import RealCase
from fakes.undisturbed import undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

RIGHT_LEAST = 0.75  # the docs have the share of cases that are named rightly
# A case on which the rules were mended, and one of Java's; test_real_servers.py has limits of Go that no thread shows.
SAMPLE = ("twisted: a pool of 10 behind the reactor", "Undertow: an I/O thread blocked")
EVERY = (*FURTHER_CASES, *FURTHER_HEALTHY)


def need_builds() -> None:
    need_jdk(maven=True)
    for program, package in (("go", "golang"), ("cargo", "cargo"), ("node", "nodejs")):
        if shutil.which(program) is None:
            without(f"no {program} here: install Debian's package {package}")


def check_most(cases: tuple[RealCase, ...], right_least: float) -> None:
    fair = undisturbed(cases, len(cases) // 2)
    wrong = [str(tried) for tried in fair if not tried.right]
    assert len(fair) - len(wrong) >= right_least * len(fair), "\n".join(wrong)


@pytest.mark.long
def test_a_sample_of_further_servers_is_named() -> None:
    need_builds()
    some = tuple(case for case in EVERY if case.name in SAMPLE)
    assert len(some) == len(SAMPLE)
    check_most(some, RIGHT_LEAST)


@pytest.mark.table
def test_further_servers_are_named() -> None:
    need_builds()
    check_most(tuple(case for case in EVERY if case.installed and case.name not in SAMPLE), RIGHT_LEAST)
