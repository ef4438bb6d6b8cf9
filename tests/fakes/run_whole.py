"""A whole run in a process of its own: `run_whole.py RUN_FOLDER`; begins one, or goes on with what is there.

Two pool sizes of the reference subject, three blocks, real engines. Exit codes are those of the command line."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.stand import MS, experiment, reference, short_load
from powerband.base.errors import PowerbandError, UserInterruptError
from powerband.model.experiment import Design, Measure
from powerband.processes.stop_request import StopRequest
from powerband.search.observer import Observer
from powerband.search.session import run_session
from powerband.store import RunDir

CASE = experiment(
    reference("--threads", "{threads}", "--wait", "5ms"),
    short_load(users=8, duration_ns=300 * MS),
    factors={"threads": (1, 4)},
    measure=Measure(warmup_ns=100 * MS, repeats=3, retries=0),
    design=Design(seed=5),
)


def main() -> int:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trials").mkdir(exist_ok=True)
    (folder / "experiment.yaml").touch()
    with StopRequest.on_signals() as stop:
        analysis = run_session(CASE, RunDir.open(folder), Observer(), stop)
        if stop.requested:
            return UserInterruptError.exit_code
    sys.stdout.write(f"{analysis.answer.leader.id if analysis.answer.leader else None}\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PowerbandError as error:
        sys.stderr.write(f"powerband: {error}\n")
        sys.exit(error.exit_code)
