"""The commands as functions: run, tune, resume, read, compare. In: arguments. Out: a `Run` or a `Comparison`.

They raise powerband's own errors, with the sentences of the command line. The first Ctrl-C (in a notebook: interrupt)
drains and saves, the second quits at once; either raises UserInterruptError and leaves no process behind. Outside the
main thread, signals are ignored."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypedDict, Unpack

from powerband.analyze.runs.changes import RunComparison
from powerband.analyze.runs.revisions import compare_revisions
from powerband.analyze.runs.two_runs import ComparedRun, compare_two
from powerband.analyze.runs.unpaired import changed_facts
from powerband.api.run_results import Comparison, Run
from powerband.base.errors import UsageError, UserInterruptError, did_you_mean
from powerband.files.experiment_file import experiment_of, load_experiment, parse_experiment
from powerband.files.resolved import resolved_yaml
from powerband.files.tune_options import tuning
from powerband.model.experiment import Experiment
from powerband.model.plan import Level, format_level
from powerband.model.results import Analysis
from powerband.model.secrets import command_without_secrets
from powerband.processes import deployed_subject, engine_fleet, host
from powerband.processes.stop_request import StopRequest
from powerband.report.html.report import write_report
from powerband.report.terminal.progress import LiveView
from powerband.search import session
from powerband.search.earlier import earlier_runs
from powerband.search.observer import Observer
from powerband.store import RunDir, read_host
from powerband.trials.bench import Opener

Levels = str | Level | Iterable[Level]
# In host.json: the digests of experiment.yaml and of a JMeter plan as the run was begun.
_DIGEST = "experiment_sha256"
_PLAN_DIGEST = "plan_sha256"


class TuneOptions(TypedDict, total=False):
    """The options of `powerband tune`, with `_` for `-` in their names; docs/reference/options.md explains them. None
    keeps the default. Texts are written as on the command line: times `10s`, rates `500/s`, shares `5%` (or 0.05).

    Run: `name`; `seed` of all random choices; `profile`: `quick`, `normal` or `thorough`; `budget`: time for the whole
    run; `order`: `race` or `blocks`; `repeats`: most rounds; `confirm`: most fresh starts of the winner; `regret`: the
    race ends once no other setting can be better by more; `soak`: time of a last long trial of the answer's setting;
    `cluster`: the address of a Ray cluster, and `generators` of its nodes load each server.

    Load: `url` of the server; `users` that wait for their answers, or `rate` of `arrivals` (`poisson`, `constant`) per
    second; `think`: a user's pause; `ramp`: the time in which users or rate rise, or `join`: users that begin per
    second; `pace`: the time between a WebSocket user's messages; `pipeline`: requests in flight on a connection;
    `timeout` of a request; `duration` and `warmup` of a trial; `allow_hosts`: hosts that may be loaded besides this
    one.

    Request: `method`, `headers` by name, `body`, or the `message` of a WebSocket user; `expect`: texts that each answer
    must contain; `ca_file`: a PEM file of trusted roots; `insecure`: any certificate is accepted.

    Verdict: `objective`: the metric that decides, or `maximise` or `minimise` one; `slo`: conditions that must hold;
    differences below `margin` count as none; `confidence` of all intervals; `allow_unserved`: the share of users that
    may get no answer; `allow_failed_starts`: the share of starts that may fail.

    Server: `env`: variables by name, None for your own value; `cwd`: where it is started; `cpus`, `cpu_quota`,
    `memory_limit`: what it may use; `ready_http`, `ready_log`, `ready_timeout`: the path or line that shows that it is
    ready, and how long that may take; `stop_signal`, and `stop_grace`: the time until it is killed; `counts`: the
    counter of a program without requests; `metrics_url`: its Prometheus page. A server that runs already: `apply`:
    requests, or `apply_command`: a command, that change its setting; `restore`: the values that it gets back; `pid`:
    its process, to be watched."""

    name: str | None
    url: str | None
    users: int | None
    rate: float | str | None
    arrivals: str | None
    think: str | Mapping[str, str] | None
    ramp: str | None
    join: float | str | None
    pace: str | Mapping[str, str] | None
    pipeline: int | None
    timeout: str | None
    method: str | None
    headers: Mapping[str, str] | None
    body: str | None
    message: str | None
    expect: str | Sequence[str] | None
    ca_file: str | None
    insecure: bool | None
    allow_hosts: str | Sequence[str] | None
    slo: str | Sequence[str] | None
    objective: str | None
    maximise: str | None
    minimise: str | None
    profile: str | None
    duration: str | None
    warmup: str | None
    repeats: int | None
    budget: str | None
    order: str | None
    confirm: int | None
    regret: float | str | None
    soak: str | None
    margin: float | str | None
    cluster: str | None
    generators: int | None
    confidence: float | str | None
    allow_unserved: float | str | None
    allow_failed_starts: float | str | None
    ready_http: str | None
    ready_log: str | None
    ready_timeout: str | None
    stop_signal: str | None
    stop_grace: str | None
    env: Mapping[str, str | None] | None
    cpus: int | str | None
    cpu_quota: float | str | None
    memory_limit: str | None
    cwd: str | None
    seed: int | None
    counts: str | None
    metrics_url: str | None
    apply: str | Sequence[str] | None
    apply_command: str | None
    restore: Mapping[str, Level] | None
    pid: int | None


def read(directory: str | Path) -> Run:
    """Reads a run directory and analyses it anew from its raw files; nothing is started or written. Raises UsageError
    if it is no run directory, or if another version of powerband wrote it."""
    run = RunDir.open(Path(directory))
    experiment = load_experiment(run.experiment)
    return Run(run, experiment, session.analyse_run(experiment, run))


def run(
    experiment: str | Path | Mapping[str, Any] | Experiment,
    *,
    profile: str | None = None,
    set: Mapping[str, Any] | None = None,  # noqa: A002 - the command line's name
    seed: int | None = None,
    runs: str | Path = "runs",
    progress: bool = True,
) -> Run:
    """Runs an experiment like `powerband run`, and returns it with its answer.

    `experiment`: a file, the name of one that comes with powerband, or the content of a file: YAML text, a mapping, or
    an `Experiment`. `set`: keys to override, `{"load.users": 8, "factors.threads": [1, 2]}`. `runs`: the folder in
    which the run directory is made. `progress`: lines on stderr during the run; on a terminal a table."""
    overrides = {
        key: value if isinstance(value, str) else json.dumps(_plain(value)) for key, value in (set or {}).items()
    }
    if seed is not None:
        overrides["design.seed"] = str(seed)
    return _measured(_experiment(experiment, profile, overrides), runs, progress=progress)


def tune(
    command: str | Sequence[str] | None,
    parameters: Mapping[str, Levels],
    *,
    runs: str | Path = "runs",
    progress: bool = True,
    **options: Unpack[TuneOptions],
) -> Run:
    """Finds the best setting of a server, like `powerband tune`.

    `command`: starts the server, without a shell; in it, `{port}` is a free port, and `{NAME}` the value of the
    parameter of this name. None: the server of `url` runs already, and `apply` or `apply_command` change its setting.
    `parameters`: the values of each, `{"threads": "1..64", "mode": ["sync", "async"]}`; a text is read like the
    argument of `-P`. `options`: those of the command line, as named in `TuneOptions`."""
    return _measured(_tuned(command, parameters, options), runs, progress=progress)


def resume(directory: str | Path, *, cluster: str | None = None, progress: bool = True) -> Run:
    """Continues a run that was interrupted or killed, and returns it; finished trials are kept. `cluster`: the address
    of another cluster, on which it continues."""
    run_directory = RunDir.open(Path(directory))
    experiment = on_cluster(load_experiment(run_directory.experiment), run_directory, cluster)
    return _go_on(experiment, run_directory, progress=progress)


def on_cluster(experiment: Experiment, run: RunDir, address: str | None) -> Experiment:
    """The experiment of a run that is resumed on all nodes of the cluster at `address`; None: on the cluster, or the
    machine, that the experiment says. The file in the run directory stays as it is. Raises UsageError for a run that
    was begun on one machine, and for an invalid address."""
    if address is None:
        return experiment
    if (cluster := experiment.cluster) is None:
        raise UsageError(
            f"--cluster {address}: {run.path} was begun on one machine, and goes on there; a new run may use a cluster"
        )
    if address == "none":
        raise UsageError(
            f"--cluster none: {run.path} was begun on a cluster, and goes on on one. `ray start --head` makes one of "
            "this machine alone, on which --cluster auto goes on (docs/cluster.md)"
        )
    if not address or any(map(str.isspace, address)):
        raise UsageError(f"--cluster {address!r}: write auto, or the host and port of a cluster's head (host:6379)")
    return experiment.model_copy(update={"cluster": cluster.model_copy(update={"address": address, "nodes": ()})})


def compare(
    first: Run | str | Path,
    second: Run | str | Path,
    command: str | Sequence[str] | None = None,
    parameters: Mapping[str, Levels] | None = None,
    *,
    runs: str | Path = "runs",
    progress: bool = True,
    **options: Unpack[TuneOptions],
) -> Comparison:
    """Compares two runs, or with a `command` two revisions of a server. The revisions are OLD and NEW, inserted for
    `{revision}`; they are measured now, in the same blocks, with the options of `tune`. Raises UsageError for runs that
    cannot be compared."""
    named = _named(options)
    if command is None and not {"apply", "apply_command"} & named.keys():
        if parameters or named:
            given = ", ".join([*(["parameters"] if parameters else []), *named])
            raise UsageError(f"{given} is for two revisions of a server, whose command is missing")
        made = [each if isinstance(each, Run) else read(each) for each in (first, second)]
        return Comparison(compare_two_runs(*made))
    revisions = (str(first), str(second))
    measured = _measured(_tuned(command, parameters or {}, options, revisions), runs, progress=progress)
    return Comparison(compare_revisions(measured.experiment, measured.analysis), measured)


def compare_two_runs(first: Run, second: Run) -> RunComparison:
    """Compares two runs, with the earlier runs beside the first to show how much runs differ on that machine. Raises
    UsageError for runs that cannot be compared."""
    compared = _with_host(first)
    return compare_two(compared, _with_host(second), earlier_runs(compared, first.path, second.path))


def _with_host(run: Run) -> ComparedRun:
    return ComparedRun(str(run.path), run.experiment, run.analysis, read_host(run.directory.host))


def _measured(experiment: Experiment, runs: str | Path, *, progress: bool) -> Run:
    """Runs the experiment in a new run directory. Its host.json names no command, since the command that started Python
    would not repeat the run."""
    return _go_on(*new_run(experiment, Path(runs)), progress=progress)


def new_run(experiment: Experiment, runs: Path, command: Sequence[str] = ()) -> tuple[Experiment, RunDir]:
    """Makes a run directory under `runs`. Returns the experiment as it is kept there, and the directory. `command`: the
    command line that was typed."""
    seeded = deployed_subject.with_process_start(session.with_seed(experiment).started_in(str(Path.cwd())))
    facts = host.host_facts(engine_fleet.find_engine(), command=command_without_secrets(command, seeded))
    text, plan = resolved_yaml(seeded), seeded.load.jmeter
    digests = {_DIGEST: _digest(text.encode())} | ({} if plan is None else {_PLAN_DIGEST: _digest_of(Path(plan))})
    return seeded, RunDir.create(runs, seeded.name, text, {**facts, **digests})


def _go_on(experiment: Experiment, run_directory: RunDir, *, progress: bool) -> Run:
    kept = f"finished trials are kept: powerband.resume({str(run_directory.path)!r}) goes on"
    advice = f"the trial in flight is lost, {kept}"
    with StopRequest.on_signals(advice) as stop:
        analysis = carry_out(experiment, run_directory, stop, progress=progress)
        write_report(run_directory, analysis)
    if stop.cut_short and not analysis.answer.bound_met:
        raise UserInterruptError(f"interrupted; {kept}")
    return Run(run_directory, experiment, analysis)


def carry_out(
    experiment: Experiment,
    run_directory: RunDir,
    stop: StopRequest,
    *,
    progress: bool,
    announce: Callable[[Observer], None] = lambda observer: None,
) -> Analysis:
    """Runs the trials that the run lacks, and returns its analysis. `announce`: called with the observer before the
    first trial."""
    with LiveView() if progress else nullcontext(Observer()) as observer:
        announce(observer)
        resumed = bool(run_directory.planned())
        notes = [*_edits(run_directory, experiment)] if resumed else []
        notes += _machine_changes(run_directory) if resumed and experiment.cluster is None else ()
        bench = _bench_of(experiment, observer.note if resumed else None)
        return session.run_session(experiment, run_directory, observer, stop, bench=bench, notes=notes)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest_of(file: Path) -> str | None:
    """None for a file that cannot be read: whoever needs it says so."""
    try:
        return _digest(file.read_bytes())
    except OSError:
        return None


def _edits(run: RunDir, experiment: Experiment) -> Iterator[str]:
    """Yields a sentence for each file, of the experiment and its JMeter plan, that is not as when the run was begun."""
    begun, plan = read_host(run.host), experiment.load.jmeter
    files = {_DIGEST: run.experiment} | ({} if plan is None else {_PLAN_DIGEST: Path(plan)})
    for name, file in files.items():
        if begun.get(name) not in (None, _digest_of(file)):
            yield (
                f"{file.name} was changed after this run was begun: trials of before and after may have had another "
                "load or another server; if so, begin a new run"
            )


def _machine_changes(run: RunDir) -> Iterator[str]:
    """Yields a sentence for each fact of the machine that is not as when the run was begun."""
    now = host.host_facts(engine_fleet.find_engine(), command=())
    for name, then, is_now in changed_facts(read_host(run.host), now, "commit"):
        yield (
            f"{name} was {then} when this run was begun, and {is_now} when it was resumed: trials of before and after "
            "may differ by it"
        )


def _bench_of(experiment: Experiment, without: Callable[[str], None] | None) -> Opener | None:
    """The function that opens the bench that the experiment asks for; None for this machine. `without`: see
    `joined`."""
    if (cluster := experiment.cluster) is None:
        return None
    from powerband.cluster.joining import joined  # noqa: PLC0415
    from powerband.cluster.nodes_bench import cluster_bench  # noqa: PLC0415 - Ray takes a second to import

    return cluster_bench(lambda: joined(cluster.address, cluster.nodes, without))


def _experiment(
    given: str | Path | Mapping[str, Any] | Experiment, profile: str | None, overrides: Mapping[str, str]
) -> Experiment:
    match given:
        case Experiment():
            if profile is None and not overrides:
                return given
            return parse_experiment(resolved_yaml(given), "experiment", profile, overrides, to_run=True)
        case Mapping():
            return experiment_of(_plain(given), profile, overrides)
        case str() if "\n" in given:
            return parse_experiment(given, "experiment", profile, overrides, to_run=True)
    return load_experiment(given, profile, overrides, to_run=True)


def _tuned(
    command: str | Sequence[str] | None,
    parameters: Mapping[str, Levels],
    options: TuneOptions,
    revisions: tuple[str, str] | None = None,
) -> Experiment:
    given = _named(options)
    if unknown := next((name for name in options if name not in TuneOptions.__annotations__), None):
        raise UsageError(f"there is no option {unknown}; {did_you_mean(unknown, TuneOptions.__annotations__)}")
    objectives = [name for name in ("objective", "maximise", "minimise") if name in given]
    if len(objectives) > 1:
        raise UsageError(f"{objectives[0]} and {objectives[1]} exclude each other")
    texts = {name: _FORMS.get(name, _text)(value) for name, value in given.items()}
    try:
        words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command or ()]
    except ValueError as error:
        raise UsageError(f"the command cannot be read ({error}): close the quotation, or give a list") from None
    levels = [(name, _levels(each)) for name, each in parameters.items()]
    return tuning(words, levels, texts, revisions).experiment()


def _named(options: TuneOptions) -> dict[str, Any]:
    """The options that are given a value."""
    return {name: value for name, value in options.items() if value is not None}


def _text(value: Any) -> str:
    """The value as it would be typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, Mapping) else str(value)


def _levels(levels: Levels) -> str | tuple[Level, ...]:
    """The levels of a parameter: a text, to be read like the argument of `-P`, is unchanged; others become a tuple."""
    if isinstance(levels, str):
        return levels
    return tuple(_plain(list(levels))) if isinstance(levels, Iterable) else (_plain(levels),)


def _listed(value: Any) -> list[str]:
    several = isinstance(value, Iterable) and not isinstance(value, str)
    return [str(each) for each in (value if several else [value])]


# Options that may be given more than once, with functions that turn them into the texts that would be typed.
_FORMS: dict[str, Callable[[Any], list[str]]] = {
    "slo": _listed,
    "expect": _listed,
    "allow_hosts": _listed,
    "apply": _listed,
    "restore": lambda given: [f"{name}={format_level(value)}" for name, value in given.items()],
    "env": lambda given: [name if value is None else f"{name}={value}" for name, value in given.items()],
    "headers": lambda given: [f"{name}: {value}" for name, value in given.items()],
}


def _plain(value: Any) -> Any:
    """The value as a file would hold it, in mappings, lists and scalars; numbers and arrays of numpy and pandas become
    Python's own."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else value
