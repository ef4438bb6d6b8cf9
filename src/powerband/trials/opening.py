"""What is settled once, at the opening of a run: the subject is built, and a failure that all trials share ends it.

What the build says goes to `build.log` of the run directory. Whether a run has just begun is for the session to know.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from powerband.base.errors import ExperimentError, MeasurementError, PowerbandError, SubjectError
from powerband.loads.jmeter.checks import check_plan_file
from powerband.loads.jmeter.install import installed_jmeter
from powerband.model.experiment import Experiment, Subject
from powerband.model.plan import REVISION, Setting
from powerband.model.subjects import render_text
from powerband.model.templates import placeholders
from powerband.processes.engine_fleet import find_engine
from powerband.processes.engine_process import describe_status
from powerband.processes.failures import Code
from powerband.processes.stop_request import StopRequest
from powerband.processes.subject_process import LAST_WORDS_LINES, last_words
from powerband.processes.toolchain import built_once, given_values, mark_built
from powerband.store import RunDir, TrialRecord, disk_error

_OF_A_PLAN = (Code.JMETER_FAILED, Code.NO_SAMPLES, Code.PLAN_ENDED)
_POLL_S = 0.1
_LOG_LINES_MAX = 100_000
_ERROR = re.compile(r"\berror\b", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def build_subject(subject: Subject, run: RunDir, stop: StopRequest, *, again: bool = False) -> dict[str, str]:
    """Runs `subject.build`, where there is one, in the subject's folder; a request to stop ends it. A build that fills
    `{build}` is run once for the same sources, whatever the number of runs. `again`: a run is gone on with, whose
    subject was built; only what is no longer in the cache is built then. Returns what its
    built-in placeholders stand for.

    Raises SubjectError where it fails, MeasurementError where the disk refuses its log."""
    given = given_values(subject, find_engine())
    if subject.build is None or (again and "build" not in given):
        return given
    with built_once(given) as is_built:
        if not is_built and _build(subject, subject.build, given, run, stop):
            mark_built(given)
    return given


def fetch_jmeter(experiment: Experiment) -> None:
    """Where the load is a JMeter plan: it can be run, and the JMeter that runs it is there, fetched now if need be.

    Raises ExperimentError for a plan that cannot be run, and what `installed_jmeter` raises."""
    if experiment.load.jmeter is None:
        return
    try:
        check_plan_file(experiment)
    except ValueError as error:
        raise ExperimentError(str(error), key="load.jmeter") from None
    installed_jmeter()


def _build(subject: Subject, words: Sequence[str], given: Mapping[str, str], run: RunDir, stop: StopRequest) -> bool:
    """False where it was stopped."""
    argv = [render_text(subject, Setting(()), given, word) for word in words]
    folder = None if subject.cwd is None else render_text(subject, Setting(()), given, subject.cwd)
    env = {**os.environ, **({"JAVA_HOME": given["java_home"]} if "java_home" in given else {})}
    try:
        log = run.build_log.open("wb")
    except OSError as error:
        raise disk_error(run.build_log, error) from error
    with log:
        try:
            build = subprocess.Popen(
                argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        except OSError as error:
            reason = f"{error.filename or argv[0]}: {error.strerror}"
            raise SubjectError(
                f"the subject's build cannot be started: {reason}: install what builds it, or correct subject.build"
            ) from error
        status = _wait(build, stop)
    if status != 0 and not stop.requested:
        raise SubjectError(
            f"the subject's build failed ({describe_status(status)}), so nothing was measured: correct what it builds, "
            f"then `powerband resume {run.path}`{_first_error(run.build_log)}"
        )
    return status == 0


def _first_error(log: Path) -> str:
    """What a build says from its first error on, as the end of a sentence: Maven, for one, ends with advice on itself.
    Its last words where no line tells of an error."""
    with log.open(errors="replace") as text:
        lines = [_COLOUR.sub("", line.rstrip()) for line in itertools.islice(text, _LOG_LINES_MAX)]
    first = next((at for at, line in enumerate(lines) if _ERROR.search(line)), None)
    if first is None:
        return last_words(log)
    shown = lines[first : first + LAST_WORDS_LINES]
    return f"; its first error (all of it: {log}):\n" + "\n".join(f"  {line[:300]}" for line in shown)


def check_first_trial(experiment: Experiment, record: TrialRecord, run: RunDir) -> None:
    """Raises SubjectError, or MeasurementError for a limit of the bench, where the first trial of a run, or of one of
    two revisions in it, failed as every other must; then it is removed, so that the run can be gone on with once that
    is mended."""
    if record.failure is None or not _shared_by_all(experiment, record.failure.code):
        return
    run.trial(record.spec.number).record.unlink()
    limits = (Code.DESCRIPTOR_LIMIT, Code.PORT_LIMIT, *_OF_A_PLAN)
    error: type[PowerbandError] = MeasurementError if record.failure.code in limits else SubjectError
    raise error(f"{record.failure.message}\nNothing was measured; once that is mended, `powerband resume {run.path}`")


def _shared_by_all(experiment: Experiment, code: str) -> bool:
    match code:
        case Code.COMMAND_NOT_FOUND | Code.NOT_EXECUTABLE:
            return not placeholders(experiment.subject.command[:1]) & (set(experiment.factors) - {REVISION})
        case Code.DESCRIPTOR_LIMIT | Code.PORT_LIMIT:
            return not any(name.startswith("load.") for name in experiment.factors)
        case code if code in _OF_A_PLAN:
            told = placeholders((experiment.load.properties or {}).values())
            return not told & set(experiment.factors)
    return False


def _wait(build: subprocess.Popen[bytes], stop: StopRequest) -> int:
    try:
        while not stop.requested:
            try:
                return build.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                continue
        return -signal.SIGTERM
    finally:
        if build.poll() is None:
            os.killpg(build.pid, signal.SIGKILL)
            build.wait()
