"""`powerband compare`: two runs, a run of two revisions, its formats and exit codes. Nothing is started."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

from fakes.trials import Figures, experiment, failed_record, record_of, write_trial
from powerband.api.measuring import read
from powerband.cli import invoke, powerband
from powerband.cli.answering import exit_code
from powerband.files.resolved import resolved_yaml
from powerband.search.planners import dry_run
from powerband.store import RunDir

SETTINGS: dict[str, Any] = {"measure": {"warmup": "1s", "repeats": 4}}


def run_of(
    root: Path, factors: Mapping[str, Any], goodput: Mapping[str, float], host: Mapping[str, Any] | None = None
) -> Path:
    """A run directory whose trials have these rates by setting. At a rate of 0 the server did not start."""
    command = ("fake", "{port}", *(f"{{{name}}}" for name in factors))
    subject = {"name": "fake", "command": command}
    of = experiment(factors, subject=subject, **SETTINGS)
    run = RunDir.create(root, "fake", resolved_yaml(of), host or {})
    for spec in dry_run(of, 7):
        run.append_plan(spec)
        rate = goodput[spec.setting.id] * (1 + 0.003 * spec.block + 0.0003 * (spec.number % 3))
        failed = rate == 0
        figures = None if failed else Figures(goodput_per_s=rate, response_ns=10 / rate * 1e9)
        record = failed_record(spec) if figures is None else record_of(spec, figures)
        run.trial(spec.number).begin(spec)
        write_trial(run.trial(spec.number), record, figures)
    return run.path


REVISIONS = {"revision": ("old", "new")}


@pytest.mark.parametrize(
    ("new", "code", "verdict"),
    [(800.0, 1, "worse"), (1200.0, 0, "better"), (1001.0, 0, "equivalent"), (0.0, 1, "worse")],
)
def test_a_run_of_two_revisions_is_told_again(
    new: float, code: int, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path, REVISIONS, {"revision=old": 1000.0, "revision=new": new})
    assert invoke(["compare", str(run), "--format", "json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert (document["first"], document["second"], document["verdict"]) == ("old", "new", verdict)
    assert document["run"] == str(run.resolve())
    assert invoke(["compare", str(run), "--format", "junit"]) == code
    assert len(Xml.fromstring(capsys.readouterr().out).findall("testsuite/testcase")) == 1
    assert invoke(["compare", str(run)]) == code
    text = capsys.readouterr().out
    assert text.startswith(document["sentence"][:40])
    assert "multiple comparisons" not in text, "there is one"
    (heads,) = (line.split() for line in text.splitlines() if line.startswith("revision"))
    assert {"p99", "trials"} <= set(heads) and "verdict" not in heads
    assert [line.split()[0] for line in text.split("revision")[-1].splitlines()[1:3]] == ["old", "new"]


def test_an_old_one_that_fails_is_no_reason_to_fail_a_build(tmp_path: Path) -> None:
    run = run_of(tmp_path, REVISIONS, {"revision=old": 0.0, "revision=new": 1000.0})
    assert invoke(["compare", str(run)]) == 0


def test_two_revisions_of_which_none_starts_are_the_servers_fault(tmp_path: Path) -> None:
    run = run_of(tmp_path, REVISIONS, {"revision=old": 0.0, "revision=new": 0.0})
    assert invoke(["compare", str(run)]) == 4


def test_two_runs_in_which_no_server_starts_are_the_servers_fault(tmp_path: Path) -> None:
    first, second = (run_of(tmp_path, {"n": [1, 2]}, {"n=1": 0.0, "n=2": 0.0}) for _ in range(2))
    assert invoke(["compare", str(first), str(second)]) == 4
    run = RunDir.open(second)
    for spec in run.planned().values():
        write_trial(run.trial(spec.number), failed_record(spec, "engine_failed", "the engine gave up"), None)
    assert invoke(["compare", str(first), str(second)]) == 5


def test_where_the_old_one_alone_was_measured_nothing_is_said_to_be_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of such a run has an exit code of its own, here that `--regret` is not met, which is 1, too."""
    monkeypatch.setitem(SETTINGS, "design", {"seed": 7, "order": "race", "regret": 0.05})
    path = run_of(tmp_path, REVISIONS, {"revision=old": 1000.0, "revision=new": 0.0})
    for spec in dry_run(read(path).experiment, 7):
        if spec.setting.id == "revision=new":
            trial = RunDir.open(path).trial(spec.number)
            write_trial(trial, failed_record(spec, "engine_failed", "the engine gave up"), None)
    assert exit_code(read(path).analysis) == 1
    assert invoke(["compare", str(path)]) == 5


def test_two_runs_and_what_differs_between_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    factors = {"threads": (1, 2)}
    rates = {"threads=1": 1000.0, "threads=2": 2000.0}
    a = run_of(tmp_path / "a", factors, rates, {"kernel": "6.1", "load_average": [1.0]})
    b = run_of(tmp_path / "b", factors, {**rates, "threads=2": 1500.0}, {"kernel": "6.2", "load_average": [2.0]})
    assert invoke(["compare", str(a), str(b)]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "in 1 of 2 settings: threads=2, goodput −25" in text
    assert "the hosts differ: kernel 6.1 in the first run, 6.2 in the second" in text
    assert "load average" not in text
    assert invoke(["compare", str(a), str(a), "--format", "junit"]) == 0
    capsys.readouterr()
    assert invoke(["compare", str(a), str(b), "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["first"], document["second"], document["run"]) == (str(a.resolve()), str(b.resolve()), None)


def test_two_runs_whose_factors_were_named_in_another_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads, queue = {"threads": (1,)}, {"queue": (10, 20)}
    a = run_of(tmp_path / "a", {**threads, **queue}, {"threads=1,queue=10": 1000.0, "threads=1,queue=20": 1000.0})
    b = run_of(tmp_path / "b", {**queue, **threads}, {"queue=10,threads=1": 500.0, "queue=20,threads=1": 500.0})
    assert invoke(["compare", str(a), str(b), "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    named = [change["setting"]["id"] for change in found["settings"]]
    assert named == ["threads=1,queue=10", "threads=1,queue=20"] and not found["only_second"]


def test_nothing_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = run_of(tmp_path / "a", {"threads": (1,)}, {"threads=1": 1000.0})
    b = run_of(tmp_path / "b", {"threads": (2,)}, {"threads=2": 1000.0})
    assert invoke(["compare", str(a), str(b)]) == 5
    captured = capsys.readouterr()
    assert "Measured in the first run only: threads=1" in captured.out
    assert "Nothing can be compared: no setting was measured in both" in captured.out
    assert invoke(["compare", str(a), str(b), "--format", "json"]) == 5
    assert f"no setting was measured in both {a} and {b}" in capsys.readouterr().err


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path, {"threads": (1, 2)}, {"threads=1": 1.0, "threads=2": 1.0})
    server, two = ["--", "python3", "{revision}/server.py", "{port}"], "name two revisions, OLD and NEW, before the --"
    for arguments, said in (
        ([str(run)], "compares no revisions"),
        (["./old", *server], two),
        (["--users", "8", "./old", "--profile", "quick", *server], two),
        (server, two),
        (["./old", "", *server], two),
        (["./old", "./new"], "write its command after --"),
        (["./old", "./new", "--users", "8"], "--users is for two revisions of a server, whose command is missing"),
        (["a", "b", "--maximise", "p99", "--minimise", "p99", "--", "./s", "{revision}"], "exclude each other"),
    ):
        assert invoke(["compare", *arguments]) == 2
        captured = capsys.readouterr()
        assert said in captured.err and not captured.out
    assert invoke(["compare", "a", "b", "--", "./server", "{port}"]) == 3
    assert "revision" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a", "b", "--", "./s", "{port}", "--", "-x"], ("a", "b", ("./s", "{port}", "--", "-x"))),
        (["a", "--name", "--", "b", "--", "./s"], ("a", "b", ("./s",))),
        (["a", "b", "./s", "--", "-x"], ("a", "b", ("./s", "-x"))),
        (["a", "--"], ("a", None, ())),
        (["a", "b"], ("a", "b", ())),
    ],
)
def test_the_revisions_come_before_the_command(arguments: list[str], told: tuple[object, ...]) -> None:
    params = powerband.commands["compare"].make_context("compare", arguments).params
    assert (params["first"], params["second"], params["command"]) == told


def test_a_run_as_junit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path, {"threads": (1, 2)}, {"threads=1": 1000.0, "threads=2": 2000.0})
    assert invoke(["report", str(run), "--format", "junit"]) == 0
    names = [case.get("name") for case in Xml.fromstring(capsys.readouterr().out).iter("testcase")]
    assert names == ["answer", "threads=1", "threads=2"]


def test_a_comparison_that_is_resumed_answers_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path, REVISIONS, {"revision=old": 1000.0, "revision=new": 800.0})
    assert invoke(["resume", str(run), "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "worse"


@pytest.mark.parametrize(("new", "code"), [(800.0, 1), (1001.0, 0)])
def test_report_answers_as_compare_and_resume_do(
    new: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither revision meets the SLO, so that no setting could be the answer: exit code 1 of any other run."""
    monkeypatch.setitem(SETTINGS, "objective", {"subject_to": ["p99 < 1ns"]})
    run = run_of(tmp_path, REVISIONS, {"revision=old": 1000.0, "revision=new": new})
    said = []
    for command in ("report", "resume", "compare"):
        assert invoke([command, str(run), "--format", "junit"]) == code, command
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2]
    (case,) = Xml.fromstring(said[0]).findall("testsuite/testcase")
    assert (case.find("failure") is not None) is (code == 1)


@pytest.mark.parametrize(("most", "code"), [("5000/s", 1), ("500/s", 0)])
def test_a_refuted_claim_of_a_run_of_two_revisions_is_exit_code_1(
    most: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = {"id": "fast", "says": "It serves enough", "holds": f"goodput[revision=new] > {most}"}
    monkeypatch.setitem(SETTINGS, "claims", (claim,))
    run = run_of(tmp_path, REVISIONS, {"revision=old": 1000.0, "revision=new": 1001.0})
    for command in ("report", "resume", "compare"):
        assert invoke([command, str(run)]) == code
        text = " ".join(capsys.readouterr().out.split())
        assert ("Warning: refuted: It serves enough: 1,00" in text) is (code == 1)
        assert invoke([command, str(run), "--format", "junit"]) == code
        (suite,) = Xml.fromstring(capsys.readouterr().out)
        assert (suite.get("tests"), suite.get("failures")) == ("2", str(code))


def test_a_bound_that_two_revisions_miss_is_exit_code_1_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "design", {"seed": 7, "order": "race", "regret": 1e-5})
    run = run_of(tmp_path, REVISIONS, {"revision=old": 1000.0, "revision=new": 1000.0})
    missed = "The bound asked for, 0.001 % (design.regret), is not met"
    assert invoke(["compare", str(run)]) == 1
    assert f"Warning: {missed}" in capsys.readouterr().out
    assert missed in read(run).analysis.answer.sentences[1]
    assert invoke(["compare", str(run), "--format", "junit"]) == 1
    assert Xml.fromstring(capsys.readouterr().out).get("failures") == "1"


def test_other_runs_of_the_experiment_tell_what_sessions_differ_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The change is 10 %. Of the other runs, one is of another experiment, and one of another machine."""
    first, *beside = (
        run_of(tmp_path, {"n": [1]}, {"n=1": rate}, {"kernel": "1", "commit": "a"})
        for rate in (1000.0, 1001.0, 999.0, 1000.5, 1000.0)
    )
    other = run_of(tmp_path, {"n": [1, 2]}, {"n=1": 500.0, "n=2": 500.0})
    strange = run_of(tmp_path, {"n": [1]}, {"n=1": 500.0}, {"kernel": "2"})
    second = run_of(tmp_path, {"n": [1]}, {"n=1": 1100.0})
    assert invoke(["compare", str(first), str(second), "--format", "json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert alone["sessions"] == {"sd": 0.03, "runs": 0}, "no other run has an analysis yet"
    assert alone["verdict"] == "inconclusive"
    for run in (*beside, other, strange):
        (run / "analysis.json").write_text(json.dumps(read(run).analysis.to_json()))
    (tmp_path / "foreign").mkdir()
    assert invoke(["compare", str(first), str(second), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sessions"]["runs"] == len(beside)
    assert told["sessions"]["sd"] < 0.022
    assert told["verdict"] == "better"


def test_a_new_server_that_was_measured_twice_hides_no_loss(tmp_path: Path) -> None:
    first, once, twice = (
        run_of(tmp_path, {"n": [1]}, {"n=1": rate}, {"wall_s": at_s})
        for rate, at_s in ((1000.0, 1.0), (600.0, 2.0), (600.0, 3.0))
    )
    for run in (first, once, twice):
        (run / "analysis.json").write_text(json.dumps(read(run).analysis.to_json()))
    assert [invoke(["compare", str(first), str(run)]) for run in (once, twice)] == [1, 1]
