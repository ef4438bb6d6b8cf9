"""Races of a JVM's first compiler against its last (`-XX:TieredStopAtLevel` 1 and 4), which takes a minute to get
there: which is named, and how near the figures are to those after that minute.

    python -m benchmarks.warm_races [--races 20] [--only jvm spring] [--profile normal] [--minutes 60]
        [--folder runs/warm-races]

`jvm` is the JDK's own server whose handler computes, `spring` Spring Boot on the subject of that name. Each race is a
run of the profile as `tune` has it. What is true is measured on the same day, before its first and before every third
race: a fresh start of both settings that is loaded for over a minute. It also shows how its own rate after its warm-up
compares with that after a minute. One line of JSON is kept for each: called again, it goes on until there are so many.
Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.footer import ROOT, commit, machine
from benchmarks.kept_rows import append_row, read_rows
from benchmarks.pairs import share_of
from benchmarks.sweeps import powerband
from powerband.analyze.trial.honesty import DISTURBED_CODES
from powerband.files.key_options import PROFILES
from powerband.files.tune_options import DEFAULT_SCREEN
from powerband.model.results import AnswerKind
from powerband.processes.jdk import find_jdk

SOURCE = Path(__file__).parent / "workers" / "Warm.java"
SPRING = ROOT / "subjects" / "spring"
# Each request reads, sorts and writes for some ms on its own thread. -1: no page of metrics.
SPRING_JDK = 21  # at least
SPRING_OPTIONS = {"spring.profiles.active": "h2", "subject.rows": "200", "management.server.port": "-1"}
CASES = {"jvm": "javac", "spring": "mvn"}
"""The cases, and the program that builds each."""
HOSTS = {"jvm": {}, "spring": {"cpus": "all"}}
"""The CPUs that a case asks for. By itself a run would choose by its first trial, and those of Spring Boot's two
settings lie on both sides of what it chooses by: some starts for the truth would have other CPUs than the races."""
TIERS = (1, 4)
AS_TUNE = {"order": "race", "screen": DEFAULT_SCREEN, "confirm_early": True}
USERS = 64
TRUTH_DURATION_S, EARLY_S, LATE_S = 85, 10, 30
"""The measured seconds of a start for the truth, and those at its begin and its end that are compared."""
RACES_OF_A_TRUTH = 3
"""So many races of a case follow each measurement of its truth."""
RIGHT_SHARE = 19 / 20
WITHIN = 0.05
STARTS_OF_RACE = 3  # of each setting, in most races


@dataclass(frozen=True)
class Truth:
    """Rates of both settings after a minute of load, in the order of `TIERS`: the medians of their starts (a kept line
    has one of each, an older one several). `early`: for each start of each, the rate of the `EARLY_S` after its
    warm-up, as a ratio to its own rate after a minute; empty: not known. `day`: the date; empty for older lines, which
    are of one day."""

    case: str
    rates: tuple[float, ...]
    early: tuple[tuple[float, ...], ...] = ()
    day: str = ""

    @property
    def best(self) -> str:
        return f"tier={TIERS[self.rates.index(max(self.rates))]}"


@dataclass(frozen=True)
class Outcome:
    """The result of one race. `named`: the recommended setting; `rising`: for each setting, whether its rate was still
    rising in most of its valid trials; `day`: as of a `Truth`, since a machine is not equally fast on all."""

    case: str
    profile: str
    kind: str
    named: str | None
    rates: tuple[float | None, ...]
    rising: tuple[bool, ...]
    trials: int
    invalid: int
    seconds: float
    sentence: str
    day: str = ""

    def figures_hold(self, truth: Truth) -> bool:
        """True if each figure is within 5 % of the truth, or is marked as rising and does not exceed the
        truth."""
        pairs = zip(self.rates, truth.rates, self.rising, strict=True)
        return all(
            rate is not None and (abs(rate / true - 1) <= WITHIN or (rises and rate <= true))
            for rate, true, rises in pairs
        )


def build(case: str, folder: Path) -> None:
    """Builds the program of a case. Raises CalledProcessError; SubjectError if there is no JDK for it."""
    commands = {
        "jvm": "javac -d {folder} {source}",
        "spring": "mvn -q -B --strict-checksums -f {spring}/pom.xml -Dtarget={folder} package",
    }
    given = {"folder": folder, "source": SOURCE, "spring": SPRING}
    home = {"JAVA_HOME": str(find_jdk(SPRING_JDK, compiles=True).home)} if case == "spring" else {}
    subprocess.run([word.format(**given) for word in commands[case].split()], check=True, env={**os.environ, **home})


def subject(case: str, built: Path) -> dict[str, Any]:
    tier = "-XX:TieredStopAtLevel={tier}"
    if case == "jvm":
        nodelay = "-Dsun.net.httpserver.nodelay=true"  # else each answer waits 40 ms for an acknowledgement
        return {"command": ["java", tier, nodelay, "-cp", str(built), "Warm", "{port}", str(USERS)]}
    given = {"server.port": "{port}", **SPRING_OPTIONS}
    return {
        "jdk": SPRING_JDK,
        "command": ["{java}", tier, "-jar", str(built / "spring.jar"), *(f"--{k}={v}" for k, v in given.items())],
        "url": "http://127.0.0.1:{port}/test",
        "ready": {"log": "^ready after ", "timeout": "60s"},
    }


def experiment(case: str, built: Path, keys: Mapping[str, str], design: Mapping[str, Any]) -> dict[str, Any]:
    """The experiment of a race. `keys`: further keys of an experiment file, with dots."""
    written: dict[str, Any] = {
        "name": f"warm-{case}",
        "subject": subject(case, built),
        "factors": {"tier": list(TIERS)},
        "load": {"users": USERS},
        "measure": {},
        "host": dict(HOSTS[case]),
        "design": dict(design),
    }
    for key, value in keys.items():
        part, _, name = key.partition(".")
        written[part][name] = int(value) if value.isdigit() else value
    return written


def run(written: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], float]:
    """Runs an experiment. Returns its `--format json` output and the seconds that it took. Raises RuntimeError if
    `powerband` fails."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{written['name']}-{time.time_ns()}.yaml"
    file.write_text(json.dumps(written))  # JSON is YAML
    begun_s = time.monotonic()
    said = powerband("run", str(file), "--format", "json", "--no-progress", "--runs", str(folder / "runs"))
    return json.loads(said), time.monotonic() - begun_s


def rates_of(analysis: Mapping[str, Any]) -> tuple[float | None, ...]:
    """Goodput in the order of `TIERS`; None for a setting without a figure."""
    found = {row["setting"]["levels"]["tier"]: row["estimates"].get("goodput_per_s") for row in analysis["settings"]}
    return tuple(None if found.get(tier) is None else float(found[tier]["value"]) for tier in TIERS)


def measured_truth(case: str, built: Path, folder: Path) -> Truth:
    """Measures the truth of a case by one start of each setting. Raises RuntimeError if one is not valid, or was
    disturbed."""
    keys = {"load.duration": f"{TRUTH_DURATION_S}s", "measure.repeats": "1"}
    runs = folder / "truth" / case
    analysis, _ = run(experiment(case, built, keys, {"order": "blocks"}), runs)
    made = max((runs / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    found: dict[int, tuple[float, float]] = {}
    for trial in analysis["trials"]:
        if not any(problem["fatal"] or problem["code"] in DISTURBED_CODES for problem in trial["problems"]):
            lines = (made / "trials" / f"{trial['number']:04}" / "events.jsonl").read_text().splitlines()
            found[trial["setting"]["levels"]["tier"]] = first_and_last(map(json.loads, lines))
    if len(found) < len(TIERS):
        raise RuntimeError(f"{case}: {' '.join(analysis['answer']['sentences'])}")
    each = [found[tier] for tier in TIERS]
    return Truth(case, tuple(last for _, last in each), tuple((first / last,) for first, last in each))


def truth_of(case: str, kept: Iterable[Truth], day: str | None = None) -> Truth:
    """The truth of a case from all its kept lines, or from those of one day."""
    rows = [row for row in kept if row.case == case and day in (None, row.day)]
    return Truth(
        case,
        tuple(statistics.median(rates) for rates in zip(*(row.rates for row in rows), strict=True)),
        tuple(sum(each, ()) for each in zip(*(row.early for row in rows if row.early), strict=True)),
        day or "",
    )


def first_and_last(events: Iterable[Mapping[str, Any]]) -> tuple[float, float]:
    """The rates of the first `EARLY_S` and of the last `LATE_S` of a measured window, from the events of one
    engine."""
    inside = [event for event in events if event["type"] == "interval" and event["phase"] == "measure"]
    begin, end = inside[0]["start_ns"] + EARLY_S * 10**9, inside[-1]["end_ns"] - LATE_S * 10**9

    def rate(chosen: Sequence[Mapping[str, Any]]) -> float:
        ended = sum(event["outcomes"].get("ok", 0) for event in chosen)
        return 1e9 * ended / (chosen[-1]["end_ns"] - chosen[0]["start_ns"])

    return (
        rate([event for event in inside if event["end_ns"] <= begin]),
        rate([event for event in inside if event["start_ns"] >= end]),
    )


def outcome(case: str, profile: str, analysis: Mapping[str, Any], seconds: float) -> Outcome:
    """The outcome of a race of `TIERS`. `analysis`: its `--format json` output."""
    answer, trials = analysis["answer"], analysis["trials"]
    valid = [trial for trial in trials if not any(problem["fatal"] for problem in trial["problems"])]
    rose = {tier: [trial["rising"] for trial in valid if trial["setting"]["levels"]["tier"] == tier] for tier in TIERS}
    return Outcome(
        case=case,
        profile=profile,
        kind=answer["kind"],
        named=None if answer["setting"] is None else answer["setting"]["id"],
        rates=rates_of(analysis),
        rising=tuple(2 * sum(rose[tier]) > len(rose[tier]) for tier in TIERS),
        trials=len(trials),
        invalid=len(trials) - len(valid),
        seconds=seconds,
        sentence=" ".join(answer["sentences"]),
    )


def table(every: Sequence[Outcome], truths: Sequence[Truth]) -> str:
    """The races as a Markdown table with a line for each case and profile; races without a valid trial are not
    counted."""
    done = [row for row in every if row.kind != AnswerKind.NONE_VALID.value]
    head = (
        f"{time.strftime('%Y-%m-%d')}, {machine()}, commit {commit()}: {len(done)} races "
        f"({len(every) - len(done)} more without a valid trial)"
    )
    return "\n".join([head, "", *summary(done, truths)])


def summary(done: Sequence[Outcome], truths: Sequence[Truth]) -> list[str]:
    """The lines of the table. Each race is compared with the truth of its day."""
    lines = [
        "| case | profile | after a minute | at once, to that | races | right one named | wrong one "
        "| figures within 5 % | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case, profile in dict.fromkeys((row.case, row.profile) for row in done):
        rows, truth = [row for row in done if (row.case, row.profile) == (case, profile)], truth_of(case, truths)
        of_days = {day: truth_of(case, truths, day) for day in {row.day for row in rows}}
        named = sum(row.named == of_days[row.day].best for row in rows)
        wrong = sum(row.named not in (None, of_days[row.day].best) for row in rows)
        holding = sum(row.figures_hold(of_days[row.day]) for row in rows)
        verdicts = [share_of(count, len(rows)).verdict(at_least=RIGHT_SHARE) for count in (named, holding)]
        lines.append(
            f"| {case} | {profile} | {' and '.join(f'{rate:,.0f}/s' for rate in truth.rates)} | "
            f"{' and '.join(map(_early, truth.early)) or '–'} | {len(rows)} | "
            f"{named} ({verdicts[0]}) | {wrong} | {holding} ({verdicts[1]}) | "
            f"{sum(row.seconds for row in rows) / len(rows):.0f} |"
        )
    return lines


def groups_of(ratios: Sequence[float]) -> list[float]:
    """The mean ratios of each three successive starts of a setting, as a race has them; the rest is left out."""
    whole = range(0, len(ratios) - STARTS_OF_RACE + 1, STARTS_OF_RACE)
    return [statistics.mean(ratios[first : first + STARTS_OF_RACE]) for first in whole]


def _early(ratios: Sequence[float]) -> str:
    """The ratios of all starts of a setting: their median, and the least and greatest."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.warm_races", description=__doc__)
    parser.add_argument("--races", type=int, default=20, help="how many there are to be of each case")
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--profile", choices=list(PROFILES), default="normal")
    parser.add_argument("--minutes", type=float, default=60, help="nothing further begins after this time")
    parser.add_argument("--folder", type=Path, default=Path("runs/warm-races"), help="where they are kept")
    options = parser.parse_args(arguments)
    for case in [case for case in options.only if shutil.which(CASES[case]) is None]:
        print(f"left out: {case}, for want of {CASES[case]}", file=sys.stderr)
        options.only.remove(case)
    kept, truths_kept = options.folder / "races.jsonl", options.folder / "truths.jsonl"
    done, truths = read_rows(kept, Outcome), read_rows(truths_kept, Truth)
    deadline_s = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="powerband-warm-") as folder:
        built = {case: Path(folder, case) for case in options.only}
        for case in options.only:
            built[case].mkdir()
            build(case, built[case])
        for case in to_come(options.only, options.profile, done, options.races):
            if time.monotonic() >= deadline_s:
                break
            day = time.strftime("%Y-%m-%d")
            raced = sum((row.case, row.profile, row.day) == (case, options.profile, day) for row in done)
            if RACES_OF_A_TRUTH * sum((row.case, row.day) == (case, day) for row in truths) <= raced:
                truths.append(replace(measured_truth(case, built[case], options.folder), day=day))
                append_row(truths_kept, truths[-1])
            written = experiment(case, built[case], PROFILES[options.profile], AS_TUNE)
            done.append(replace(outcome(case, options.profile, *run(written, options.folder)), day=day))
            append_row(kept, done[-1])
            print(f"{case}: {done[-1].named}, {done[-1].seconds:.0f} s", file=sys.stderr, flush=True)
    print(table(done, truths))
    return 0


def to_come(cases: Sequence[str], profile: str, done: Sequence[Outcome], races: int) -> list[str]:
    """The cases of the races still to do, in turn."""
    made = [row.case for row in done if row.profile == profile and row.kind != AnswerKind.NONE_VALID.value]
    return [case for turn in range(races) for case in cases if made.count(case) <= turn]


if __name__ == "__main__":
    sys.exit(main())
