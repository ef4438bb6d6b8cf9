"""The commands of docs/docker.md on a real Docker engine, as they stand there, only shorter: the server in the
container is watched, not the client that started it, and nothing of a trial is left. powerband inside a container is
left out, since that needs an image with Python."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.docker import IMAGE, DockerEngine, docker_engine
from fakes.guides import SHORT, by_level, measured, shorter, shown, words_of
from powerband.processes.ports import pick_port

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

GONE_WITHIN_S = 20.0
TAKES_S = 0.002  # a request of the image's server, of CPU
PAUSES = ("--think", "1ms")  # users that pause get no looks at slots, which take two seconds


@pytest.fixture(scope="module")
def docker() -> Iterator[DockerEngine]:
    with docker_engine() as running:
        yield running


def tuned(docker: DockerEngine, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """The trials of the command. One that the machine disturbed is followed by another of its setting."""
    return measured(folder, *arguments, env=docker.env, inside=docker.inside())


def with_docker_options(given: list[str], *options: str) -> list[str]:
    at = given.index("-p")
    return [*given[:at], *options, *given[at:]]


def test_a_container_for_each_trial_is_watched(docker: DockerEngine, tmp_path: Path) -> None:
    given = shorter(shown("docker.md", "tune"), {"threads": "1,4"}, *PAUSES)
    for threads, figures in by_level(tuned(docker, tmp_path, *given), "threads").items():
        assert 0 < figures["goodput_per_s"] <= 1.1 * threads / TAKES_S
        assert figures["subject_cpu_cores"] > 0, "the client that started the container uses none"
    check_nothing_left(docker)


def check_nothing_left(docker: DockerEngine) -> None:
    until_s = time.monotonic() + GONE_WITHIN_S
    while left := docker.docker("ps", "--all", "--quiet"):  # the engine removes a killed one by and by
        assert time.monotonic() < until_s, left
        time.sleep(0.1)


@pytest.mark.long
def test_one_in_the_network_of_the_machine_is_found_by_its_port(docker: DockerEngine, tmp_path: Path) -> None:
    given = shorter(shown("docker.md", "tune"), {"threads": "1"}, *PAUSES)
    *_, trial = tuned(docker, tmp_path, *with_docker_options(given, "--network", "host", "-e", "PORT={port}"))
    assert trial["metrics"]["subject_cpu_cores"] > 0


@pytest.mark.long
def test_the_engine_may_listen_for_it(tmp_path: Path) -> None:
    given = shorter(shown("docker.md", "tune"), {"threads": "1"}, *PAUSES)
    with docker_engine(**{"userland-proxy": False}) as docker:
        *_, trial = tuned(docker, tmp_path, *given)
    assert trial["metrics"]["subject_cpu_cores"] > 0


@pytest.mark.long
def test_one_whose_port_answers_early_is_waited_for_and_killed_if_it_does_not_stop_in_time(
    docker: DockerEngine, tmp_path: Path
) -> None:
    given = shorter(shown("docker.md", "tune"), {"threads": "1"}, *PAUSES, "--stop-grace", "100ms")
    given = with_docker_options(given, "-e", "IGNORES=TERM", "-e", "LATE=1s")
    for trial in tuned(docker, tmp_path, *given):
        assert trial["metrics"]["subject_cpu_cores"] > 0
        assert trial["errors"] == [], "loaded before it listened"
    check_nothing_left(docker)


@pytest.mark.long
def test_one_that_is_never_ready_and_does_not_stop_in_time_is_killed_too(docker: DockerEngine, tmp_path: Path) -> None:
    given = shorter(shown("docker.md", "tune"), {"threads": "1"}, "--stop-grace", "100ms", "--ready-timeout", "2s")
    given = with_docker_options(given, "-e", "IGNORES=TERM", "-e", "LATE=60s")
    command = docker.inside(sys.executable, "-m", "powerband", *given)
    done = subprocess.run(
        command, cwd=tmp_path, env=docker.env, capture_output=True, text=True, timeout=300, check=False
    )
    assert "was not ready within 2 s" in done.stderr
    check_nothing_left(docker)


@pytest.mark.long
def test_a_container_that_runs_already_gets_other_limits(docker: DockerEngine, tmp_path: Path) -> None:
    port = pick_port()
    docker.docker("run", "--detach", "--name", "app", "--publish", f"127.0.0.1:{port}:8080", "--cpus", "1", IMAGE)
    try:
        pid = docker.docker(*words_of("docker.md", "docker inspect")[1:])
        given = ["tune", "--url", f"http://127.0.0.1:{port}/", "-P", "cpus=0.2,0.5", "--restore", "cpus=1"]
        change = words_of("docker.md", "--apply-command")
        trials = tuned(docker, tmp_path, *given, *change, "--pid", pid, *SHORT, *PAUSES)
        for cpus, figures in by_level(trials, "cpus").items():
            assert figures["cpu_quota_cores"] == pytest.approx(cpus)
        state = docker.docker("inspect", "--format", "{{.State.Pid}} {{.HostConfig.NanoCpus}}", "app")
        assert state == f"{pid} 1000000000"
    finally:
        docker.docker("rm", "--force", "app")
