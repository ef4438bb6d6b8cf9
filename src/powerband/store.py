"""The run directory: the only data shared by running and analysing. Written here, read here; nothing is computed.

  runs/<time>-<name>/  experiment.yaml  host.json  plan.jsonl
   trials/0001/       spec.json subject.json events.jsonl probe.jsonl subject.log record.json
   analysis.json report.html                                      derived

A trial without `record.json` does not exist: `record.json` is written last and atomically.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from powerband.base.errors import MeasurementError, UsageError
from powerband.model.plan import TrialSpec
from powerband.wire.load_events import Summary

RECORD_FORMAT = 1
_FIRST_ADDED_LATER = "cpu_quota"  # this field of a record and those below it are missing from older ones
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # what a file system says that has none


@dataclass(frozen=True)
class Failure:
    """The reason why a trial could not be measured: a stable code (`not_ready`, `died`, ...) and a sentence for
    people."""

    code: str
    message: str


@dataclass(frozen=True)
class SubjectAddress:
    """The address of a trial's server while it runs; both ports are new in each trial."""

    url: str
    metrics_url: str | None = None

    @classmethod
    def parse(cls, text: str | bytes) -> SubjectAddress | None:
        """The content of `subject.json`; None if it is invalid, or not complete yet."""
        try:
            told = json.loads(text)
            return cls(str(told["url"]), None if told["metrics_url"] is None else str(told["metrics_url"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None


@dataclass(frozen=True)
class TrialRecord:
    """Raw facts of one trial, without judgement, which is left to the analysis.

    `phases`: monotonic ns of launched, ready, go, measure, drain, end (the engines' last event) and stopped (the server
    has ended), as far as they were reached. `engines`: one `summary` event per engine process (see
    protocol/load-event.schema.json). `subject`: the probe's `launched`, `exited` and `end` events merged, as far as
    they arrived. `cpus`: CPU lists of server, engine and probe. `cpu_quota`: CPUs that a cgroup allows all of them
    together; None: no quota, or unknown. `control_cpu_ns`: CPU of the control plane from go to end. `thread_names`: a
    JVM's full thread names by thread id. `last_words`: numbers by name, from the log line that `subject.last_words`
    matches. `acknowledged`, `visits`, `no_visitor`, `snapshots`: records of the instruments in `trials/instruments/`.
    `link`: the link between two network namespaces and its traffic; empty without one.
    `jmeter`: the JMeter driver's record of its JVM.
    """

    spec: TrialSpec
    status: str  # measured | failed | interrupted
    failure: Failure | None
    wall_ns: int
    monotonic_ns: int
    phases: Mapping[str, int]
    warmup_ended_by: str | None  # steady | limit | fixed
    engines: tuple[Summary, ...] = ()
    subject: Mapping[str, Any] = field(default_factory=dict)
    cpus: Mapping[str, list[int]] = field(default_factory=dict)
    cpu_quota: float | None = None
    control_cpu_ns: int | None = None
    acknowledged: tuple[Mapping[str, Any], ...] = ()
    thread_names: Mapping[str, str] = field(default_factory=dict)
    visits: tuple[Mapping[str, Any], ...] = ()
    no_visitor: str = ""
    last_words: Mapping[str, float] = field(default_factory=dict)
    snapshots: tuple[Mapping[str, Any], ...] = ()
    link: Mapping[str, Any] = field(default_factory=dict)
    jmeter: Mapping[str, Any] = field(default_factory=dict)

    @property
    def origin_ns(self) -> int:
        """The origin of all times that are shown: `go`, or the first phase that was reached."""
        return self.phases.get("go", min(self.phases.values(), default=0))

    def to_json(self) -> dict[str, Any]:
        """The fields in their order, after the number of the format."""
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        failure = None if self.failure is None else vars(self.failure)
        return {"format": RECORD_FORMAT, **values, "spec": self.spec.to_json(), "failure": failure}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrialRecord:
        """A field that was added later gets its default where an older record lacks it. Raises UsageError for a record
        that another version wrote."""
        if data.get("format") != RECORD_FORMAT:
            raise UsageError(
                f"its format is {data.get('format')}, and this version reads {RECORD_FORMAT}: use the version of "
                "powerband that wrote the run, or start a new run"
            )
        values: dict[str, Any] = {}
        added_later = False
        for each in fields(cls):
            added_later |= each.name == _FIRST_ADDED_LATER
            if each.name in data or not added_later:
                value = data[each.name]
                values[each.name] = tuple(value) if isinstance(each.default, tuple) else value
        failure = data["failure"]
        values["spec"] = TrialSpec.from_json(data["spec"])
        values["failure"] = None if failure is None else Failure(failure["code"], failure["message"])
        return cls(**values)


class TrialDir:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec = path / "spec.json"
        self.subject = path / "subject.json"  # where it is reached while it runs: a `SubjectAddress`
        self.events = path / "events.jsonl"  # engine lines, each with an `engine` index added
        self.probe = path / "probe.jsonl"
        self.log = path / "subject.log"
        self.engine_log = path / "engine.log"  # what engine and probe said on stderr; removed where that is nothing
        self.samples = path / "samples.jtl"  # of a JMeter plan: its results
        self.jmeter_log = path / "jmeter.log"  # what JMeter logged
        self.jmeter_output = path / "jmeter.out"  # what it printed
        self.visitor_log = path / "visitor.log"  # of a visitor's browser: what it said, and its page
        self.snapshots = path / "snapshots"  # class histograms of JVMs: `snapshot_file`
        self.record = path / "record.json"

    def begin(self, spec: TrialSpec) -> None:
        """Makes the directory with its `spec.json`; files of an earlier, killed attempt are removed.

        Raises MeasurementError if the disk cannot be written."""
        with writing(self.path):
            if self.path.exists():
                shutil.rmtree(self.path)
            self.path.mkdir(parents=True)
            write_atomically(self.spec, json.dumps(spec.to_json()))

    def write_address(self, address: SubjectAddress) -> None:
        """Writes the address before the server is launched, and therefore without waiting for fsync. Raises
        MeasurementError if the disk cannot be written."""
        with writing(self.subject):
            self.subject.write_text(json.dumps(vars(address)))

    def write_record(self, record: TrialRecord) -> None:
        """Writes the record, as the last file: from now on the trial exists. Raises MeasurementError if the disk cannot
        be written."""
        with writing(self.path):
            write_atomically(self.record, json.dumps(record.to_json()))

    def read_record(self) -> TrialRecord:
        """Reads the record. Raises UsageError if another version wrote it, or if it is damaged."""
        try:
            return TrialRecord.from_json(json.loads(self.record.read_text(encoding="utf-8")))
        except UsageError as error:
            raise UsageError(f"cannot read {self.record}: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{self.record} is damaged ({type(error).__name__}: {error}): remove {self.path}, and "
                "`powerband resume` runs that trial again"
            ) from error

    def read_events(self) -> Iterator[Any]:
        """Events of engines; `wire/load_events.py` has the types of those that are read."""
        return read_json_lines(self.events)

    def read_probe(self) -> Iterator[Any]:
        """Events of the probe, as in `wire/probe_events.py`."""
        return read_json_lines(self.probe)

    def read_snapshots(self) -> dict[tuple[str, int], str]:
        """The class histograms of JVMs by moment and process, as named by `snapshot_file`."""
        found = {}
        for file in sorted(self.snapshots.glob("*-*.txt")):
            when, _, pid = file.stem.partition("-")
            if pid.isdigit():
                found[when, int(pid)] = file.read_text(encoding="utf-8", errors="replace")
        return found


class RunDir:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.experiment = path / "experiment.yaml"
        self.host = path / "host.json"
        self.plan = path / "plan.jsonl"
        self.build_log = path / "build.log"  # what subject.build said, where there is one
        self.trials = path / "trials"
        self.analysis = path / "analysis.json"
        self.report = path / "report.html"

    @classmethod
    def create(cls, root: Path, name: str, experiment_yaml: str, host: Mapping[str, Any]) -> RunDir:
        """Makes `root/<time>-<name>`; a second run within the same second gets a number.

        Raises MeasurementError if the disk cannot be written."""
        stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{slug(name)}"
        try:
            root.mkdir(parents=True, exist_ok=True)
            run = cls(_fresh_directory(root, stem))
            run.trials.mkdir()
            write_atomically(run.host, json.dumps(host, indent=2))
            write_atomically(run.experiment, experiment_yaml)
        except OSError as error:
            raise MeasurementError(
                f"cannot begin a run in {root}: {error.strerror or error}: choose another folder with --runs"
            ) from error
        return run

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """Opens a run directory. Raises UsageError if it is none."""
        run = cls(path)
        if not os.path.isfile(run.experiment):  # noqa: PTH113 - says False of a folder that is closed to us
            raise UsageError(f"{path} is no run directory: it has no experiment.yaml; runs lie under runs/ by default")
        return run

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the run: while the block lasts, no other process enters such a block for it; a kill releases the lock.

        Raises UsageError if another process holds the lock, MeasurementError if the disk cannot be written."""
        with writing(self.path):
            file = (self.path / ".lock").open("a")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"another powerband is running {self.path}: wait until it has ended, or stop it first"
                ) from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
            yield

    def append_plan(self, spec: TrialSpec, planned_total: int | None = None) -> None:
        """Adds one trial to the plan, flushed before the trial starts. `planned_total`: maximum number of trials in the
        run as known now, for viewers."""
        known = {} if planned_total is None else {"planned_total": planned_total}
        with writing(self.path), self.plan.open("a", encoding="utf-8") as file:
            file.write(json.dumps(spec.to_json() | known) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def planned(self) -> list[TrialSpec]:
        return [TrialSpec.from_json(line) for line in read_json_lines(self.plan)]

    def trial(self, number: int) -> TrialDir:
        return TrialDir(self.trials / f"{number:04d}")

    def records(self) -> list[TrialRecord]:
        """The recorded trials, by number."""
        directories = sorted(self.trials.iterdir()) if self.trials.is_dir() else []
        return [TrialDir(path).read_record() for path in directories if (path / "record.json").is_file()]


def snapshot_file(folder: Path, when: str, pid: int) -> Path:
    """The histogram of one JVM `before` or `after` the measured window."""
    return folder / f"{when}-{pid}.txt"


def slug(name: str) -> str:
    """A safe file name: lower-case letters, digits and single hyphens; at most 40 characters."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"


def write_atomically(path: Path, text: str) -> None:
    """Writes a file so that it has either its old content or the whole new one, even after a power cut. Raises
    OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Every complete line; a last line that was cut off by a kill is omitted."""
    if not path.is_file():
        return
    number = 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            number += 1
            if not line.endswith("\n"):
                continue
            try:
                yield json.loads(line)
            except ValueError as error:
                raise MeasurementError(
                    f"{path}, line {number}, is damaged ({error}): restore the file from a copy; without one, this run "
                    "cannot be read, so start a new one"
                ) from None


def disk_error(path: Path, error: OSError) -> MeasurementError:
    """The error for a disk that cannot be written; `path` may be anywhere in a run directory, or in none."""
    run = next((folder for folder in (path, *path.parents) if (folder / "experiment.yaml").is_file()), None)
    advice = (
        "free some space, or set TMPDIR to a folder with room"
        if run is None
        else f"trials finished so far are kept; free some space, then `powerband resume {run}`"
    )
    return MeasurementError(f"cannot write to {path}: {error.strerror or error}: {advice}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises MeasurementError for a disk that cannot be written."""
    try:
        yield
    except OSError as error:
        raise disk_error(path, error) from error


def _fresh_directory(root: Path, stem: str) -> Path:
    for number in range(1, 1000):
        path = root / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            continue
    raise UsageError(f"{root} holds a thousand runs named {stem}")
