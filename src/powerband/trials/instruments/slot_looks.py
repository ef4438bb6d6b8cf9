"""Loads a server briefly with one user and with twice the users ("looks"), so that its limit is tried and not inferred.
If a response then takes as long as a delayed acknowledgement may, one user follows who acknowledges each part at once.

In: a server that has just served its load and has CPU left. Out: the summaries of these short loads against the same
process, the server's connections and sockets during the second, or the reason why there was no look. No look is longer
than the measured window. Nothing that happens here fails the trial, which is measured already. Not here: what follows
from the rates (`analyze/stats/slots.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from powerband.loads.driver import TrialSetup
from powerband.loads.http.driver import fleet_for
from powerband.processes.connections import TreeConnections, connections_of
from powerband.processes.engine_process import Pump
from powerband.processes.failures import TrialFailed, TrialInterrupted
from powerband.processes.host import usable_cores
from powerband.processes.line_file import LineFile
from powerband.processes.subject_process import RunningSubject
from powerband.readings.fleet import merge_fleet
from powerband.readings.probe_samples import read_probe
from powerband.trials.driving import REPORT_SLACK_S, DriveLoop
from powerband.trials.instruments.instrument import Instrument
from powerband.wire.load_events import Summary
from powerband.wire.specs import Drain

# All of it takes 3.5 s at most, and two as a rule.
LOOK_NS = 800_000_000
DRAIN_NS = 300_000_000  # short, since the server is about to be stopped
# Linux delays the acknowledgement of a lone segment by at least 40 ms (TCP_DELACK_MIN), give or take a tick of its
# clock. A response that waits for one takes at least so long.
DELAYED_ACK_NS = 38_000_000
CPU_FULL = 0.80  # share of the server's CPUs in use from which these are the limit, so that slots mean nothing
CPU_WANTED = 1.0  # share used or waited for by the server, from which other programs' use of its CPUs counts too


@dataclass(frozen=True)
class _Length:
    """The length of a look: after `settles_ns`, which are not measured, it lasts for `least_ns`, and then until it has
    so many `answers`, but for no longer than `most_ns`."""

    settles_ns: int
    least_ns: int
    most_ns: int
    answers: int


_ALONE = _Length(50_000_000, LOOK_NS, 2 * LOOK_NS, 30)  # settles soon, since one user never queues
_DOUBLED = _Length(300_000_000, LOOK_NS, LOOK_NS, 0)  # new users connect, and threads start for them
_PROMPT = _Length(50_000_000, LOOK_NS // 4, LOOK_NS, 5)  # few answers do: times differ by 40 ms, or not at all


class SlotLooks(Instrument):
    """Takes its looks after the load, which must be one whose users never pause."""

    def __init__(self, setup: TrialSetup, phases: Mapping[str, int], announce: Callable[[str], None]) -> None:
        self._setup = setup
        self._phases = phases
        self._announce = announce
        self._found: dict[str, Any] = {}
        self._connections = TreeConnections(None, {})

    def after_load(self, subject: RunningSubject, pump: Pump) -> None:
        """Takes the looks, or notes that the server's CPUs were in full use, or why a look failed. Raises
        TrialInterrupted."""
        users = self._setup.load.users
        assert users is not None, "only such loads are looked at"
        used, wanted = self._cpu()
        if used >= CPU_FULL:
            self._found = {"cpu_used": used, "cpu_wanted": wanted}
            return
        self._announce("slots")
        try:
            alone = self._look(_ALONE, 1, subject, pump)
            doubled = self._look(_DOUBLED, 2 * users, subject, pump)
            self._found = {"alone": alone, "doubled": doubled, **asdict(self._connections)}
            if _takes_as_long_as_an_acknowledgement(alone):
                self._found["prompt"] = self._look(_PROMPT, 1, subject, pump, acknowledge_at_once=True)
        except TrialInterrupted:
            raise
        except TrialFailed as failed:
            self._found.setdefault("failed", failed.failure.message.partition("\n")[0])

    def record(self) -> dict[str, Any]:
        return {"slots": self._found}

    def _cpu(self) -> tuple[float, float]:
        """Two shares of the server's CPUs in the measured window. The first is in use: by the server, or by any program
        if the engine runs on these CPUs too, or if the server wanted more than all of them. The second is wanted: used
        by the server, or waited for by its threads. Both are 0 if the probe has no data."""
        setup = self._setup
        samples = read_probe(setup.directory.read_probe())
        tree = None if samples is None else samples.trees.get("subject")
        if samples is None or tree is None or "measure" not in self._phases:
            return 0.0, 0.0
        window = (self._phases["measure"], self._phases.get("drain", self._phases["end"]))
        length_ns = window[1] - window[0]
        own = setup.cpus.subject
        apart = bool(own) and not set(own) & set(setup.cpus.engine)
        dealt = float(len(own or setup.cpus.machine) or sum(map(len, usable_cores())))
        cpus = tree.highest("cpus_now", *window) or dealt
        if (quotas := tree.levels("cpu_quota_now", *window)) is not None:
            cpus, dealt = (min(each, float(quotas.min())) for each in (cpus, dealt))
        used = (tree.cores(*window) or 0.0) / cpus
        wanted = used + (tree.growth("run_wait_ns", *window) or 0.0) / length_ns / cpus
        everyone = sum(samples.host.growth(f"cpu_{kind}_ns", *window) or 0.0 for kind in ("busy", "steal")) / length_ns
        engines = sum(each.cores(*window) or 0.0 for each in samples.matching("engine")) if apart else 0.0
        in_use = max(used, min(1.0, (everyone - engines) / dealt))
        # Below that, waiting is no sign of a lack: threads that wake together wait for each other on a CPU with time.
        taken = in_use if not apart or wanted >= CPU_WANTED else used
        return taken, wanted

    def _look(
        self, plan: _Length, users: int, subject: RunningSubject, pump: Pump, *, acknowledge_at_once: bool = False
    ) -> list[Summary]:
        """Runs one short load and returns the engines' summaries. Raises TrialFailed."""
        setup = self._setup
        least_ns = min(plan.least_ns, setup.load.duration_ns)
        most_ns = max(least_ns, plan.most_ns if plan.answers else 0)
        load = setup.load.with_users(users, duration_ns=most_ns, drain_ns=DRAIN_NS)
        with (
            LineFile(Path(os.devnull)) as events,
            fleet_for(
                load,
                setup,
                subject,
                events,
                pump,
                warmup_ns=plan.settles_ns,
                acknowledge_at_once=acknowledge_at_once,
            ) as fleet,
        ):
            loop = DriveLoop(pump, fleet, on_intervals=lambda _: None, check=subject.check_alive)
            measured_ns = loop.go() + plan.settles_ns
            loop.wait_until(measured_ns + least_ns // 2)
            if not plan.answers and (root := subject.root_pid) is not None:
                self._connections = connections_of(root, and_its_own=root != subject.probe.pid)
            loop.wait_until(measured_ns + least_ns)
            loop.wait(lambda: fleet.seen["ok"] >= plan.answers, (measured_ns + most_ns - time.monotonic_ns()) / 1e9)
            fleet.send(Drain())
            if not loop.wait_for_end(DRAIN_NS / 1e9 + REPORT_SLACK_S):
                raise fleet.overdue("report the end of a look")
            return list(fleet.summaries)


def _takes_as_long_as_an_acknowledgement(alone: list[Summary]) -> bool:
    merged = merge_fleet(alone)
    times = None if merged is None else merged.times("response_time_ns")
    return times is not None and times.count > 0 and times.moment(1) >= DELAYED_ACK_NS
