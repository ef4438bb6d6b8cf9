"""Shipped experiments in their smoke profile, run as a user runs them, but without looks at slots, which cost seconds
and have tests of their own; a busy machine spoils no trial. So short a run allows these assertions: its exit code
follows from its answer and its claims, and each claim has a verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fakes.disturbance import disturbed_by
from powerband.analyze.trial.faults import STOPPED, UNANSWERED
from powerband.base.errors import ExperimentError
from powerband.files.experiment_file import load_experiment

# Neither a busy machine nor a busy host of it may spoil a test.
CALM = ("--set", "measure.foreign_cpu_max=100%", "--set", "measure.steal_max=100%")
# No looks at slots, which take seconds.
UNLOOKED = ("--set", "measure.slots=false")
# The window is long enough for a rate from a slow server's page, which is read once a second.
LONG = ("--set", "load.duration=8s")
# For tests that ask whether something happens at all, not how often.
SOME = ("--set", "load.duration=5s")
# The largest difference in such a window between the rate on the server's page and the client's own count.
COUNTED_ALIKE = 0.25
# The CPUs that are chosen for a server with expensive requests, after a first trial that is then discarded.
ALL_CPUS = ("--set", "host.cpus=all")
# Problems of an engine that other programs kept waiting, or that stopped with the whole machine.
LATE = {"generator_lag", "generator_starved", "generator_cpu", "generator_schedule", STOPPED}
# The server answered, but wrongly, or was killed: no machine is so busy that it would be the reason.
WRONG = {"no_request_ok", "invariant", "memory_kills"}


def powerband(experiment: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs an experiment. The first run on a machine may have to fetch what a subject is built from."""
    command = [
        sys.executable, "-m", "powerband", "run", experiment, "--profile", "smoke", "--format", "json",
        "--runs", str(folder), *CALM, "--set", "measure.retries=0", *UNLOOKED, *options,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)


def run(
    experiment: str, folder: Path, *options: str, spoilt_by: Collection[str] = (), unasked: Collection[str] = ()
) -> dict[str, Any]:
    """Runs an experiment; returns its analysis. `options`: `--set KEY=VALUE`. They may leave too few levels for some
    claims: those that can still be judged are judged, but for the `unasked`. `spoilt_by`: problems that may make all
    trials invalid, besides those of a late engine."""
    claims = [claim for claim in claims_left(experiment, options) if claim["id"] not in unasked]
    done = powerband(experiment, folder, *options, "--set", f"claims={json.dumps(claims)}")
    assert done.stdout, done.stderr
    analysis: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == exit_code(analysis, {*LATE, *spoilt_by}), done.stderr
    assert [claim["id"] for claim in analysis["claims"]] == [claim["id"] for claim in claims]
    for claim in analysis["claims"]:
        assert claim["verdict"] in ("held", "refuted", "undecided") and claim["parts"], claim
        # One start of each setting decides nothing, but every metric of a claim must have been measured.
        assert " measured " not in claim["sentence"], claim
    return analysis


def exit_code(analysis: dict[str, Any], spoilers: Collection[str]) -> int:
    """The exit code of a run that ended, by docs/reference/cli.md. If no trial is valid, this checks that the reason is
    one of `spoilers`, or a disturbed machine by the kernel's counters, and that no server answered wrongly."""
    match analysis["answer"]["kind"]:
        case "none_feasible":
            return 1
        case "none_valid":
            for trial in analysis["trials"]:
                fatal = {problem["code"] for problem in trial["problems"] if problem["fatal"]}
                borne = {*spoilers, *(UNANSWERED if STOPPED in fatal else ())}
                assert not fatal & (WRONG - set(spoilers)), trial["problems"]
                assert fatal and (fatal <= borne or disturbed_by(trial["metrics"])), trial["problems"]
            return 5
    return int(any(claim["verdict"] == "refuted" for claim in analysis["claims"]))


def claims_left(experiment: str, options: Collection[str]) -> list[dict[str, str]]:
    """The claims of the whole experiment whose settings are tried with these options, even if the smoke profile leaves
    them out."""
    sets = dict(option.split("=", 1) for option in options if option != "--set")
    whole = load_experiment(experiment).claims
    claims = [{"id": claim.id, "says": claim.says, "holds": claim.holds} for claim in whole]
    if "claims" in sets:
        return []
    left = []
    for claim in claims:
        try:
            load_experiment(experiment, "smoke", {**sets, "claims": json.dumps([claim])})
        except ExperimentError:
            continue
        left.append(claim)
    return left


def measured(analysis: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, float]]]:
    """Levels and metrics of every measured trial, valid or not."""
    return [
        (trial["setting"]["levels"], trial["metrics"]) for trial in analysis["trials"] if trial["status"] == "measured"
    ]


def measured_by(analysis: dict[str, Any], factor: str) -> dict[Any, dict[str, float]]:
    """The metrics of a measured trial by level."""
    return {levels[factor]: metrics for levels, metrics in measured(analysis)}


def failed_share(metrics: Mapping[str, float]) -> float:
    """The share of requests that failed, without those of users whom a busy machine left waiting for the whole window,
    or for whom it was too late to send them."""
    return metrics["error_rate"] - max(metrics.get("users_unserved_share", 0.0), metrics.get("dropped_rate", 0.0))
