from __future__ import annotations

import os
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from powerband.base.errors import MeasurementError, PowerbandError, SubjectError, UsageError
from powerband.base.machine import cache_folder
from powerband.model.experiment import Experiment, Subject
from powerband.model.load import Load
from powerband.model.plan import Stage, TrialSpec
from powerband.processes.failures import Code
from powerband.processes.stop_request import StopRequest
from powerband.store import Failure, RunDir, TrialRecord
from powerband.trials.opening import build_subject, check_environment, check_first_starts, check_first_trial


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "runs", "x", "name: x\n", {})


def subject(*build: str, **fields: object) -> Subject:
    return Subject(name="s", command=("./server", "{port}"), build=build or None, **fields)  # type: ignore[arg-type]


def test_the_subject_is_built_in_its_folder_and_the_log_is_kept(run: RunDir, stop: StopRequest, tmp_path: Path) -> None:
    made = subject("sh", "-c", "echo built {version}; touch server", cwd=str(tmp_path), set={"version": 7})
    build_subject(made, run, stop)
    assert (tmp_path / "server").exists()
    assert run.build_log.read_text() == "built 7\n"


def test_a_run_that_is_gone_on_with_is_built_again_only_where_the_cache_lacks_it(
    run: RunDir, stop: StopRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    here = subject("sh", "-c", "echo >> count", cwd=str(tmp_path))
    build_subject(here, run, stop)
    build_subject(here, run, stop, again=True)
    assert (tmp_path / "count").read_text() == "\n"
    (tmp_path / "own").mkdir()
    cached = subject("sh", "-c", "echo >> ../count; touch {build}/server", cwd=str(tmp_path / "own"))
    build_subject(cached, run, stop)
    build_subject(cached, run, stop, again=True)
    assert (tmp_path / "count").read_text() == "\n\n"
    (built,) = [path for path in (cache_folder() / "subjects").iterdir() if path.is_symlink()]
    built.unlink()
    build_subject(cached, run, stop, again=True)
    assert (tmp_path / "count").read_text() == "\n\n\n"


def test_a_later_run_says_that_it_uses_the_server_built_before_unless_its_folder_is_its_own(
    run: RunDir, stop: StopRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = tmp_path / "own"
    own.mkdir()
    inline = subject("sh", "-c", "echo >> ../count; touch {build}/server", cwd=str(own))
    notes: list[str] = []
    given = build_subject(inline, run, stop, note=notes.append)
    assert not notes
    build_subject(inline, run, stop, note=notes.append)
    assert len(notes) == 1 and f"no file below {own} has changed" in notes[0] and f"rm {given['build']}" in notes[0]
    Path(given["build"]).unlink()
    build_subject(inline, run, stop, note=notes.append)
    assert len(notes) == 1 and (tmp_path / "count").read_text() == "\n\n"
    (own / "subject.yaml").touch()
    for _ in range(2):
        build_subject(inline.model_copy(update={"folder": str(own)}), run, stop, note=notes.append)
    assert len(notes) == 1


def test_without_a_build_nothing_is_done(run: RunDir, stop: StopRequest) -> None:
    build_subject(Subject(name="s", command=("./server",)), run, stop)
    assert not run.build_log.exists()


def test_a_build_that_fails_ends_with_its_last_words(run: RunDir, stop: StopRequest) -> None:
    with pytest.raises(SubjectError, match=r"exit code 3.*powerband resume .*(?s:.*)server\.c:1: no such thing"):
        build_subject(subject("sh", "-c", "echo server.c:1: no such thing >&2; exit 3"), run, stop)


def test_a_build_that_fails_is_told_from_its_first_error_on(run: RunDir, stop: StopRequest) -> None:
    script = r"echo fetching; printf '\033[1m[ERROR] A.java:1: no such class\033[m\n'; seq 1000 1100; exit 1"
    with pytest.raises(SubjectError) as failure:
        build_subject(subject("sh", "-c", script), run, stop)
    text = str(failure.value)
    assert "\n  [ERROR] A.java:1: no such class\n  1000\n" in text and str(run.build_log) in text
    assert "fetching" not in text and "\n  1100" not in text


def test_a_build_whose_packages_cannot_be_fetched_says_where_nuget_looks(run: RunDir, stop: StopRequest) -> None:
    script = "echo 'x.csproj : error NU1301: Unable to load the service index for source https://x.test.'; exit 1"
    with pytest.raises(SubjectError, match=r"NuGet has not got the packages.*`dotnet nuget list source`(?s:.*)NU1301"):
        build_subject(subject("sh", "-c", script), run, stop)


def test_a_build_that_cannot_be_started(run: RunDir, stop: StopRequest, tmp_path: Path) -> None:
    with pytest.raises(SubjectError, match="cannot start `no-such-tool`: not found"):
        build_subject(subject("no-such-tool"), run, stop)
    with pytest.raises(SubjectError, match=r"cannot enter the folder `.*gone`"):
        build_subject(subject("sh", cwd=str(tmp_path / "gone")), run, stop)


def test_a_request_to_stop_ends_the_build(run: RunDir, stop: StopRequest, no_process_left: None) -> None:
    threading.Timer(0.2, stop.request).start()
    build_subject(subject("sh", "-c", "sleep 600 & sleep 600"), run, stop)
    assert stop.requested


def test_a_server_of_root_is_started_by_root_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else can end it: each trial would leave a server, and the next ones beside it."""
    made = Experiment(
        name="x", subject=Subject(name="s", command=("/usr/bin/sudo", "./server", "{port}")), load=Load(users=1)
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    check_environment(made)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UsageError, match=r"^sudo starts the server as root, and this user may not end it"):
        check_environment(made)


def failed(run: RunDir, code: Code, made: Experiment) -> TrialRecord:
    spec = TrialSpec(1, 0, 1, made.settings()[0], 1)
    record = TrialRecord(spec, "failed", Failure(code.value, "it went wrong"), 1, 1, {}, None)
    run.trial(1).begin(spec)
    run.trial(1).write_record(record)
    return record


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.COMMAND_NOT_FOUND, SubjectError),
        (Code.NOT_EXECUTABLE, SubjectError),
        (Code.DESCRIPTOR_LIMIT, MeasurementError),
    ],
)
def test_a_first_failure_that_all_trials_share_ends_the_run(
    run: RunDir, code: Code, error: type[PowerbandError]
) -> None:
    made = Experiment(name="x", subject=subject(), load=Load(users=1), factors={"threads": (1, 2)})
    with pytest.raises(error, match=f"it went wrong\nNothing was measured. Correct .* run again; .*resume {run.path}"):
        check_first_trial(made, failed(run, code, made), run)
    assert run.records() == []


def test_a_failure_that_other_settings_may_not_share_is_a_trial_like_any_other(run: RunDir) -> None:
    base = Experiment(name="x", subject=subject(), load=Load(users=1))
    versions = [
        base.model_copy(update={"subject": base.subject.model_copy(update=changes), "factors": {"v": (1, 2)}})
        for changes in (
            {"command": ("./server-{v}", "{port}")},
            {"command": ("./server", "{port}"), "cwd": "./{v}"},
            {"command": ("server", "{port}"), "env": {"PATH": "/opt/{v}/bin"}},
        )
    ]
    users = base.model_copy(update={"factors": {"load.users": (1, 100_000)}})
    missing = [(made, Code.COMMAND_NOT_FOUND) for made in versions]
    for made, code in (*missing, (users, Code.DESCRIPTOR_LIMIT), (base, Code.DIED)):
        check_first_trial(made, failed(run, code, made), run)
        assert len(run.records()) == 1


def started(
    run: RunDir,
    made: Experiment,
    number: int,
    setting: int,
    words: str | None,
    *,
    code: Code = Code.DIED_BEFORE_READY,
    **subject: Any,
) -> TrialRecord:
    """Records a trial that failed with these words, or that was measured."""
    spec = TrialSpec(number, 0, 1, made.settings()[setting], 1)
    failure = None if words is None else Failure(code.value, words)
    status = "measured" if words is None else "failed"
    record = TrialRecord(spec, status, failure, 1, 1, {}, None, subject=subject)
    run.trial(number).begin(spec)
    run.trial(number).write_record(record)
    return record


@pytest.mark.parametrize(
    "code",
    [
        Code.DIED_BEFORE_READY,
        Code.DIED,
        Code.WORK_ENDED,
        Code.NO_RESPONSE,
        Code.NO_VALID_RESPONSE,
        Code.UNAVAILABLE,
        Code.NOT_JOINED,
        Code.APPLY_FAILED,
    ],
)
@pytest.mark.parametrize(("levels", "order"), [((1, 2, 3), (0, 1, 2)), ((1, 2), (0, 1, 0)), ((1,), (0, 0, 0))])
def test_a_server_that_starts_or_serves_with_no_setting_ends_the_run_at_the_third_start(
    run: RunDir, levels: tuple[int, ...], order: tuple[int, ...], code: Code
) -> None:
    made = Experiment(name="x", subject=subject(), load=Load(users=1), factors={"threads": levels})
    for number, setting in enumerate(order[:2], 1):
        check_first_starts(made, started(run, made, number, setting, f"no such pool {number}", code=code), run)
    with pytest.raises(SubjectError, match=rf"no such pool 3\n.*first 3 starts.*run again; .*resume {run.path}"):
        check_first_starts(made, started(run, made, 3, order[2], "no such pool 3", code=code), run)
    assert run.records() == []


@pytest.mark.parametrize(
    ("code", "ends"), [(Code.NO_VALID_RESPONSE, False), (Code.DIED, False), (Code.NOT_READY, True)]
)
def test_a_revision_that_fails_under_load_where_the_other_serves_is_worse_and_no_mistake_in_the_command(
    run: RunDir, code: Code, ends: bool
) -> None:
    made = Experiment(name="x", subject=subject(), load=Load(users=1), factors={"revision": ("old", "new")})
    started(run, made, 1, 0, None)
    for number in (2, 3):
        check_first_starts(made, started(run, made, number, 1, "no such pool", code=code), run)
    with pytest.raises(SubjectError, match="first 3 starts") if ends else nullcontext():
        check_first_starts(made, started(run, made, 4, 1, "no such pool", code=code), run)
    assert len(run.records()) == (1 if ends else 4)


def test_a_server_that_hangs_with_every_setting_ends_the_run_as_well_but_one_that_somebody_kills_does_not(
    run: RunDir,
) -> None:
    made = Experiment(name="x", subject=subject(), load=Load(users=1), factors={"threads": (1, 2, 3, 4)})
    for number in (1, 2, 3):
        killed = started(run, made, number, number, "killed by SIGKILL", signal=9, asked=False)
        check_first_starts(made, killed, run)
    assert len(run.records()) == 3
    for number in (1, 2, 3):
        started(run, made, number, number, "not ready within 30 s", code=Code.NOT_READY, signal=15, asked=True)
    with pytest.raises(SubjectError, match="first 4 starts"):
        hung = started(run, made, 4, 0, "not ready within 30 s", code=Code.NOT_READY, signal=15, asked=True)
        check_first_starts(made, hung, run)


def test_requests_that_ended_otherwise_are_no_other_cause(run: RunDir) -> None:
    made = Experiment(name="x", subject=subject(), load=Load(users=1), factors={"threads": (1, 2, 3)})
    said = ("9 status_rejected; status 403", "8 status_rejected, 1 unfinished; status 403", "7 status_rejected")
    for number in (1, 2):
        rejected = started(run, made, number, number, said[number], code=Code.NO_VALID_RESPONSE)
        check_first_starts(made, rejected, run)
    with pytest.raises(SubjectError, match="first 3 starts, at 3 settings"):
        check_first_starts(made, started(run, made, 3, 0, said[0], code=Code.NO_VALID_RESPONSE), run)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ((0, 0, 0, 0), ("no pool",) * 4),  # the only setting that was tried cannot start
        ((0, 1, 0, 1), ("no pool",) * 4),
        ((0, 1, 2, 3), ("no pool", None, "no pool", "no pool")),  # one of the settings starts
        ((0, 1, 2, 3), ("no pool", "no file", "no pool", "no pool")),  # the causes differ
    ],
)
def test_a_run_of_which_a_setting_may_start_goes_on(
    run: RunDir, order: tuple[int, ...], words: tuple[str | None, ...]
) -> None:
    made = Experiment(name="x", subject=subject(), load=Load(users=1), factors={"threads": (1, 2, 3, 4)})
    for number, (setting, said) in enumerate(zip(order, words, strict=True), 1):
        check_first_starts(made, started(run, made, number, setting, said), run)
    assert len(run.records()) == 4


@pytest.mark.parametrize(
    ("levels", "needed", "code"),
    [
        *((levels, needed, Code.DIED_BEFORE_READY) for levels, needed in ((5, 5), (9, 6), (14, 7), (100, 25))),
        (9, 9, Code.DIED),  # the ninth heap may be large enough for the load
    ],
)
def test_few_settings_or_half_of_many_are_tried_before_none_is_said_to_start(
    run: RunDir, levels: int, needed: int, code: Code
) -> None:
    made = Experiment(name="x", subject=subject(), load=Load(users=1), factors={"heap": tuple(range(levels))})
    for number in range(1, needed):
        check_first_starts(made, started(run, made, number, number - 1, "heap too small", code=code), run)
    with pytest.raises(SubjectError, match=f"first {needed} starts, at {needed} settings"):
        check_first_starts(made, started(run, made, needed, needed - 1, "heap too small", code=code), run)


FULL = "the server ended before it was ready: write /var/lib/x: No space left on device"


@pytest.mark.parametrize(("code", "words"), [(Code.PORT_IN_USE, "port 80"), (Code.DIED_BEFORE_READY, FULL)])
def test_a_cause_that_lasts_ends_a_run_whose_server_started_before(run: RunDir, code: Code, words: str) -> None:
    made = Experiment(name="x", subject=subject(), load=Load(users=1), factors={"threads": tuple(range(9))})
    for number in (1, 2):
        started(run, made, number, number, None)
    for number in (3, 4):
        check_first_starts(made, started(run, made, number, 5, words, code=code), run)
    with pytest.raises(
        SubjectError, match=rf"(?s){words}.*last 3 starts.*trials are kept.*powerband resume {run.path}"
    ):
        check_first_starts(made, started(run, made, 5, 1, words, code=code), run)
    assert [each.spec.number for each in run.records()] == [1, 2]


@pytest.mark.parametrize("code", [Code.APPLY_FAILED, Code.NOT_READY])
@pytest.mark.parametrize(("deployed", "ends"), [({"command": ("ssh", "there", "{n}")}, True), (True, False)])
@pytest.mark.parametrize("levels", [(1, 2, 3), ("small", "medium", "large")])
def test_a_command_that_reaches_a_deployed_server_no_more_ends_the_run(
    run: RunDir, code: Code, deployed: Any, ends: bool, levels: tuple[int | str, ...]
) -> None:
    """The network between them may be gone, which no setting is to be blamed for."""
    server = Subject(name="s", url="http://192.0.2.1/", deployed=deployed)
    made = Experiment(name="x", subject=server, load=Load(users=1), factors={"n": levels})
    started(run, made, 1, 0, None)
    words = [f"its setting was changed to {each.id} (no route to host)" for each in made.settings()]
    for number in (2, 3):
        check_first_starts(made, started(run, made, number, number - 1, words[number - 1], code=code), run)
    last = started(run, made, 4, 0, words[0], code=code)
    with pytest.raises(SubjectError, match="last 3 trials") if ends else nullcontext():
        check_first_starts(made, last, run)
    assert [each.spec.number for each in run.records()] == ([1] if ends else [1, 2, 3, 4])


def test_a_cause_that_only_settings_have_that_never_started_ends_no_run(run: RunDir) -> None:
    made = Experiment(name="x", subject=subject(), load=Load(users=1), factors={"instances": (1, 2, 3)})
    started(run, made, 1, 0, None)
    for number in (2, 3, 4, 5):
        taken = started(run, made, number, 1 + number % 2, "port 80 is in use", code=Code.PORT_IN_USE)
        check_first_starts(made, taken, run)
    assert len(run.records()) == 5


def test_a_first_trial_of_one_of_several_nodes_may_be_the_only_one_that_lacks_the_command(run: RunDir) -> None:
    made = Experiment(name="x", subject=subject(), load=Load(users=1), factors={"threads": (1, 2)})
    record = replace(failed(run, Code.COMMAND_NOT_FOUND, made), node="b")
    check_first_trial(made, record, run, 2)
    with pytest.raises(SubjectError, match=r"^b: it went wrong\n"):
        check_first_trial(made, record, run, 1)


@pytest.mark.parametrize(
    ("nodes", "places", "ended_on"),
    [
        pytest.param("bbb", 2, "", id="one of two"),
        pytest.param("aba", 2, "a and b", id="both"),
        pytest.param("bbb", 1, "b", id="the only one"),
    ],
)
def test_a_node_that_cannot_start_the_server_does_not_end_the_run_of_the_others(
    run: RunDir, nodes: str, places: int, ended_on: str
) -> None:
    made = Experiment(name="x", subject=subject(), load=Load(users=1), factors={"threads": (1, 2, 3)})
    for number, node in enumerate(nodes, 1):
        record = replace(started(run, made, number, number - 1, "no pool"), node=node)
        run.trial(number).write_record(record)
        if number < len(nodes):
            check_first_starts(made, record, run, places)
    match = rf"^{nodes[-1]}: no pool\n.*first 3 starts, at 3 settings on {ended_on}, and nothing was measured"
    with pytest.raises(SubjectError, match=match) if ended_on else nullcontext():
        check_first_starts(made, record, run, places)
    assert len(run.records()) == (0 if ended_on else 3)


def test_nodes_that_cannot_start_the_server_where_another_did_do_not_end_the_run(run: RunDir) -> None:
    made = Experiment(name="x", subject=subject(), load=Load(users=1), factors={"threads": (1, 2, 3)})
    for number, node in enumerate("abbb", 1):
        words = None if node == "a" else "port 80 is in use"
        record = replace(started(run, made, number, 0, words, code=Code.PORT_IN_USE), node=node)
        run.trial(number).write_record(record)
        check_first_starts(made, record, run, 2)
    assert len(run.records()) == 4


def test_a_first_trial_that_was_interrupted_says_nothing_of_starts(run: RunDir) -> None:
    made = Experiment(name="x", subject=subject(), load=Load(users=1), factors={"threads": (1, 2, 3)})
    spec = TrialSpec(1, 0, 1, made.settings()[0], 1)
    run.trial(1).begin(spec)
    run.trial(1).write_record(TrialRecord(spec, "interrupted", None, 1, 1, {}, None))
    for number in (2, 3):
        check_first_starts(made, started(run, made, number, number - 2, "no pool"), run)
    with pytest.raises(SubjectError, match="first 3 starts"):
        check_first_starts(made, started(run, made, 4, 2, "no pool"), run)


def test_who_resumes_after_an_edit_is_told_that_the_build_is_another(
    run: RunDir, stop: StopRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "own").mkdir()
    source = tmp_path / "own" / "main.c"
    source.write_text("1")
    run.host.write_text('{"format": 1}')
    notes: list[str] = []
    made = subject("sh", "-c", "touch made; cp main.c {build}", cwd=str(tmp_path / "own"))
    build_subject(made, run, stop, note=notes.append)
    build_subject(made, run, stop, again=True, note=notes.append)
    assert not notes, "what the build itself leaves beside its sources is no edit"
    source.write_text("2")
    build_subject(made, run, stop, again=True, note=notes.append)
    assert len(notes) == 1 and "may measure another build" in notes[0] and run.notes == tuple(notes)


def test_what_a_server_wrote_into_its_folder_makes_no_other_build(
    run: RunDir, stop: StopRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = tmp_path / "own"
    own.mkdir()
    (own / "main.c").write_text("1")
    run.host.write_text('{"format": 1}')
    notes: list[str] = []
    made = subject("sh", "-c", "echo >> ../count; cp main.c {build}", cwd=str(own))
    given = build_subject(made, run, stop, note=notes.append)
    (own / "access.log").write_text("written by the server in its first trial")
    run.trial(1).path.mkdir()
    run.trial(1).log.write_text("end of the first trial")
    assert build_subject(made, run, stop, again=True, note=notes.append) == given
    assert not notes and (tmp_path / "count").read_text() == "\n"
    os.utime(run.trial(1).log, (1, 1))  # long ago: what is newer now is an edit
    build_subject(made, run, stop, again=True, note=notes.append)
    assert len(notes) == 1 and (tmp_path / "count").read_text() == "\n\n"


def test_folders_stay_those_that_a_run_was_begun_in() -> None:
    inline = Experiment(name="x", subject=subject("make", "-C", "{folder}"), load=Load(users=1))
    assert inline.started_in("/a").started_in("/b").subject.folder == "/a"
    plain = Experiment(name="x", subject=subject("make"), load=Load(users=1)).started_in("/a{x}").subject
    assert (plain.folder, plain.cwd) == (None, "/a{{x}}")


@pytest.mark.parametrize("code", [Code.NO_RESPONSE, Code.UNAVAILABLE])
def test_a_short_trial_without_an_answer_says_nothing_of_the_server(run: RunDir, code: Code) -> None:
    made = Experiment(name="x", subject=subject(), load=Load(users=1), factors={"threads": (1, 2, 3)})
    for number in (1, 2, 3):
        record = started(run, made, number, number - 1, "none ended", code=code)
        check_first_starts(made, replace(record, spec=replace(record.spec, stage=Stage.SCREEN)), run)
    assert len(run.records()) == 3
