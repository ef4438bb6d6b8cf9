"""The nodes that may not join a cluster, with the reason they are given; and the key `cluster` of a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from powerband.base.errors import ExperimentError, UsageError
from powerband.cluster.actor import environment
from powerband.cluster.joining import Remote, _check_closed, _chosen, _named, _why, joined, why_missing
from powerband.cluster.node import moved
from powerband.cluster.nodes_bench import grouped
from powerband.files.experiment_file import experiment_of, parse_experiment
from powerband.files.library import library_root
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import ClusterUse

FILE = "subject: {use: reference}\nload: {users: 1}\nfactors: {threads: [1, 2]}\nname: n\n"


def node(host: str, address: str, *, head: bool = False) -> dict[str, object]:
    return {
        "NodeManagerHostname": host,
        "NodeManagerAddress": address,
        "Resources": {"node:__internal_head__": 1.0} if head else {},
    }


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'powerband\[ray\]'"), joined("auto"):
        pass


def test_ray_s_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", object())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Ray's client is not used"), joined("ray://head:10001"):
        pass


@pytest.mark.parametrize(("stderr", "said"), [("Traceback\nno such command\n", "no such command"), ("", "no answer")])
def test_a_head_that_cannot_be_asked_for_a_token_is_not_joined(
    stderr: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = subprocess.CompletedProcess([], 1, stdout="", stderr=stderr)

    def asked(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert argv[1:3] == ["-P", "-m"], "nothing of the current folder is run"
        return answer

    monkeypatch.setattr(subprocess, "run", asked)
    with pytest.raises(UsageError, match=f"could not be found out: {said}$"):
        _check_closed("head:6379")


def test_nodes_are_named_by_host_and_the_head_comes_first() -> None:
    nodes = [node("b", "10.0.0.2"), node("a", "10.0.0.9", head=True), node("b", "10.0.0.3")]
    assert list(_named(nodes)) == ["a", "10.0.0.2", "10.0.0.3"]


def test_of_the_nodes_only_those_that_are_named() -> None:
    nodes = _named([node("a", "10.0.0.1"), node("b", "10.0.0.2")])
    assert list(_chosen(nodes, ["10.0.0.2"])) == ["b"]
    assert list(_chosen(nodes, [])) == ["a", "b"]
    with pytest.raises(UsageError, match="bb is no node of the cluster; did you mean b"):
        _chosen(nodes, ["bb"])


def test_a_run_that_is_resumed_goes_on_without_the_nodes_that_are_gone() -> None:
    nodes, said = _named([node("a", "10.0.0.1"), node("b", "10.0.0.2")]), list[str]()
    assert list(_chosen(nodes, ["gone", "b"], said.append)) == ["b"]
    assert said == ["cluster.nodes: gone is no node of the cluster now: the run goes on without it"]
    with pytest.raises(UsageError, match="gone is no node of the cluster"):
        _chosen(nodes, ["gone"], said.append)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionError("Authentication token is missing or incorrect"), "RAY_AUTH_TOKEN"),
        (RuntimeError("Version mismatch: The cluster was started with: Ray 2.60.0"), "to the patch level"),
        (ConnectionError("Could not find any running Ray instance."), "ray start --head"),
    ],
)
def test_why_a_cluster_cannot_be_joined(error: Exception, said: str) -> None:
    assert said in _why(error)


def test_a_node_without_powerband_is_told_what_to_install() -> None:
    assert "pip install" in why_missing(RuntimeError("ModuleNotFoundError: No module named 'powerband'"))


def test_a_program_gets_neither_ray_s_token_nor_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setenv("MINE", "mine")
    assert environment()["MINE"] == "mine" and "RAY_AUTH_TOKEN" not in environment()


def test_the_key_of_a_file_in_its_two_forms(tmp_path: Path) -> None:
    assert parse_experiment(FILE, "f.yaml").cluster is None
    assert parse_experiment(FILE + "cluster: auto\n", "f.yaml").cluster == ClusterUse()
    text = FILE + "cluster: {address: 'head:6379', nodes: [a], files: [./mine]}\n"
    made = parse_experiment(text, str(tmp_path / "f.yaml"))
    assert made.cluster == ClusterUse(address="head:6379", nodes=("a",), files=(str(tmp_path / "mine"),))
    assert parse_experiment(resolved_yaml(made), "again.yaml").cluster == made.cluster
    assert parse_experiment(FILE, "f.yaml", None, {"cluster.address": "auto"}).cluster == ClusterUse()
    with pytest.raises(ExperimentError, match="adress"):
        parse_experiment(FILE + "cluster: {adress: auto}\n", "f.yaml")


def test_folders_of_the_driver_become_those_of_the_node() -> None:
    made = parse_experiment(FILE, "f.yaml")
    folder = made.subject.folder
    assert folder is not None
    text = resolved_yaml(made).replace(str(library_root()), "/elsewhere/data")
    assert moved(text, [["/elsewhere/data", "library"]]).subject.folder == folder
    assert moved(text, [["/elsewhere", "/here"]]).subject.folder == "/here/data/subjects/reference"
    assert moved(text, [["/else", "/here"]]).subject.folder == "/elsewhere/data/subjects/reference"


def test_a_node_goes_on_with_a_run_that_the_driver_can_read() -> None:
    older = 'claims: [{id: a, says: fast, holds: "response_time_ns_p99[threads=1] < 5"}]\n'
    made = parse_experiment(FILE + older, "f.yaml")
    assert moved(resolved_yaml(made), []) == made


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"subject": {"command": "x {port}"}}, r"is reached from its own node alone: write http://\{address\}"),
        ({"load": {"users": 1, "tls_ca_file": "roots.pem"}}, "this file is not on the nodes"),
        ({"host": {"pinning": {"subject": "0", "engine": "1"}}}, "leave pinning out"),
        ({"subject": {"command": "x", "url": "http://10.0.0.1:80/"}}, "--allow-host 10.0.0.1"),
        ({"cluster": {"generators": -1}}, "generators"),
    ],
)
def test_what_other_nodes_cannot_load(changed: dict[str, object], said: str) -> None:
    file = {"name": "n", "subject": {"use": "reference"}, "load": {"users": 1}, "cluster": {"generators": 1}}
    assert experiment_of(file).generators == 1
    with pytest.raises(ExperimentError, match=said):
        experiment_of({**file, **changed})


def test_deliveries_are_timed_by_the_clock_of_one_node() -> None:
    subject = {"command": "./s {address} {port}", "url": "ws://{address}:{port}/"}
    load = {"users": 2, "websocket": {"stamp_after": "at "}, "scenario": [{"message": "at {stamp}"}]}
    file = {"name": "n", "subject": subject, "load": load}
    made = experiment_of({**file, "cluster": {"generators": 1}})
    with pytest.raises(ExperimentError, match=r"load\.websocket\.stamp_after: .* one clock"):
        experiment_of({**file, "cluster": {"generators": 2}})
    untimed = {**load, "websocket": {}}
    assert experiment_of({**file, "load": untimed, "cluster": {"generators": 2}}).generators == 2
    older = resolved_yaml(made).replace("generators: 1", "generators: 2")
    assert parse_experiment(older, "f.yaml").generators == 2, "the file of an older run can still be read"


def test_a_server_that_drives_itself_is_loaded_by_nobody() -> None:
    subject = {"command": "x {statsd_port}"}
    file = {"name": "n", "subject": {**subject, "counts": "done"}, "load": {}, "cluster": {"generators": 1}}
    with pytest.raises(ExperimentError, match="this server drives itself"):
        experiment_of(file)


def test_of_four_nodes_the_head_comes_last_unless_they_are_named() -> None:
    def names(count: int, generators: int, *, as_named: bool = False) -> list[list[str]]:
        nodes = [Remote(name, name, lambda *_: None) for name in "abcdefg"[:count]]  # type: ignore[arg-type,return-value]
        made = grouped(nodes, generators, as_named=as_named)
        return [[each.name for each in place.with_generators] for place in made]

    assert names(3, 0) == [["a"], ["b"], ["c"]]
    assert names(4, 1) == [["b", "c"], ["d", "a"]]
    assert names(4, 1, as_named=True) == [["a", "b"], ["c", "d"]]
    assert names(5, 2) == [["b", "c", "d"]]
    with pytest.raises(UsageError, match="takes 3 nodes at least"):
        names(2, 2)
