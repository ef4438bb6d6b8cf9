"""The subject `akka-net`: it refuses wrong parameters, loses no ball, and leaves no process on any dispatcher; and its
experiments run in their smoke profile. Needs a .NET SDK of 8 or later: skipped without one, unless
POWERBAND_NO_SKIP=1."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conftest import MARK, marked_processes
from fakes.needs import need_dotnet, without
from fakes.reflection import Built, assert_no_ball_lost, built
from fakes.smoke import measured, run
from powerband.files.experiment_file import load_subject
from powerband.model.plan import Level
from powerband.processes.dotnet import ENV

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]


@pytest.fixture(autouse=True)
def dotnet() -> None:
    need_dotnet()


@pytest.fixture
def akka(dotnet: None, engine: Path) -> Built:
    return built(load_subject("akka-net"), engine, ENV)


@pytest.fixture
def play(akka: Built, tmp_path: Path) -> Callable[..., Any]:
    return partial(akka.playing, tmp_path / "subject.log")


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ({"balls": 0}, "--balls 0 is no whole number from 1 to"),
        ({"parallelism": 0}, "--parallelism 0 is no whole number from 1 to"),
        ({"mailbox": "bounded:0"}, "--mailbox bounded:0 is no whole number from 1 to"),
        ({"mailbox": "endless"}, "--mailbox endless: write unbounded or bounded:N"),
        ({"dispatcher": "forkjoin"}, "--dispatcher forkjoin: write one of fork-join, thread-pool, task"),
        ({"dispatcher": "channel", "parallelism": 1}, "--dispatcher channel does not run with --parallelism 1"),
        ({"transport": "remote", "metrics": "prometheus"}, "--transport remote does not run with --metrics prometheus"),
        ({"metrics": "datagram"}, "--metrics datagram needs somewhere to send to: --statsd HOST:PORT"),
        ({"pairs": 1_000_000, "balls": 1_001}, "are more than 1000000000 balls"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(akka: Built, levels: dict[str, Level], said: str) -> None:
    command = akka.command(**levels)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=akka.env())
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("akka-net: ") and said in line


def test_a_collector_that_net_does_not_take_is_refused(akka: Built) -> None:
    env = {**akka.env(), "DOTNET_gcServer": "0"}
    done = subprocess.run(akka.command(gc="server"), capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.returncode == 2 and "DOTNET_gcServer is set" in done.stderr


@pytest.mark.parametrize(
    "levels",
    [
        {"parallelism": 2},
        {"dispatcher": "thread-pool", "pool_threads": 1},
        {"dispatcher": "task"},
        {"dispatcher": "channel", "parallelism": 2},
        {"dispatcher": "pinned"},
    ],
    ids=lambda levels: levels.get("dispatcher", "fork-join"),
)
def test_no_ball_is_lost_on_any_dispatcher(play: Callable[..., Any], levels: dict[str, Level]) -> None:
    with play(**levels, pairs=3, balls=5) as game:
        first = game.wait_for(lambda series: series["reflection_messages_total"] > 1000)
        then = game.wait_for(
            lambda series: (
                series["reflection_messages_total"] > first["reflection_messages_total"] + 1000
                and series["reflection_balls"] == 15
            )
        )
        assert then["reflection_pairs"] == 3
        assert then["reflection_throws_total"] >= then["reflection_messages_total"] > 2000
        assert then["reflection_allocated_bytes_total"] > first["reflection_allocated_bytes_total"]
        if "pool_threads" in levels:
            assert then["reflection_pool_threads"] == levels["pool_threads"]
        assert_no_ball_lost(game.final(), 15)


@pytest.mark.parametrize("levels", [{}, {"message": "reused"}, {"debug_log": True}, {"gc": "server"}])
def test_no_ball_is_lost_whatever_else_is_changed(play: Callable[..., Any], levels: dict[str, Level]) -> None:
    if levels.get("gc") == "server" and len(os.sched_getaffinity(0)) < 2:
        without("on one CPU .NET has no server collector")
    with play(**levels) as game:
        series = game.wait_for(lambda series: series["reflection_log_lines_written_total"] > 2)
        debug = bool(levels.get("debug_log"))
        assert (series["reflection_log_lines_total"] > series["reflection_messages_total"] / 2) == debug
        assert game.log_lines() >= series["reflection_log_lines_written_total"]
        assert_no_ball_lost(game.final(), 6)


@pytest.mark.parametrize("serializer", ["json", "binary"])
def test_no_ball_is_lost_between_two_processes(play: Callable[..., Any], serializer: str) -> None:
    with play(transport="remote", serializer=serializer, pairs=2, balls=5) as game:
        game.wait_for(lambda series: series["reflection_messages_total"] > 1000 and series["reflection_balls"] == 10)
        running = marked_processes(f"{MARK}={os.environ[MARK]}").values()
        assert sum("--other-side" in command for command in running) == 1
        assert_no_ball_lost(game.final(), 10)
    # The fixture checks that no process is left.


def test_the_other_side_ends_with_the_first(play: Callable[..., Any]) -> None:
    with play(transport="remote") as game:
        game.wait_for(lambda series: series["reflection_messages_total"] > 100)
        os.kill(game.process.pid, signal.SIGKILL)


def test_a_mailbox_that_overflows_loses_balls_and_counts_them(play: Callable[..., Any]) -> None:
    with play(mailbox="bounded:4", balls=100, throughput=1) as game:
        game.wait_for(lambda series: series["reflection_balls_lost_total"] > 0 and series["reflection_balls"] == 100)
        final = game.final()
    assert 0 < final["balls_lost"] < 100
    assert final["uncounted"] == 0 and final["unreceived"] == 0
    assert final["sent"] == final["received"] + final["balls_lost"]


def test_each_increment_is_a_datagram(akka: Built, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        sink.settimeout(30)
        port = sink.getsockname()[1]
        with akka.playing(tmp_path / "subject.log", port, metrics="datagram") as game:
            heard = {sink.recv(1000) for _ in range(100)}
            final = game.final()
    assert heard == {b"reflection.received:1|c", b"reflection.player.received:1|c"}
    # Messages of the last moment are not sent as metrics any more.
    assert 2 * (final["messages"] - 6) <= final["metric_updates"] <= 2 * final["messages"]
    assert_no_ball_lost(final, 6)


def test_counters_of_prometheus_net_say_what_the_actors_counted(play: Callable[..., Any]) -> None:
    with play(metrics="prometheus") as game:
        series = game.wait_for(lambda series: series["reflection_messages_total"] > 1000)
        assert series["reflection_received_total"] >= series["reflection_metric_updates_total"] / 2 - 2
        final = game.final()
    assert 2 * (final["messages"] - 6) <= final["metric_updates"] <= 2 * final["messages"]
    assert_no_ball_lost(final, 6)


def test_the_busy_neighbour_ends_with_the_first(play: Callable[..., Any]) -> None:
    with play(neighbours=1) as game:
        game.wait_for(lambda series: series["reflection_messages_total"] > 100)
        running = marked_processes(f"{MARK}={os.environ[MARK]}").values()
        assert sum("--busy-threads" in command for command in running) == 1
        os.kill(game.process.pid, signal.SIGKILL)
    # The fixture checks that no process is left.


def test_akka_net_reflection(tmp_path: Path) -> None:
    found = measured(run("akka-net-reflection", tmp_path, "--set", "factors.dispatcher=[fork-join]"))
    rates = {levels["metrics"]: metrics for levels, metrics in found}
    assert set(rates) == {"off", "datagram"}
    for metrics in rates.values():
        assert metrics["goodput_per_s"] > 1000 and metrics["context_switches_per_request"] >= 0
        assert metrics["app_balls_lost"] == 0 and metrics["app_receipts_less_ball_counts"] == 0
        assert metrics["app_allocated_per_message_bytes"] > 0
        assert metrics["bar_rate_per_s_max"] > 1000 and "bar_rate_per_s_min" in metrics
    assert rates["off"]["app_updates_per_s"] == 0
    assert rates["datagram"]["app_updates_per_s"] == pytest.approx(2 * rates["datagram"]["goodput_per_s"], rel=0.3)
    records = [json.loads(path.read_text()) for path in tmp_path.rglob("record.json")]
    assert len(records) == 2 and all(record["last_words"]["balls"] == 6 for record in records)


@pytest.mark.long
def test_akka_net_suspicions(tmp_path: Path) -> None:
    found = measured(run("akka-net-suspicions", tmp_path))
    changed = {name for levels, _ in found for name, level in levels.items() if level not in ("off", False, 8, 0, 6)}
    assert {"metrics", "debug_log", "parallelism", "neighbours"} <= changed
    assert all(metrics["app_balls_lost"] == 0 for _, metrics in found)
    for way in ("datagram", "prometheus"):
        (metrics,) = [metrics for levels, metrics in found if levels["metrics"] == way]
        assert 0 < metrics["app_updates_at_sink_share"] < 1.5


@pytest.mark.long
def test_akka_net_throughput(tmp_path: Path) -> None:
    found = measured(run("akka-net-throughput", tmp_path))
    assert {levels["throughput"] for levels, _ in found} == {1, 100}
    for _, metrics in found:
        assert metrics["goodput_per_s"] > 1000 and metrics["app_balls_lost"] == 0
        # These metrics come from inside, without any setting of the subject.
        assert metrics["dotnet_pool_threads_max"] >= 1 and metrics["dotnet_work_items_per_s"] > 0


@pytest.mark.long
def test_akka_net_remote(tmp_path: Path) -> None:
    found = measured(run("akka-net-remote", tmp_path))
    assert {levels["serializer"] for levels, _ in found} == {"json", "binary"}
    assert all(metrics["goodput_per_s"] > 100 and metrics["app_balls_lost"] == 0 for _, metrics in found)
