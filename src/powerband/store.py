"""Writes and reads the run directory, the only data that running and analysing share. Computes nothing.

  runs/<time>-<name>/  experiment.yaml  host.json  plan.jsonl
   trials/0001/       spec.json subject.json events.jsonl probe.jsonl subject.log record.json
   analysis.json report.html                                      derived

A trial exists once it has a `record.json`, which holds the sizes of the trial's other files; it is written last and
atomically, once these are on the disk. A trial is damaged and does not count if one of its files is missing or shorter
than that. Only the owner can read a run directory.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from powerband.base.errors import MeasurementError, UsageError
from powerband.base.procfs import process_stat
from powerband.model.plan import TrialSpec
from powerband.wire.dotnet_events import dotnet_events
from powerband.wire.load_events import Summary

RECORD_FORMAT = 1
_FIRST_ADDED_LATER = "cpu_quota"  # older records lack this field and those below it
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # the errors of a file system without locks
_VIEWED_S_MAX = 5.0  # a viewer holds a lock for microseconds, unless it is stopped in just these
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)  # it only syncs files, or the folder may not be read
_CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)
_IN_THE_WAY = "move away the file that is where a folder must be"
_CURES = {
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise fs.file-max",
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
}

T = TypeVar("T")

NOT_AS_WRITTEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors raised while reading a file that is valid JSON, but not what this version writes."""


class DamagedError(UsageError):
    """A file of a run is not as it was written: torn, empty, missing or altered."""


@dataclass(frozen=True)
class Failure:
    """The reason why a trial could not be measured. `code`: its stable name (`not_ready`, `died`, ...); `message`: a
    sentence for people."""

    code: str
    message: str


@dataclass(frozen=True)
class SubjectAddress:
    """The addresses of a trial's server (`url`) and of its metrics page (`metrics_url`; None: it has none) while it
    runs. Their ports are new in each trial."""

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
    """The raw facts of one trial. Judging them is left to the analysis.

    `spec`: the trial as planned; `failure`: None unless it failed. `wall_ns`, `monotonic_ns`: the instant at which the
    trial began, by the wall clock (since 1970) and by the monotonic clock, which dates all other instants. `phases`:
    monotonic ns of launched, ready, go, measure, drain, end (the engines' last event) and stopped (the server has
    ended), as far as they were reached. `engines`: one `summary` event per engine process (see
    protocol/load-event.schema.json). `subject`: the probe's `launched`, `exited` and `end` events merged, as far as
    they arrived. `cpus`: CPU lists of server, engine and probe (empty: any CPU), and as `machine` all CPUs that
    powerband may use. `cpu_quota`: CPUs that a cgroup allows powerband and all that it starts, which a container may be
    apart from; None: no quota, or unknown. `control_cpu_ns`: CPU time of the control plane from go to end.
    `thread_names`: a JVM's full thread names by thread id. `last_words`: numbers by name, from the log line that
    `subject.last_words` matches. `acknowledged`, `visits`, `no_visitor`, `snapshots`: records of the instruments in
    `trials/instruments/`. `link`: the link between two network namespaces and its traffic; empty without a link.
    `slots`: the engines' summaries with one user and with twice the users after the load, or the reason why there are
    none; empty if none was due. `jmeter`: the JMeter driver's record of its JVM. `live_heap`: by a JVM's pid, the bytes
    left by a full collection after the load. `runtimes`: the fields of each `RuntimeView`. `go_collected`: by the pid
    of a Go program that collected during the load, the fields of its `GoCollected`, or None if they cannot be known.
    `no_dotnet_figures`: the reason why a .NET server gave no figures; empty if it gave some, and for any other server.
    `neighbours`: by name, the CPUs that other programs used while the load ran; only those that used most.
    `memory_kills`: the number of the server's processes that the kernel killed at its memory limit before the load
    ended; None without a limit. `node`: the name of the cluster's node that ran the trial; empty: this machine.
    `generators`: the fields of a `GeneratorNode` for each other node that loaded the server, with instants by the clock
    of `node`; empty: the load came from the server's machine. `repeated_s`: time that earlier measurements of this
    trial took, which do not count since its CPUs were dealt anew.
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
    repeated_s: float = 0.0

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
        """Reads a record; fields that an older record lacks get their defaults. Raises UsageError for a record in
        another format."""
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
    """The directory of one trial and the paths of its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec = path / "spec.json"
        self.subject = path / "subject.json"  # the server's address while it runs: a `SubjectAddress`
        self.events = path / "events.jsonl"  # engine lines, each with an `engine` index added
        self.probe = path / "probe.jsonl"
        self.log = path / "subject.log"
        self.apply_log = path / "apply.log"  # output of the command that changes a deployed server's setting
        self.engine_log = path / "engine.log"  # stderr of engine and probe; removed if it is empty
        self.samples = path / "samples.jtl"  # results of a JMeter plan
        self.jmeter_log = path / "jmeter.log"  # JMeter's own log
        self.jmeter_output = path / "jmeter.out"  # what JMeter printed
        self.visitor_log = path / "visitor.log"  # log of the visitor's browser, with the console of its page
        self.dotnet = path / "dotnet"  # files of the startup hook, one for each .NET process, named by pid
        self.snapshots = path / "snapshots"  # class histograms of JVMs: `snapshot_file`
        self.record = path / "record.json"

    def begin(self, spec: TrialSpec) -> None:
        """Makes the directory with its `spec.json`, and removes the files of an earlier, killed attempt.

        Raises MeasurementError if the disk cannot be written."""
        with writing(self.path):
            if self.path.exists():
                shutil.rmtree(self.path)
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700)
            write_atomically(self.spec, json.dumps(spec.to_json()))

    def write_address(self, address: SubjectAddress) -> None:
        """Writes the address, without fsync, since the launch of the server would have to wait for it. Raises
        MeasurementError if the disk cannot be written."""
        with writing(self.subject), open_private(self.subject, "w") as file:
            file.write(json.dumps(vars(address)))

    def write_record(self, record: TrialRecord) -> None:
        """Syncs all other files, then writes the record with their sizes: from then on the trial exists. Raises
        MeasurementError if the disk cannot be written."""
        with writing(self.path):
            paths = [path for path in self._files() if path != self.record]
            files = {str(path.relative_to(self.path)): _kept(path) for path in paths}
            for folder in {self.path.parent, self.path, *(path.parent for path in paths)}:
                _sync_folder(folder)
            write_atomically(self.record, json.dumps({**record.to_json(), "files": files}))

    def read_record(self) -> TrialRecord:
        """Reads the record. Raises UsageError if another version wrote it, DamagedError if it is damaged, or if another
        file of the trial is missing or shorter than the record says (older records hold no sizes)."""
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
        """All files of the trial, without what a browser may have left."""
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
        """The events of the engines; `wire/load_events.py` has the types of those that are used."""
        return read_json_lines(self.events)

    def read_probe(self) -> Iterator[Any]:
        """The events of the probe (`wire/probe_events.py`), then those of .NET processes (`wire/dotnet_events.py`)."""
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
    """The directory of a run and the paths of its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.experiment = path / "experiment.yaml"
        self.host = path / "host.json"
        self.plan = path / "plan.jsonl"
        self.build_log = path / "build.log"  # output of subject.build, if there is one
        self.turns = path / "turns.jsonl"  # on several nodes: the calls of the planner, in order
        self.nodes = path / "nodes.json"  # on several nodes: the facts of `host.json` for each node
        self.nodes_now = path / "nodes_now.json"  # on several nodes, during the run: what each node does
        self.trials = path / "trials"
        self.analysis = path / "analysis.json"
        self.seen = path / "seen.json"  # for trials that were measured again: the results that the planner decided on
        self.left = path / "left.json"  # the setting that a deployed server was left at
        self.restore_log = path / "restore.log"  # output of the command that restored it
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
        """Opens a run directory. Raises UsageError if the path is not one, or belongs to another user."""
        run = cls(path)
        try:
            is_run = stat.S_ISREG(run.experiment.stat().st_mode)
        except PermissionError:
            raise UsageError(
                f"{path} cannot be read: only the user who made the run may (root, if it was run by sudo): become that "
                f"user, or take it over with `sudo chown -R $USER {path}`"
            ) from None
        except (OSError, ValueError):
            is_run = False
        if not is_run:
            newest = max((each.parent for each in path.parent.glob("*/experiment.yaml")), default=None)
            where = "runs lie under runs/ by default" if newest is None else f"the newest beside it is {newest}"
            raise UsageError(f"{path} is no run directory: it has no experiment.yaml; {where}")
        return run

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the run against other processes while the block lasts; a kill releases the lock. On a file system
        without locks, only processes of this machine exclude each other: each writes its name into the lock file.

        Raises UsageError if another process holds the lock, MeasurementError if the disk cannot be written."""
        with writing(self.path):
            file = open_private(self.path / ".lock", "a+")
        with file:
            try:
                _lock(file)
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
        """Adds one trial to the plan, and syncs it before the trial starts. For viewers: `planned_total`, the maximum
        number of trials in the run as known now, and `left_s`, the time that the run will likely take from this trial
        on."""
        known: dict[str, float] = {} if planned_total is None else {"planned_total": planned_total}
        known |= {} if left_s is None else {"left_s": round(left_s, 1)}
        with writing(self.path):
            with open_private(self.plan, "a") as file:
                file.write(json.dumps(spec.to_json() | known) + "\n")
                file.flush()
                os.fsync(file.fileno())
            _sync_folder(self.path)

    def planned(self) -> dict[int, TrialSpec]:
        """The trials of the plan by number, without damaged lines. If two lines have one number, the later counts."""
        found = {}
        for line in read_json_lines(self.plan, damaged=lambda error: None):
            with suppress(*NOT_AS_WRITTEN):
                spec = TrialSpec.from_json(line)
                found[spec.number] = spec
        return found

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentences about the run that `keep_note` kept in host.json."""
        found = read_host(self.host).get("notes")
        return tuple(map(str, found)) if isinstance(found, list) else ()

    def keep_note(self, text: str) -> None:
        """Keeps a sentence about the run in host.json, once, for the warnings of its analysis. Raises MeasurementError
        if the disk cannot be written."""
        if text not in self.notes:
            with writing(self.path):
                facts = {**read_host(self.host), "notes": [*self.notes, text]}
                write_atomically(self.host, json.dumps(facts, indent=2))

    def trial(self, number: int) -> TrialDir:
        """The directory of the trial of this number, which need not exist."""
        return TrialDir(self.trials / f"{number:04d}")

    def records(self) -> list[TrialRecord]:
        """The recorded trials that are not damaged, in order of their numbers."""
        return self.records_and_damage()[0]

    def records_and_damage(self) -> tuple[list[TrialRecord], dict[int, str]]:
        """The recorded trials that are not damaged, in order of their numbers; and by number what is wrong with each
        damaged trial, and with each that has no record although a later trial has one."""
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


def _lock(file: IO[Any]) -> None:
    """Locks the file for this process alone. A viewer's shared lock, which lasts a moment (`is_held`), is waited for.
    Raises BlockingIOError if another process has the file for itself, OSError where there are no locks."""
    until_s = time.monotonic() + _VIEWED_S_MAX
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # refused, too, if it is no viewer
            fcntl.flock(file, fcntl.LOCK_UN)
            if time.monotonic() > until_s:
                raise
        time.sleep(0.01)


def is_alive(owner: str) -> bool:
    """True if the `owner` that a lock file names is a process of this machine that is alive."""
    try:
        return owner == name_alive(int(owner.split()[1]))
    except (OSError, ValueError, IndexError):
        return False


def name_alive(pid: int) -> str:
    """A name for a living process that no other ever has: the machine's boot id, the pid, and the process's start."""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {pid} {process_stat(pid).started}"


def snapshot_file(folder: Path, when: str, pid: int) -> Path:
    """The file with the class histogram of one JVM `before` or `after` (`when`) the measured window."""
    return folder / f"{when}-{pid}.txt"


def slug(name: str) -> str:
    """A safe file name: lower-case letters, digits and single hyphens; at most 40 characters."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"


def open_private(path: Path, mode: str) -> IO[Any]:
    """Opens a file for writing that only this user may read; texts are UTF-8. Raises OSError."""
    encoding = None if "b" in mode else "utf-8"
    return open(path, mode, encoding=encoding, opener=partial(os.open, mode=0o600))


def write_atomically(path: Path, text: str, *, private: bool = True) -> None:
    """Writes a file so that it has either its old content or the whole new one, even after a power cut. `private`: only
    this user may read it. Raises OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open_private(temporary, "w") if private else temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):  # frees its room on a full disk
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _kept(path: Path) -> int:
    """Syncs a file, whichever process wrote it, makes it readable by its owner only, and returns its size."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        with suppress(OSError):  # another user's file, or a file system without modes
            os.fchmod(file.fileno(), 0o600)
        return os.fstat(file.fileno()).st_size


def _sync_folder(path: Path) -> None:
    """Syncs the entries of a folder."""
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
    """Every complete line of a file of JSON lines; none if there is no such file. A last line that a kill cut off is
    left out. A line that is no JSON is left out and passed to `damaged`; without `damaged`, DamagedError is raised."""
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


def disk_error(path: Path, error: OSError, command: str = "resume") -> MeasurementError:
    """The error for a disk that cannot be written; `path` may be anywhere in a run directory, or outside of one.
    `command`: the one of powerband that goes on from there."""
    run = next((folder for folder in (path, *path.parents) if (folder / "experiment.yaml").is_file()), None)
    if run is None and error.errno == errno.ENOENT:
        gone = "its folder is not there, or was removed meanwhile"
        return MeasurementError(f"cannot write to {path}: {gone} (where it is for temporary files, set TMPDIR)")
    cure = "make it writable" if error.errno in _CLOSED else _CURES.get(error.errno or 0, "free some space")
    advice = (
        f"{cure}, or set TMPDIR to a folder with room"
        if run is None
        else f"trials finished so far are kept; {cure}, then `powerband {command} {run}`"
    )
    return MeasurementError(f"cannot write to {path}: {error.strerror or error}: {advice}")


@contextmanager
def writing(path: Path, command: str = "resume") -> Iterator[None]:
    """Turns an OSError of the block into the MeasurementError for a disk that cannot be written. `command`: see
    `disk_error`."""
    try:
        yield
    except OSError as error:
        raise disk_error(path, error, command) from error


@contextmanager
def temporary(make: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    """Yields a temporary file or folder that `make` makes, by `tempfile`. Raises MeasurementError if the disk refuses
    it."""
    with ExitStack() as stack:
        with writing(Path(os.environ.get("TMPDIR") or "/tmp")):
            made = stack.enter_context(make())
        yield made


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
    """The content of host.json; empty if the file is missing or holds no JSON object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def read_nodes(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, float]]]:
    """The facts and the costs of each node by its name, from nodes.json. Entries of another form are left out."""
    told = read_host(path)  # nodes.json is a JSON object as well

    def part(name: str) -> dict[str, dict[str, Any]]:
        found = told.get(name)
        return {key: each for key, each in found.items() if isinstance(each, dict)} if isinstance(found, dict) else {}

    costs = {
        node: {name: value for name, value in cost.items() if type(value) in (int, float)}
        for node, cost in part("overhead").items()
    }
    return part("nodes"), costs
