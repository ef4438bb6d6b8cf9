"""Builds a `ReportPage` from a run directory and its Analysis. This module reads the files; `tracks.py` makes series
and histograms.

Nothing is judged or drawn here. If a file is missing or cut short, its part of the page stays empty."""

from __future__ import annotations

import shlex
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from powerband.base.errors import PowerbandError
from powerband.base.yaml_document import parse_yaml
from powerband.files.checks.secret_checks import check_hidden
from powerband.files.experiment_file import load_experiment
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import Experiment
from powerband.model.host_facts import host_fact
from powerband.model.results import Analysis
from powerband.model.secrets import HIDDEN, text_without_secrets, without_secrets
from powerband.report.html.bar_section import bars_views
from powerband.report.html.inside import inside_views
from powerband.report.html.page import Facts, ReportPage
from powerband.report.html.tracks import distributions, trial_views
from powerband.report.wording.numbers import format_number
from powerband.store import NOT_AS_WRITTEN, DamagedError, RunDir, TrialRecord, read_host

T = TypeVar("T")


def gather(run: RunDir, analysis: Analysis) -> ReportPage:
    """Reads what the page shows beside the analysis. Files that are missing or damaged leave their parts empty."""
    host = read_host(run.host)
    damaged = {trial.number for trial in analysis.trials if trial.damaged}
    records = [record for record in run.records() if record.spec.number not in damaged]
    experiment = _experiment_of(run)
    shown = _shown_yaml(run, experiment)
    return ReportPage(
        analysis=analysis,
        run=str(run.path),
        # The resolved experiment holds the seed and every default, so that it needs nothing else.
        command=f"powerband run {shlex.quote(str(run.experiment))}",
        experiment_yaml=shown,
        hidden=_hidden_keys(shown),
        when=_when(records, host),
        facts=tuple(
            facts
            for facts in (
                _host_facts(host),
                _pinning(records),
                runtime_facts(analysis),
                _own_share(analysis),
                _started(run, host),
            )
            if facts.rows
        ),
        distributions=distributions(analysis, records),
        trials=trial_views(run, analysis, records, experiment),
        inside=_unless_odd(lambda: inside_views(run, analysis, records, experiment)),
        bars=_unless_odd(
            lambda: bars_views(run, analysis, records, None if experiment is None else experiment.measure)
        ),
    )


def _unless_odd(views: Callable[[], tuple[T, ...]]) -> tuple[T, ...] | None:
    """The views; None if a trial's files are not as they were written."""
    try:
        return views()
    except (DamagedError, *NOT_AS_WRITTEN):
        return None


def _own_share(analysis: Analysis) -> Facts:
    """powerband's own CPU use, so that a reader can judge how much it disturbed the run."""
    rows = []
    for metric, name in (("bench_cpu_cores", "control plane and monitors"), ("engine_cpu_cores", "load generator")):
        values = [trial.metrics[metric] for trial in analysis.trials if trial.valid and metric in trial.metrics]
        if values:
            rows.append((name, f"{100 * statistics.median(values):.1f} % of a CPU, at most {100 * max(values):.1f} %"))
    return Facts("What powerband used itself", tuple(rows))


def _experiment_of(run: RunDir) -> Experiment | None:
    """The experiment; None if its file can no longer be read."""
    try:
        return load_experiment(run.experiment)
    except PowerbandError:
        return None


def _shown_yaml(run: RunDir, experiment: Experiment | None) -> str:
    """The text of experiment.yaml, without secrets."""
    text = run.experiment.read_text(encoding="utf-8")
    if experiment is None:
        return text_without_secrets(text)
    shown = without_secrets(experiment)
    return text if shown == experiment else resolved_yaml(shown)


def _hidden_keys(text: str) -> tuple[str, ...]:
    """The keys of the secrets that the text of an experiment hides; none if it is no YAML."""
    if HIDDEN not in text:
        return ()
    try:
        return tuple(problem.key for problem in check_hidden(parse_yaml(text, "experiment.yaml", [])))
    except PowerbandError:
        return ()


def _started(run: RunDir, host: Mapping[str, Any]) -> Facts:
    command = host.get("command")
    typed = shlex.join(map(str, command)) if isinstance(command, list) and command else ""
    versions = host.get("versions")
    found = versions.items() if isinstance(versions, Mapping) else ()
    rows = [(str(name), str(value)) for name, value in found if value]
    seeds = sorted({spec.seed for spec in run.planned().values()})
    shown = ", ".join(map(str, seeds[:4])) + (f" and {len(seeds) - 4} more" if len(seeds) > 4 else "")
    rows += [("seeds of the load", shown)] if seeds else []
    rows += [("started as", typed)] if typed else []
    return Facts("Versions and seeds", tuple(rows))


def _when(records: list[TrialRecord], host: Mapping[str, Any]) -> str:
    """Returns when the run began, by the clock of the machine that controlled it, since a node's clock may be wrong."""
    here = [record.wall_ns / 1e9 for record in records if not record.node]
    began_s = min(here) if here else host_fact(host, "began")
    if not records or not isinstance(began_s, int | float):
        return ""
    return time.strftime("%-d %B %Y, %H:%M UTC", time.gmtime(began_s))


def _pinning(records: list[TrialRecord]) -> Facts:
    """The CPUs of each part; one row per part, with every set of CPUs that occurred."""
    seen: dict[str, list[str]] = {}
    for record in records:
        for part, cpus in record.cpus.items():
            text = ", ".join(map(str, cpus)) or "any"
            if text not in seen.setdefault(part, []):
                seen[part].append(text)
    return Facts("CPUs used", tuple((_PARTS.get(part, part), "; ".join(texts)) for part, texts in seen.items()))


_PARTS = {"subject": "server", "engine": "load generator", "probe": "monitor"}


def runtime_facts(analysis: Analysis) -> Facts:
    """The number of CPUs that the server's runtimes assume; settings with the same view in one row."""
    seen: dict[tuple[str, str], list[str]] = {}
    for trial in analysis.trials:
        for view in trial.runtimes:
            how = {"asked": "as it says", "read": "in its memory", "set": "as set"}.get(view.source, "as documented")
            rest = "".join(f", {name} {value}" for name, value in view.chosen.items() if name != "collector")
            settings = seen.setdefault((view.runtime, f"{view.says}{rest} ({how}); may use {view.usable:.3g}"), [])
            if trial.setting.id not in settings:
                settings.append(trial.setting.id)
    all_of_them = len({trial.setting.id for trial in analysis.trials if trial.runtimes})
    rows = [
        (runtime, text if len(settings) == all_of_them else f"{text}: {', '.join(settings)}")
        for (runtime, text), settings in seen.items()
    ]
    return Facts("CPUs as the server's runtimes count them", tuple(rows))


_HOST_ROWS = (
    *("CPU", "CPUs allowed", "CPU governor", "memory", "system", "kernel", "machine", "virtualisation", "container"),
    *("clock", "descriptors", "accept queue limit", "load average at the start"),
)


def _host_facts(host: Mapping[str, Any]) -> Facts:
    facts = [(name, host_fact(host, name)) for name in _HOST_ROWS]
    return Facts("Host", tuple((name, _text(name, value)) for name, value in facts if value not in (None, [], "")))


def _text(name: str, value: Any) -> str:
    if name == "memory" and isinstance(value, int | float):
        return format_number(float(value), "bytes")
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
