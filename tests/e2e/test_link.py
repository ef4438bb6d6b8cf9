"""A subject's two processes talk over a link between two network namespaces: the measured times agree with theory, the
load reaches the first process, and nothing of the link is left, however the run ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import MARK, marked_processes
from fakes.guides import shown
from fakes.needs import need_link, without
from fakes.stand import FAKES
from powerband.readings.fleet import merge_fleet
from powerband.store import RunDir

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

EXPERIMENT = """
name: linked
subject:
  command: [{python}, {pair}, --port, "{{port}}", --far-namespace, "{{link_b}}", --far-address, "{{link_b_address}}"]
  ready: {{http: /}}
  services: {{link: {{when: {{link: netns}}}}}}
  parameters:
    link: {{type: choice, choices: [loopback, netns], default: netns, help: where the second process is}}
    link_delay: {{type: duration, default: 4ms, help: one way}}
    link_rate: {{type: string, default: unlimited, help: bandwidth}}
factors: {factors}
load: {load}
measure: {{repeats: 1, foreign_cpu_max: 100%, steal_max: 100%}}
"""
# It lasts until that many requests are answered: on a busy machine one alone may take longer than any short window.
LOAD = "{users: 1, requests_per_user: 12, duration: 60s}"
A_SECOND = LOAD.replace("12", "120")


def command(folder: Path, factors: str, *options: str, load: str = LOAD) -> list[str]:
    file = folder / "linked.yaml"
    pair = FAKES / "linked_pair.py"
    file.write_text(EXPERIMENT.format(python=sys.executable, pair=pair, factors=factors, load=load))
    return [sys.executable, "-m", "powerband", "run", str(file), "--format", "json", "--runs", str(folder), *options]


def run(
    folder: Path, factors: str, *options: str, load: str = LOAD
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    words = command(folder, factors, *options, load=load)
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    return done, json.loads(done.stdout) if done.stdout else {}


@pytest.mark.crowded
def test_a_message_takes_the_delay_there_and_back_and_only_where_the_setting_has_the_link(tmp_path: Path) -> None:
    need_link()
    done, analysis = run(tmp_path, "{link: [loopback, netns]}", "--set", "subject.set.link_rate=50mbit", load=A_SECOND)
    trials = {trial["setting"]["levels"]["link"]: trial for trial in analysis["trials"]}
    assert all(trial["status"] == "measured" for trial in trials.values()), done.stderr
    assert trials["netns"]["metrics"]["response_time_ns_mean"] > 8e6, "never earlier than 4 ms there and 4 ms back"
    assert not [name for name in trials["loopback"]["metrics"] if name.startswith("link_")]
    assert trials["netns"]["metrics"]["link_dropped"] == 0
    (folder,) = tmp_path.glob("*-linked")
    links = {}
    for record in folder.glob("trials/*/record.json"):
        told = json.loads(record.read_text())
        links[told["spec"]["setting"]["link"]] = told["link"]
    assert links["loopback"] == {}
    assert (links["netns"]["delay_ns"], links["netns"]["rate_bits_per_s"]) == (4_000_000, 50_000_000)
    assert links["netns"]["a_to_b"]["packets"] > 10 and links["netns"]["b_to_a"]["packets"] > 10
    if links["netns"]["form"] == "bridge":
        assert trials["netns"]["metrics"]["services_cpu_cores"] > 0, "the bridge is watched, and so is not foreign"
        assert links["netns"]["late_ns_p99"] > 0


@pytest.mark.crowded
def test_each_setting_has_its_own_delay(tmp_path: Path) -> None:
    need_link()
    done, _ = run(tmp_path, "{link_delay: [0ms, 10ms]}", load=A_SECOND)
    (folder,) = tmp_path.glob("*-linked")
    soonest_ns = {}
    for record in RunDir.open(folder).records():
        fleet = merge_fleet(record.engines)
        assert fleet is not None, done.stderr
        delay = dict(record.spec.setting.levels)["link_delay"]
        soonest_ns[delay] = fleet.times("response_time_ns").quantile(0.0)
    # Of more than a hundred answers one at least is not held up, even on a busy machine.
    assert soonest_ns["0ms"] < 20e6 < soonest_ns["10ms"]


@pytest.mark.crowded
def test_after_a_kill_of_powerband_neither_processes_nor_namespaces_are_left(tmp_path: Path) -> None:
    need_link()
    process = subprocess.Popen(
        command(tmp_path, "{link: [netns]}", load="{users: 1, duration: 60s}"), stdout=subprocess.DEVNULL
    )
    try:
        namespaces = namespaces_told(tmp_path)
        assert len(set(namespaces)) == 2 and os.readlink("/proc/self/ns/net") not in namespaces  # noqa: PTH115
        assert all(used(namespace) for namespace in namespaces)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + 30
    while any(used(namespace) for namespace in namespaces) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [namespace for namespace in namespaces if used(namespace)]


def namespaces_told(folder: Path) -> list[str]:
    """The network namespaces that the two processes of the subject report."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for log in folder.glob("*-linked/trials/*/subject.log"):
            if found := re.search(r"here: (net:\[\d+\]); there: (net:\[\d+\])", log.read_text()):
                return list(found.groups())
        time.sleep(0.05)
    pytest.fail("the subject did not start both of its processes")


def used(namespace: str) -> bool:
    """True if a process that this test started is in the namespace, or has an open descriptor of it: the kernel gives
    the number of a namespace that is gone to the next one, which may be that of a test beside."""
    for pid in marked_processes(f"{MARK}={os.environ[MARK]}"):
        folder = Path(f"/proc/{pid}")
        for link in (folder / "ns" / "net", *listed(folder / "fd")):
            try:
                if str(link.readlink()) == namespace:
                    return True
            except OSError:
                continue
    return False


def listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


@pytest.mark.crowded
def test_without_the_right_it_is_refused_before_anything_is_built_or_started(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        without("only root with setpriv (util-linux) can give the right away")
    less = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    built = tmp_path / "built"
    build = ("--set", f"subject.build=[touch, {built}]")
    done = subprocess.run(
        [*less, *command(tmp_path, "{link: [netns]}", *build)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 4, done.stderr
    assert "cannot make a network namespace" in done.stderr and "run as root" in done.stderr
    assert "Traceback" not in done.stderr
    assert not built.exists() and not list(tmp_path.glob("*-linked/trials/*"))
    told = subprocess.run(
        [*less, sys.executable, "-m", "powerband", *shown("tutorial.md", "doctor"), "--format", "json"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    (finding,) = [finding for finding in json.loads(told.stdout)["findings"] if finding["name"] == "link"]
    assert finding["found"] == "none" and "run as root" in finding["advice"]
