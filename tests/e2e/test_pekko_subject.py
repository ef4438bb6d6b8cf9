"""The subject `pekko`: it refuses wrong parameters, loses no ball, and leaves no process on any dispatcher and
transport; and its experiments run in their smoke profile. Needs a JDK of 21 or later and Maven: skipped without them,
unless POWERBAND_NO_SKIP=1."""

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
from fakes.dashboards import Watch, check_dashboard
from fakes.needs import need_jdk, without
from fakes.reflection import Built, Playing, assert_no_ball_lost, built
from fakes.smoke import measured, measured_by, powerband, run
from powerband.base.errors import ExperimentError
from powerband.files.experiment_file import load_subject, parse_experiment
from powerband.model.plan import Level
from powerband.processes.toolchain import given_values

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

MAINS = ["Neighbours", "PeerMain", "Reflection"]


@pytest.fixture(autouse=True)
def jdk_and_maven() -> None:
    need_jdk(maven=True)


def asked(what: str, game: Playing, built: Built) -> str:
    """The answer of the subject's JVM to a command of jcmd."""
    command = [f"{built.given['java_home']}/bin/jcmd", str(game.process.pid), what]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def stacks(game: Playing, built: Built) -> list[str]:
    """The stack of each thread of the JVM, which begins with the thread's name."""
    return [stack for stack in asked("Thread.print", game, built).split("\n\n") if stack.startswith('"')]


@pytest.fixture
def pekko(engine: Path) -> Built:
    subject = load_subject("pekko")
    java_home = given_values(subject, engine)["java_home"]
    return built(subject, engine, [("JAVA_HOME", java_home)])


@pytest.fixture
def command(pekko: Built) -> Callable[..., list[str]]:
    return pekko.command


@pytest.fixture
def play(pekko: Built, tmp_path: Path) -> Callable[..., Any]:
    return partial(pekko.playing, tmp_path / "subject.log")


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ({"balls": 0}, "--balls 0 is no whole number from 1 to"),
        ({"pairs": 0}, "--pairs 0 is no whole number from 1 to"),
        ({"parallelism": 0}, "--parallelism 0 is no whole number from 1 to"),
        ({"throughput": 0}, "--throughput 0 is no whole number from 1 to"),
        ({"counters": 3}, "--counters 3 is no whole number from 1 to 2"),
        ({"mailbox": "bounded:0"}, "--mailbox bounded:0 is no whole number from 1 to"),
        ({"mailbox": "endless"}, "--mailbox endless: write unbounded, single-consumer or bounded:N"),
        ({"dispatcher": "forkjoin"}, "--dispatcher forkjoin: write one of fork-join, thread-pool, affinity"),
        ({"metrics": "datagram"}, "--metrics datagram needs somewhere to send to: --statsd HOST:PORT"),
        ({"transport": "artery-tcp", "balls": 4_000_001}, "more than the 4000000 balls that may be in play"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(
    command: Callable[..., list[str]], levels: dict[str, Level], said: str
) -> None:
    plain = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}  # a JVM prints them
    done = subprocess.run(command(**levels), capture_output=True, text=True, timeout=60, check=False, env=plain)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("pekko: ") and said in line


@pytest.mark.parametrize(
    ("setting", "said"),
    [("dispatcher: forkjoin", "did you mean fork-join"), ("parallelism: many", "many is no whole number")],
)
def test_what_no_level_can_be_is_refused_before_anything_starts(setting: str, said: str) -> None:
    text = f"subject: {{use: pekko, set: {{{setting}}}}}\nload: {{duration: 1s}}\n"
    with pytest.raises(ExperimentError) as refused:
        parse_experiment(text, "wrong.yaml")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("dispatcher", "threads", "runs"),
    [
        ("fork-join", 2, "ForkJoinWorkerThread.run"),
        ("thread-pool", 2, "ThreadPoolExecutor$Worker.run"),
        ("affinity", 2, "AffinityPoolWorker.run"),
        ("virtual", 0, ""),
        ("pinned", 6, "ThreadPoolExecutor$Worker.run"),
    ],
)
def test_no_ball_is_lost_on_any_dispatcher(
    play: Callable[..., Any], pekko: Built, dispatcher: str, threads: int, runs: str
) -> None:
    """`threads`: the number of the players' platform threads. `runs`: a name that stands in each of their stacks."""
    with play(dispatcher=dispatcher, parallelism=2, pairs=3, balls=5) as game:
        first = game.wait_for(lambda series: series["reflection_messages_total"] > 1000)
        then = game.wait_for(
            lambda series: (
                series["reflection_messages_total"] > first["reflection_messages_total"] + 1000
                and series["reflection_balls"] == 15  # the first balls move while others are still thrown in
            )
        )
        assert then["reflection_pairs"] == 3
        assert then["reflection_throws_total"] >= then["reflection_messages_total"] > 2000
        assert then["reflection_allocated_bytes_total"] > first["reflection_allocated_bytes_total"]
        players = [stack for stack in stacks(game, pekko) if "reflection.dispatcher" in stack.partition("\n")[0]]
        assert len(players) == threads and all(runs in stack for stack in players)
        assert_no_ball_lost(game.final(), 15)


@pytest.mark.parametrize(
    "levels", [{}, {"message": "reused", "mailbox": "single-consumer", "gc": "Parallel"}, {"debug_log": True}]
)
def test_no_ball_is_lost_whatever_else_is_changed(
    play: Callable[..., Any], pekko: Built, levels: dict[str, Level]
) -> None:
    with play(**levels) as game:
        game.wait_for(lambda series: series["reflection_messages_total"] > 60_000)
        assert (game.log_lines() > 50_000) == bool(levels.get("debug_log"))
        assert f"-XX:+Use{levels.get('gc', 'G1')}GC" in asked("VM.flags", game, pekko)
        assert_no_ball_lost(game.final(), 6)


def test_a_mailbox_that_overflows_loses_balls_and_counts_them(play: Callable[..., Any]) -> None:
    with play(mailbox="bounded:4", balls=100, throughput=1) as game:
        game.wait_for(lambda series: series["reflection_balls_lost_total"] > 0 and series["reflection_balls"] == 100)
        final = game.final()
    assert 0 < final["balls_lost"] < 100
    assert final["uncounted"] == 0 and final["unreceived"] == 0
    assert final["sent"] == final["received"] + final["balls_lost"]


def test_a_mailbox_that_eats_the_heap_ends_the_process(command: Callable[..., list[str]]) -> None:
    done = subprocess.run(
        command(heap="48m", balls=20_000_000), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 3
    assert done.stdout.startswith("ready: ") and "java.lang.OutOfMemoryError" in done.stdout


@pytest.mark.parametrize("counters", [1, 2])
def test_each_increment_is_a_datagram(play: Callable[..., Any], counters: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        sink.settimeout(30)
        with play(metrics="datagram", counters=counters, statsd_port=sink.getsockname()[1]) as game:
            heard = {sink.recv(1000) for _ in range(100)}
            final = game.final()
    names = [b"reflection.received:1|c", b"reflection.player.received:1|c"]
    assert heard == set(names[:counters])
    # Messages of the last moment are not sent as metrics any more.
    assert counters * (final["messages"] - 6) <= final["metric_updates"] <= counters * final["messages"]
    assert_no_ball_lost(final, 6)


@pytest.mark.parametrize("metrics", ["library-drop", "library-block"])
def test_the_library_packs_increments(play: Callable[..., Any], metrics: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        sink.settimeout(30)
        with play(metrics=metrics, statsd_port=sink.getsockname()[1]) as game:
            packets, lines = 0, []
            while len(lines) < 5 * packets or packets < 20:  # at first there is little to pack
                lines += sink.recv(10_000).decode().splitlines()
                packets += 1
                assert packets < 10_000, f"{len(lines)} lines in so many packets"
            assert {line.split("|")[0] for line in lines} == {"reflection.received:1", "reflection.player.received:1"}
            assert_no_ball_lost(game.final(), 6)


@pytest.mark.long
@pytest.mark.parametrize(
    ("serializer", "compression"), [("binary", "on"), ("jackson-cbor", "off"), ("jackson-json", "on"), ("java", "off")]
)
def test_no_ball_is_lost_between_two_jvms(play: Callable[..., Any], serializer: str, compression: str) -> None:
    levels = {"transport": "artery-tcp", "serializer": serializer, "compression": compression, "heap": "128m"}
    with play(**levels, pairs=2, balls=50, payload=200) as game:
        game.wait_for(lambda series: series["reflection_messages_total"] > 1000 and series["reflection_balls"] == 100)
        assert_no_ball_lost(game.final(), 100)


@pytest.mark.long
def test_the_other_jvms_end_with_the_first(play: Callable[..., Any]) -> None:
    with play(transport="artery-tcp", heap="128m", neighbours=1) as game:
        game.wait_for(lambda series: series["reflection_messages_total"] > 100)
        running = [line.split() for line in marked_processes(f"{MARK}={os.environ[MARK]}").values()]
        assert sorted(name for words in running for name in words if name in MAINS) == sorted(MAINS)
        os.kill(game.process.pid, signal.SIGKILL)
    # The fixture checks that no process is left.


FULL = """
question: What becomes of a mailbox that is too full?
subject: {use: pekko, set: {heap: 48m}}
factors: {mailbox: [%s], balls: [%d]}
load: {duration: %s}
measure: {warmup: 1s, metrics: {app_balls_lost: final(balls_lost)}, invariants: [app_balls_lost == 0]}
profiles: {smoke: {measure: {repeats: 1}}}
"""


@pytest.mark.long
def test_balls_that_a_full_mailbox_loses_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "full.yaml"
    file.write_text(FULL % ('"bounded:4", unbounded', 100, "1s"))
    analysis = run(str(file), tmp_path / "runs", spoilt_by=("invariant",))
    lost = {trial["setting"]["levels"]["mailbox"]: trial["metrics"]["app_balls_lost"] for trial in analysis["trials"]}
    assert lost["bounded:4"] > 0 and lost["unbounded"] == 0
    for trial in analysis["trials"]:
        codes = {problem["code"] for problem in trial["problems"]}
        assert ("invariant" in codes) == (trial["setting"]["levels"]["mailbox"] == "bounded:4")


@pytest.mark.long
def test_a_mailbox_that_eats_the_heap_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "full.yaml"
    file.write_text(FULL % ("unbounded", 20_000_000, "8s"))  # a slow machine takes long to fill a heap
    done = powerband(str(file), tmp_path / "runs")
    assert done.returncode == 4 and "it ran out of memory (java.lang.OutOfMemoryError" in done.stderr, done.stderr


def test_infinite_reflection(tmp_path: Path) -> None:
    """One dispatcher; all of them play in the tests above."""
    analysis = run("infinite-reflection", tmp_path, "--set", "factors.dispatcher=[fork-join]")
    ((_, metrics),) = measured(analysis)
    assert metrics["goodput_per_s"] > 1000 and metrics["context_switches_per_request"] >= 0
    assert metrics["app_balls_lost"] == 0 and metrics["app_receipts_less_ball_counts"] == 0
    assert metrics["app_allocated_per_message_bytes"] > 0
    assert metrics["bar_rate_per_s_max"] > 1000 and "bar_rate_per_s_min" in metrics
    assert not any(problem["code"] == "invariant" for trial in analysis["trials"] for problem in trial["problems"])
    records = [json.loads(path.read_text()) for path in tmp_path.rglob("record.json")]
    assert [record["last_words"]["balls"] for record in records] == [6]


@pytest.mark.long
def test_reflection_plateau(watch: Watch) -> None:
    seen = watch.run("reflection-plateau", "--set", "load.duration=4s")
    found = measured_by(seen.analysis, "metrics")
    assert found["off"]["app_updates_per_s"] == 0
    assert found["datagram"]["app_updates_per_s"] == pytest.approx(2 * found["datagram"]["goodput_per_s"], rel=0.3)
    check_dashboard("pekko", [seen])


@pytest.mark.long
def test_reflection_suspicions(tmp_path: Path) -> None:
    analysis = run("reflection-suspicions", tmp_path)
    found = measured(analysis)
    assert sorted((levels["metrics"], levels["parallelism"]) for levels, _ in found) == [
        ("datagram", 8), ("off", 1), ("off", 8),
    ]  # fmt: skip
    (datagram,) = [metrics for levels, metrics in found if levels["metrics"] == "datagram"]
    assert 0 < datagram["app_updates_at_sink_share"] < 1.5


@pytest.mark.long
def test_reflection_remote(tmp_path: Path) -> None:
    found = measured_by(run("reflection-remote", tmp_path), "serializer")
    assert set(found) == {"binary", "java"}
    assert all(metrics["goodput_per_s"] > 10 and metrics["app_balls_lost"] == 0 for metrics in found.values())


@pytest.mark.long
def test_reflection_link(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        without("network namespaces need root")
    ((_, metrics),) = measured(run("reflection-link", tmp_path))
    assert metrics["app_balls_lost"] == 0
    assert 0 < metrics["goodput_per_s"] <= 6000, "six balls that need 1 ms each way"


@pytest.mark.long
def test_reflection_record(tmp_path: Path) -> None:
    found = measured_by(run("reflection-record", tmp_path), "pairs")
    assert set(found) == {2, 8} and all(metrics["goodput_per_s"] > 1000 for metrics in found.values())
