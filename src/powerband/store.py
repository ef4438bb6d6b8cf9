"""The run directory: the only data shared by running and analysing. Written here, read here; nothing is computed.

  runs/<time>-<name>/  experiment.yaml  host.json  plan.jsonl
   trials/0001/       spec.json subject.json events.jsonl probe.jsonl subject.log record.json
   analysis.json report.html                                      derived

A trial without `record.json` does not exist: `record.json` is written last and atomically, once all other files of the
trial are on the disk, and holds their sizes. A trial with a file that is missing or shorter is damaged and does not
count. Nobody but the owner can read a run directory.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import IO, Any

from powerband.base.errors import MeasurementError, UsageError
from powerband.base.procfs import process_stat
from powerband.model.plan import TrialSpec
from powerband.wire.dotnet_events import dotnet_events
from powerband.wire.load_events import Summary

RECORD_FORMAT = 1
_FIRST_ADDED_LATER = "cpu_quota"  # this field of a record and those below it are missing from older ones
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # what a file system says that has none
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)  # it syncs files alone, or the folder may not be read
_CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)
_CURES = {errno.EMFILE: "raise the limit of open files (ulimit -n)", errno.ENFILE: "raise fs.file-max"}

NOT_AS_WRITTEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors raised while reading a file that is valid JSON, but not what this version writes."""


class DamagedError(UsageError):
    """A file of a run is not as it was written: torn, empty, missing or altered."""


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
        except NOT_AS_WRITTEN:
            return None


@dataclass(frozen=True)
class TrialRecord:
    """Raw facts of one trial, without judgement, which is left to the analysis.

    `phases`: monotonic ns of launched, ready, go, measure, drain, end (the engines' last event) and stopped (the server
    has ended), as far as they were reached. `engines`: one `summary` event per engine process (see
    protocol/load-event.schema.json). `subject`: the probe's `launched`, `exited` and `end` events merged, as far as
    they arrived. `cpus`: CPU lists of server, engine and probe (empty: any), and of
    the `machine`: all that powerband may use. `cpu_quota`: CPUs that a cgroup allows all of them
    together; None: no quota, or unknown. `control_cpu_ns`: CPU of the control plane from go to end. `thread_names`: a
    JVM's full thread names by thread id. `last_words`: numbers by name, from the log line that `subject.last_words`
    matches. `acknowledged`, `visits`, `no_visitor`, `snapshots`: records of the instruments in `trials/instruments/`.
    `link`: the link between two network namespaces and its traffic; empty without one. `slots`: the engines'
    summaries of one user alone and of twice the users after the load, or why there are none; empty where none was due.
    `jmeter`: the JMeter driver's record of its JVM. `live_heap`: bytes that a full collection left after the load, by
    the pid of a JVM. `runtimes`: the fields of a `RuntimeView` each. `go_collected`: the fields of a `GoCollected`
    by the pid of a Go program that collected during the load, None where they cannot be known. `no_dotnet_figures`:
    why a .NET server gave none; empty where it did, and of any other. `neighbours`: CPUs that other programs used
    while the load ran, by name, those that used most. `memory_kills`: processes of the server that the kernel killed
    at its memory limit (`host.memory_limit`); None: there is none. `node`: of several, the one that ran the trial;
    empty: this machine. `generators`: the fields of a `GeneratorNode` for each other node that loaded the server,
    whose instants are given by the clock of `node`; empty: the load came from the server's machine.
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
    slots: Mapping[str, Any] = field(default_factory=dict)
    live_heap: Mapping[str, int] = field(default_factory=dict)
    runtimes: tuple[Mapping[str, Any], ...] = ()
    go_collected: Mapping[str, Mapping[str, float] | None] = field(default_factory=dict)
    no_dotnet_figures: str = ""
    neighbours: Mapping[str, float] = field(default_factory=dict)
    memory_kills: int | None = None
    node: str = ""
    generators: tuple[Mapping[str, Any], ...] = ()

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
        self.apply_log = path / "apply.log"  # what the command said that changed a deployed subject's setting
        self.engine_log = path / "engine.log"  # what engine and probe said on stderr; removed where that is nothing
        self.samples = path / "samples.jtl"  # of a JMeter plan: its results
        self.jmeter_log = path / "jmeter.log"  # what JMeter logged
        self.jmeter_output = path / "jmeter.out"  # what it printed
        self.visitor_log = path / "visitor.log"  # of a visitor's browser: what it said, and its page
        self.dotnet = path / "dotnet"  # of the startup hook in .NET processes: a file for each, by pid
        self.snapshots = path / "snapshots"  # class histograms of JVMs: `snapshot_file`
        self.record = path / "record.json"

    def begin(self, spec: TrialSpec) -> None:
        """Makes the directory with its `spec.json`; files of an earlier, killed attempt are removed.

        Raises MeasurementError if the disk cannot be written."""
        with writing(self.path):
            if self.path.exists():
                shutil.rmtree(self.path)
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700)
            write_atomically(self.spec, json.dumps(spec.to_json()))

    def write_address(self, address: SubjectAddress) -> None:
        """Writes the address before the server is launched, and therefore without waiting for fsync. Raises
        MeasurementError if the disk cannot be written."""
        with writing(self.subject), open_private(self.subject, "w") as file:
            file.write(json.dumps(vars(address)))

    def write_record(self, record: TrialRecord) -> None:
        """Writes the record with the sizes of all other files, which are synced first: from now on the trial exists.
        Raises MeasurementError if the disk cannot be written."""
        with writing(self.path):
            paths = [path for path in self._files() if path != self.record]
            files = {str(path.relative_to(self.path)): _kept(path) for path in paths}
            for folder in {self.path.parent, self.path, *(path.parent for path in paths)}:
                _sync_folder(folder)
            write_atomically(self.record, json.dumps({**record.to_json(), "files": files}))

    def read_record(self) -> TrialRecord:
        """Reads the record. Raises UsageError if another version wrote it, DamagedError if it is damaged, or if another
        file of the trial is missing or shorter than it was (older records hold no sizes)."""
        try:
            data = json.loads(self.record.read_text(encoding="utf-8"))
            record = TrialRecord.from_json(data)
            self._check(data.get("files", {}))
        except DamagedError:
            raise
        except UsageError as error:
            raise UsageError(f"cannot read {self.record}: {error}") from None
        except FileNotFoundError:
            raise DamagedError(f"{self.record} is missing") from None
        except NOT_AS_WRITTEN as error:
            raise DamagedError(f"{self.record} is damaged ({type(error).__name__}: {error})") from error
        return record

    def _files(self) -> list[Path]:
        """All files of the trial that stay; not what a browser may have left."""
        patterns = ("*", f"{self.snapshots.name}/*", f"{self.dotnet.name}/*")
        paths = [path for pattern in patterns for path in sorted(self.path.glob(pattern))]
        return [path for path in paths if path.is_file() and not path.is_symlink()]

    def _check(self, sizes: Mapping[str, int]) -> None:
        for name, size in sizes.items():
            path = self.path / name
            found = path.stat().st_size if path.is_file() else None
            if found is None:
                raise DamagedError(f"{path} is missing")
            if found < size:
                raise DamagedError(f"{path} is cut short: it has {found} of {size} bytes")

    def read_events(self) -> Iterator[Any]:
        """Events of engines; `wire/load_events.py` has the types of those that are read."""
        return read_json_lines(self.events)

    def read_probe(self) -> Iterator[Any]:
        """Events of the probe, as in `wire/probe_events.py`, and after them those of .NET processes."""
        yield from read_json_lines(self.probe)
        yield from dotnet_events(self.dotnet)

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
        self.turns = path / "turns.jsonl"  # of a run on several nodes: the calls of its planner, in their order
        self.nodes = path / "nodes.json"  # of such a run: the facts of `host.json` for each node
        self.nodes_now = path / "nodes_now.json"  # while it goes on: what each node does
        self.trials = path / "trials"
        self.analysis = path / "analysis.json"
        self.seen = path / "seen.json"  # results that a planner decided on, of trials that were measured again
        self.left = path / "left.json"  # the setting that a deployed server was left at
        self.restore_log = path / "restore.log"  # what the command said that set it
        self.report = path / "report.html"

    @classmethod
    def create(cls, root: Path, name: str, experiment_yaml: str, host: Mapping[str, Any]) -> RunDir:
        """Makes `root/<time>-<name>`; a second run within the same second gets a number.

        Raises MeasurementError if the disk cannot be written."""
        stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{slug(name)}"
        try:
            root.mkdir(parents=True, exist_ok=True)
            run = cls(_fresh_directory(root, stem))
            run.trials.mkdir(mode=0o700)
            write_atomically(run.host, json.dumps(host, indent=2))
            write_atomically(run.experiment, experiment_yaml)
            _sync_folder(root)
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
        On a file system without locks that holds for processes of this machine, which write themselves into the file.

        Raises UsageError if another process holds the lock, MeasurementError if the disk cannot be written."""
        with writing(self.path):
            file = open_private(self.path / ".lock", "a+")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = False
            except OSError as error:
                if error.errno not in (*_NO_LOCKS, errno.EWOULDBLOCK):
                    raise disk_error(self.path, error) from error
                file.seek(0)
                held = error.errno == errno.EWOULDBLOCK or is_alive(file.read())
                if not held:
                    file.truncate(0)
                    file.write(name_alive(os.getpid()))
                    file.flush()
            if held:
                raise UsageError(f"another powerband is running {self.path}: wait until it has ended, or stop it first")
            try:
                yield
            finally:
                file.truncate(0)

    def append_plan(self, spec: TrialSpec, planned_total: int | None = None, left_s: float | None = None) -> None:
        """Adds one trial to the plan, flushed before the trial starts. `planned_total`: maximum number of trials in the
        run as known now, `left_s`: what it is likely to take with this trial, both for viewers."""
        known: dict[str, float] = {} if planned_total is None else {"planned_total": planned_total}
        known |= {} if left_s is None else {"left_s": round(left_s, 1)}
        with writing(self.path):
            with open_private(self.plan, "a") as file:
                file.write(json.dumps(spec.to_json() | known) + "\n")
                file.flush()
                os.fsync(file.fileno())
            _sync_folder(self.path)

    def planned(self) -> dict[int, TrialSpec]:
        """The trials of the plan by number, without damaged lines. Of two lines with one number the later counts."""
        found = {}
        for line in read_json_lines(self.plan, damaged=lambda error: None):
            with suppress(*NOT_AS_WRITTEN):
                spec = TrialSpec.from_json(line)
                found[spec.number] = spec
        return found

    def trial(self, number: int) -> TrialDir:
        return TrialDir(self.trials / f"{number:04d}")

    def records(self) -> list[TrialRecord]:
        """The recorded trials that are not damaged, by number."""
        return self.records_and_damage()[0]

    def records_and_damage(self) -> tuple[list[TrialRecord], dict[int, str]]:
        """The recorded trials that are not damaged, by number; and what is wrong with each trial that is damaged, or
        that lost its record though a later trial has one."""
        directories = sorted(self.trials.iterdir()) if self.trials.is_dir() else []
        names = [path.name for path in directories if (path / "record.json").is_file()]
        numbers = [int(name) for name in names if re.fullmatch("[0-9]{4,7}", name)]
        records, damage = [], {}
        for number in range(1, max(numbers, default=0) + 1):
            try:
                record = self.trial(number).read_record()
                if record.spec.number != number:
                    raise DamagedError(f"{self.trial(number).record} is the record of trial {record.spec.number}")
                records.append(record)
            except DamagedError as error:
                damage[number] = str(error)
        return records, damage


def is_alive(owner: str) -> bool:
    """True if a lock file names its owner, and that process of this machine is alive."""
    try:
        return owner == name_alive(int(owner.split()[1]))
    except (OSError, ValueError, IndexError):
        return False


def name_alive(pid: int) -> str:
    """A name for a living process that no other ever has: the machine's start, its pid, its own start."""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {pid} {process_stat(pid).started}"


def snapshot_file(folder: Path, when: str, pid: int) -> Path:
    """The histogram of one JVM `before` or `after` the measured window."""
    return folder / f"{when}-{pid}.txt"


def slug(name: str) -> str:
    """A safe file name: lower-case letters, digits and single hyphens; at most 40 characters."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"


def open_private(path: Path, mode: str) -> IO[Any]:
    """Opens a file for writing that nobody else may read; texts are UTF-8. Raises OSError."""
    encoding = None if "b" in mode else "utf-8"
    return open(path, mode, encoding=encoding, opener=partial(os.open, mode=0o600))


def write_atomically(path: Path, text: str, *, private: bool = True) -> None:
    """Writes a file so that it has either its old content or the whole new one, even after a power cut. `private`:
    nobody else may read it. Raises OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open_private(temporary, "w") if private else temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):  # a full disk needs its room
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _kept(path: Path) -> int:
    """Syncs a file that any process may have written, closes it to all but its owner, and returns its size."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        with suppress(OSError):  # another user's file, or a file system without modes
            os.fchmod(file.fileno(), 0o600)
        return os.fstat(file.fileno()).st_size


def _sync_folder(path: Path) -> None:
    """Syncs the names in a folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def read_json_lines(path: Path, damaged: Callable[[DamagedError], None] | None = None) -> Iterator[dict[str, Any]]:
    """Every complete line; a last line that was cut off by a kill is omitted. A line that is no JSON is omitted and
    handed to `damaged`; without it, DamagedError is raised."""
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
            except (ValueError, RecursionError) as error:
                found = DamagedError(f"{path}, line {number}, is damaged ({error})")
                if damaged is None:
                    raise found from None
                damaged(found)


def disk_error(path: Path, error: OSError) -> MeasurementError:
    """The error for a disk that cannot be written; `path` may be anywhere in a run directory, or in none."""
    run = next((folder for folder in (path, *path.parents) if (folder / "experiment.yaml").is_file()), None)
    cure = "make it writable" if error.errno in _CLOSED else _CURES.get(error.errno or 0, "free some space")
    advice = (
        f"{cure}, or set TMPDIR to a folder with room"
        if run is None
        else f"trials finished so far are kept; {cure}, then `powerband resume {run}`"
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
            path.mkdir(mode=0o700)
            return path
        except FileExistsError:
            continue
    raise UsageError(f"{root} holds a thousand runs named {stem}")


def read_host(path: Path) -> Mapping[str, Any]:
    """The contents of host.json; empty if it is missing or no JSON object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def read_nodes(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, float]]]:
    """Facts and costs of each node by its name, from nodes.json; what is missing or of another form is left out."""
    told = read_host(path)  # in the same form

    def part(name: str) -> dict[str, dict[str, Any]]:
        found = told.get(name)
        return {key: each for key, each in found.items() if isinstance(each, dict)} if isinstance(found, dict) else {}

    costs = {
        node: {name: value for name, value in cost.items() if type(value) in (int, float)}
        for node, cost in part("overhead").items()
    }
    return part("nodes"), costs
