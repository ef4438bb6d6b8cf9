"""Bottlenecks planted in Tomcat and Jetty, in a pool of connections to PostgreSQL, and in PostgreSQL itself."""

from __future__ import annotations

from dataclasses import replace

from fakes.planted import users
from fakes.planted_real import RealCase
from powerband.model.bottlenecks import BottleneckName

B = BottleneckName
ALL_CPUS, FEW_CPUS = 2.0, 0.25  # of the database


def container(
    kind: str,
    name: str,
    expected: B,
    plant: str,
    limit: int = 1,
    *,
    threads: int = 64,
    connections: int = 0,
    count: int = 64,
    slots: int = 0,
) -> RealCase:
    """A case of Tomcat or Jetty with so many client connections at most; 0: its own default."""
    java = ("java", "-Xmx128m", "-XX:+UseSerialGC", "-cp", "{containers}", "Containers")
    command = (*java, kind.lower(), "{port}", plant, str(limit), str(threads), str(connections))
    return RealCase(f"{kind}: {name}", "", users(count), expected, (), slots, command, programs=("java", "mvn"))


def pooled(
    kind: str,
    name: str,
    expected: B,
    plant: str,
    limit: int,
    *,
    cpus: float = ALL_CPUS,
    count: int = 64,
    slots: int = 0,
) -> RealCase:
    """A case of Tomcat, Jetty or Go's net/http with so many connections to a PostgreSQL that may use so many CPUs."""
    if kind == "Go":
        command = ("{go-database}", "127.0.0.1:{port}", plant, str(limit))
        case = RealCase(f"Go: {name}", "", users(count), expected, (), slots, command, programs=("go",))
    else:
        case = container(kind, name, expected, plant, limit, count=count, slots=slots)
    return replace(case, database=cpus)


CONTAINER_CASES: tuple[RealCase, ...] = (
    container("Tomcat", "4 threads sleep", B.POOL_TOO_SMALL, "sleep", threads=4, slots=4),
    container("Tomcat", "a monitor held 1 ms", B.LOCK, "monitor", slots=1),
    container("Tomcat", "a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4, slots=4),
    container("Tomcat", "takes 8 connections", B.ACCEPT_BACKLOG, "sleep", connections=8, slots=8),
    container("Tomcat", "computes", B.SUBJECT_CPU, "cpu", threads=8),
    container("Jetty", "4 threads sleep", B.POOL_TOO_SMALL, "sleep", threads=4, slots=4),
    container("Jetty", "a monitor held 1 ms", B.LOCK, "monitor", slots=1),
    container("Jetty", "a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4, slots=4),
    container("Jetty", "takes 8 connections", B.ACCEPT_BACKLOG, "sleep", connections=8, slots=8),
    container("Jetty", "computes", B.SUBJECT_CPU, "cpu", threads=8),
    pooled("Tomcat", "4 connections, slow queries", B.HIDDEN_LIMIT, "query", 4, slots=4),
    pooled("Jetty", "8 connections, slow queries", B.HIDDEN_LIMIT, "query", 8, slots=8),
    pooled("Go", "4 connections, slow queries", B.HIDDEN_LIMIT, "query", 4, slots=4),
    pooled("Tomcat", "32 connections, all change one row", B.DOWNSTREAM, "row", 32, slots=1),
    pooled("Go", "32 connections, all change one row", B.DOWNSTREAM, "row", 32, slots=1),
    pooled("Tomcat", "32 connections, the database computes", B.DOWNSTREAM, "compute", 32, cpus=FEW_CPUS),
    pooled("Go", "32 connections, the database computes", B.DOWNSTREAM, "compute", 32, cpus=FEW_CPUS),
)
CONTAINER_HEALTHY: tuple[RealCase, ...] = (
    container("Tomcat", "200 threads sleep", B.NONE, "sleep", threads=200, count=16),
    container("Jetty", "200 threads sleep", B.NONE, "sleep", threads=200, count=16),
    pooled("Tomcat", "32 connections, slow queries", B.NONE, "query", 32, count=12),
    pooled("Go", "32 connections, slow queries", B.NONE, "query", 32, count=12),
)
