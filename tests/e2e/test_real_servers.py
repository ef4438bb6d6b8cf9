"""Bottlenecks planted in real servers (gunicorn, uvicorn, Go, Node, Java's), each in a real trial. A case that other
programs or the hypervisor disturb is tried again. `make bottlenecks` tries all of them and writes the table in the
docs."""

from __future__ import annotations

import shutil

import pytest

from fakes.confusion import Tried
from fakes.needs import need_javac, need_jdk, need_postgresql, without
from fakes.planted_containers import CONTAINER_CASES, CONTAINER_HEALTHY
from fakes.planted_real import (
    REAL_CASES,
    REAL_HEALTHY,
    RealCase,
)
from fakes.undisturbed import undisturbed
from powerband.model.bottlenecks import BottleneckName as B

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

RIGHT_LEAST = 0.6  # shows a broken rule, of three cases or more; the docs have the share
# A pool of threads and a healthy case are in test_advice.py and below.
SAMPLE = ("gunicorn: 2 processes sleep", "uvicorn: a loop blocked", "uvicorn: a semaphore of 4")
# Limits that the reference server never has, or shows by other figures; a quota of CPU is in test_limits.py.
OTHERS_ALONE = (
    "JDK: Nagle's algorithm",
    "JDK: garbage",
    "gunicorn: 16 threads sync a journal, 200 writes/s",
    "gunicorn: 16 threads read a file, 96 MiB",
)
# A healthy server of Python is in test_slots.py, a healthy event loop of the reference server in test_bottlenecks.py.
HEALTHY = ("JDK: 64 threads sleep",)


def by_name(*names: str) -> tuple[RealCase, ...]:
    cases = {case.name: case for case in (*REAL_CASES, *REAL_HEALTHY, *CONTAINER_CASES, *CONTAINER_HEALTHY)}
    return tuple(cases[name] for name in names)


def need_go() -> None:
    if shutil.which("go") is None:
        without("no Go (go) here: install Debian's package golang")


def wrong(tried: list[Tried]) -> list[str]:
    return [str(each) for each in tried if not each.right]


def test_a_sample_is_named() -> None:
    fair = undisturbed(by_name(*SAMPLE), 2)
    assert len(fair) - len(wrong(fair)) >= RIGHT_LEAST * len(fair), "\n".join(wrong(fair))


@pytest.mark.long
def test_limits_that_only_other_servers_have_are_named() -> None:
    need_javac()
    some = by_name(*OTHERS_ALONE)
    if not all(case.installed for case in some):
        without("no cgroup can be made here: run this as root")
    fair = undisturbed(some, len(some) - 2)
    assert not wrong(fair), "\n".join(wrong(fair))


@pytest.mark.long
def test_what_is_healthy_is_not_accused() -> None:
    need_javac()
    fair = undisturbed(by_name(*HEALTHY), 1)
    assert not [str(each) for each in fair if each.named not in (None, B.NONE)]


@pytest.mark.long
def test_a_sample_of_tomcat_and_jetty_is_named() -> None:
    need_jdk(maven=True)
    fair = undisturbed(by_name("Tomcat: takes 8 connections", "Jetty: a monitor held 1 ms"), 1)
    assert not wrong(fair), "\n".join(wrong(fair))


@pytest.mark.long
def test_a_pool_of_connections_is_told_from_the_database() -> None:
    need_postgresql()
    need_go()
    some = by_name("Go: 4 connections, slow queries", "Go: 32 connections, all change one row")
    if not all(case.installed for case in some):
        without("no cgroup can be made here: run this as root")
    fair = undisturbed(some, 1)
    assert not wrong(fair), "\n".join(wrong(fair))
