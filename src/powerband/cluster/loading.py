"""Runs the engines of a load on the nodes of a cluster (`powerband load URL --cluster`). In: nodes. Out:
`FarEngines`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from powerband.base.errors import UsageError
from powerband.base.hosts import is_loopback
from powerband.cluster.far_engines import FarEngines, Generator
from powerband.cluster.heartbeat import ClusterNode, Heartbeat, checked, read_facts
from powerband.cluster.joining import Remote
from powerband.trials.loadgen import check_url


@contextmanager
def far_engines(
    join: Callable[[], AbstractContextManager[Sequence[Remote]]], url: str, allow_hosts: Sequence[str]
) -> Iterator[FarEngines]:
    """Yields engines on all nodes that `join` gives, for a load of `url`; the nodes are left clean. Raises UsageError,
    MeasurementError."""
    if is_loopback(check_url(url, allow_hosts)):
        raise UsageError(
            f"{url} is another server on each node of the cluster: name the address under which they reach the server, "
            "with --allow-host"
        )
    with join() as remotes:
        nodes = [ClusterNode(remote) for remote in remotes]
        heartbeat = Heartbeat(nodes)
        try:
            read_facts(nodes)
            heartbeat.begin()
            yield FarEngines([Generator(**checked(node.name, node.generate())) for node in nodes], "")
        finally:
            heartbeat.end()
