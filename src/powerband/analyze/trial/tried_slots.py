"""Computes the slots of one trial: from its measured window and the two looks of its record, which
`trials/instruments/slot_looks.py` takes with other numbers of users.

In: a trial's evidence. Out: `Tried`, metrics, and a note where the looks were refused or failed. The arithmetic is in
`analyze/stats/slots.py`, what is concluded from it in `bottleneck/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from powerband.analyze.stats.slots import ANSWERS_LEAST, NotExactError, Slots, UsersServed, estimate_slots
from powerband.analyze.trial.disturbance import foreign_allowed, steal_allowed
from powerband.analyze.trial.processes import host_metrics
from powerband.model.results import Problem
from powerband.readings.evidence import Evidence, Source
from powerband.readings.fleet import SECOND_NS, MergedFleet

# The time of a request from the load engine to the server and back: a thread is woken at each end, on a CPU that may
# have slept.
HAND_OVERS_NS = 100_000
# A delayed acknowledgement takes 40 ms at the least; the server may send a part of the rest meanwhile.
DELAYED_ACK_LEAST_NS = 20e6


@dataclass(frozen=True)
class Tried:
    """The findings of one trial's looks at one user and at twice the users. `slots`: how many requests the server
    serves at once. `alone_ns`: the mean time of a request of one user. `doubled_per_s`: the rate of twice the users.
    `prompt_ns`: as `alone_ns`, for a user who acknowledges each part of an answer at once; None if that was not
    tried."""

    slots: Slots
    alone_ns: float
    doubled_per_s: float
    prompt_ns: float | None = None

    @property
    def delayed_ack_ns(self) -> float:
        """The time that a response waits until its first part is acknowledged, in ns."""
        return 0.0 if self.prompt_ns is None else max(0.0, self.alone_ns - self.prompt_ns)


def tried_of(evidence: Evidence) -> Tried | None:
    """The slots of a trial; None without the two looks. Raises NotExactError if they do not suffice."""
    looks, users = evidence.looks, evidence.load.users
    record = looks.recorded
    if "alone" not in record or users is None:
        return None
    if looks.alone is None or looks.doubled is None:
        raise NotExactError("no answer came in time")
    alone, doubled, prompt = looks.alone, looks.doubled, looks.prompt
    _check_undisturbed(evidence, (alone, doubled))
    loaded, look, outside = _look(evidence.fleet, users), _look(doubled, 2 * users), _outside(evidence)

    def slots_by(one: MergedFleet) -> Slots:
        user, network_ns = _one_user(one), _network_ns(evidence, one)
        return estimate_slots(user, loaded, look, _variation(one), outside, network_ns=network_ns)

    slots = slots_by(alone)
    prompt_ns = SECOND_NS / _one_user(prompt).rate_per_s if prompt is not None and prompt.goodput_per_s else None
    told = Tried(slots, slots.alone_ns, look.rate_per_s, prompt_ns)
    if prompt is None or not slots.limited or told.delayed_ack_ns < DELAYED_ACK_LEAST_NS:
        return told
    # A request that waits for an acknowledgement occupies no slot: the kernel holds the rest of its answer.
    with suppress(NotExactError):
        return replace(told, slots=slots_by(prompt))
    return told


def _check_undisturbed(evidence: Evidence, looks: Iterable[MergedFleet]) -> None:
    """Raises NotExactError if the window or a look was disturbed: looks are only a second long, and what others take
    from one they do not take from the other. What the hypervisor takes from all alike changes no ratio of rates."""
    if evidence.probe is None or evidence.host_cpus is None:
        return
    windows = [dict(host_metrics(evidence, evidence.probe, each)) for each in (evidence.fleet, *looks)]
    used = max(metrics.get("host_foreign_cores", 0.0) for metrics in windows)
    if (share := min(1.0, used / evidence.host_cpus)) > foreign_allowed(evidence.experiment):
        raise NotExactError(f"other programs used {100 * share:.0f} % of the CPUs meanwhile")
    stolen = [metrics.get("host_steal_share", 0.0) for metrics in windows]
    if max(abs(each - stolen[0]) for each in stolen) > steal_allowed(evidence.experiment):
        parts = ", ".join(f"{100 * each:.0f} %" for each in stolen)
        raise NotExactError(f"the hypervisor took unequal shares of the CPU time meanwhile ({parts})")


def _outside(evidence: Evidence) -> float:
    """The highest mean number of requests at work without a slot, or on their way: all that use the CPU, and those on
    the hand-over from the load engine and back."""
    tree = evidence.subject_tree
    used = 0.0 if tree is None else tree.cores(*evidence.window) or 0.0
    return used + evidence.fleet.goodput_per_s * HAND_OVERS_NS / SECOND_NS


def _network_ns(evidence: Evidence, alone: MergedFleet) -> float:
    """The least time in ns that a request of one user and its answer take on the network between two nodes: that of
    the fastest connection, which may include TLS, of the fastest answer, or of the exchange by which a node's clock was
    compared, whichever is least. 0 if the load came from the server's own node."""
    if not evidence.generators:
        return 0.0
    exchange_ns = 2.0 * min(node.uncertainty_ns for node in evidence.generators)
    return min(exchange_ns, alone.connect_times().quantile(0.0), alone.times("response_time_ns").quantile(0.0))


def _one_user(fleet: MergedFleet) -> UsersServed:
    """The answers of one user, in the time that they took rather than that of the look: the first request may have
    waited behind what was left over of the load, and was sent before the look began."""
    look, times = _look(fleet, 1), fleet.times("response_time_ns")
    if look.answers < ANSWERS_LEAST or not times.moment(1):
        return look
    return UsersServed(1, times.count, times.count * times.moment(1) / SECOND_NS)


def _variation(fleet: MergedFleet) -> float:
    """The squared coefficient of variation of one user's times."""
    times = fleet.times("response_time_ns")
    mean = times.moment(1)
    return times.moment(2) / mean**2 - 1 if mean else 0.0


def _look(fleet: MergedFleet, users: int) -> UsersServed:
    return UsersServed(users, round(fleet.goodput_per_s * fleet.window_s), fleet.window_s)


def _metrics(evidence: Evidence) -> Iterator[tuple[str, float]]:
    try:
        tried = tried_of(evidence)
    except NotExactError:
        return
    if tried is not None:
        slots = tried.slots
        yield "slots", slots.value
        yield "slots_low", slots.low
        yield "slots_high", slots.high
        yield "alone_time_ns_mean", tried.alone_ns
        if tried.prompt_ns is not None:
            yield "prompt_time_ns_mean", tried.prompt_ns
        yield "doubled_users_rate_per_s", tried.doubled_per_s
        yield "doubled_users_gain", slots.gain


def _problems(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    """Yields notes only, since the trial itself was measured before the looks."""
    if "slots" in metrics:
        return
    try:
        tried_of(evidence)
        why = evidence.record.slots.get("failed", "")
    except NotExactError as error:
        why = str(error)
    if why:
        yield Problem("no_slots", f"how many requests are served at once is not known: {why}", fatal=False)


SLOTS = Source("slots", _metrics, _problems)
