"""Bounds how much of a trial other programs and the hypervisor can have held up.

In: a trial's evidence. Out: `held_up_share_max`, the rates that stand for the trial in a comparison, and whether that
bound judges it. Not here: what follows for a comparison (`ResponseTable.slack`), fixed limits (`honesty.py`).
Derivation: docs/methods/disturbance.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np

from powerband.analyze.trial.laws import IDLE_KINDS
from powerband.analyze.trial.processes import foreign_cores
from powerband.loads.measured import THREAD_SHARE_MAX, THROTTLED, full_share
from powerband.model.experiment import FOREIGN_CPU_MAX, STEAL_MAX, Experiment
from powerband.model.metrics import METRICS
from powerband.readings.evidence import Evidence
from powerband.readings.fleet import SECOND_NS, MergedFleet
from powerband.readings.pools import WatchedPool, watched_share
from powerband.readings.probe_samples import COVERED_LEAST, Array, Counters
from powerband.readings.quiet_time import ERRORS, QuietTime

QUIETER = "when the host is quieter or a burstable machine has CPU credits again"
"""When the hypervisor takes less. What a machine may not use for its own limit counts as stolen, as if others had it:
of instances whose CPU is paid in credits (AWS t3, Azure B, Google e2-micro), once these are used up."""
RATES = ("goodput_per_s", "achieved_rate_per_s")  # of requests: the effect of lost time on them is known
QUIET_SHARE = 0.03  # of the trial's CPUs, used by others: as much as the default margin
QUIET_CORES = 0.06  # used by others: as much is seen where nothing else runs (kernel threads, the bench's own)
# Names of the processes of databases and other servers that a server may call.
SERVICES = frozenset(
    {
        *("postgres", "pgbouncer", "mysqld", "mariadbd", "mongod", "sqlservr", "redis-server", "valkey-server"),
        *("memcached", "beam.smp", "java", "node", "nginx", "haproxy"),
    }
)
EXCUSES = 0.1  # of its time held up by others: beyond it a trial shows no fault that a lack of CPU may cause
WHOLE = 0.01
"""A trial held up for no larger share of its time counts whole: a third of the default margin."""
SEEN_LEAST = 0.8  # of the subject's CPU time, in threads that were read: those of the rest waited for no known time
IDLE_LEAST = 0.25  # of the time of the subject's CPUs, idle: a thread that may run then finds one
TELLS_NOTHING = 0.5
"""A trial held up for a larger share of its time shows nothing: the server may do twice as well, and a bound as large
as that is none (`regret.MOST`)."""


def judged_by_bound(experiment: Experiment) -> bool:
    """True if disturbance widens intervals instead of being held to a fixed limit: settings are compared by a rate of
    requests, and the experiment has no condition on times, no claims or published figures, and no limit of its own."""
    objective, measure = experiment.objective, experiment.measure
    rates = objective.metric in RATES and objective.direction == "maximise"
    timed = any(_is_lengthened(constraint.metric) for constraint in objective.constraints)
    limited = measure.foreign_cpu_max is not None or measure.steal_max is not None
    return rates and not (timed or limited or experiment.claims or experiment.published)


def _is_lengthened(metric: str) -> bool:
    """True for a time that a wait for a CPU lengthens; not for CPU time, nor for the time until a limit is reached."""
    known = METRICS[metric]
    return known.unit in ("ns", "s") and known.source != "growing" and "cpu_ns" not in metric


def suffers(metric: str) -> bool:
    """True for what a lack of CPU may change: a rate, the outcome of a load or of a visit, a time that a wait for a CPU
    lengthens. Not so for what a server counts wrongly, and for its memory and threads."""
    known = METRICS[metric]
    of_load = known.needs_load or known.source in ("bars", "rate_counter", "visits")
    return (of_load and metric != "tally_missing") or known.unit == "per_s" or _is_lengthened(metric)


def foreign_allowed(experiment: Experiment) -> float:
    """The fixed limit on CPU of other programs, as a share of the trial's CPUs."""
    given = experiment.measure.foreign_cpu_max
    return FOREIGN_CPU_MAX if given is None else given


def steal_allowed(experiment: Experiment) -> float:
    """The fixed limit on stolen time, as a share of the CPUs' time."""
    given = experiment.measure.steal_max
    return STEAL_MAX if given is None else given


def of_own_service(neighbours: Mapping[str, float], experiment: Experiment) -> str:
    """A clause for the advice to stop other programs: one of them may be the server's own database, or another server
    that it calls. Empty if none of them is known as such, or if more than the default is allowed for already.
    `neighbours`: the CPUs that other programs used, by name."""
    if foreign_allowed(experiment) > FOREIGN_CPU_MAX:
        return ""
    found = (name for name, used in neighbours.items() if name in SERVICES and used >= QUIET_CORES)
    if (name := next(found, None)) is None:
        return ""
    return (
        f"; if {name} is the server's own database, or a server that it calls, it belongs to what is measured: allow "
        "for it (measure.foreign_cpu_max)"
    )


def disturbance_metrics(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yields the share of the trial's time that others can have held up, at most, and the figures of its quiet parts
    where these stand for the trial. Yields nothing if it is not known what others used."""
    probe, fleet = evidence.probe, evidence.fleet
    if probe is None:
        return
    foreign, stolen = foreign_cores(evidence, probe, fleet), stolen_most(evidence)
    if stolen is None or (foreign is None and evidence.foreign_is_known):
        return
    waited = 0.0 if foreign is None else min(foreign, _waited(evidence, foreign))
    share = min(1.0, waited + stolen)
    yield "held_up_share_max", share
    if not judged_by_bound(evidence.experiment):
        return
    quiet = evidence.quiet_time
    full = full_share(evidence, foreign)
    if quiet is not None and _is_disturbed(share, foreign or 0.0, stolen) and _tells_more(quiet, share, fleet, full):
        yield "quiet_s", quiet.seconds
        yield "quiet_held_up_share_max", quiet.held_up
        yield "window_goodput_per_s", fleet.goodput_per_s
        yield "window_achieved_rate_per_s", fleet.achieved_per_s


def stolen_most(evidence: Evidence) -> float | None:
    """The share of the window that steal can have cost the trial, at most: what threads that run one after the other
    can have lost, second by second. If the probe did not tell CPUs apart, all that was stolen, in CPUs. None if it did
    not read the host's CPU time."""
    host = None if evidence.probe is None else evidence.probe.host
    stolen_ns = None if host is None else host.growth("cpu_steal_ns", *evidence.window)
    if host is None or stolen_ns is None:
        return None
    start, end = evidence.window
    edges: Array = np.append(np.arange(start, end, SECOND_NS, dtype=np.float64), float(end))
    each = list(_steps_of_cpus(host, edges))
    if not each:
        return stolen_ns / (end - start)
    stolen, used = (np.array(part) for part in zip(*each, strict=True))
    known = ~np.isnan(stolen + used).any(axis=0)
    lengths = np.diff(edges)[known]
    if lengths.sum() < COVERED_LEAST * (end - start):
        return stolen_ns / (end - start)
    return float(_stolen_one_by_one(stolen[:, known], used[:, known], lengths).sum() / lengths.sum())


def _steps_of_cpus(host: Counters, at_ns: Array) -> Iterator[tuple[Array, Array]]:
    """Yields what was stolen of each of the trial's CPUs from each of these times to the next, and what was used, in
    ns; NaN where it was not read."""
    for cpu in itertools.count():
        stolen, used = (host.steps(f"cpu_{kind}_ns_each_{cpu}", at_ns) for kind in ("steal", "busy"))
        if stolen is None or used is None:
            return
        yield stolen, used


def _stolen_one_by_one(stolen: Array, used: Array, lengths_ns: Array) -> Array:
    """The most that threads which run one after the other can have lost in each step, in ns: they asked for no more CPU
    time than its length, and of each CPU for no more than all threads together. Worst are the CPUs that lost the
    largest part of what was asked of them. `stolen`, `used`: in ns, by CPU and step."""
    asked = stolen + used
    part = np.divide(stolen, asked, out=np.zeros_like(asked), where=asked > 0)
    order = np.argsort(-part, axis=0)
    part, asked = (np.take_along_axis(each, order, axis=0) for each in (part, asked))
    before = np.cumsum(asked, axis=0) - asked
    lost: Array = (part * np.clip(lengths_ns - before, 0, asked)).sum(axis=0)
    return lost


def _is_disturbed(share: float, foreign: float, stolen: float) -> bool:
    return share > WHOLE and not (foreign <= QUIET_CORES and stolen <= WHOLE)


def _tells_more(quiet: QuietTime, share: float, fleet: MergedFleet, full: float = THREAD_SHARE_MAX) -> bool:
    """True if less is unknown of the quiet parts than of the whole window. False if less was served in them, or more
    than the others can have held up, since the others then work for the server; or if the load engine had hardly any
    CPU left in them, given that its busiest thread used more while more was served. `full`: the share of a CPU beyond
    which it has none left."""
    error = ERRORS * quiet.error
    slower = quiet.goodput_per_s * (1 + error) < fleet.goodput_per_s
    beyond = quiet.goodput_per_s * (1 - error) * (1 - share) > fleet.goodput_per_s
    engine = fleet.cpu_share_max * quiet.achieved_per_s
    return quiet.held_up + error < share and not slower and not beyond and engine <= full * fleet.achieved_per_s


def compared_rates(evidence: Evidence, metrics: Mapping[str, float]) -> Mapping[str, float]:
    """The rates of a disturbed trial's quiet parts, which stand for those of its whole window; empty if the window
    stands for itself."""
    quiet = evidence.quiet_time
    if quiet is None or "quiet_s" not in metrics:
        return {}
    return dict(zip(RATES, (quiet.goodput_per_s, quiet.achieved_per_s), strict=True))


def held_up(evidence: Evidence, metrics: Mapping[str, float]) -> float:
    """The share of the trial's time that a comparison must allow for; 0 if it cannot have mattered, or if fixed limits
    judge the trial."""
    if not judged_by_bound(evidence.experiment):
        return 0.0
    quiet = evidence.quiet_time
    if quiet is not None and "quiet_s" in metrics:
        return quiet.held_up if _is_disturbed(quiet.held_up, quiet.foreign, quiet.stolen) else 0.0
    share = metrics.get("held_up_share_max", 0.0)
    disturbed = _is_disturbed(share, metrics.get("host_foreign_cores", 0.0), stolen_most(evidence) or 0.0)
    return min(share, TELLS_NOTHING) if disturbed else 0.0


def _waited(evidence: Evidence, foreign: float) -> float:
    """The share of the window that waits for CPUs which others used can have cost the trial, at most. Each pool of the
    subject's threads counts with the share of one thread: its own wait, and that of the threads that it waits for. The
    load engine's threads, each with users of its own, count by the largest share that one of them has of the load, each
    other process with all its waits. Waits for a CPU quota that is used up count for nothing. 1 if the kernel does not
    count them, or if much was done by threads that ended before they were read. A subject on another machine has its
    own CPUs, and counts for nothing."""
    probe = evidence.probe
    assert probe is not None
    stopped = _waits_for_its_quota(evidence)
    if stopped and evidence.shares_quota:
        return 0.0
    waits = {name: tree.growth("run_wait_ns", *evidence.window) for name, tree in probe.trees.items()}
    if any(wait is None for wait in waits.values()) or (evidence.is_here and "subject" not in waits):
        return 1.0
    shares = {name: (wait or 0.0) / SECOND_NS / evidence.fleet.window_s for name, wait in waits.items()}
    engines = sum(share for name, share in shares.items() if name.split("-")[0] == "engine")
    services = sum(share for name, share in shares.items() if name.split("-")[0] not in ("engine", "subject"))
    others = services + engines * _largest_part(evidence)
    if stopped:
        return others
    pools = evidence.pools
    in_pools = sum(pool.use.run_wait for pool in pools)
    cores = 0.0 if "subject" not in probe.trees else probe.trees["subject"].cores(*evidence.window) or 0.0
    read = watched_share(probe.threads, *evidence.window) > 0  # else the pools' figures are of the time around it
    if read and sum(pool.use.on_cpu for pool in pools) < SEEN_LEAST * cores:
        return 1.0
    # Threads that come and go are in no pool's count: their waits are taken whole.
    rest = max(0.0, shares.get("subject", 0.0) - in_pools)
    return others + rest + sum(_pool_waited(pool, foreign) for pool in pools)


def _largest_part(evidence: Evidence) -> float:
    """The largest share of the load that one thread of the load engine has: users are dealt to the threads in turn,
    arrivals evenly. 1 if the number of threads is not known."""
    threads, users = max(1, evidence.fleet.threads), evidence.load.users
    return 1 / threads if users is None else math.ceil(users / threads) / users


def _waits_for_its_quota(evidence: Evidence) -> bool:
    """True if a CPU quota stopped the subject in most periods while its CPUs idled: its threads then wait for the
    quota, which it would have used up without the others, too. False if what its CPUs did is not known."""
    probe, window = evidence.probe, evidence.window
    tree = None if probe is None else probe.trees.get("subject")
    if probe is None or tree is None:
        return False
    periods, throttled = (tree.growth(f"{name}_periods", *window) for name in ("quota", "throttled"))
    if not periods or throttled is None or throttled < THROTTLED * periods:
        return False
    steps = list(_steps_of_cpus(probe.host, np.array(window, dtype=np.float64)))
    pinned = {cpu for part in ("subject", "engine", "probe") for cpu in evidence.record.cpus.get(part, ())}
    # Of a server in a container, whose CPUs are not chosen here, those of the whole machine are read.
    whole = len(steps) > len(pinned)
    every = sorted(pinned.union(evidence.record.cpus.get("machine", ())) if whole else pinned)
    own = [every.index(cpu) for cpu in evidence.record.cpus.get("subject", ())] or range(len(steps))
    if not steps or max(own) >= len(steps):
        return False
    busy = sum(float(steps[cpu][0][0] + steps[cpu][1][0]) for cpu in own) / len(own)
    return busy <= (1 - IDLE_LEAST) * (window[1] - window[0])


def _pool_waited(pool: WatchedPool, foreign: float) -> float:
    """The share of the window that waits for a CPU can have cost one thread of the pool. Other programs that run keep
    `foreign` threads at a time from a CPU on average, however many wait. Each of the pool's threads that wait for
    others (for the lock that one of them holds, for work) may wait for one that has no CPU. Nothing is held up while no
    thread waits for a CPU, hence no more than these waits."""
    use = pool.use
    idle = pool.blocked_on(*IDLE_KINDS) if use.blocked_on else use.blocked
    waited = min(use.run_wait, foreign)
    return min(waited, (waited + idle) / use.threads)
