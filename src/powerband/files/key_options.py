"""The options of `powerband tune` and `powerband load` that stand for a key of an experiment file, as one table.

From this table the commands make their options (`cli/options.py`), `tune_options.py` the experiment, and `make
reference` the page.
"""

from __future__ import annotations

from typing import NamedTuple

from powerband.base.units import parse_duration_ns

DEFAULT_URL = "http://127.0.0.1:{port}/"

# How much is measured at most: for a first look, by default, and for small differences or a noisy machine. A busy
# machine would spoil too many of few rounds, so the first look may repeat as many trials as are planned.
PROFILES: dict[str, dict[str, str]] = {
    "quick": {"load.duration": "3s", "measure.warmup_max": "5s", "measure.repeats": "5", "measure.retry_budget": "1"},
    "normal": {"load.duration": "10s", "measure.repeats": "12"},
    "thorough": {"load.duration": "20s", "measure.repeats": "25"},
}
# The longest `--budget` for which each profile is the one that fits: 1m is quick, 5m normal, 30m thorough. Seven
# settings in two blocks of trials, with what it takes to confirm the best, take one minute (quick) or three (normal).
BUDGETS_S = {"quick": 150, "normal": 900}


def profile_for(budget: str | None) -> str:
    """Returns the profile that fits a budget as it was typed; normal if there is none, or if it is no time."""
    try:
        budget_s = None if budget is None else parse_duration_ns(budget) / 1e9
    except ValueError:
        return "normal"
    if budget_s is None:
        return "normal"
    return next((name for name, most_s in BUDGETS_S.items() if budget_s <= most_s), "thorough")


class Option(NamedTuple):
    """One option. `key`: the key of an experiment file that it stands for. `metavar`: the name of its value in the
    help, None for a flag. `help`: its text there."""

    key: str
    metavar: str | None
    help: str


KEY_OPTIONS = {
    "--users": Option("load.users", "N", "Closed load: N users, each waits for its answer.  [default: 64]"),
    "--rate": Option("load.rate", "R", "Open load instead: R requests per second, whatever the server does."),
    "--arrivals": Option("load.arrivals", "KIND", "Arrivals of an open load: poisson or constant.  [default: poisson]"),
    "--max-in-flight": Option(
        "load.max_in_flight", "N",
        "Open load: requests beyond so many in flight are dropped.  [default: 10000, or what the descriptors allow]",
    ),
    "--think": Option("load.think", "TIME", "Pause between a user's requests: 3s, '{exponential: 3s}'.  [default: 0s]"),
    "--ramp": Option("load.ramp", "TIME", "Users, or the rate, ramp up over this time.  [default: 0s]"),
    "--join": Option("load.join", "R", "Ramp as a rate: users that start per second, 160/s."),
    "--pace": Option(
        "load.pace", "TIME",
        "With a ws:// url: time between a user's messages, answered or not: 100/s, 6s, '{exponential: 6s}'.",
    ),
    "--threads": Option("load.engine_threads", "N", "Threads of the load generator.  [default: 1]"),
    "--pipeline": Option("load.pipeline", "N", "Requests in flight on one connection.  [default: 1]"),
    "--keep-alive": Option("load.keep_alive", "BOOL", "false: a connection for each request.  [default: true]"),
    "--timeout": Option("load.timeout", "TIME", "Timeout of one request.  [default: 30s]"),
    "--connect-timeout": Option("load.connect_timeout", "TIME", "Timeout of one connection.  [default: 5s]"),
    "--precision": Option(
        "load.precision", "TIME",
        "How late a request may be sent, so that several share a wake-up; 0s: busy waiting.  [default: 100us]",
    ),
    "--ca-file": Option(
        "load.tls_ca_file", "FILE", "With an https url: PEM file of trusted roots.  [default: Mozilla's]",
    ),
    "--insecure": Option("load.tls_insecure", None, "Accept any certificate of the server."),
    "--duration": Option("load.duration", "TIME", "Measured time of one trial.  [default: by profile]"),
    "--warmup": Option(
        "measure.warmup", "TIME",
        "Load before the measured time; `auto` ends once the rate is steady.  [default: auto]",
    ),
    "--repeats": Option(
        "measure.repeats", "N",
        "Rounds of full length, at most; each starts every setting once.  [default: by profile]",
    ),
    "--budget": Option("design.budget", "TIME", "Time for the whole run: 1m, 5m, 30m.  [default: none]"),
    "--order": Option(
        "design.order", "KIND",
        "race: settings shown worse are eliminated early; blocks: all run to the end.  [default: race; compare with "
        "-P: blocks]",
    ),
    "--confirm": Option(
        "design.confirm", "N",
        "Fresh starts that confirm the winner of a race, at most.  [default: 3; with --regret: 0, after short trials "
        "2; compare without -P: 0]",
    ),
    "--regret": Option(
        "design.regret", "SHARE",
        "End the race once no other setting can be better by more than this (5%); exit code 1 if that is not reached.  "
        "[default: none]",
    ),
    "--soak": Option(
        "design.soak", "TIME",
        "Run the answer's setting once more for this time, and compare its last minute with its other trials.  "
        "[default: none]",
    ),
    "--allow-unserved": Option(
        "objective.allow_unserved", "SHARE",
        "Share of the users that may get no answer at all.  [default: 1%]",
    ),
    "--allow-failed-starts": Option(
        "objective.allow_failed_starts", "SHARE",
        "Share of a setting's starts that may fail or break a condition.  [default: none]",
    ),
    "--margin": Option("objective.margin", "SHARE", "Settings that differ by less are equivalent.  [default: 3%]"),
    "--confidence": Option(
        "objective.confidence", "SHARE",
        "Confidence of all intervals and verdicts.  [default: 95%]",
    ),
    "--ready-http": Option(
        "subject.ready.http", "PATH", "The server is ready once this path answers.  [default: once {port} accepts]",
    ),
    "--ready-log": Option("subject.ready.log", "REGEX", "The server is ready once its output matches."),
    "--ready-timeout": Option(
        "subject.ready.timeout", "TIME", "How long the server may take to get ready.  [default: 30s]",
    ),
    "--apply-command": Option(
        "subject.deployed.command", "COMMAND",
        "A command that changes the setting of a server that runs already, once for each trial; no shell.",
    ),
    "--pid": Option("subject.deployed.pid", "PID", "Process to watch: that of a server that runs here already."),
    "--stop-signal": Option("subject.stop.signal", "NAME", "Signal that asks the server to stop.  [default: TERM]"),
    "--stop-grace": Option("subject.stop.grace", "TIME", "How long the server may take to stop.  [default: 5s]"),
    "--cpus": Option(
        "host.cpus", "N|all|LIST",
        "CPUs of the server: a number, all, or a list (0-1).  [default: all where its requests cost ten times the "
        "load's, else what the load leaves]",
    ),
    "--cpu-quota": Option(
        "host.cpu_quota", "N", "CPUs that the server may use on average, set by a cgroup: 0.5, 2.  [default: no limit]",
    ),
    "--memory-limit": Option(
        "host.memory_limit", "SIZE", "Memory that the server may use, set by a cgroup: 512MiB.  [default: no limit]",
    ),
    "--cluster": Option(
        "cluster.address", "ADDRESS",
        "Run rounds side by side on the nodes of a Ray cluster: `auto`, the one that this machine is part of, or its "
        "head's host:6379.  [default: all here]",
    ),
    "--generators": Option(
        "cluster.generators", "N",
        "Number of other nodes that load each server, which listens on {address}.  [default: 0]",
    ),
    "--cwd": Option("subject.cwd", "DIR", "Folder that the server is started in."),
    "--name": Option("name", "NAME", "Names the run.  [default: tune, or compare]"),
    "--seed": Option("design.seed", "INTEGER", "Seed of every random choice.  [default: drawn, and recorded]"),
}  # fmt: skip
