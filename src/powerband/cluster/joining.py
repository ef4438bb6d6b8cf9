"""Joins a Ray cluster; the only file that imports Ray. In: an address. Out: an actor on each node, whose methods are
called by name and answer later.

It refuses, with a sentence, a cluster that asks for no token, an address of Ray's client (`ray://`), and a Python
without Ray.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from powerband.base.errors import UsageError, did_you_mean
from powerband.cluster.actor import NodeActor

JOIN_S = 30.0
"""The time for an actor to start; a new Python that imports Ray and powerband takes some two seconds."""
_TOKEN_MODE = "RAY_AUTH_MODE"
_ASK_S = 20.0


@dataclass(frozen=True)
class Remote:
    """A node of the cluster, reached through its actor. `name`: its host name, or its address if two nodes have the
    same; `address`: by which other nodes reach it. `call`: begins a method of the actor, by name; any error of the call
    itself means that the actor, the node or the way to it is gone."""

    name: str
    address: str
    call: Callable[..., Future[Any]]


@contextmanager
def joined(
    address: str, wanted: Sequence[str] = (), without: Callable[[str], None] | None = None
) -> Iterator[list[Remote]]:
    """Joins a cluster and yields its nodes, or those `wanted` by name or address; their actors end with the block.
    `without`: gets a sentence for each wanted node that is not there, which is an error if it is None or if none is.
    Raises UsageError, MeasurementError."""
    ray = _ray()
    if address.startswith("ray://"):
        raise UsageError(
            f"--cluster {address}: Ray's client is not used, since its way to the nodes leads over one server: start "
            "powerband on a node of the cluster (the head, say) with --cluster auto, or name the head's host and port "
            "as `ray start` did (host:6379)"
        )
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise UsageError(f"--cluster {address}: {_why(error)}") from error
        for number, handler in handlers.items():  # Ray takes SIGTERM over
            with suppress(ValueError):  # not in the main thread
                signal.signal(number, handler)
        _check_closed(ray.get_runtime_context().gcs_address)
        nodes = _chosen(_named([node for node in ray.nodes() if node["Alive"]]), wanted, without)
        actors = {name: _actor(ray, node) for name, node in nodes.items()}
        try:
            yield [Remote(n, nodes[n]["NodeManagerAddress"], _caller(each)) for n, each in actors.items()]
        finally:
            for actor in actors.values():
                with suppress(Exception):  # its node may be gone
                    ray.kill(actor, no_restart=True)
    finally:
        ray.shutdown()


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Below `uv run` Ray would start what runs on nodes by uv as well, in an environment made there.
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    # Ray ends its processes when the head is gone for a minute: those of the nodes first, then the run says what to do.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "300")
    try:
        import ray  # noqa: PLC0415 - a second, and no other command needs it
    except ModuleNotFoundError:
        raise UsageError(
            "--cluster needs Ray, which is not installed: pip install 'powerband[ray]' here and on every node"
        ) from None
    return ray


def _why(error: BaseException) -> str:
    """The reason why a cluster cannot be joined, and what to do about it."""
    text = str(error)
    cause = str(error.__cause__ or error.__context__ or "")
    if "oken" in text + cause or "nauthenticated" in text + cause:
        return (
            "the cluster asks for a token that is not here: put it into RAY_AUTH_TOKEN, or copy the head's "
            "~/.ray/auth_token to this machine, and set RAY_AUTH_MODE=token"
        )
    if "ersion mismatch" in text:
        return f"{' '.join(text.split())}: install the same Ray and the same Python, to the patch level, on every node"
    return (
        f"there is no Ray cluster that this machine is part of ({' '.join(text.split())[:300]}): `ray start --head` on "
        "the first machine, `ray start --address=HOST:6379` on the others, and run powerband on one of them "
        "(docs/cluster.md)"
    )


def _check_closed(gcs_address: str) -> None:
    """Raises UsageError if the cluster's head answers a caller without a token, since anyone who reaches its port could
    then start programs on every node; also if it cannot be found out whether it does."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    argv = [sys.executable, "-P", "-m", "ray.scripts.scripts", "health-check", "--address", gcs_address]
    try:
        answer = subprocess.run(
            argv, env={**env, _TOKEN_MODE: "disabled"}, capture_output=True, text=True, timeout=_ASK_S, check=False
        )
    except subprocess.TimeoutExpired:
        return  # a head that does not answer lets nobody in
    if answer.returncode == 0:
        raise UsageError(
            f"the cluster at {gcs_address} asks for no token, so that whoever reaches its ports can run programs "
            f"on every node: `ray get-auth-token --generate` once, copy ~/.ray/auth_token to every node, and start Ray "
            f"there anew with {_TOKEN_MODE}=token in its environment (docs/cluster.md)"
        )
    if "oken" not in answer.stdout + answer.stderr:
        raise UsageError(
            f"whether the cluster at {gcs_address} asks for a token could not be found out: "
            f"{(answer.stderr.strip().splitlines() or ['no answer'])[-1]}"
        )


def _named(nodes: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The nodes by host name, or by address if two have the same name; the head first."""
    count = Counter(node["NodeManagerHostname"] for node in nodes)
    ordered = sorted(
        nodes, key=lambda node: ("node:__internal_head__" not in node["Resources"], node["NodeManagerAddress"])
    )
    return {
        node["NodeManagerHostname" if count[node["NodeManagerHostname"]] == 1 else "NodeManagerAddress"]: node
        for node in ordered
    }


def _chosen(
    nodes: dict[str, dict[str, Any]], wanted: Sequence[str], without: Callable[[str], None] | None = None
) -> dict[str, dict[str, Any]]:
    if not wanted:
        return nodes
    found, absent = {}, []
    for asked in wanted:
        name = next((n for n, node in nodes.items() if asked in (n, node["NodeManagerAddress"])), None)
        if name is None:
            absent.append(asked)
        else:
            found[name] = nodes[name]
    for asked in absent:
        said = f"cluster.nodes: {asked} is no node of the cluster"
        if without is None or not found:
            raise UsageError(f"{said}; {did_you_mean(asked, nodes)}")
        without(f"{said} now: the run goes on without it")
    return found


def _actor(ray: Any, node: dict[str, Any]) -> Any:
    """Makes one long-lived actor on the node. Ray never restarts it, nor repeats a call to it."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    there = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
    options = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": there}
    # The methods are coroutines, so Ray needs no threads for them; the environment is that of `ray start`.
    return ray.remote(NodeActor).options(**options).remote()


def _caller(actor: Any) -> Callable[..., Future[Any]]:
    def call(method: str, *arguments: object) -> Future[Any]:
        future: Future[Any] = getattr(actor, method).remote(*arguments).future()
        return future

    return call


def why_missing(error: BaseException) -> str:
    """The reason why the actor of a node gave no answer, and what to do about it. `error`: that of Ray."""
    text = " ".join(str(error).split())
    if "No module named 'powerband" in text:
        return (
            "powerband is not installed in the Python that runs Ray there: pip install 'powerband[ray]' in that "
            "environment, and start Ray anew"
        )
    return f"powerband's actor gave no answer: {text[:600]}"
