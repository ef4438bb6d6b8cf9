"""Bottlenecks planted in servers that others wrote (gunicorn, uvicorn, Go, Node, Java's), each through a real trial,
and what following the advice gives. A case that other programs or the hypervisor disturb is tried again."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.confusion import Tried
from fakes.needs import need_javac, need_jdk, need_node, need_postgresql, without
from fakes.planted_containers import CONTAINER_CASES, CONTAINER_HEALTHY
from fakes.planted_real import (
    REAL_CASES,
    REAL_HEALTHY,
    THREADS,
    RealCase,
    allowed,
    gunicorn,
    jdk,
    little_memory,
    slow_disk,
    uvicorn,
)
from fakes.undisturbed import undisturbed
from powerband.model.bottlenecks import BottleneckName as B

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

RIGHT_LEAST = 0.75  # a wreck shows; how often the rules are right is the page's to say
SAMPLE = (
    "gunicorn: 4 threads sleep",
    "gunicorn: 2 processes sleep",
    "uvicorn: a loop blocked",
    "uvicorn: a semaphore of 4",
    "gunicorn: 64 threads sleep, 16 users",
)


def by_name(*names: str) -> tuple[RealCase, ...]:
    cases = {case.name: case for case in (*REAL_CASES, *REAL_HEALTHY, *CONTAINER_CASES, *CONTAINER_HEALTHY)}
    return tuple(cases[name] for name in names)


def need_go() -> None:
    if shutil.which("go") is None:
        without("no Go (go) here: install Debian's package golang")


def wrong(tried: list[Tried]) -> list[str]:
    return [str(each) for each in tried if not each.right]


def test_a_sample_is_named() -> None:
    fair = undisturbed(by_name(*SAMPLE), len(SAMPLE) - 2)
    assert len(fair) - len(wrong(fair)) >= RIGHT_LEAST * len(fair), "\n".join(wrong(fair))


@pytest.mark.long
def test_one_of_each_name_is_named() -> None:
    """All of them, and the table in the docs, are `make bottlenecks`."""
    need_node()
    need_javac()
    need_go()
    ours = [case for case in REAL_CASES if case.installed and not case.programs and case.name not in SAMPLE]
    some = tuple({case.expected: case for case in ours}.values())
    fair = undisturbed(some, len(some) // 2)
    assert len(fair) - len(wrong(fair)) >= RIGHT_LEAST * len(fair), "\n".join(wrong(fair))


@pytest.mark.long
def test_what_is_healthy_is_not_accused() -> None:
    need_node()
    fair = undisturbed(REAL_HEALTHY[1:5], 2)
    assert not [str(each) for each in fair if each.named not in (None, B.NONE)]


@pytest.mark.long
def test_a_sample_of_tomcat_and_jetty_is_named() -> None:
    need_jdk(maven=True)
    some = by_name("Tomcat: 4 threads sleep", "Tomcat: takes 8 connections", "Jetty: a monitor held 1 ms")
    fair = undisturbed(some, 1)
    assert len(fair) - len(wrong(fair)) >= RIGHT_LEAST * len(fair), "\n".join(wrong(fair))


@pytest.mark.long
def test_a_pool_of_connections_is_told_from_the_database() -> None:
    need_postgresql()
    need_go()
    some = by_name(
        "Go: 4 connections, slow queries",
        "Go: 32 connections, all change one row",
        "Go: 32 connections, slow queries",
    )
    if not all(case.installed for case in some):
        without("no cgroup can be made here: run this as root")
    fair = undisturbed(some, 1)
    assert not wrong(fair), "\n".join(wrong(fair))


@pytest.mark.long
@pytest.mark.parametrize(
    ("small", "large"),
    [
        (gunicorn("4 threads", B.POOL_TOO_SMALL, "sleep", 1, *THREADS, "4"), ("sleep", 1, *THREADS, "32")),
        (gunicorn("2 processes", B.POOL_TOO_SMALL, "sleep", 1, "-w", "2"), ("sleep", 1, "-w", "8")),
    ],
    ids=["more threads", "more processes"],
)
def test_more_of_the_pool_that_is_too_small_serves_more(
    tmp_path: Path, small: RealCase, large: tuple[str | int, ...]
) -> None:
    plant, limit, *options = large
    better = gunicorn("more", B.NONE, str(plant), int(limit), *map(str, options))
    (before,), after = undisturbed((small,), 1), better.run(tmp_path)
    assert before.right, str(before)
    assert after.metrics["goodput_per_s"] > 2 * before.result.metrics["goodput_per_s"]


@pytest.mark.long
def test_without_nagles_algorithm_more_is_served(tmp_path: Path) -> None:
    need_javac()
    (before,) = undisturbed((jdk("two writes", B.DELAYED_ACK, "none", nodelay=False),), 1)
    after = jdk("one", B.NONE, "none").run(tmp_path)
    assert before.right, str(before)
    assert after.metrics["goodput_per_s"] > 2 * before.result.metrics["goodput_per_s"]


@pytest.mark.long
@pytest.mark.parametrize(
    "limited",
    [
        allowed(0.5, gunicorn("2 processes compute", B.CPU_QUOTA, "cpu", 1, "-w", "2")),
        slow_disk(gunicorn("16 threads sync a journal", B.DISK, "fsync", 16, *THREADS, "16")),
        little_memory(gunicorn("16 threads read a file", B.MEMORY, "pages", 20, *THREADS, "16")),
    ],
    ids=["CPU quota", "disk", "memory"],
)
def test_without_the_limit_of_its_cgroup_more_is_served(tmp_path: Path, limited: RealCase) -> None:
    if not limited.installed:
        without("no cgroup can be made here: run this as root")
    (before,), after = undisturbed((limited,), 1), replace(limited, quota=0, writes_per_s=0, memory_mib=0).run(tmp_path)
    assert before.right, str(before)
    assert after.metrics["goodput_per_s"] > 1.5 * before.result.metrics["goodput_per_s"]


@pytest.mark.long
def test_a_larger_semaphore_serves_more(tmp_path: Path) -> None:
    (before,) = undisturbed((uvicorn("4", B.HIDDEN_LIMIT, "semaphore", 4),), 1)
    after = uvicorn("32", B.HIDDEN_LIMIT, "semaphore", 32).run(tmp_path)
    assert before.right, str(before)
    assert after.metrics["goodput_per_s"] > 4 * before.result.metrics["goodput_per_s"]
