"""A run in a process of its own, for tests that interrupt, starve or kill it:
`run_trials.py RUN_FOLDER [OPTION...]`.

Makes the run directory, or goes on with one: trials that have no record are run (again). Options: `trials=3`,
`ignore-sigterm`, `grace=5`, `file-limit=BYTES` (from the second trial on), `pace=0.3` (seconds measured), `begins=0`
(the server begins so many seconds late), `wait=2ms` (an answer takes), `threads=16` (of the server), `go-on` (after a
trial that failed).
Exit codes are those of the command line; errors are printed as it would print them.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.stand import MS, Watcher, always_steady, experiment, reference, short_load
from powerband.base.errors import EXIT_OK, PowerbandError
from powerband.model.experiment import SubjectStop
from powerband.model.plan import TrialSpec
from powerband.processes.stop_request import StopRequest
from powerband.store import RunDir
from powerband.trials.trial import run_trial


class Announcer(Watcher):
    """Prints each phase as it begins, for a test that waits for one."""

    def phase(self, name: str) -> None:
        announce(name)


class AnnouncedStop(StopRequest):
    """Prints `stopping` once it received a first Ctrl-C; a test sends the second one only after that."""

    def request(self) -> None:
        super().request()
        os.write(1, b"stopping\n")  # not by sys.stdout, which a signal handler may find in use


def announce(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def run(folder: Path, options: Mapping[str, str]) -> int:
    """Makes or resumes the run; returns the exit code."""
    made = RunDir.open(folder) if folder.is_dir() else RunDir.create(folder.parent, "interrupted", "name: test\n", {})
    if made.path != folder:
        made.path.rename(folder)
        made = RunDir.open(folder)
    misbehave = "ignore-sigterm" if "ignore-sigterm" in options else "none"
    stop_rule = SubjectStop(grace_ns=int(float(options.get("grace", "5")) * 1e9))
    shape = ("--wait", options.get("wait", "2ms"), "--threads", options.get("threads", "16"))
    subject = reference(*shape, "--misbehave", misbehave, stop=stop_rule)
    if begins := options.get("begins"):
        command = f"sleep {begins}; exec {' '.join(subject.command)}"
        subject = subject.model_copy(update={"command": ("sh", "-c", command)})
    duration_ns = int(float(options.get("pace", "0.3")) * 1000) * MS
    case = experiment(subject, short_load(duration_ns=duration_ns))
    done = {record.spec.number for record in made.records() if record.status == "measured"}
    with AnnouncedStop.on_signals() as stop:
        for number in range(1, int(options.get("trials", "3")) + 1):
            if number in done:
                continue
            if "file-limit" in options and number > 1:
                limit = int(options["file-limit"])
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            spec = TrialSpec(number, 0, 1, case.settings()[0], 7)
            announce(f"trial {number}")
            record = run_trial(case, spec, made.trial(number), steady=always_steady, observer=Announcer(), stop=stop)
            if record.status == "interrupted":
                return 130
            if record.failure is not None and "go-on" not in options:
                sys.stderr.write(f"{record.failure.code}: {record.failure.message}\n")
                return 4
    return EXIT_OK


if __name__ == "__main__":
    try:
        sys.exit(run(Path(sys.argv[1]), dict(option.partition("=")[::2] for option in sys.argv[2:])))
    except PowerbandError as error:
        sys.stderr.write(f"powerband: {error}\n")
        sys.exit(error.exit_code)
