"""Lists the processes that may be killed during a run and what the run does then, and finds such a process.

`tests/e2e/test_faults.py` and `test_faults_beside.py` test each case; docs/reference/failures.md sums them up."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PHASES = ("launch", "warmup", "measure", "drain", "stop")
CONTROL = "control plane"
ROLES = ("subject", "engine", "probe", "keeper", CONTROL)
LOST = "lost"
MEASURED = "measured"
WITHIN_S = 30.0


@dataclass(frozen=True)
class Fault:
    """The effect on a trial of SIGKILL to all `victims` at once, in these phases. `outcomes`: what the record may say,
    the code of a failure or MEASURED; LOST: there is no record."""

    victims: tuple[str, ...]
    phases: tuple[str, ...]
    outcomes: tuple[str, ...]

    @property
    def name(self) -> str:
        return " and ".join(self.victims)


def _faults() -> Iterator[Fault]:
    loaded = ("warmup", "measure", "drain")  # phases with an engine
    yield Fault(("subject",), ("launch",), ("died_before_ready",))
    yield Fault(("subject",), ("warmup", "measure"), ("died",))
    yield Fault(("subject",), ("drain",), ("died", MEASURED))
    yield Fault(("subject",), ("stop",), (MEASURED,))
    yield Fault(("engine",), loaded, ("engine_failed",))
    for guards in (("probe",), ("keeper",), ("probe", "keeper")):
        yield Fault(guards, PHASES, ("probe_failed",))
    for guard in ("probe", "keeper"):
        yield Fault(("subject", guard), ("launch",), ("probe_failed", "died_before_ready"))
        yield Fault(("subject", guard), loaded, ("probe_failed", "died"))
        yield Fault(("subject", guard), ("stop",), ("probe_failed", MEASURED))
    yield Fault(("subject", "engine"), loaded, ("died", "engine_failed"))
    for guard in ("probe", "keeper"):
        yield Fault(("engine", guard), loaded, ("engine_failed", "probe_failed"))
    yield Fault((CONTROL,), PHASES, (LOST,))
    for other in ("subject", "probe", "keeper"):
        yield Fault((other, CONTROL), PHASES, (LOST,))
    yield Fault(("engine", CONTROL), loaded, (LOST,))


@dataclass(frozen=True)
class Beside:
    """The effect of SIGKILL on a process that is not part of every trial. `phases`: the phases of the first of two
    trials in which it is killed; empty: before that trial. `code`: powerband's exit code. `said`: a part of its
    message. `kept`: the number of measured trials. `leaves`: True if something is left behind when powerband is killed
    at the same time."""

    victim: str
    phases: tuple[str, ...]
    code: int
    said: str = ""
    kept: int = 2
    leaves: bool = False


BESIDE = (
    Beside("build", (), 4, "the server's build failed", 0),
    Beside("database", PHASES, 4, "`powerband resume` starts a new one", 1, leaves=True),
    Beside("link", PHASES, 0, kept=1),
    Beside("JMeter", ("warmup", "measure"), 5, "JMeter", 0),
    Beside("live server", PHASES, 0),
    Beside("browser", ("measure",), 0),
)
FAULTS = tuple(_faults())
CASES = tuple((fault, phase) for fault in FAULTS for phase in fault.phases)


def pairs_left_out() -> set[tuple[str, str]]:
    """Pairs of roles that no case kills."""
    return {
        pair
        for pair in itertools.combinations(ROLES, 2)
        if not any(set(fault.victims) == set(pair) for fault in FAULTS)
    }


def children_of(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def words_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def roles_of(control: int) -> dict[str, int]:
    """The pids of the processes of a trial in flight, by role, for those that are running."""
    found = {CONTROL: control}
    for child in children_of(control):
        words = words_of(child)
        if "load" in words[1:2]:
            found["engine"] = child
        if "probe" in words[1:2]:
            found["keeper"] = child
            for probe in children_of(child)[:1]:
                found["probe"] = probe
                for subject in children_of(probe)[:1]:
                    if words_of(subject)[1:2] != ["probe"]:  # a forked child is not yet the subject's program
                        found["subject"] = subject
    return found


def kill(control: int, victims: tuple[str, ...]) -> None:
    """Kills all victims by SIGKILL, as close together as possible, once all are running; the control plane last, since
    it ends the others."""
    deadline = time.monotonic() + WITHIN_S
    while not set(victims) <= set(found := roles_of(control)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all of {victims} are there: {found}")
        time.sleep(0.001)
    sigkill(found, victims)


def sigkill(pids: Mapping[str, int], victims: Sequence[str]) -> None:
    for victim in sorted(victims, key=lambda role: role == CONTROL):
        with suppress(ProcessLookupError):
            os.kill(pids[victim], signal.SIGKILL)
