"""The control plane reads a link's events, from programs that stand in for the engine."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from powerband.base.errors import SubjectError
from powerband.model.experiment import Service, Subject
from powerband.model.plan import Setting
from powerband.processes.engine_process import Pump
from powerband.processes.failures import TrialFailed
from powerband.processes.stop_request import StopRequest
from powerband.trials.instruments import link
from powerband.trials.instruments.link import check_link, link_up
from powerband.trials.services import Services
from powerband.wire.link_messages import LinkSpec

CARRIED = {"packets": 5, "bytes": 500, "dropped": 1, "missed": 0}
UP = {"type": "up", "at_ns": 1, "pid": 7, "form": "bridge", "queue_bytes": 9,
      "a": {"namespace": "/proc/self/ns/net", "address": "198.18.0.1"},
      "b": {"namespace": "/proc/7/fd/4", "address": "198.18.0.2"}}  # fmt: skip
SUMMARY = {"type": "summary", "at_ns": 2, "a_to_b": CARRIED, "b_to_a": CARRIED, "late_ns_p50": 3, "late_ns_p99": 4,
           "late_ns_max": 5, "cpu_ns": 6}  # fmt: skip
ERROR = {"type": "error", "kind": "limit", "message": "cannot make a network namespace: run as root"}


def standing_in(folder: Path, *events: dict[str, Any], then: str = "") -> Path:
    """A program that reads its spec and writes its events, the last one when it is told to stop."""
    *first, last = [f"echo '{json.dumps(event, separators=(',', ':'))}'" for event in events] or [""]
    program = folder / "engine"
    program.write_text("\n".join(["#!/bin/sh", "read spec", *first, then or "read stop", last]) + "\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def used(engine: Path, log: Path) -> link.Link:
    with Pump(StopRequest()) as pump, link_up(engine, LinkSpec(delay_ns=10, rate_bits_per_s=1000), log, pump) as made:
        assert made.given() == {
            "link_a": "/proc/self/ns/net",
            "link_b": "/proc/7/fd/4",
            "link_a_address": "198.18.0.1",
            "link_b_address": "198.18.0.2",
        }
    return made


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes the entering of a namespace, for which tests may lack the right, a record in this list."""
    entered: list[int] = []
    monkeypatch.setattr(link, "_enter", entered.append)
    return entered


def test_what_it_was_and_carried_is_a_fact_of_the_trial(tmp_path: Path, anywhere: list[int]) -> None:
    made = used(standing_in(tmp_path, UP, SUMMARY), tmp_path / "log")
    assert len(anywhere) == 2, "there, and home again"
    assert made.facts() == {
        "delay_ns": 10,
        "rate_bits_per_s": 1000,
        "form": "bridge",
        "queue_bytes": 9,
        "a_to_b": CARRIED,
        "b_to_a": CARRIED,
        "late_ns_p50": 3,
        "late_ns_p99": 4,
        "late_ns_max": 5,
        "cpu_ns": 6,
    }


def test_one_that_cannot_be_made_fails_the_trial_with_its_reason(tmp_path: Path, anywhere: list[int]) -> None:
    with pytest.raises(TrialFailed, match="network namespaces: cannot make a network namespace: run as root") as caught:
        used(standing_in(tmp_path, ERROR, then=":"), tmp_path / "log")
    assert caught.value.failure.code == "link_failed" and not anywhere


def test_one_that_dies_fails_the_trial_and_leaves_the_thread_where_it_was(tmp_path: Path, anywhere: list[int]) -> None:
    engine = standing_in(tmp_path, UP, {}, then="sleep 0.2; kill -9 $$")
    with (
        pytest.raises(TrialFailed, match=r"without a summary \(signal 9\)"),
        Pump(StopRequest()) as pump,
        link_up(engine, LinkSpec(delay_ns=1), tmp_path / "log", pump),
    ):
        pump.wait(lambda: False, 20)
    assert len(anywhere) == 2


def test_a_machine_without_the_right_is_told_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SubjectError, match=r"cannot be made on this machine: .* run as root"):
        check_link(standing_in(tmp_path, ERROR, then=":"))
    with pytest.raises(SubjectError, match=r"makes no link \(exit code 0\): install powerband again"):
        check_link(standing_in(tmp_path, then=":"))
    assert check_link(standing_in(tmp_path, UP, SUMMARY)) == "a bridge in user space (no netem)"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SubjectError, match=r"nsenter.*util-linux"):
        check_link(tmp_path / "engine")


def test_only_settings_that_say_so_have_one(tmp_path: Path) -> None:
    service = Service(when={"where": "netns"})
    subject = Subject(name="s", command=("s", "{port}", "{where}"), services={"link": service}, set={"link_rate": "x"})
    services = Services(subject, {})
    with Pump(StopRequest()) as pump:
        with services.linked(Setting((("where", "loopback"),)), tmp_path, tmp_path / "log", pump) as made:
            assert made is None
        with (
            pytest.raises(ValueError, match="'x' is no bandwidth"),
            services.linked(Setting((("where", "netns"), ("link_delay", "1ms"))), tmp_path, tmp_path / "log", pump),
        ):
            pass
