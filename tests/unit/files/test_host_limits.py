"""Limits of CPU and memory in a file, as factors and as options."""

from __future__ import annotations

import pytest

from fakes.tuned import tune_experiment
from powerband.base.errors import ExperimentError
from powerband.files.experiment_file import parse_experiment
from powerband.files.resolved import resolved_yaml
from powerband.model.host_use import HostUse

FILE = """\
name: demo
subject: {command: "./server --port {port} -t {threads}"}
factors: FACTORS
load: {users: 5}
host: HOST
"""
COMMAND = ("./server", "--port", "{port}", "-t", "{threads}")


def text(host: str = "{}", factors: str = "{threads: [1]}") -> str:
    return FILE.replace("FACTORS", factors).replace("HOST", host)


def test_limits_are_read_and_written_back() -> None:
    made = parse_experiment(text("{cpu_quota: 1.5, memory_limit: 512MiB}"), "x.yaml")
    assert (made.host.cpu_quota, made.host.memory_limit_bytes) == (1.5, 512 << 20)
    assert parse_experiment(resolved_yaml(made), "experiment.yaml") == made


def test_limits_vary_as_factors() -> None:
    factors = "{threads: [1], host.cpu_quota: [0.5, 2], host.memory_limit: [64MiB, 1GB]}"
    made = parse_experiment(text("{cpus: 1}", factors), "x.yaml")
    assert [made.host_for(setting) for setting in made.settings()] == [
        HostUse(cpus=1, cpu_quota=quota, memory_limit_bytes=size) for quota in (0.5, 2) for size in (64 << 20, 10**9)
    ]
    assert made.host_dealt.cpu_quota == 2, "all settings get the CPUs of the largest"
    assert parse_experiment(resolved_yaml(made), "experiment.yaml") == made


def test_they_are_options_of_tune() -> None:
    options = {"--cpu-quota": "0.5", "--memory-limit": "1GiB"}
    made = tune_experiment(COMMAND, ["threads=1,2"], options=options)
    assert (made.host.cpu_quota, made.host.memory_limit_bytes) == (0.5, 1 << 30)
    varied = tune_experiment(COMMAND, ["threads=1", "host.cpu_quota=0.5,1"])
    assert [host.cpu_quota for host in varied.limited_hosts()] == [0.5, 1]


@pytest.mark.parametrize(
    ("host", "factors", "option"),
    [
        ("{cpu_quota: 0.5}", "{threads: [1]}", "--cpus"),
        ("{}", "{threads: [1], host.memory_limit: [64MiB]}", "--memory"),
    ],
)
def test_a_container_is_limited_by_its_engine(host: str, factors: str, option: str) -> None:
    in_container = text(host, factors).replace("./server --port", "docker run -p {port}:80 image --port")
    with pytest.raises(ExperimentError, match=f"would limit `docker run`.*give docker {option}"):
        parse_experiment(in_container, "x.yaml")


@pytest.mark.parametrize(
    ("host", "factors", "said"),
    [
        ("{cpu_quota: 0}", "{threads: [1]}", r"host\.cpu_quota in x\.yaml:5:19: .*0\.01"),
        ("{cpu_quota: true}", "{threads: [1]}", "true is no number"),
        ("{cpu_quota: much}", "{threads: [1]}", r"host\.cpu_quota in x\.yaml:5:19"),
        ("{memory_limit: 12}", "{threads: [1]}", r"host\.memory_limit in x\.yaml:5:22: .*1048576"),
        ("{memory_limit: 1 box}", "{threads: [1]}", "'1 box' is no size"),
        ("{}", "{threads: [1], host.cpus: [1]}", "host has no key cpus that can vary"),
        ("{}", "{threads: [1], host.cpu_quota: [1, none]}", r"none is no value for host\.cpu_quota"),
    ],
)
def test_what_is_no_limit_is_named_with_its_place(host: str, factors: str, said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        parse_experiment(text(host, factors), "x.yaml")


DOCKER = ("docker", "run", "--rm", "-p", "127.0.0.1:{port}:80")


@pytest.mark.parametrize("words", [(), ("-e", "OTHER"), ("--name", "WORKERS")])
def test_a_variable_that_docker_does_not_pass_on_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(ExperimentError, match=r"does not pass it on: write -e WORKERS"):
        tune_experiment((*DOCKER, *words, "image"), ["threads=1,2"], env=["WORKERS={threads}"])


@pytest.mark.parametrize(
    "words", [("-e", "WORKERS"), ("--env=WORKERS",), ("-eWORKERS",), ("--env-file", "x"), ("-e", "WORKERS={threads}")]
)
def test_a_variable_that_docker_passes_on_is_taken(words: tuple[str, ...]) -> None:
    assert tune_experiment((*DOCKER, *words, "image"), ["threads=1,2"], env=["WORKERS={threads}", "PLAIN=1"])
