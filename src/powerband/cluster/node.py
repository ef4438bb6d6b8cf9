"""The program that runs trials on a node: `python -m powerband.cluster.node`. It knows nothing of Ray.

Orders come as JSON lines on stdin, answers go out as JSON lines on stdout. The end of stdin means that the actor is
gone: then everything ends, at most `END_S` later.

  {"do": "open", "experiment": YAML, "work": folder, "moved": [[there, here], ...], "address": of this node,
   "variables": {name: value | null, ...}, "generators": [the fields of a `Generator`, ...]}        -> ready | failed
  {"do": "trial", "spec": ..., "host": ..., "node": name}                                  -> phase*, ended | failed
  {"do": "stop"}  ends the trial as Ctrl-C would
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from powerband.analyze.trial.steady import is_steady
from powerband.base.errors import ExperimentError, MeasurementError, PowerbandError, SubjectError, UsageError
from powerband.base.yaml_document import parse_yaml
from powerband.cluster.below_ray import answers, as_if_started_here, check_priority
from powerband.cluster.far_engines import FarEngines, Generator, GeneratorLostError
from powerband.cluster.parcels import pack
from powerband.files.experiment_file import experiment_of
from powerband.files.library import library_root
from powerband.model.experiment import Experiment
from powerband.model.host_use import HostUse
from powerband.model.plan import TrialSpec
from powerband.processes.stop_request import StopRequest
from powerband.store import RunDir
from powerband.trials.bench import Job, prepared
from powerband.trials.trial import run_trial

END_S = 1.5
"""The time from the end of stdin to the end of this process. Engines and probes end with it, and subjects with
those."""
LIBRARY = "library"
LOST = "lost"  # the kind of a failure whose reason is unknown
KINDS: dict[str, type[PowerbandError]] = {
    kind.__name__: kind for kind in (ExperimentError, MeasurementError, SubjectError, UsageError)
}


class _Observer:
    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say

    def note(self, text: str) -> None:
        self._say("note", text=text)

    def phase(self, name: str) -> None:
        self._say("phase", name=name)

    def interval(self, rate_per_s: float, response_time_ns_mean: float | None, in_flight: int) -> None:
        """Does nothing: the view on the driver does without, which spares the measuring node work."""


class _Orders:
    """The orders from stdin, read in a thread beside the trial, which acts on `stop` and on the end of stdin itself."""

    def __init__(self, stop: StopRequest, work: Callable[[], Path | None]) -> None:
        self._stop, self._work = stop, work
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> dict[str, Any] | None:
        """Waits for the next order; None at the end of stdin."""
        return self._queue.get()

    def _read(self) -> None:
        # Not `sys.stdin`: Python aborts if it is read while the program ends.
        for line in os.fdopen(0, "rb", closefd=False):
            order = json.loads(line)
            if order["do"] != "stop":
                self._queue.put(order)
            elif not self._stop.requested:
                self._stop.request()
        self._queue.put(None)
        if not self._stop.requested:
            self._stop.request()
        time.sleep(END_S)
        if (work := self._work()) is not None:
            shutil.rmtree(work, ignore_errors=True)
        os._exit(1)


def main() -> None:
    """Follows orders until the end of stdin."""
    say = answers()
    as_if_started_here()
    stop = StopRequest()
    work: list[Path] = []
    orders = _Orders(stop, lambda: work[0] if work else None)
    while (order := orders.next()) is not None:
        if order["do"] == "open":
            work.append(Path(order["work"]))
            _serve(order, orders, stop, say)
    for folder in work:  # after an unexpected error the actor reads the log in it first
        shutil.rmtree(folder, ignore_errors=True)


def _serve(order: Mapping[str, Any], orders: _Orders, stop: StopRequest, say: Callable[..., None]) -> None:
    """Runs trials of one experiment, until the end of stdin or until one cannot be run."""
    work = Path(order["work"])
    run = RunDir(work / "run")
    run.trials.mkdir(parents=True, mode=0o700)
    observer = _Observer(say)
    try:
        check_priority()
        experiment = _placed(moved(order["experiment"], order["moved"]), work)
        _set(order["variables"])
        generators = [Generator(**each) for each in order["generators"]]
        engines = FarEngines(generators, order["address"]) if generators else None
        job = Job(experiment, run, observer, stop, is_steady)  # built again on resume, too: its folder may be new
        with prepared(job) as services:
            say("ready")
            ended_s = None
            while (asked := orders.next()) is not None:
                host = HostUse.model_validate(asked["host"])
                spec = TrialSpec.from_json(asked["spec"])
                directory = run.trial(spec.number)
                between_s = None if ended_s is None else time.monotonic() - ended_s
                run_trial(
                    experiment.model_copy(update={"host": host}),
                    spec,
                    directory,
                    steady=is_steady,
                    observer=observer,
                    stop=stop,
                    services=services,
                    node=asked["node"],
                    engines=engines,
                )
                ended_s = time.monotonic()
                parcel = work / "parcel"
                parcel.write_bytes(pack(directory.path))
                shutil.rmtree(directory.path)
                say("ended", parcel=str(parcel), between_s=between_s)
    except PowerbandError as error:
        log = run.build_log
        told = log.read_text(errors="replace")[-20_000:] if log.is_file() else ""
        say("failed", kind=_kind(error), message=str(error), build_log=told)
    except OSError as error:
        say("failed", kind="MeasurementError", message=f"{error.filename or work}: {error.strerror or error}")


def _set(variables: Mapping[str, str | None]) -> None:
    """Takes over variables of the environment that powerband was started in, for that of `ray start` may be older."""
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def _placed(experiment: Experiment, work: Path) -> Experiment:
    """The experiment with a folder of this machine to start the server in. If its `cwd` is missing here, a subject with
    a folder of its own is started in `work`, since it needs nothing from there; for any other, SubjectError is
    raised."""
    subject = experiment.subject
    if subject.cwd is None or Path(subject.cwd.replace("{{", "{").replace("}}", "}")).is_dir():
        return experiment
    if subject.folder is None:
        raise SubjectError(
            f"the server is started in {subject.cwd}, which is not on this node: name that folder under cluster.files, "
            "and each node gets a copy of it, or set subject.cwd to a folder that every node has"
        )
    return experiment.model_copy(update={"subject": subject.model_copy(update={"cwd": str(work)})})


def _kind(error: PowerbandError) -> str:
    """The kind of an error, by which the driver raises it again. If a node that makes the load is lost, so is the
    trial, as if this node were lost."""
    if isinstance(error, GeneratorLostError):
        return LOST
    return next((name for name, kind in KINDS.items() if isinstance(error, kind)), "MeasurementError")


def moved(text: str, places: Sequence[Sequence[str]]) -> Experiment:
    """The experiment in `text` with folders of the driver's machine replaced by those of this one. `places`: pairs of
    both; `LIBRARY` stands for the folder of what comes with powerband."""
    pairs = [(there, str(library_root()) if here == LIBRARY else here) for there, here in places]

    def here(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: here(each) for key, each in value.items()}
        if isinstance(value, list):
            return [here(each) for each in value]
        if isinstance(value, str):
            for before, after in pairs:
                if value == before or value.startswith(before + "/"):
                    return after + value[len(before) :]
        return value

    return experiment_of(here(parse_yaml(text, "experiment", []).plain()), to_run=False)  # the driver has checked it


if __name__ == "__main__":
    main()
