"""What may be killed while a run goes on, and what becomes of it: the cases that `tests/e2e/test_faults.py` tests, and
the table of docs/reference/failures.md, which is made of them. And how such a process is found."""

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
WITHIN_S = 5.0


@dataclass(frozen=True)
class Fault:
    """What SIGKILL of `victims` at once does to a trial in these phases. `outcomes`: what may be recorded, a failure's
    code or MEASURED; LOST: there is no record."""

    victims: tuple[str, ...]
    phases: tuple[str, ...]
    outcomes: tuple[str, ...]

    @property
    def name(self) -> str:
        return " and ".join(self.victims)


def _faults() -> Iterator[Fault]:
    loaded = ("warmup", "measure", "drain")  # an engine is there
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
    """What SIGKILL does of a process that is no part of every trial, in words, and as a test sees it. `phases`: of the
    first of two trials; none: before it. `code`: powerband's exit code; `said`: part of what it says; `kept`: how many
    trials are measured. `leaves`: something is left behind where powerband is killed with it."""

    victim: str
    phases: tuple[str, ...]
    becomes: str
    code: int
    said: str = ""
    kept: int = 2
    leaves: bool = False

    @property
    def words(self) -> str:
        return f"ends with exit code {self.code}" if self.code else "goes on"


BESIDE = (
    Beside("build", (), "does not begin", 4, "the server's build failed", 0),
    Beside("database", PHASES, "goes on without a database", 4, "`powerband resume` starts a new one", 1, leaves=True),
    Beside("link", PHASES, "fails (`link_failed`)", 0, kept=1),
    Beside("JMeter", ("warmup", "measure"), "fails (`jmeter_failed`)", 5, "JMeter", 0),
    Beside("live server", PHASES, "counts; the page is gone", 0),
    Beside("browser", ("measure",), "counts, with the visits until then", 0),
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
    """The processes of a trial in flight by their roles, as far as they are there."""
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
                    if words_of(subject)[1:2] != ["probe"]:  # forked, and not yet the subject's program
                        found["subject"] = subject
    return found


def kill(control: int, victims: tuple[str, ...]) -> None:
    """SIGKILL of all of them, as near to at once as can be, once all are there; the control plane last, since it ends
    the others."""
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


HEADS = ("killed (`kill -9`)", "in phase", "the trial", "the run")


def table() -> Iterator[tuple[str, ...]]:
    """The rows of the table in docs/reference/failures.md, of one victim each: two at once come to what either comes
    to. Victims that come to the same share a row."""
    same: dict[tuple[str, ...], list[str]] = {}
    for victim, *rest in _rows():
        same.setdefault(tuple(rest), []).append(victim)
    for rest, victims in same.items():
        yield ", ".join(victims), *rest


def _rows() -> Iterator[tuple[str, ...]]:
    for fault in FAULTS:
        if len(fault.victims) == 1 and fault.outcomes != (LOST,):
            yield fault.name, _phases(fault.phases), _outcome(fault), "goes on"
    for each in BESIDE:
        yield each.victim, _phases(each.phases), each.becomes, each.words
    yield f"{CONTROL}, alone or with another", _phases(PHASES), "did not happen", "ends; `powerband resume` repeats it"


def _phases(phases: tuple[str, ...]) -> str:
    return "any" if phases == PHASES else ", ".join(phases) or "before the first"


def _outcome(fault: Fault) -> str:
    """What becomes of the trial."""
    codes = " or ".join(f"`{code}`" for code in fault.outcomes if code != MEASURED)
    if not codes:
        return "counts"
    return f"fails ({codes}), or counts if it was over" if MEASURED in fault.outcomes else f"fails ({codes})"
