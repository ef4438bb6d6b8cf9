"""A JMeter in progress, as seen by the files that it writes and by its end: no JMeter is started here."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from powerband.loads.jmeter import driver as module
from powerband.loads.jmeter.driver import LATE_NS, LEAVES_WITHIN_NS, JMeterLoad, jmeter_command
from powerband.loads.jmeter.install import JMeter
from powerband.loads.jmeter.plan_file import read_plan
from powerband.processes.failures import Code, TrialFailed
from powerband.processes.jdk import Jdk
from powerband.processes.line_file import LineFile
from powerband.store import TrialDir
from powerband.wire.load_events import LOAD_EVENT
from powerband.wire.probe_events import Exited, Launched
from powerband.wire.specs import Go, StartMeasure

MS = 1_000_000
SECOND = 1_000 * MS
EXAMPLE = Path(__file__).parents[3] / "examples" / "jmeter" / "plan.jmx"
HEADER = (
    "timeStamp,elapsed,label,responseCode,responseMessage,success,bytes,sentBytes,grpThreads,allThreads,threadName\n"
)
JMETER = JMeter(Path("/cache/jmeter"), Jdk(Path("/jdk"), 17))
UNRESOLVED = "CannotResolveClassException"


def exited(at_ns: int, exit_code: int = 0) -> Exited:
    return Exited(
        type="exited", name="jmeter", at_ns=at_ns, exit_code=exit_code, asked=False, cpu_user_ns=0, cpu_system_ns=0,
        max_rss_bytes=0, voluntary_switches=0, involuntary_switches=0,
    )  # fmt: skip


@dataclass
class Keeper:
    launched: Launched = field(default_factory=lambda: Launched(type="launched", name="jmeter", pid=42, at_ns=0))
    exited: Exited | None = None


class Stand:
    """A trial's folder, in which the test plays JMeter. `now_ms` counts from the first request on; the clock began at
    100 s."""

    def __init__(
        self, folder: Path, events: LineFile, listener: socket.socket, *, plan: Path = EXAMPLE, **options: Any
    ) -> None:
        self.now_ns = 100 * SECOND
        self.keeper = Keeper()
        self.directory = TrialDir(folder)
        self.listener = listener
        self.directory.samples.write_text(HEADER)
        given = {"warmup_ns": None, "duration_ns": SECOND, "drain_ns": SECOND, **options}
        port = listener.getsockname()[1]
        self.load = JMeterLoad(
            self.keeper, JMETER, read_plan(plan), events, self.directory, port=port, **given  # type: ignore[arg-type]
        )  # fmt: skip

    def answer(self, from_ms: int, to_ms: int, code: str = "200", ok: str = "true") -> None:
        rows = [f"{100_000 + at},5,Front page,{code},said,{ok},1,1,2,2,Users 1-1\n" for at in range(from_ms, to_ms, 10)]
        with self.directory.samples.open("a") as file:
            file.writelines(rows)

    def look(self, at_ms: int) -> None:
        self.now_ns = 100 * SECOND + at_ms * MS
        self.load.look()

    def told(self) -> list[str]:
        said = []
        while True:
            try:
                said.append(self.listener.recv(100).decode())
            except BlockingIOError:
                return said


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        bound.setblocking(False)
        yield bound


@pytest.fixture
def stand(tmp_path: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    stands: list[Stand] = []

    class Clock:
        """A clock in place of both the wall clock and the monotonic one."""

        @staticmethod
        def monotonic_ns() -> int:
            return stands[0].now_ns if stands else 100 * SECOND

        time_ns = monotonic_ns

    monkeypatch.setattr(module, "time", Clock)
    with LineFile(tmp_path / "events.jsonl") as events:

        def make(**options: Any) -> Stand:
            stands.append(Stand(tmp_path, events, listener, **options))
            return stands[0]

        yield make


def begun(stand: Stand) -> None:
    """Plays half a second of answers, and starts the measured load."""
    stand.look(0)
    assert stand.load.begun_ns is None
    stand.answer(0, 500)
    stand.look(510)
    assert stand.load.begun_ns == 100 * SECOND
    stand.load.send(Go(at_ns=100 * SECOND))


def test_a_plan_from_its_first_request_to_its_end(stand: Any, tmp_path: Path) -> None:
    of: Stand = stand()
    begun(of)
    assert of.load.pids == [42]
    of.answer(500, 900)
    of.look(900)
    assert of.load.phases == {"warmup": 100 * SECOND}
    assert of.load.intervals[-1].end_ns <= 100 * SECOND + 900 * MS - LATE_NS
    assert of.load.intervals[0].rate_per_s == pytest.approx(100, rel=0.11)
    assert of.load.intervals[0].response_time_ns_mean == 5 * MS
    of.load.check_begun()
    of.load.send(StartMeasure(at_ns=100 * SECOND + 950 * MS))
    of.answer(900, 2_000)
    of.look(1_940)
    assert of.load.phases["measure"] == 100 * SECOND + 950 * MS
    assert of.told() == []
    of.look(1_951)
    assert of.told() == ["Shutdown"]
    of.look(2_260)
    assert of.load.phases["drain"] == 100 * SECOND + 1_950 * MS
    assert not of.load.finished and of.told() == []
    of.directory.jmeter_output.write_text("Command: Shutdown received from /127.0.0.1\n")
    of.keeper.exited = exited(of.now_ns)
    of.look(2_300)
    assert of.load.finished
    of.load.check_ended()
    (summary,) = of.load.summaries
    assert summary["window"]["outcomes"] == {"ok": 100}
    assert summary["measure_end_ns"] - summary["measure_start_ns"] == SECOND
    assert of.load.seen["ok"] == 200 == summary["total"]["outcomes"]["ok"]
    assert of.load.record()["jmeter"]["java_version"] == 17
    of.look(2_400)  # no further event is written


def test_what_is_said_is_said_as_an_engine_does(stand: Any, tmp_path: Path) -> None:
    test_a_plan_from_its_first_request_to_its_end(stand, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    for line in lines:
        assert line.pop("engine") == 0
        LOAD_EVENT.validate_json(json.dumps(line))
    assert [line["type"] for line in lines[:-1]] == ["interval"] * (len(lines) - 1)
    assert lines[-1]["type"] == "summary"


@pytest.fixture(autouse=True)
def flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushes every line that is written, so that the test can read it."""
    write = LineFile.write

    def write_and_flush(self: LineFile, data: bytes) -> None:
        write(self, data)
        self.flush()

    monkeypatch.setattr(LineFile, "write", write_and_flush)


def test_a_fixed_warm_up_needs_no_word(stand: Any) -> None:
    of: Stand = stand(warmup_ns=400 * MS)
    begun(of)
    of.look(800)
    assert of.load.phases["measure"] == 100 * SECOND + 400 * MS


def test_who_does_not_leave_is_told_and_then_left(stand: Any) -> None:
    of: Stand = stand(warmup_ns=0)
    begun(of)
    of.look(1_000)
    assert of.told() == ["Shutdown"]
    of.look(1_999)
    assert of.told() == []
    of.look(2_000)
    assert of.told() == ["StopTestNow"]
    with of.directory.samples.open("a") as file:
        refused = "Non HTTP response code: java.net.SocketException"
        file.write(f"100900,1500,Front page,{refused},Socket closed,false,1,1,2,2,Users 1-1\n")
    of.look(2_000 + LEAVES_WITHIN_NS // MS)
    assert of.load.finished
    (summary,) = of.load.summaries
    assert summary["total"]["outcomes"] == {"ok": 50, "unfinished": 1}


@pytest.mark.parametrize(
    ("warmup_ns", "said"),
    [
        (None, "ended after 0.5 s, before the measured window of 1 s began: give its thread groups a longer duration"),
        (200 * MS, "before the measured window of 1 s was over, which began 0.2 s after the first request"),
    ],
)
def test_a_plan_that_ends_by_itself(stand: Any, warmup_ns: int | None, said: str) -> None:
    of: Stand = stand(warmup_ns=warmup_ns)
    begun(of)
    of.keeper.exited = exited(of.now_ns)
    with pytest.raises(TrialFailed) as failed:
        of.look(600)
    assert failed.value.failure.code == Code.PLAN_ENDED
    assert said in failed.value.failure.message


def test_a_transaction_that_the_shutdown_cuts_is_no_request(stand: Any, tmp_path: Path) -> None:
    plan = tmp_path / "plan.jmx"
    plan.write_text(EXAMPLE.read_text().replace('parent">false', 'parent">true'))
    of: Stand = stand(warmup_ns=0, plan=plan)
    begun(of)
    of.look(1_000)
    assert of.told() == ["Shutdown"]
    with of.directory.samples.open("a") as file:
        file.write("100900,0,A visit,,,true,0,0,2,2,Customers 1-1\n")
    of.directory.jmeter_output.write_text("Command: Shutdown received from /127.0.0.1\n")
    of.keeper.exited = exited(of.now_ns)
    of.look(1_300)
    (summary,) = of.load.summaries
    assert summary["total"]["outcomes"] == {"ok": 50}


def test_a_plan_that_ends_by_itself_while_its_jvm_still_runs(stand: Any) -> None:
    of: Stand = stand(warmup_ns=0)
    begun(of)
    of.keeper.exited = exited(100 * SECOND + 1_100 * MS)
    with pytest.raises(TrialFailed, match=r"the plan ended after 0\.5 s"):
        of.look(1_200)


@pytest.mark.parametrize(
    ("exit_code", "output", "code", "said"),
    [
        (
            0,
            "Tidying up ...\n",
            Code.NO_SAMPLES,
            "JMeter ended without one sample: see that a thread group has threads",
        ),
        (1, "An error occurred: no class Nix\n", Code.JMETER_FAILED, "could not run the plan.*\n  An error occurred"),
        (1, "", Code.JMETER_FAILED, "could not run the plan; see jmeter.out"),
        (
            1,
            f"Cause:\n{UNRESOLVED}: org.apache.jmeter.protocol.system.SystemSampler\n",
            Code.JMETER_FAILED,
            r"could not run the plan; org\.apache\.jmeter\.protocol\.system\.SystemSampler is in JMeter's own "
            r"ApacheJMeter_native\.jar, which powerband does not install.*\{search_paths: FOLDER\}; it said",
        ),
        (1, f"{UNRESOLVED}: kg.apc.Timer\n", Code.JMETER_FAILED, "a class that it cannot resolve is part of a plugin"),
    ],
)
def test_not_one_sample(stand: Any, exit_code: int, output: str, code: Code, said: str) -> None:
    of: Stand = stand()
    of.directory.jmeter_output.write_text(output)
    of.keeper.exited = exited(of.now_ns, exit_code)
    with pytest.raises(TrialFailed, match=f"(?s){said}") as failed:
        of.look(10)
    assert failed.value.failure.code == code


def test_a_jvm_that_dies_under_load(stand: Any) -> None:
    of: Stand = stand()
    begun(of)
    of.keeper.exited = exited(of.now_ns, 137)
    with pytest.raises(TrialFailed, match="JMeter ended by itself with an error"):
        of.look(600)


def test_damaged_results(stand: Any) -> None:
    of: Stand = stand()
    of.directory.samples.write_text("what is this?\n")
    with pytest.raises(
        TrialFailed, match=r"samples\.jtl of the trial, cannot be read: the column timeStamp is missing"
    ):
        of.look(10)


def test_nothing_right_and_no_memory(stand: Any) -> None:
    of: Stand = stand(warmup_ns=0)
    of.answer(0, 300, "500", "false")
    of.look(310)
    of.load.send(Go(at_ns=100 * SECOND))
    of.look(700)
    with pytest.raises(TrialFailed, match="30 status_rejected; status 500"):
        of.load.check_begun()
    of.answer(300, 400)
    of.directory.jmeter_log.write_text("java.lang.OutOfMemoryError: Java heap space\n")
    of.look(800)
    with pytest.raises(TrialFailed, match=r"Java heap space.*jvm_args: -Xmx4g"):
        of.load.check_ended()


def test_what_jmeter_said_of_requests_that_it_could_not_send_is_told(stand: Any) -> None:
    of: Stand = stand(warmup_ns=0)
    of.answer(0, 300, "Non HTTP response code: java.net.URISyntaxException", "false")
    of.look(310)
    of.load.send(Go(at_ns=100 * SECOND))
    of.look(700)
    with pytest.raises(TrialFailed, match=r"\(30 connect_failed\): JMeter said: said"):
        of.load.check_begun()


def test_a_clock_that_was_set(stand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    of: Stand = stand()
    begun(of)
    of.look(900)
    monkeypatch.setattr(module, "_wall_ahead_ns", lambda: 70 * MS)
    with pytest.raises(TrialFailed, match="clock was set by 70 ms") as failed:
        of.load.check_ended()
    assert failed.value.failure.code == Code.CLOCK_SET


def test_the_command_line(tmp_path: Path) -> None:
    properties = {"users": "8", "jmeter.save.saveservice.label": "false"}
    argv = jmeter_command(JMETER, EXAMPLE, properties, ("-Dx=y",), TrialDir(tmp_path), port=4711)
    assert argv[0] == "/jdk/bin/java"
    assert argv.index("-Xmx1g") < argv.index("-Dx=y") < argv.index("org.apache.jmeter.NewDriver")
    larger = jmeter_command(JMETER, EXAMPLE, properties, ("-Xmx4g",), TrialDir(tmp_path), port=4711)
    assert "-Xmx4g" in larger and "-Xms1g" not in larger
    assert argv[argv.index("-t") + 1] == str(EXAMPLE)
    assert "-Jusers=8" in argv and "-Jjmeterengine.nongui.port=4711" in argv
    assert "-Jjmeter.save.saveservice.idle_time=true" in argv
    # powerband sets every option that its reader needs.
    assert "-Jjmeter.save.saveservice.label=true" in argv and "-Jjmeter.save.saveservice.label=false" not in argv
