"""Races of servers that only compute, with one worker and with two, on two CPUs or more: which is named, and by how
much, beside what wrk measures of the same two.

    python -m benchmarks.cpu_races [--races 5] [--only go python java node] [--minutes 60] [--folder runs/cpu-races]

Each race is `powerband tune --profile quick` as a person types it; before it wrk loads fresh starts of both settings.
One line of JSON is kept for each finished race: called again, it goes on until there are so many of each language. A
language whose toolchain is missing is left out, and said so; without wrk there is no figure beside ours. Nothing else
should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.footer import commit, machine
from benchmarks.generators import ROOT, Generator, wrk
from benchmarks.kept_rows import append_row, read_rows
from benchmarks.pairs import Spread, run, share_of, spread, worst
from benchmarks.sweeps import powerband
from powerband.base.procfs import all_processes
from powerband.model.results import AnswerKind
from powerband.processes.ports import pick_ports, someone_listens
from powerband.search.noise import cpu_times

SERVERS = ROOT / "benchmarks" / "workers"
LANGUAGES = ("go", "python", "java", "node")
USERS = 64
BEST = "workers=2"
NAMED_SHARE = 19 / 20
WITHIN = 0.10
# Two workers of a JVM gave wrk 1,350/s in the first 4 s, 1,530/s in the fifth and 1,660/s in the seventh.
WARMUP_S = 35
# wrk cannot warm up, so it runs twice. A worker that still computes for the first run accepts nothing of the second:
# with a Node cluster, the other worker once got all connections, and two workers then served no more than one.
SETTLE_S = 1.0
WRK_STARTS_MOST = 3
FOREIGN_MAX = 0.1
START_S = 20.0


@dataclass(frozen=True)
class Worker:
    """A server each of whose requests costs some 1 ms of CPU. `{workers}` and `{port}` in its command and environment
    are replaced."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The result of one race. `named`: the recommended setting; `effect`: the rate with two workers divided by that
    with one; `wrk_effect`: the same by wrk, None if there is no wrk or if other programs disturbed it."""

    number: int
    language: str
    kind: str
    named: str | None
    effect: float | None
    wrk_effect: float | None
    rates: tuple[float, ...]
    wrk_rates: tuple[float, ...]
    cpus: str
    trials: int
    invalid: int
    seconds: float
    sentence: str


def worker(language: str, built: Path) -> Worker | None:
    """Builds the server of a language into a folder; None if the toolchain is missing. Raises CalledProcessError if it
    does not compile."""
    builds = {
        "go": ("go", "build", "-o", str(built / "server"), str(SERVERS / "server.go")),
        "java": ("javac", "-d", str(built), str(SERVERS / "Server.java")),
    }
    python = str(ROOT / "tests" / "fakes" / "forking_server.py")
    nodelay = "-Dsun.net.httpserver.nodelay=true"  # else each answer waits 40 ms for an acknowledgement
    found = {
        "go": Worker((str(built / "server"), "{port}", "1000000"), {"GOMAXPROCS": "{workers}"}),
        "python": Worker((sys.executable, python, "{port}", "{workers}", "20000")),
        "java": Worker(("java", nodelay, "-cp", str(built), "Server", "{port}", "1000000", "{workers}")),
        "node": Worker(("node", str(SERVERS / "server.js"), "{port}", "500000", "{workers}")),
    }[language]
    build = builds.get(language, found.command)
    if shutil.which(build[0]) is None:
        return None
    if language in builds:
        subprocess.run(build, check=True)
    return found


def race(number: int, language: str, server: Worker, peer: Generator | None, folder: Path) -> Outcome:
    """Runs wrk first, then the race. Raises RuntimeError if `powerband` fails."""
    found = [] if peer is None else [wrk_rate(peer, server, workers) for workers in (1, 2)]
    wrk_rates = tuple(rate for rate in found if rate is not None)
    env = [word for name, value in server.env.items() for word in ("--env", f"{name}={value}")]
    begun = time.monotonic()
    said = powerband("tune", "--profile", "quick", "--users", str(USERS), "-P", "workers=1,2", *env,
                     "--format", "json", "--no-progress", "--runs", str(folder / "runs"), "--name", language,
                     "--", *server.command)  # fmt: skip
    return outcome(number, language, json.loads(said), wrk_rates, time.monotonic() - begun)


def outcome(
    number: int, language: str, analysis: Mapping[str, object], wrk_rates: tuple[float, ...], seconds: float
) -> Outcome:
    """Interprets the `--format json` output of a race of workers 1 and 2."""
    answer, trials, settings = analysis["answer"], analysis["trials"], analysis["settings"]
    assert isinstance(answer, dict)
    assert isinstance(trials, list)
    assert isinstance(settings, list)
    found = {row["setting"]["levels"]["workers"]: row["estimates"].get("goodput_per_s") for row in settings}
    rates = tuple(float(found[workers]["value"]) for workers in (1, 2) if found.get(workers) is not None)
    valid = [trial for trial in trials if not any(problem["fatal"] for problem in trial["problems"])]
    shared = {json.dumps(trial["cpus"], sort_keys=True) for trial in valid}
    return Outcome(
        number=number,
        language=language,
        kind=answer["kind"],
        named=None if answer["setting"] is None else answer["setting"]["id"],
        effect=_effect(rates),
        wrk_effect=_effect(wrk_rates),
        rates=rates,
        wrk_rates=wrk_rates,
        cpus="; ".join(sorted(shared)),
        trials=len(trials),
        invalid=len(trials) - len(valid),
        seconds=seconds,
        sentence=answer["sentences"][0],
    )


def _effect(rates: Sequence[float]) -> float | None:
    return rates[1] / rates[0] if len(rates) == 2 and rates[0] else None


def wrk_rate(peer: Generator, server: Worker, workers: int) -> float | None:
    """Requests per second of a fresh start on all CPUs, after a warm-up. A run during which other programs used too
    much CPU is repeated, as `powerband` leaves such trials out, too. None if no run was quiet."""
    for _ in range(WRK_STARTS_MOST):
        foreign, rate = _wrk_once(peer, server, workers)
        if foreign <= FOREIGN_MAX:
            return rate
    return None


def _wrk_once(peer: Generator, server: Worker, workers: int) -> tuple[float, float]:
    """The share of all CPUs that other programs used, and requests per second."""
    cpus = os.sched_getaffinity(0)
    with up(server, workers) as (port, session):
        run(peer.argv(port, USERS, WARMUP_S), cpus)
        time.sleep(SETTLE_S)
        before, begun_s = _busy_s(session), time.monotonic()
        usage = peer.usage(port, USERS, cpus)
        machine_s, server_s = (now - then for now, then in zip(_busy_s(session), before, strict=True))
        others_s = machine_s - server_s - usage.cpu_s
        return others_s / len(cpus) / (time.monotonic() - begun_s), peer.requests(usage) / peer.seconds


def _busy_s(session: int) -> tuple[float, float]:
    """CPU seconds so far of the whole machine, and of the processes of a session (proc_pid_stat(5))."""
    ticks = 0
    for process in all_processes():
        if process.session == session:
            with suppress(OSError):
                fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
    per_s = os.sysconf("SC_CLK_TCK")
    return cpu_times()["busy"] / per_s, ticks / per_s


@contextmanager
def up(server: Worker, workers: int) -> Iterator[tuple[int, int]]:
    """Starts a server afresh; yields its port and its session. The server has ended when the block ends. Raises
    RuntimeError if it does not listen."""
    (port,) = pick_ports(1)
    given = {"port": str(port), "workers": str(workers)}
    env = {**os.environ, **{name: value.format(**given) for name, value in server.env.items()}}
    command = [word.format(**given) for word in server.command]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=env, start_new_session=True, stdout=quiet, stderr=quiet)
    try:
        deadline_s = time.monotonic() + START_S
        while not someone_listens("127.0.0.1", port):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"{server.command[0]} did not start")
            time.sleep(0.05)
        yield port, process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.cpu_races", description=__doc__)
    parser.add_argument("--races", type=int, default=5, help="how many there are to be of each language")
    parser.add_argument("--only", nargs="*", choices=LANGUAGES, default=list(LANGUAGES))
    parser.add_argument("--minutes", type=float, default=60, help="no further race begins after this time")
    parser.add_argument("--folder", type=Path, default=Path("runs/cpu-races"), help="where they are kept")
    options = parser.parse_args(arguments)
    if len(os.sched_getaffinity(0)) < 2:
        print("there is one CPU: two workers serve no more than one")
        return 1
    peer = wrk()
    if peer is None:
        print("wrk is not installed (`make bench-peers`): there is no figure beside ours", file=sys.stderr)
    kept = options.folder / "races.jsonl"
    options.folder.mkdir(parents=True, exist_ok=True)
    done = read_rows(kept, Outcome)
    deadline_s = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="powerband-workers-") as built:
        servers = {language: worker(language, Path(built)) for language in options.only}
        for language in [language for language, server in servers.items() if server is None]:
            print(f"left out: {language}, whose compiler or runtime is not installed", file=sys.stderr)
        for language in in_turn([name for name, server in servers.items() if server is not None], done, options.races):
            if time.monotonic() >= deadline_s:
                break
            server = servers[language]
            assert server is not None
            made = race(len(done) + 1, language, server, peer, options.folder)
            done.append(made)
            append_row(kept, made)
            print(f"{made.number}: {language}, {made.named}, {made.seconds:.0f} s", file=sys.stderr, flush=True)
    print(table(done))
    return 0


def in_turn(languages: Sequence[str], done: Sequence[Outcome], races: int) -> list[str]:
    """The languages of the races still to do, one after the other."""
    left = {name: races - sum(row.language == name for row in measured(done)) for name in languages}
    return [name for turn in range(races) for name in languages if left[name] > turn]


def measured(done: Sequence[Outcome]) -> list[Outcome]:
    """The races with at least one valid trial: in any other, other programs had the machine."""
    return [row for row in done if row.kind != AnswerKind.NONE_VALID.value]


def table(all_done: Sequence[Outcome]) -> str:
    """The races as a Markdown table with a line for each language (medians over its races); then the two shares that
    count."""
    done = measured(all_done)
    lines = [
        f"{time.strftime('%Y-%m-%d')}, {machine()}, commit {commit()}: "
        f"{len(done)} races ({len(all_done) - len(done)} more without a valid trial: they count for nothing)",
        "",
        "| language | races | 2 named | rate with 1 | with 2 | effect (range) | by wrk (range) | apart |",
        "|---|---|---|---|---|---|---|---|",
    ]
    apart: dict[str, Spread] = {}
    for language in LANGUAGES:
        rows = [row for row in done if row.language == language]
        if not rows:
            continue
        ours, theirs = ([getattr(row, name) for row in rows] for name in ("effect", "wrk_effect"))
        ratios = [a / b for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
        if ratios:
            apart[language] = spread(ratios)
        rates = [middle([row.rates[at] for row in rows if len(row.rates) == 2]) for at in (0, 1)]
        lines.append(
            f"| {language} | {len(rows)} | {sum(row.named == BEST for row in rows)} | "
            f"{' | '.join('-' if rate is None else f'{rate:,.0f}/s' for rate in rates)} | "
            f"{_ranged(ours)} | {_ranged(theirs)} | {f'{apart[language].middle - 1:+.1%}' if ratios else '-'} |"
        )
    named = sum(row.named == BEST for row in done)
    lines += ["", f"Two workers are named in {named} of {len(done)} races; target at least {NAMED_SHARE:.0%}: "
              f"{share_of(named, len(done)).verdict(at_least=NAMED_SHARE) if done else 'undecided'}."]  # fmt: skip
    if apart:
        far = max(abs(found.middle - 1) for found in apart.values())
        ends = ({"at_most": 1 + WITHIN}, {"at_least": 1 - WITHIN})
        verdict = worst(found.verdict(**end) for found in apart.values() for end in ends)
        lines[-1] += f" The effect is at most {far:.1%} from that by wrk; target {WITHIN:.0%}: {verdict}."
    return "\n".join(lines)


def middle(values: Sequence[float | None]) -> float | None:
    """The median of the known values."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _ranged(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.2f} ({min(known):.2f}-{max(known):.2f})" if known else "-"


if __name__ == "__main__":
    sys.exit(main())
