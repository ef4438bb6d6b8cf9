"""A converted plan sends the same requests as the plan: the real engine and the real JMeter load the same small
server."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fakes.heard import Log, listening
from fakes.plans import argument, assertion, data, defaults, element, group, headers, plan, sampler, timer
from fakes.real_jmeter import real_jmeter
from powerband.cli import invoke
from powerband.files.experiment_file import load_experiment
from powerband.jmx.importing import import_plan
from powerband.model.load import Load
from powerband.processes.engine_fleet import find_engine
from powerband.processes.stop_request import StopRequest
from powerband.store import RunDir
from powerband.trials.loadgen import run_load

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

ROOT = Path(__file__).parents[2]
OF_INTEREST = ("Accept", "Content-Type", "Content-Length", "Host", "X-A", "X-B", "X-Row")
SERVER = {"HTTPSampler.domain": "${__P(host,127.0.0.1)}", "HTTPSampler.port": "${__P(port,8080)}"}
OWN = {"HTTPSampler.domain": "", "HTTPSampler.port": ""}  # filled by the defaults


def everything() -> str:
    """A plan of one user and two rounds that covers every rule which decides what is sent."""
    mixed = [argument("q", "x%20y", encodes=False), argument("", "left out"), argument("r", "tea & cups ~*소")]
    odd = [{"Argument.name": "n", "Argument.value": "v", "HTTPArgument.always_encode": True}]  # no JMeter writes it so
    listed = {**OWN, "HTTPsampler.Arguments": {"Arguments.arguments": mixed}}
    unnamed = [argument("", "a=", encodes=False), argument("", "b c")]
    forms = element(
        "TransactionController",
        "Forms",
        headers(("X-A", "inner"), ("X-B", "1"), ("X-B", "2")),
        defaults(("d", "inner"), **{"HTTPSampler.path": "/inner"}),
        sampler(path="", query={"own": "1"}, **OWN),
        sampler(method="POST", path="/form", **listed),
        sampler(method="PUT", path="/latin", query={"q": "é"}, **{**OWN, "HTTPSampler.contentEncoding": "ISO-8859-1"}),
        sampler(method="DELETE", path="/both?x=1", query={"a": "1"}, **OWN),
        sampler(method="PATCH", path="/none", **OWN),
        sampler(method="GET", path="a b%7Ec;v=1/@x+y", **listed),
        sampler(method="HEAD", path="/head", query={"a": "1"}, **OWN),
        sampler(method="OPTIONS", path="/options", query={"a": "1"}, **OWN),
    )
    bodies = element(
        "GenericController",
        "Bodies",
        sampler(headers(("content-type", "a/json")), method="POST", path="/json", body='{"a":\n "é"}', **OWN),
        sampler(method="POST", path="/raw", body="text ${__P(port,8080)}", **OWN),
        sampler(method="POST", path="/unnamed", **{**OWN, "HTTPsampler.Arguments": {"Arguments.arguments": unnamed}}),
        sampler(method="GET", path="/search", body="searched", **OWN),
        sampler(method="PUT", path="/empty", body="", **OWN),
        sampler(method="DELETE", path="/gone", **OWN),
    )
    addresses = element(
        "LoopController",
        "Twice",
        sampler(headers(("X-Row", "${row}")), path="/rows//%7E${row}//%2f%ec/", query={"city": "${city}"}, **OWN),
        sampler(path="/소?é", **OWN),
        sampler(path="/odd", **{**OWN, "HTTPsampler.Arguments": {"Arguments.arguments": odd}}),
        sampler(headers(("Host", "shop")), path="http://127.0.0.1:${__P(port)}/whole?y=2#part", query={"a": "1"}),
        **{"LoopController.loops": "2"},
    )
    return plan(
        defaults(**{**SERVER, "HTTPSampler.protocol": "http"}),
        headers(("Accept", "text/plain"), ("X-A", "outer")),
        group(
            data("rows.csv", "", quotedData=True, shareMode="shareMode.thread"),
            timer("ConstantTimer", "1"),
            assertion("response_code", 8, "200"),
            forms,
            element("GenericController", "Off", sampler(path="/never", **OWN), enabled=False),
            bodies,
            addresses,
            loops="2",
        ),
        group(sampler(), name="Off", users="0", enabled=False),
        variables={"unused": "1"},
    )


def sent_by_engine(file: Path, log: Log, stop: StopRequest) -> list[tuple[object, ...]]:
    """Loads the server with the converted plan, one user who plays as many rounds as the plan says; returns the
    requests."""
    imported = import_plan(file, command=("server", "{port}"), properties={"port": str(log.port)})
    experiment = file.with_suffix(".yaml")
    experiment.write_text(imported.text)
    load = load_experiment(experiment).load
    assert load.users == 1 and load.requests_per_user is not None
    run_load(f"http://127.0.0.1:{log.port}/", _ending(load), stop=stop)
    heard, log.requests[:] = list(log.requests), []
    assert len({request.peer for request in heard}) == 1
    return [request.about(OF_INTEREST) for request in heard]


def _ending(load: Load) -> Load:
    """The load with a duration, which ends a run that hangs; a run that sends everything ends before."""
    return load.model_copy(update={"duration_ns": 20_000_000_000})


@pytest.mark.long
def test_the_engine_sends_what_jmeter_sends(tmp_path: Path, stop: StopRequest) -> None:
    jmeter = real_jmeter()
    file = tmp_path / "plan.jmx"
    file.write_text(everything())
    (tmp_path / "rows.csv").write_text('row,city\n1,"Seoul, Mapo"\n2,London\n')
    with listening() as log:
        jmeter.run(file, tmp_path, port=log.port)
        of_jmeter = [request.about(OF_INTEREST) for request in log.requests]
        log.requests.clear()
        of_engine = sent_by_engine(file, log, stop)
    assert len(of_jmeter) == 2 * (8 + 6 + 2 * 4)
    assert of_engine == of_jmeter


def test_the_shop_is_asked_alike(tmp_path: Path, stop: StopRequest) -> None:
    """The example plan, with two rounds of one user instead of its many users."""
    jmeter = real_jmeter()
    text = (ROOT / "examples" / "shop.jmx").read_text()
    for old, new in (
        ('loops">-1<', 'loops">2<'), ('scheduler">true<', 'scheduler">false<'), ("ramp_time\">10<", "ramp_time\">0<"),
        ('delay">500<', 'delay">1<'), ('range">1000.0<', 'range">2.0<'), ("users,50", "users,1"),
    ):  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / "shop.jmx"
    file.write_text(text)
    shutil.copy(ROOT / "examples" / "shop-customers.csv", tmp_path)
    with listening() as log:
        jmeter.run(file, tmp_path, port=log.port)
        of_jmeter = [request.about(OF_INTEREST) for request in log.requests]
        log.requests.clear()
        of_engine = sent_by_engine(file, log, stop)
    assert len(of_jmeter) == 6
    assert of_engine == of_jmeter


def test_a_converted_plan_runs_on_the_reference_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    right = (assertion("response_code", 8, "200"), timer("ConstantTimer", "1"))
    timed = {"ThreadGroup.scheduler": True, "ThreadGroup.duration": "1"}
    asked = (sampler(path="/work", query={"wait": "1ms"}), sampler(path="/health"))
    Path("work.jmx").write_text(plan(group(*right, *asked, users="4", **timed)))
    server = [str(find_engine()), "serve", "--port", "{port}"]
    assert invoke(["import", "work.jmx", "-o", "work.yaml", "--", *server]) == 0
    assert invoke(["check", "work.yaml"]) == 0
    quick = {
        "load.duration": "1s",
        "measure.warmup": "0s",
        "measure.repeats": 1,
        "measure.retries": 0,
        "measure.foreign_cpu_max": "100%",
        "measure.steal_max": "100%",
    }
    options = [part for key, value in quick.items() for part in ("--set", f"{key}={value}")]
    assert invoke(["run", "work.yaml", *options]) in (0, 5), capsys.readouterr().err
    (path,) = Path("runs").iterdir()
    (record,) = RunDir(path).records()
    assert record.status == "measured", record.failure
    summary = RunDir(path).trial(1).events.read_text().splitlines()[-1]
    assert '"ok"' in summary and "status_rejected" not in summary
