"""Opens a run: builds the subject, and ends the run if its first trials failed in a way that all others would.

The build's output goes to `build.log` of the run directory. Not here: whether a run has just begun.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath

from powerband.base.errors import MeasurementError, PowerbandError, SubjectError, UsageError
from powerband.base.logs import printable
from powerband.base.units import joined
from powerband.loads import kind_of
from powerband.model.experiment import Experiment, Subject
from powerband.model.plan import REVISION, Setting, Stage
from powerband.model.secrets import pairs_of
from powerband.model.subjects import render_text
from powerband.model.templates import headers_sent, placeholders, variables_named
from powerband.processes import dotnet
from powerband.processes.cgroups import check_limits, quota_of
from powerband.processes.engine_fleet import find_engine
from powerband.processes.engine_process import Pump
from powerband.processes.failures import Code, TrialFailed, TrialInterrupted
from powerband.processes.locked_jars import LIST, wrong_jars
from powerband.processes.probe_process import command_up
from powerband.processes.stop_request import StopRequest
from powerband.processes.subject_process import LAST_LINES, describe_exit, last_lines
from powerband.processes.toolchain import build_once, built_before, given_values, is_edited_since
from powerband.store import RunDir, TrialRecord, open_private, read_host, write_atomically, writing
from powerband.wire.specs import Launch

_LOOK_S = 60.0  # any length does: a build may take any time, and a stop ends the wait at once
_AFTER_TRIAL_S = 2.0  # a killed server may write its last files after those of its trial, sooner than anybody edits
_GRACE_NS = 1_000_000_000  # short, since a half-finished build is thrown away
_LOG_LINES_MAX = 100_000  # arbitrary: some MB; a longer log has its first error before that
STARTS = 3
"""The number of starts that must fail in one way before the server is taken to be unable to start."""
FEW_SETTINGS = 6  # arbitrary: so many are all tried first, as the last may be the only heap that is large enough
_NO_START = (Code.COMMAND_NOT_FOUND, Code.NOT_EXECUTABLE, Code.LAUNCH_FAILED, Code.PORT_IN_USE)
_TOO_SHORT = (Code.NO_RESPONSE, Code.UNAVAILABLE)  # in a short trial
_NEVER_RIGHT = (*_TOO_SHORT, Code.NO_VALID_RESPONSE, Code.NOT_JOINED)
# Messages of these differ between failures of one cause: they hold the level, which may be a text, or outcomes.
_BY_CODE_ALONE = (Code.APPLY_FAILED, Code.WORK_ENDED, *_NEVER_RIGHT)
_UNDER_LOAD = (Code.DIED, Code.WORK_ENDED, *_NEVER_RIGHT)  # the setting may well be the cause
_NEVER_SERVED = (*_NO_START, Code.DIED_BEFORE_READY, Code.NOT_READY, Code.DIED, *_BY_CODE_ALONE)
_DISK_FULL = "No space left on device"  # strerror(ENOSPC), which every runtime passes on
_BY_ROOT = {"sudo", "doas", "pkexec"}
_ERROR = re.compile(r"\berror\b", re.IGNORECASE)
_NUGET = re.compile(r"\berror NU1\d{3}\b")


def variables_taken(experiment: Experiment) -> dict[str, str | None]:
    """The variables that the server and headers take from powerband's own environment, as they are there; None: not
    set."""
    inherited = {name for name, text in experiment.subject.env.items() if text is None}
    return {name: os.environ.get(name) for name in inherited | variables_named(pairs_of(experiment, "headers"))}


def check_environment(experiment: Experiment) -> None:
    """Checks that this machine can run the experiment. Raises SubjectError if a variable to be taken from powerband's
    own environment is not set there, UsageError if a header's variable is not set, if `host.awake` meets a CPU quota,
    if root would start the server of another user, or if a limit may not be asked for here, and MeasurementError if a
    limit cannot be set."""
    headers_sent(((name, text or "") for name, text in pairs_of(experiment, "headers")), os.environ)
    if unset := [name for name, text in experiment.subject.env.items() if text is None and name not in os.environ]:
        raise SubjectError(
            f"{unset[0]} is not set: the server takes it from the environment that powerband is started in "
            f"(subject.env.{unset[0]} has no value): export it first"
        )
    if experiment.host.awake and quota_of() is not None:
        raise UsageError(
            "host.awake: a CPU quota holds for powerband and all that it starts, and loops that keep CPUs awake would "
            "use it up: leave it out, or give whole CPUs instead (cpuset.cpus of a cgroup)"
        )
    first = PurePath((experiment.subject.command or ("",))[0]).name
    if first in _BY_ROOT and os.geteuid() != 0:
        raise UsageError(
            f"{first} starts the server as root, and this user may not end it, so that each trial would leave one "
            f"running: leave {first} out, or start powerband itself by it"
        )
    check_limits(experiment)


def build_subject(
    subject: Subject,
    run: RunDir,
    stop: StopRequest,
    *,
    again: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, str]:
    """Runs `subject.build`, if there is one, in the subject's folder; a request to stop ends it. A build that fills the
    folder `{build}` runs once for the same sources, and later runs use it; `note` gets a sentence about that if there
    may be sources elsewhere. `again`: a run is resumed whose subject was built before, so the build runs only if its
    folder is no longer in the cache, or its sources are others now; `note` gets a sentence about that, and the run
    keeps it. A change to the sources before the last trial ended counts as the server's own, not as an edit. Returns
    the values of the built-in placeholders.

    Raises SubjectError if the build fails, MeasurementError if its log cannot be written, UserInterruptError.
    """
    given = given_values(subject, find_engine())
    if subject.build is None or (again and "build" not in given):
        return given
    facts = read_host(run.host)
    known = facts.get("builds")
    if again and isinstance(known, list) and Path(given["build"]).name not in known:
        kept = [folder for name in known if (folder := Path(given["build"]).with_name(name)).is_dir()]
        if kept and not is_edited_since(subject, given, _last_written_s(run) + _AFTER_TRIAL_S):
            return given | {"build": str(kept[0])}
        text = (
            "the server was built anew when this run was resumed, since its sources do not seem to be those that the "
            "run was begun with: later trials may measure another build"
        )
        note(text)
        run.keep_note(text)
    if not again and (text := built_before(subject, given)):
        note(text)
    build_once(given, partial(_build, subject, subject.build, run, stop), lambda: stop.requested, note)
    if facts and "build" in given and not (again and known):
        # A build that writes where its sources are changes the name that it has next time.
        builds = {Path(each["build"]).name for each in (given, given_values(subject, find_engine()))}
        with writing(run.host):
            write_atomically(run.host, json.dumps({**facts, "builds": sorted(builds)}, indent=2))
    return given


def _last_written_s(run: RunDir) -> float:
    """The instant, by the wall clock, at which a trial of the run last wrote a file; 0 if none did."""
    return max((path.stat().st_mtime for path in run.trials.glob("*/*")), default=0.0)


def _check_jars(subject: Subject, given: Mapping[str, str]) -> None:
    """Raises SubjectError if a subject that lists its jars was built with others."""
    hashes = Path(subject.folder or "") / LIST
    if not subject.folder or "build" not in given or not hashes.is_file():
        return
    if wrong := wrong_jars(Path(given["build"]), hashes):
        raise SubjectError(
            f"the jars that {subject.name} was built with are not those of {hashes}: {'; '.join(wrong[:3])}. Ask who "
            "keeps the mirror in your settings.xml; if you changed pom.xml yourself, delete that file"
        )


def _build(subject: Subject, words: Sequence[str], run: RunDir, stop: StopRequest, given: Mapping[str, str]) -> bool:
    """Runs the build. False if it was stopped. If powerband ends, even by a kill, the build ends too, with all that it
    forked."""
    with writing(run.build_log):
        open_private(run.build_log, "wb").close()
    launch = Launch(
        name="build",
        argv=tuple(render_text(subject, Setting(()), given, word) for word in words),
        env=_build_env(given),
        cwd=None if subject.cwd is None else render_text(subject, Setting(()), given, subject.cwd),
        log_file=str(run.build_log.absolute()),
        grace_ns=_GRACE_NS,
    )
    try:
        with Pump(stop) as pump, command_up(find_engine(), launch, run.build_log, pump) as build:
            while not pump.wait(lambda: build.exited is not None, _LOOK_S):
                pass
    except TrialInterrupted:
        return False
    except TrialFailed as failed:
        raise SubjectError(
            f"the server's build cannot be run: {failed}: install what builds it, or correct subject.build"
        ) from failed
    assert build.exited is not None
    if build.exited.exit_code != 0:
        raise SubjectError(
            f"the server's build failed ({describe_exit(build.exited)}), so nothing was measured: "
            f"{_mend(run.build_log)}, then `powerband resume {run.path}`{_first_error(run.build_log)}"
        )
    _check_jars(subject, given)
    return True


def _build_env(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    java = (("JAVA_HOME", given["java_home"]),) if "java_home" in given else ()
    return (*java, *(dotnet.ENV if "dotnet" in given else ()))


def _mend(log: Path) -> str:
    with log.open(errors="replace") as text:
        if any(_NUGET.search(line) for line in itertools.islice(text, _LOG_LINES_MAX)):
            return (
                "NuGet has not got the packages that it needs: let it reach a source that has them (`dotnet nuget list "
                "source` shows where it looks; the variable RestoreSources names others)"
            )
    return "correct what it builds"


def _first_error(log: Path) -> str:
    """The first lines of a build's log from its first error on (Maven's last lines, for one, are advice), as the end of
    a sentence; if no line names an error, its last lines."""
    with log.open(errors="replace") as text:
        lines = [printable(line.rstrip()) for line in itertools.islice(text, _LOG_LINES_MAX)]
    first = next((at for at, line in enumerate(lines) if _ERROR.search(line)), None)
    if first is None:
        return last_lines(log)
    shown = lines[first : first + LAST_LINES]
    return f"; its first error (all of it: {log}):\n" + "\n".join(f"  {line[:300]}" for line in shown)


def check_first_trial(experiment: Experiment, record: TrialRecord, run: RunDir, places: int = 1) -> None:
    """Raises an error if the first trial of a run, or of one of its two revisions, failed in a way that every other
    will: SubjectError, or MeasurementError for a failure of the load. The trial's record is removed, so that `powerband
    resume` continues once the cause is mended. `places`: the number of nodes that run trials; of several, this one
    alone may lack the command."""
    if record.failure is None:
        return
    error: type[PowerbandError]
    if kind_of(experiment).fails_every_trial(experiment, record.failure.code):
        error = MeasurementError
    elif places == 1 and _command_fails_always(experiment, record.failure.code):
        error = SubjectError
    else:
        return
    run.trial(record.spec.number).record.unlink()
    raise error(f"{_node_of(record)}{record.failure.message}\nNothing was measured. {_how_to_go_on(run)}")


def _node_of(record: TrialRecord) -> str:
    """The name of a cluster's node before what happened there; empty if the trial ran on this machine."""
    return f"{record.node}: " if record.node else ""


def _how_to_go_on(run: RunDir) -> str:
    """Says what to do next. A resumed run has a copy of the experiment, so a fault in that is mended by a new run."""
    return (
        "Correct the command or file and run again; if the fault is elsewhere, mend it, then "
        f"`powerband resume {run.path}`"
    )


def _command_fails_always(experiment: Experiment, code: str) -> bool:
    """True if the command cannot be started and no factor changes the program that it names, or where that is looked
    for."""
    if code not in (Code.COMMAND_NOT_FOUND, Code.NOT_EXECUTABLE):
        return False
    subject = experiment.subject
    found_by = [*(subject.command or ())[:1], subject.cwd or "", subject.env.get("PATH") or ""]
    return not placeholders(found_by) & (set(experiment.factors) - {REVISION})


def check_reached(record: TrialRecord, run: RunDir) -> None:
    """Raises SubjectError if a deployed server was not reached, which ends the run. The trial's record is removed, so
    that `powerband resume` runs it again once the server is there, and its spec, since it did not touch the server."""
    if record.failure is None or record.failure.code != Code.NOT_REACHABLE:
        return
    directory = run.trial(record.spec.number)
    directory.record.unlink()
    directory.spec.unlink(missing_ok=True)
    raise SubjectError(f"{record.failure.message}\n{_how_to_go_on(run)}")


def check_first_starts(experiment: Experiment, record: TrialRecord, run: RunDir, places: int = 1) -> None:
    """Raises SubjectError if the last STARTS trials or more failed to start or to serve for one cause, which is the
    same failure apart from the setting and numbers in its message, and if no other trial can be expected to fare
    better. If trials run on several nodes (`places`), they must cover all that ran one so far, and more than one.

    Without any other trial before them, that holds once they cover FEW_SETTINGS settings or half of all, whichever is
    more, or all. A failure under load may come from the setting, so it must cover all. Of more settings than
    `design.explore_above`, only so many count. With other trials before them, one of these must have started at one of
    the same settings, and the cause must be one that lasts: the program is gone, its port is taken, a disk is full, or
    the command that changes a deployed server fails or does not bring it back.

    Only trials of the revision of `record` count, if there are revisions, and none that was interrupted; a revision
    that fails under load where the other serves is worse, and no mistake in the command. A subject that another program
    killed is no such failure. The records of these trials are removed, so that `powerband resume` runs them anew.
    """
    if record.failure is None or record.failure.code not in _NEVER_SERVED or _was_killed(record):
        return
    if record.failure.code in _TOO_SHORT and record.spec.stage is Stage.SCREEN:
        return  # its answers, or its start, may take longer than a short trial
    revision, records = record.spec.setting.revision, run.records()
    so_far = [each for each in records if each.spec.setting.revision == revision]
    of_other = (each for each in records if each.spec.setting.revision != revision)
    if record.failure.code in _UNDER_LOAD and any(each.status == "measured" for each in of_other):
        return
    ended = [each for each in so_far if each.status != "interrupted"]
    in_row = list(itertools.takewhile(lambda each: _cause(each) == _cause(record), reversed(ended)))
    before = ended[: -len(in_row)]
    if len(in_row) < STARTS or not _is_everywhere(in_row, ended, places):
        return
    of_one = {each for each in experiment.settings() if each.revision == revision}
    settings = min(len(of_one), experiment.design.explore_above)
    tried = {each.spec.setting for each in in_row}
    if before:
        lasts = record.failure.code in _lasting(experiment) or _DISK_FULL in record.failure.message
        started = {each.spec.setting for each in before if each.failure is None}
        if not lasts or not tried & started:
            return
    elif len(tried) < settings and (
        record.failure.code in _UNDER_LOAD or len(tried) < max(FEW_SETTINGS, math.ceil(settings / 2))
    ):
        return
    for each in in_row if before else reversed(so_far):
        run.trial(each.spec.number).record.unlink()
    where = "at one setting" if len(tried) == 1 else f"at {len(tried)} settings"
    if nodes := sorted({each.node for each in in_row if each.node}):
        where = f"{where} on {joined(nodes)}"
    starts = "starts" if experiment.subject.deployed is None else "trials"
    which = "last" if before else "first"
    kept = "finished trials are kept" if any(run.records()) else "nothing was measured"
    then = f"Once that is mended, `powerband resume {run.path}`" if before else _how_to_go_on(run)
    raise SubjectError(
        f"{_node_of(record)}{record.failure.message}\n"
        f"So ended each of the {which} {len(in_row)} {starts}, {where}, and {kept}. {then}"
    )


def _lasting(experiment: Experiment) -> tuple[Code, ...]:
    """The codes of failures that last. A command reaches a server elsewhere by a network, which may be gone."""
    deployed = experiment.subject.deployed
    by_command = deployed is not None and deployed.command is not None
    return (*_NO_START, Code.APPLY_FAILED, Code.NOT_READY) if by_command else _NO_START


def _was_killed(record: TrialRecord) -> bool:
    """True if a signal ended the subject that powerband did not send."""
    return record.subject.get("signal") is not None and not record.subject.get("asked")


def _is_everywhere(failed: Sequence[TrialRecord], ended: Sequence[TrialRecord], places: int) -> bool:
    """True if trials failed on all nodes that ran one so far, and on more than one, unless there is but one."""
    nodes = {each.node for each in failed}
    return nodes >= {each.node for each in ended} and len(nodes) >= min(2, places)


def _cause(record: TrialRecord) -> tuple[str, str] | None:
    """Code and message of a failure, without the name of its setting and with each number of the message replaced by 0,
    since ports, times, levels and the trial's folder differ between failures of one cause; None for a trial that did
    not fail."""
    if record.failure is None:
        return None
    if record.failure.code in _BY_CODE_ALONE:
        return record.failure.code, ""
    return record.failure.code, re.sub(r"[0-9]+", "0", record.failure.message.replace(record.spec.setting.id, ""))
