"""Only this machine and named hosts may be loaded; others are refused when an experiment is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.tuned import tune_experiment
from powerband.base.errors import ExperimentError
from powerband.base.hosts import LOADABLE, http_url, is_loopback, is_websocket, loadable_host, split_url
from powerband.cli import invoke
from powerband.files.experiment_file import parse_experiment
from powerband.files.resolved import resolved_yaml

COMMAND = ("./server", "{port}", "{threads}")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.3.2.1", "::1"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["example.org", "10.0.0.1", "0.0.0.0", "localhost.example.org"])
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "https://localhost",
        "http://[::1]:8080/x?y=1",
        "http://{host}:{admin-port}/{path}",
        "HTTP://localhost:65535",
    ],
)
def test_urls_of_servers(url: str) -> None:
    split_url(url)


def test_websockets_may_be_loaded_and_are_asked_over_http() -> None:
    split_url("wss://127.0.0.1:{port}/x", LOADABLE)
    assert is_websocket("ws://a/") and is_websocket("WSS://a/") and not is_websocket("http://ws://a/")
    assert http_url("ws://a:1/x?y=1") == "http://a:1/x?y=1"
    assert (http_url("wss://a/"), http_url("https://a/")) == ("https://a/", "https://a/")
    assert loadable_host("ws://127.0.0.1:5/", ()) == "127.0.0.1"
    with pytest.raises(ValueError, match=r"--allow-host example\.org"):
        loadable_host("wss://example.org/", ())
    with pytest.raises(ValueError, match=r"a page is wanted here: write https://a/"):
        split_url("wss://a/")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost:{port}/", r"it has no scheme; write http://localhost:\{port\}/"),
        ("127.0.0.1", "it has no scheme; write http://127.0.0.1"),
        ("/health", "has no scheme"),
        ("ftp://localhost/", "is no URL of a server"),
        ("unix:/run/app.sock", "is a Unix socket, which cannot be loaded"),
        ("http:///x", "is no URL of a server"),
        ("http://localhost:web/", "is no URL: port could not be cast"),
        ("http://localhost:99999/", "is no URL: port out of range"),
        ("http://localhost:0/", "names port 0"),
        ("http://[::1/", "is no URL: invalid IPv6"),
        ("http://localhost/é", "percent-encode"),
        ("http://local host/", "percent-encode"),
        ("http://höst/é", "ASCII"),
        ("/login?next=http://localhost/", "has no scheme"),
        ("http://me:secret@localhost/", "Authorization header"),
    ],
)
def test_what_is_no_url_of_a_server_gets_a_sentence(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        split_url(url)


def test_a_file_names_the_place_of_another_machine() -> None:
    text = "subject:\n  command: ./server\n  url: http://example.org/\nload: {users: 1}\n"
    with pytest.raises(ExperimentError, match=r"subject\.url in x\.yaml:3:8: example\.org is not") as caught:
        parse_experiment(text, "x.yaml")
    assert "allow_hosts: [example.org]" in str(caught.value)
    allowed = parse_experiment(text + "allow_hosts: [example.org]\n", "x.yaml")
    assert parse_experiment(resolved_yaml(allowed), "experiment.yaml") == allowed


def test_a_level_may_be_another_machine_too() -> None:
    text = "subject: {command: ./server, url: 'http://{h}/'}\nload: {users: 1}\nfactors: {h: [localhost, 10.0.0.9]}\n"
    with pytest.raises(ExperimentError, match=r"10\.0\.0\.9 is not this machine"):
        parse_experiment(text, "x.yaml")
    parse_experiment(text + "allow_hosts: [10.0.0.9]\n", "x.yaml")


def test_tune_names_the_option() -> None:
    with pytest.raises(ExperimentError, match=r"--url http://example\.org:\{port\}/: .* add --allow-host example\.org"):
        tune_experiment(COMMAND, ["threads=1"], url="http://example.org:{port}/")
    allowed = tune_experiment(COMMAND, ["threads=1"], url="http://example.org:{port}/", allow_hosts=["example.org"])
    assert allowed.allow_hosts == ("example.org",)


@pytest.mark.parametrize(
    "url", ["localhost:8080", "ftp://localhost/", "http://", "http://localhost:port/", "http://[::1"]
)
def test_what_is_no_url_is_said_so(url: str) -> None:
    with pytest.raises(ExperimentError, match="is no URL"):
        tune_experiment(("./server", "{threads}"), ["threads=1"], url=url)
    with pytest.raises(ExperimentError, match="is no URL"):
        parse_experiment(f"subject: {{command: ./server, url: '{url}'}}\nload: {{users: 1}}\n", "x.yaml")


def test_run_and_check_start_nothing_against_another_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("subject: {command: ./server, url: http://example.org/}\nload: {users: 1}\n")
    for arguments in (["check", str(file)], ["run", str(file), "--runs", str(tmp_path / "runs")]):
        assert invoke(arguments) == 3
        assert "example.org is not this machine" in capsys.readouterr().err
    tune = ["tune", "-P", "threads=1", "--url", "http://example.org/", "--runs", str(tmp_path / "runs")]
    assert invoke([*tune, "--", "./server", "{threads}"]) == 3
    assert not (tmp_path / "runs").exists()


def test_tune_takes_the_options_of_tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = []
    monkeypatch.setattr("powerband.cli.running.measure", lambda experiment, *_: made.append(experiment) or 0)
    tls = ["--insecure", "--ca-file", str(tmp_path / "ca.pem"), "--allow-host", "example.org"]
    url = ["--url", "https://example.org:{port}/"]
    assert invoke(["tune", "-P", "threads=1", *url, *tls, "--", "./server", "{port}", "{threads}"]) == 0
    (experiment,) = made
    assert (experiment.load.tls_insecure, experiment.load.tls_ca_file) == (True, str(tmp_path / "ca.pem"))
    assert experiment.allow_hosts == ("example.org",)
