"""The setting that a deployed server is left at, over several sessions of one run, whatever ended each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.trials import experiment, failed_record, spec, write_trial
from powerband.base.errors import MeasurementError, SubjectError, UserInterruptError
from powerband.model.deployed import Deployed
from powerband.model.experiment import Experiment, Subject
from powerband.model.load import Step
from powerband.model.plan import Level
from powerband.processes.containers import A_CONTAINER
from powerband.processes.failures import Code
from powerband.store import RunDir
from powerband.trials import leaving
from powerband.trials.leaving import CUT_SHORT, REFUSED, Leaving

NOT_BACK = "the server was NOT set back to n=3 and may still have n=1: "


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "find_engine", lambda: Path("engine"))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "runs", "x", "name: x\n", {})


def deployed(knob: Path, restore: Mapping[str, Level] | None = None) -> Experiment:
    """A server whose setting is a file; the command that writes it fails while there is a file `down` beside it."""
    command = ("sh", "-c", f"test ! -e {knob.with_name('down')} && echo said && echo $0 > {knob}", "{n}")
    asked: dict[str, Level] = {"n": 3} if restore is None else dict(restore)
    server = Subject(name="s", url="http://127.0.0.1:1/", deployed=Deployed(command=command, restore=asked))
    return experiment({"n": (1, 8)}, subject=server)


@pytest.fixture
def knob(tmp_path: Path) -> Path:
    return tmp_path / "knob"


def opened(run: RunDir, knob: Path) -> Leaving:
    return Leaving(deployed(knob), run, {})


def tried(
    run: RunDir, left: Leaving, n: int, *, number: int = 1, applied: bool = True, code: str = "", ready: bool = False
) -> None:
    """Runs a trial that changes the setting, or does not reach that point. `ready`: it is ready after the change."""
    planned = spec({"n": n}, number=number)
    run.append_plan(planned)
    with left.changing(planned.setting) as changed:
        phases = ({"applied": 1} if applied else {}) | ({"ready": 2} if ready else {})
        record = replace(failed_record(planned, code or Code.DIED), phases=phases)
        write_trial(run.trial(number), record, None)
        changed(record)


def killed(run: RunDir, left: Leaving, n: int, *, number: int = 1) -> None:
    """Begins a trial that SIGKILL ends, so that nothing of the session follows."""
    planned = spec({"n": n}, number=number)
    run.append_plan(planned)
    with left.changing(planned.setting):
        run.trial(number).begin(planned)


def said(run: RunDir) -> str:
    return leaving._sentence(json.loads(run.left.read_text()))


def test_a_run_that_tried_nothing_leaves_nothing(run: RunDir, knob: Path) -> None:
    assert opened(run, knob).leave() == "" and not run.left.exists() and not knob.exists()


def test_what_was_tried_is_set_back_and_a_session_that_tries_nothing_more_does_nothing(run: RunDir, knob: Path) -> None:
    left = opened(run, knob)
    tried(run, left, 1)
    assert left.leave() == "the server was set back to n=3"
    assert knob.read_text() == "3\n" and run.restore_log.read_text() == "said\n"
    knob.unlink()
    assert opened(run, knob).leave() == "" and not knob.exists()
    assert said(run) == "the server was set back to n=3"


def test_a_run_that_was_killed_is_set_back_by_the_next_session(run: RunDir, knob: Path) -> None:
    tried(run, opened(run, knob), 1)
    assert opened(run, knob).leave() == "the server was set back to n=3" and knob.read_text() == "3\n"


def test_a_trial_that_was_killed_may_have_changed_the_setting(run: RunDir, knob: Path) -> None:
    left = opened(run, knob)
    tried(run, left, 1)
    left.leave()
    killed(run, opened(run, knob), 8, number=2)
    kept = Leaving(deployed(knob, {}), run, {})
    assert kept.leave().startswith("the server keeps n=8, which was tried last")


def test_trials_that_changed_nothing_are_not_taken_for_the_last(run: RunDir, knob: Path) -> None:
    left = opened(run, knob)
    tried(run, left, 8)
    tried(run, left, 1, number=2, applied=False, code=Code.INTERRUPTED)
    with pytest.raises(SubjectError, match="never got ready"):
        tried(run, left, 1, number=3, applied=False, code=Code.NOT_REACHABLE)
    run.append_plan(spec({"n": 1}, number=4))
    assert Leaving(deployed(knob, {}), run, {}).leave().startswith("the server keeps n=8")


def test_a_server_that_was_never_reached_is_not_said_to_have_a_tried_setting(run: RunDir, knob: Path) -> None:
    with pytest.raises(SubjectError):
        tried(run, opened(run, knob), 1, applied=False, code=Code.NOT_REACHABLE)
    assert opened(run, knob).leave() == "" and not knob.exists()


def test_a_restore_that_failed_is_tried_again_by_the_next_session(run: RunDir, knob: Path) -> None:
    left = opened(run, knob)
    tried(run, left, 1)
    knob.with_name("down").touch()
    assert left.leave().startswith(NOT_BACK)
    assert opened(run, knob).leave().startswith(NOT_BACK) and said(run).startswith(NOT_BACK)
    knob.with_name("down").unlink()
    assert opened(run, knob).leave() == said(run) == "the server was set back to n=3"


@pytest.mark.parametrize("down", [True, False])
def test_what_was_left_is_known_still_where_a_session_changes_nothing(run: RunDir, knob: Path, *, down: bool) -> None:
    left = opened(run, knob)
    tried(run, left, 1)
    if down:
        knob.with_name("down").touch()
    left.leave()
    before = run.left.read_text()
    again = opened(run, knob)
    with pytest.raises(SubjectError):
        tried(run, again, 8, number=2, applied=False, code=Code.NOT_REACHABLE)
    assert run.left.read_text() == before
    assert again.leave().startswith(NOT_BACK) is down and run.left.read_text() == before


@pytest.mark.parametrize(
    ("code", "ready", "doubt"),
    [
        (Code.APPLY_FAILED, False, REFUSED),
        (Code.INTERRUPTED, False, CUT_SHORT),
        (Code.INTERRUPTED, True, ""),
        (Code.NOT_READY, False, ""),
    ],
)
def test_a_setting_that_the_server_may_not_have_is_said_to_be_so_by_later_sessions_too(
    run: RunDir, knob: Path, code: Code, ready: bool, doubt: str
) -> None:
    left = Leaving(deployed(knob, {}), run, {})
    tried(run, left, 8, code=Code.APPLY_FAILED)
    tried(run, left, 1, number=2, code=code, ready=ready)
    assert Leaving(deployed(knob, {}), run, {}).leave() == left.leave(), "also where no session has said it"
    sentence = said(run)
    assert sentence.startswith("the server keeps n=1, which was tried last")
    assert [each for each in (REFUSED, CUT_SHORT) if each in sentence] == [doubt] * bool(doubt)
    assert bool(json.loads(run.left.read_text())["reason"]) is bool(doubt)
    assert Leaving(deployed(knob, {}), run, {}).leave() == (sentence if doubt else "")


def test_a_second_request_to_stop_may_cut_a_change_short(run: RunDir, knob: Path) -> None:
    left = Leaving(deployed(knob, {}), run, {})
    tried(run, left, 8)
    with pytest.raises(UserInterruptError), left.changing(spec({"n": 1}, number=2).setting):
        raise UserInterruptError("stopped at once")
    assert f"n=1, which was tried last, and {CUT_SHORT}" in left.leave()


def test_a_trial_that_changed_nothing_leaves_the_doubt_about_the_one_before(run: RunDir, knob: Path) -> None:
    left = Leaving(deployed(knob, {}), run, {})
    tried(run, left, 8, code=Code.APPLY_FAILED)
    tried(run, left, 1, number=2, applied=False, code=Code.INTERRUPTED)
    assert f"n=8, which was tried last, and {REFUSED}" in left.leave()


def test_what_is_damaged_is_as_if_the_run_had_been_killed(run: RunDir, knob: Path) -> None:
    tried(run, opened(run, knob), 1)
    run.left.write_text('{"reason": "torn')
    run.trial(1).record.write_text("{")
    assert opened(run, knob).leave() == "the server was set back to n=3"


def test_without_its_log_the_command_runs_all_the_same(run: RunDir, knob: Path) -> None:
    left = opened(run, knob)
    tried(run, left, 1)
    run.restore_log.mkdir()
    assert left.leave() == "the server was set back to n=3" and knob.read_text() == "3\n"


def test_whatever_prevents_the_restore_is_the_reason(run: RunDir, knob: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = opened(run, knob)
    tried(run, left, 1)

    def none() -> Path:
        raise MeasurementError("there is no engine")

    monkeypatch.setattr(leaving, "find_engine", none)
    assert left.leave() == f"{NOT_BACK}there is no engine"


def test_a_disk_that_is_full_does_not_hide_what_the_server_has(run: RunDir, knob: Path) -> None:
    left = opened(run, knob)
    tried(run, left, 1)
    run.left.mkdir()
    with pytest.raises(
        MeasurementError, match=r"cannot write to .*left\.json(?s:.*)\nThe server was set back to n=3\."
    ):
        left.leave()


def test_a_terminal_that_is_closed_meanwhile_does_not_cut_it_short(run: RunDir, knob: Path) -> None:
    """The shell and the kernel send SIGHUP one after the other."""
    made = deployed(knob)
    assert made.subject.deployed is not None and made.subject.deployed.command is not None
    shell, script = "kill -HUP $PPID; sleep 0.2; " * 2, made.subject.deployed.command[2]
    command = ("sh", "-c", shell + script, "{n}")
    server = made.subject.model_copy(update={"deployed": made.subject.deployed.model_copy(update={"command": command})})
    left = Leaving(made.model_copy(update={"subject": server}), run, {})
    tried(run, left, 1)
    heard: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, _: heard.append(number))
    try:
        assert left.leave() == "the server was set back to n=3" and knob.read_text() == "3\n"
        assert not heard
        signal.raise_signal(signal.SIGHUP)
        assert heard, "the handler is as it was"
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (("server", 7), "; server listens there, and --pid 7 would watch it"),
        (("gunicorn", 1), "; gunicorn listens there, and --pid 1 would watch it"),
        (("systemd", 1), ""),
        (("kubectl", 7), ""),
        (None, ""),
    ],
)
def test_the_process_to_watch_is_named(
    knob: Path, monkeypatch: pytest.MonkeyPatch, found: tuple[str, int] | None, said: str
) -> None:
    monkeypatch.setattr(leaving, "server_at", lambda port: found)
    made = deployed(knob)
    assert leaving._runs_already(made).endswith(f"it is not restarted{said}")
    hidden = made.subject.model_copy(update={"url": f"{made.subject.url}?token=tiger-7"})
    told = leaving._runs_already(made.model_copy(update={"subject": hidden}))
    assert told.startswith("http://127.0.0.1:1/?token=(hidden) runs already")


def test_a_process_that_is_watched_but_does_not_listen_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as watched, subprocess.Popen(["sleep", "60"]) as other:
        made = experiment(subject=Subject(name="s", url="http://127.0.0.1:1/", deployed=Deployed(pid=watched.pid)))
        told = f"; x (pid {other.pid}) listens there, but process {watched.pid} is watched (--pid)"
        try:
            listening = (("x", watched.pid, ""), ("x", os.getpid(), ""), ("ssh", other.pid, ""), ("x", other.pid, told))
            for name, pid, said in listening:
                monkeypatch.setattr(leaving, "server_at", lambda port, name=name, pid=pid: (name, pid))
                assert leaving._runs_already(made).partition("it is not restarted")[2] == said
        finally:
            watched.kill()
            other.kill()


SAID = "{} serve {}, and a request of subject.apply (--apply) reaches one of them"


@pytest.mark.parametrize(
    ("url", "count", "said"),
    [
        ("http://127.0.0.1:1/", 4, SAID.format("4 processes", "127.0.0.1:1")),
        ("http://127.0.0.1:1/", 1, ""),
        ("http://127.0.0.1:2/", 2, ""),
        ("https://app/", 3, SAID.format("3 addresses", "app:443")),
        ("https://app/", 1, ""),
    ],
)
def test_a_request_that_reaches_one_of_several_is_warned_of_and_the_run_keeps_that(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, url: str, count: int, said: str
) -> None:
    """Port 2 is a container's, with a proxy for each kind of address."""
    monkeypatch.setattr(leaving, "serving", lambda port: count)
    monkeypatch.setattr(leaving, "addresses_of", lambda host: count)
    monkeypatch.setattr(leaving, "server_at", lambda port: (A_CONTAINER if port == 2 else "gunicorn", 7))
    server = Subject(name="s", url=url, deployed=Deployed(), apply=(Step(name="knob", path="/knob"),))
    for subject in (server.model_copy(update={"apply": ()}), server):
        assert not run.notes
        with leaving.tracked_setting(experiment({"n": (1, 8)}, subject=subject), run, {}, lambda text: None):
            pass
    assert "".join(run.notes).startswith(said) and bool(run.notes) is bool(said)
