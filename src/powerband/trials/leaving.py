"""Leaves a deployed server at the setting that `subject.deployed.restore` names, else at the one tried last.

In: the trials that changed the setting. Out: the setting in place, `left.json` of the run directory, and a sentence. It
makes no difference whether the run ends by its plan, by Ctrl-C, by a closed terminal or by an error. After SIGKILL, or
where the server did not take the setting, `powerband resume` does it at its end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from powerband.base.errors import MeasurementError, PowerbandError, UserInterruptError
from powerband.base.hosts import http_url, is_loopback, split_url
from powerband.base.procfs import all_processes, tree_of
from powerband.base.units import capital
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting
from powerband.model.results import Analysis
from powerband.model.secrets import without_secrets
from powerband.model.subjects import render_deployed_command
from powerband.processes.containers import A_CONTAINER, PASSES_ON, server_at
from powerband.processes.deployed_subject import change
from powerband.processes.engine_fleet import find_engine
from powerband.processes.engine_process import Pump
from powerband.processes.failures import Code, TrialFailed
from powerband.processes.ports import addresses_of, serving
from powerband.processes.stop_request import StopRequest
from powerband.processes.subject_process import render
from powerband.store import (
    NOT_AS_WRITTEN,
    DamagedError,
    RunDir,
    TrialRecord,
    open_private,
    write_atomically,
    writing,
)
from powerband.trials.opening import check_reached

REFUSED = "refused by it, so that it may have another"
CUT_SHORT = "perhaps cut short while it was set, so that it may have another"
_REACHES_ONE = (
    "a request of subject.apply (--apply) reaches one of them: unless they share the setting, the others keep what "
    "they had"
)
_NOT_CHANGED = ("aa",)
"""Factors that do not reach the server, besides `load.*` and `label.*`."""


class Leaving:
    """Keeps track of a deployed server's setting. Usage: `changing` around each trial, `leave` at the end."""

    def __init__(self, experiment: Experiment, run: RunDir, given: Mapping[str, str]) -> None:
        self._experiment = experiment
        self._run = run
        self._given = given
        self._last, self._doubt = (None, "") if experiment.subject.deployed is None else _since_before(run)

    @contextmanager
    def changing(self, setting: Setting) -> Iterator[Callable[[TrialRecord], None]]:
        """Surrounds a trial that gives the server this setting. Yields a function to be called with the trial's record;
        without that call, the setting counts as changed, perhaps not in full. `left.json` is removed meanwhile, so that
        it says nothing untrue after a kill; it comes back if the trial changed nothing.

        That function raises SubjectError if a deployed server was not reached (see `check_reached`).
        """
        before = self._last, self._doubt
        self._last, self._doubt = setting, CUT_SHORT
        with writing(self._run.left):
            left = self._run.left.read_text("utf-8", "replace") if self._run.left.is_file() else ""
            self._run.left.unlink(missing_ok=True)

        def changed(record: TrialRecord) -> None:
            if "applied" not in record.phases:
                self._last, self._doubt = before
                if left:
                    with writing(self._run.left):
                        write_atomically(self._run.left, left)
            else:
                self._doubt = _doubt(record)
            check_reached(record, self._run)

        yield changed

    def leave(self) -> str:
        """Restores the setting if one is to be restored, records the outcome in the run directory, and returns it as a
        sentence; empty if nothing was changed. The first Ctrl-C meanwhile is taken as meant for the run; the second
        cuts this short. Raises MeasurementError, which has the sentence too, if the disk cannot be written."""
        with StopRequest.on_signals():
            return self._leave()

    def _leave(self) -> str:
        deployed, last = self._experiment.subject.deployed, self._last
        if deployed is None or last is None or not (at := _of_server(last)).levels:
            return ""
        restored, reason = at, ""
        if deployed.restore:
            restored = Setting(tuple(deployed.restore.items()))
            reason = self._set(Setting(tuple({**last.as_dict(), **deployed.restore}.items())))
        left = {
            "format": 1,
            "setting": (at if reason else restored).as_dict(),
            "asked": deployed.restore or None,
            "reason": reason or ("" if deployed.restore else self._doubt),
        }
        sentence = _sentence(left)
        try:
            with writing(self._run.left):
                write_atomically(self._run.left, json.dumps(left))
        except MeasurementError as error:
            raise MeasurementError(f"{error}\n{capital(sentence)}.") from error
        return sentence

    def _set(self, setting: Setting) -> str:
        """Gives the server this setting. Returns the reason why that failed; empty if it did not."""
        subject = self._experiment.subject
        try:
            rendered = render(subject, setting, find_engine(), self._given)
            with closing(StopRequest()) as stop, Pump(stop) as pump:
                argv = render_deployed_command(subject, setting, self._given)
                log = self._run.restore_log
                change(rendered, argv, _writable(log) if argv else log, pump)
        except TrialFailed as failed:
            return failed.failure.message
        except UserInterruptError:
            return "that was cut short"
        except (PowerbandError, OSError) as error:
            return str(error)
        return ""


@contextmanager
def tracked_setting(
    experiment: Experiment, run: RunDir, given: Mapping[str, str], note: Callable[[str], None]
) -> Iterator[Leaving]:
    """Yields a `Leaving` that tracks the server's setting, and calls its `leave` however the block ends. The sentence
    goes to `note`, or into the PowerbandError that ended the block."""
    if experiment.subject.deployed is not None:
        note(_runs_already(experiment))
        if several := _several(experiment):
            note(several)
            run.keep_note(several)
    leaving = Leaving(experiment, run, given)
    try:
        yield leaving
    except PowerbandError as error:
        if sentence := leaving.leave():
            error.args = (f"{error}\n{capital(sentence)}.",)
        raise
    except BaseException:
        leaving.leave()
        raise
    if sentence := leaving.leave():
        note(sentence)


def _runs_already(experiment: Experiment) -> str:
    """A note for the start of the run; if the server itself listens on this machine, it names the option that watches
    it, or says that another process is watched."""
    subject = experiment.subject
    assert subject.deployed is not None
    text = f"{without_secrets(subject.url)} runs already: its setting is changed where it is, and it is not restarted"
    host, port = _address(subject.url)
    if not is_loopback(host) or (found := server_at(port)) is None:
        return text
    (name, pid), watched = found, subject.deployed.pid
    if name in PASSES_ON:
        return text
    if watched is None:
        return f"{text}; {name} listens there, and --pid {pid} would watch it"
    processes = all_processes()
    if pid in tree_of(watched, processes) or watched in tree_of(pid, processes):
        return text
    return f"{text}; {name} (pid {pid}) listens there, but process {watched} is watched (--pid)"


def _several(experiment: Experiment) -> str:
    """A warning if several processes or machines serve, of which a request changes only one; empty if not."""
    host, port = _address(experiment.subject.url)
    if not experiment.subject.apply:
        return ""
    local = is_loopback(host)
    count = serving(port) if local else addresses_of(host)
    found = server_at(port) if local and count > 1 else None
    if count < 2 or (found is not None and found[0] == A_CONTAINER):  # a proxy for each kind of address
        return ""
    kind = "processes" if local else "addresses"
    return f"{count} {kind} serve {host}:{port}, and {_REACHES_ONE}; change it by a command (--apply-command)"


def several_started(record: TrialRecord) -> str:
    """A warning if several processes serve of a server that powerband started, of which a request changed only one;
    empty if not."""
    if "serving" not in record.subject:
        return ""
    return f"several processes of the server serve, and {_REACHES_ONE}; let one serve, or set it in the command or env"


def _address(url: str) -> tuple[str, int]:
    parts = split_url(http_url(url))
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def with_left(analysis: Analysis, run: RunDir) -> Analysis:
    """The analysis with the setting that the server was left at: in the answer, or in a warning if that may not be the
    wanted one."""
    try:
        left = json.loads(run.left.read_text(encoding="utf-8"))
        said = _sentence(left)
    except (OSError, *NOT_AS_WRITTEN):
        return analysis
    if left["reason"]:
        return replace(analysis, warnings=(*analysis.warnings, said))
    answer = replace(analysis.answer, sentences=(*analysis.answer.sentences, f"{capital(said)}."))
    return replace(analysis, answer=answer)


def _sentence(left: Mapping[str, object]) -> str:
    setting = left["setting"]
    assert isinstance(setting, Mapping)
    kept = Setting(tuple(setting.items())).id
    asked = left["asked"]
    if asked and not left["reason"]:
        return f"the server was set back to {kept}"
    if not asked:
        unsure = f", and {left['reason']}" if left["reason"] else ""
        return f"the server keeps {kept}, which was tried last{unsure} (--restore NAME=VALUE sets it back at the end)"
    assert isinstance(asked, Mapping)
    wanted = Setting(tuple(asked.items())).id
    return f"the server was NOT set back to {wanted} and may still have {kept}: {left['reason']}"


def _since_before(run: RunDir) -> tuple[Setting | None, str]:
    """The setting of an earlier session of the run that the server may still have, and why that is in doubt (empty if
    it is not). None if the server was left as was wanted, or if no trial has touched it."""
    try:
        left = json.loads(run.left.read_text(encoding="utf-8"))
        reason = left["reason"]
        setting = Setting(tuple(left["setting"].items())) if reason else None
        return setting, reason if reason in (REFUSED, CUT_SHORT) else ""
    except (OSError, *NOT_AS_WRITTEN):
        return _tried_last(run)  # that session was killed, or this is the first


def _tried_last(run: RunDir) -> tuple[Setting | None, str]:
    """The setting of the last trial that touched the server, or may have, since a killed one has no record; and why it
    is in doubt that the server has it."""
    for number, spec in sorted(run.planned().items(), reverse=True):
        directory = run.trial(number)
        if not directory.spec.is_file():
            continue
        try:
            record = directory.read_record()
        except DamagedError:
            return spec.setting, CUT_SHORT
        if "applied" in record.phases:
            return spec.setting, _doubt(record)
    return None, ""


def _doubt(record: TrialRecord) -> str:
    """Why the server may not have the setting that a trial gave it; empty if it has."""
    code = "" if record.failure is None else record.failure.code
    if code == Code.APPLY_FAILED:
        return REFUSED
    return CUT_SHORT if code == Code.INTERRUPTED and "ready" not in record.phases else ""


def _writable(log: Path) -> Path:
    """The log file; where it cannot be opened, the null device, since the server matters more than the log."""
    try:
        open_private(log, "ab").close()
    except OSError:
        return Path(os.devnull)
    return log


def _of_server(setting: Setting) -> Setting:
    levels = ((name, level) for name, level in setting.levels if name not in _NOT_CHANGED)
    return Setting(tuple((name, level) for name, level in levels if not name.startswith(("load.", "label."))))
