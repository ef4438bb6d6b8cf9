"""The live page's server as a process: it starts beside a run, ends with it however the run ends, and no viewer delays
another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import marked_processes
from fakes import synthetic
from fakes.live_runs import written
from fakes.live_server import TIMEOUT_S, Served, Viewer, served
from powerband.live.watch import NICE
from powerband.store import RunDir

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("no_process_left")]

TOKEN = "a-token-of-some-length"
BLOCKS = 200
TRIALS = 9 * BLOCKS
BESIDE = """
import sys, time
from pathlib import Path
from powerband.live.beside import page_beside
with page_beside(Path(sys.argv[1]), lambda text: print(text, flush=True)):
    time.sleep(600)
"""


@pytest.fixture
def large(tmp_path: Path) -> RunDir:
    """A run whose first message does not fit into the buffers of a connection."""
    return written(tmp_path / "runs", "20261120-100000-large", synthetic.analysis(blocks=BLOCKS))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return written(tmp_path / "runs", "20261120-100000-small", synthetic.analysis())


def more(run: RunDir, number: int) -> None:
    """Adds a planned trial to the run."""
    line = json.loads(run.plan.read_text().splitlines()[-1])
    with run.plan.open("a") as file:
        file.write(json.dumps({**line, "number": number}) + "\n")


def test_it_ends_with_its_stdin_and_tells_its_viewers_the_last_state(run: RunDir) -> None:
    with served(run.path) as server:
        assert os.getpriority(os.PRIO_PROCESS, server.process.pid) == NICE
        assert server.address.startswith("http://127.0.0.1:") and server.address.endswith(f"/runs/{run.path.name}/")
        viewer = Viewer(server, f"/runs/{run.path.name}/events")
        assert "text/event-stream" in viewer.head()
        trials = len(viewer.event()["trials"])
        assert trials == len(run.plan.read_text().splitlines())
        more(run, trials + 1)
        assert server.process.stdin is not None
        server.process.stdin.close()
        seen = []
        while event := viewer.event():
            seen += [trial["number"] for trial in event.get("trials", ())]
        assert seen == [trials + 1]
        assert server.process.wait(TIMEOUT_S) == 0
        viewer.close()


def test_one_who_stalls_holds_up_nobody_and_wakes_to_the_newest_state(large: RunDir) -> None:
    path = f"/runs/{large.path.name}/events"
    with served(large.path) as server:
        stalled = Viewer(server, path, stalls=True)
        others = [Viewer(server, path) for _ in range(20)]
        for viewer in others:
            viewer.head()
            assert len(viewer.event()["trials"]) == TRIALS
        for number in range(TRIALS + 1, TRIALS + 4):
            more(large, number)
            for viewer in others:
                assert [trial["number"] for trial in viewer.event()["trials"]] == [number]
        stalled.head()
        assert len(stalled.event()["trials"]) == TRIALS
        # The viewer gets one message with all three trials, not the three messages that the others got.
        assert sorted(trial["number"] for trial in stalled.event()["trials"]) == list(range(TRIALS + 1, TRIALS + 4))
        for viewer in (stalled, *others):
            viewer.close()


def test_a_viewer_who_leaves_is_forgotten(run: RunDir) -> None:
    path = f"/runs/{run.path.name}/events"
    with served(run.path) as server:
        for _ in range(30):
            viewer = Viewer(server, path)
            viewer.head()
            assert viewer.event()["run"]["status"] == "finished"
            viewer.close()
        assert server.json(f"/runs/{run.path.name}/state")["run"]["done"] == len(run.plan.read_text().splitlines())


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_it_does_not_outlive_who_started_it(run: RunDir, ending: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", BESIDE, str(run.path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.readline()
    assert said.startswith("live page: http://127.0.0.1:")
    mark = f"POWERBAND_TEST_MARK={os.environ['POWERBAND_TEST_MARK']}"
    assert any("powerband.live" in command for command in marked_processes(mark).values())
    process.send_signal(ending)
    process.wait(TIMEOUT_S)
    process.stdout.close()  # the fixture checks that no process is left


def watching(run: RunDir, *options: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "powerband", "watch", str(run.path.parent), "--port", "0", *options],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    return process, process.stderr.readline()


def test_watch_serves_a_folder_until_ctrl_c(run: RunDir) -> None:
    process, said = watching(run)
    address = said.split()[2]
    assert said.startswith("live page: http://127.0.0.1:") and address.endswith("/")
    server = Served(address, process)
    assert server.get("/")[0] == 200
    assert server.get("/", Host="evil.example")[0] == 421
    assert server.get("/", Origin="http://evil.example")[0] == 403
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, errors) == (0, "")


def test_opened_to_others_it_asks_for_a_token(run: RunDir) -> None:
    process, said = watching(run, "--host", "0.0.0.0", "--token", TOKEN)
    address = said.split()[2]
    assert address.endswith(f"/?token={TOKEN}")
    port = address.split(":")[2].split("/")[0]
    server = Served(f"http://127.0.0.1:{port}/", process)
    assert server.get("/")[0] == 401
    assert server.get("/", Authorization=f"Bearer {TOKEN}")[0] == 200
    assert server.get(f"/?token={TOKEN}")[0] == 303
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
