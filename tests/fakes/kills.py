"""Random kills: in races of the reference subject, powerband, engine, probe, keeper and subject are killed (SIGKILL),
alone and in pairs, at random moments; a race whose powerband was killed is resumed.

After each kill, finished trials are unchanged; after each end, nothing is left behind; each race gives the answer of
one without kills, unless other programs disturbed one of the two, by the kernel's counters alone.
`python -m fakes.kills [KILLS] [SEED]`, with tests/ on the path, takes two seconds a kill."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fakes.disturbance import disturbed_by
from fakes.faults import CONTROL, ROLES, roles_of, sigkill
from powerband.processes.engine_fleet import find_engine
from powerband.store import RunDir

MARK = "POWERBAND_KILLED_RACE"
RACE = """\
name: killed
subject: {use: reference, set: {model: fixed, wait: 10ms, cpu: 0ms}}
factors: {threads: [1, 2, 8]}
load: {users: 8, duration: 400ms}
measure: {warmup: 100ms, repeats: 3, retries: 9, retry_budget: 1, foreign_cpu_max: 1, steal_max: 1}
design: {order: race, seed: 7}
objective: {maximise: goodput, margin: 20%, allow_failed_starts: 100%}
"""
BEST = "threads=8"
NOISE = 0.25  # of a median of some trials of 0.4 s, on a machine with other programs
ENDS_WITHIN_S = 20.0
CALM_ATTEMPTS = 3
RACE_WITHIN_S = 600.0
OF_A_TEST = re.compile(r"pb\d+[a-z]")  # a network namespace that a test made, which may run beside


@dataclass
class Told:
    """The outcome of all races. `kills`: how often each victim or pair was killed. `disturbed`: races whose answers
    were not compared. `wrong`: every broken promise."""

    races: int = 0
    disturbed: int = 0
    resumes: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.kills.total()} kills in {self.races} races, {self.resumes} resumes; "
            f"{self.disturbed} answers not compared, since other programs disturbed the race"
        ]
        lines += [f"  {count:4} {victims}" for victims, count in sorted(self.kills.items())]
        return "\n".join([*lines, *(f"WRONG: {said}" for said in self.wrong)])


class Races:
    """Races in one folder. `mark`: an entry in the environment of all processes that they start."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.dice = random.Random(seed)
        self.told = Told()
        self.mark = f"{MARK}={seed}-{os.getpid()}-{time.monotonic_ns()}"
        self.temporary = folder / "temporary"
        self.temporary.mkdir(parents=True)
        (folder / "race.yaml").write_text(RACE)
        self.named_namespaces = named_namespaces()

    def run(self, kills: int) -> Told:
        while self.told.kills.total() < kills and not self.told.wrong:
            self.told.races += 1
            before = self.told.kills.total()
            run = self._race(f"killed-{self.told.races}", kills - before)
            if damage := run.records_and_damage()[1]:
                self.told.wrong.append(f"damaged trials: {damage}")
            if disturbance_of(run) or self._calm is None:
                self.told.disturbed += 1
            else:
                self._compare(self._calm, run)
            shutil.rmtree(run.path.parent)
            sys.stderr.write(f"{self.told.kills.total()} kills in {self.told.races} races\n")
        return self.told

    @cached_property
    def _calm(self) -> RunDir | None:
        """A race without kills that nothing disturbed; None if there was none in `CALM_ATTEMPTS`."""
        races = (self._race(f"calm-{attempt}", 0) for attempt in range(CALM_ATTEMPTS))
        return next((race for race in races if not disturbance_of(race)), None)

    def _race(self, name: str, kills: int) -> RunDir:
        """Runs one race to its end, with at most so many kills."""
        root, deadline = self.folder / name, time.monotonic() + RACE_WITHIN_S
        arguments = ["run", str(self.folder / "race.yaml"), "--runs", str(root)]
        while True:
            with self._powerband(*arguments) as process:
                while process.poll() is None and kills > 0 and time.monotonic() < deadline:
                    time.sleep(self.dice.uniform(0.0, 2.0))
                    kills -= self._kill(process, root)
                errors = process.communicate(timeout=RACE_WITHIN_S)[1]
            if process.returncode != -9:
                break
            self._check_left_behind()
            self.told.resumes += 1
            arguments = ["resume", str(found.path)] if (found := run_in(root)) is not None else arguments
        if process.returncode != 0:
            self.told.wrong.append(f"{name} ended with exit code {process.returncode}: {errors[-2000:]}")
        self._check_left_behind()
        run = run_in(root)
        assert run is not None, errors
        if half := [str(path) for path in run.path.rglob(".*.tmp")]:
            self.told.wrong.append(f"files left behind: {half}")
        return run

    def _kill(self, process: subprocess.Popen[str], root: Path) -> int:
        """Kills one or two roles at a random moment while they are running. Returns the number of kills: 0 if powerband
        ended before."""
        victims = self.dice.choice([*((role,) for role in ROLES), *itertools.combinations(ROLES, 2)])
        rest_s = self.dice.choice((0.0, self.dice.uniform(0.0, 0.8)))
        while not set(victims) <= set(roles_of(process.pid)):
            if process.poll() is not None:
                return 0
            time.sleep(0.005)
        time.sleep(rest_s)
        there = roles_of(process.pid) if process.poll() is None else {}
        victims = tuple(role for role in victims if role in there)
        if not victims:
            return 0
        run = run_in(root)
        before = {} if run is None else finished(run)
        sigkill(there, victims)
        if CONTROL in victims:
            process.wait()
        after = {} if run is None else finished(run)
        if lost := [number for number, record in before.items() if after.get(number) != record]:
            self.told.wrong.append(f"finished trials {lost} are not as they were after a kill of {victims}")
        self.told.kills[" and ".join(victims)] += 1
        return 1

    @contextmanager
    def _powerband(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        name, _, value = self.mark.partition("=")
        environment = {**os.environ, name: value, "TMPDIR": str(self.temporary)}
        command = [sys.executable, "-c", "from powerband.cli import main; main()", *arguments, "--no-progress"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
        ) as process:
            yield process

    def _check_left_behind(self) -> None:
        deadline = time.monotonic() + ENDS_WITHIN_S
        while (left := marked(self.mark)) and time.monotonic() < deadline:
            time.sleep(0.02)
        if left:
            self.told.wrong.append(f"processes left behind: {left}")
        if files := [path.name for path in self.temporary.iterdir()]:
            self.told.wrong.append(f"temporary files left behind: {files}")
        named = named_namespaces() - self.named_namespaces
        if names := {name for name in named if not OF_A_TEST.match(name)}:
            self.told.wrong.append(f"network namespaces left behind: {names}")

    def _compare(self, calm: RunDir, killed: RunDir) -> None:
        """Compares the answers of both runs, which must be the same up to noise."""
        wanted, found = answer(calm), answer(killed)
        if found["best"] != wanted["best"] or wanted["best"] != BEST:
            self.told.wrong.append(f"{killed.path.name} names {found['best']}, and without kills {wanted['best']}")
        for setting, rate in wanted["rates"].items():
            if abs(found["rates"].get(setting, 0.0) / rate - 1) > NOISE:
                self.told.wrong.append(f"{setting}: {found['rates'].get(setting)} per s, and without kills {rate}")


def run_in(root: Path) -> RunDir | None:
    """The newest run of the folder that has begun; None if there is none."""
    begun = [path.parent for path in root.glob("*/experiment.yaml")]
    return RunDir(max(begun)) if begun else None


def finished(run: RunDir) -> dict[int, Any]:
    return {record.spec.number: record for record in run.records() if record.status == "measured"}


def disturbance_of(run: RunDir) -> str:
    """The disturbance of the first disturbed trial of the run; empty if there is none. One trial suffices, since they
    are few and short."""
    trials = json.loads(run.analysis.read_text())["trials"]
    return next((said for trial in trials if (said := disturbed_by(trial["metrics"]))), "")


def answer(run: RunDir) -> dict[str, Any]:
    analysis = json.loads(run.analysis.read_text())
    rates = {
        setting["setting"]["id"]: setting["estimates"]["goodput_per_s"]["value"]
        for setting in analysis["settings"]
        if "goodput_per_s" in setting["estimates"]
    }
    return {"best": (analysis["answer"]["setting"] or {}).get("id"), "rates": rates}


def marked(mark: str) -> list[int]:
    """Living processes that were started with this entry in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def named_namespaces() -> set[str]:
    """The network namespaces with a name, which outlive their processes."""
    folder = Path("/run/netns")
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def main() -> int:
    kills, seed = (int(given) for given in (*sys.argv[1:], *("1000", "7")[len(sys.argv) - 1 :]))
    find_engine()
    with tempfile.TemporaryDirectory() as folder:
        told = Races(Path(folder), seed).run(kills)
    sys.stdout.write(f"{told}\n")
    return 1 if told.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
