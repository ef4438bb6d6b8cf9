"""Measures the users of a WebSocket load: how long they took to join, how many were lost, what was delivered to them,
and what is wrong with them.

In: a trial's evidence with the `Crowd` in it. Out: metrics and problems. Not here: requests and their times, which
every load has (`loads/measured.py`), and why users failed (`failed_requests.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from powerband.loads.measured import in_flight_metrics, users_metrics
from powerband.model.load import Load
from powerband.model.results import Problem
from powerband.readings.crowd import Crowd
from powerband.readings.evidence import Evidence, Source
from powerband.readings.fleet import MergedFleet, MergedTimes, RequestCounts

JOINED_SHARE = 0.99  # of the users: with fewer at the start of the window it is not the load that was asked for
# Joins that this machine could not begin, and the remedy.
_OWN = {
    "no_descriptors": "raise the limit (ulimit -n) or lower load.users",
    "no_ports": "load a server on 127.0.0.1, where more source addresses follow by themselves, or widen "
    "net.ipv4.ip_local_port_range",
}


def _metrics(evidence: Evidence) -> Iterator[tuple[str, float]]:
    yield from users_metrics(evidence)
    if evidence.crowd is not None:
        yield from crowd_metrics(evidence.crowd, evidence.load, evidence.fleet.total)
    yield from in_flight_metrics(evidence)


def _problems(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    if evidence.crowd is not None:
        yield from crowd_problems(evidence.crowd, evidence.load, evidence.fleet.total)


USERS = Source("users", _metrics, _problems)


def with_absent(fleet: MergedFleet, crowd: Crowd | None, load: Load) -> MergedFleet:
    """Returns the fleet with users who had no connection among the unserved, as many as on average over the window: the
    engine counts those alone who sent something, with the time for which these had none, so that nobody counts twice.
    Where that mean is not known, or users leave once they have sent a number of requests, those are meant who never
    joined; and what others were to send, but did not since they were lost, is among the dropped requests."""
    fleet = _with_unsent(fleet, crowd, load)
    if fleet.unserved is None or crowd is None or load.users is None:
        return fleet
    joined: float = crowd.joined - crowd.rejoined
    counted_away = 0.0
    if crowd.joined_mean is not None and load.requests_per_user is None:
        joined, counted_away = crowd.joined_mean, fleet.unserved.away
    absent = max(0.0, load.users - joined)
    users = fleet.unserved.users + max(0.0, absent - counted_away)
    return replace(fleet, unserved=replace(fleet.unserved, users=min(users, load.users), absent=absent))


def _with_unsent(fleet: MergedFleet, crowd: Crowd | None, load: Load) -> MergedFleet:
    """Returns the fleet with the requests that users who had joined did not send before they were lost for good, as
    dropped ones. They are known only if users have a set number of requests and the load ended since all left. Those of
    unserved users, as far as they were lost, are counted as theirs."""
    most = load.requests_per_user
    if most is None or crowd is None or any(summary["ended_by"] != "work" for summary in fleet.summaries):
        return fleet
    unsent = (crowd.joined - crowd.rejoined) * most - fleet.total.scheduled
    if unsent <= 0:
        return fleet
    unserved = fleet.unserved
    if unserved is not None:
        theirs = max(0, round(unserved.users * most) - unserved.requests)
        unserved = replace(unserved, requests=unserved.requests + min(unsent, theirs))
    total, cohort = (
        replace(counts, scheduled=counts.scheduled + unsent, dropped=counts.dropped + unsent)
        for counts in (fleet.total, fleet.cohort)
    )
    return replace(fleet, total=total, cohort=cohort, unserved=unserved)


def crowd_metrics(crowd: Crowd, load: Load, total: RequestCounts) -> Iterator[tuple[str, float]]:
    """Yields metrics of joins, drops and deliveries. `total`: the messages of the whole run."""
    yield from _times("join_time_ns", crowd.join_times)
    if ended := crowd.joined + crowd.failed:
        yield "join_error_rate", crowd.failed / ended
    if crowd.joined_mean is not None:
        yield "joined_users", crowd.joined_mean
    yield "drops", float(crowd.dropped)
    if crowd.joined:
        yield "drop_rate", crowd.dropped / crowd.joined
    yield "rejoins", float(crowd.rejoined)
    yield from _times("delivery_time_ns", crowd.delivery_times)
    listens = load.websocket is not None and load.websocket.stamp_after is not None
    if listens and crowd.published_in_window and crowd.joined_mean:
        yield "delivered_share", crowd.delivered_in_window / (crowd.published_in_window * crowd.joined_mean)
    if load.websocket is not None and load.websocket.tally is not None:
        yield "tally_missing", float(total.sent - sum(crowd.tallies.values()))


def _times(name: str, times: MergedTimes) -> Iterator[tuple[str, float]]:
    if times.count:
        found = {"mean": times.moment(1), "p50": times.quantile(0.5), "p99": times.quantile(0.99), "max": times.maximum}
        yield from ((f"{name}_{key}", value) for key, value in found.items())


def crowd_problems(crowd: Crowd, load: Load, total: RequestCounts) -> Iterator[Problem]:
    """Reports users that are missing or were lost, and counts of the server that cannot be right; the fatal ones
    first."""
    for outcome, remedy in _OWN.items():
        if count := crowd.joins_failed.get(outcome, 0):
            yield Problem(f"generator_{outcome}", f"this machine ran out of {outcome[3:]} for {count} joins: {remedy}")
    yield from _tally_problem(crowd, load, total)
    if crowd.failed:
        kinds = counted({kind: count for kind, count in crowd.joins_failed.items() if kind != "unfinished"})
        yield Problem(
            "joins_failed",
            f"{crowd.failed:,} of {crowd.joined + crowd.failed:,} joins failed ({kinds}): the load had fewer users "
            "than it was to have; slow down load.join, raise load.connect_timeout, or look at the server's log",
            fatal=False,
        )
    if crowd.dropped:
        yield Problem("users_dropped", _dropped_text(crowd), fatal=False)
    by_order = load.websocket is not None and load.websocket.match == "order"
    if crowd.unmatched and by_order and any(step.answered for step in load.scenario):
        yield Problem(
            "unasked_messages",
            f"{crowd.unmatched:,} messages came to users who waited for no answer: one that comes while a user waits "
            "is taken for the answer, which makes times too short; name a text of these messages in "
            "load.websocket.unsolicited, or match answers by number (load.websocket.match)",
            fatal=False,
        )
    wanted = load.users or 0
    if crowd.joined_at_start is not None and crowd.joined_at_start < JOINED_SHARE * wanted:
        yield Problem(
            "not_all_joined",
            f"{crowd.joined_at_start:,} of {wanted:,} users had joined when the measured window began: fewer users "
            "than asked for were measured, or a number that still grew; slow down load.join, or lengthen "
            "measure.warmup_min",
            fatal=False,
        )


def _tally_problem(crowd: Crowd, load: Load, total: RequestCounts) -> Iterator[Problem]:
    """Compares the workers' counts with the load: over the whole run they must have counted at least the messages that
    were answered, and at most those that were sent, since the others may be lost with connections or on the way. If all
    were answered, both are one number."""
    tally = None if load.websocket is None else load.websocket.tally
    answered = total.ok + total.outcomes.get("check_failed", 0)
    if tally is None or not answered:
        return
    counted_by = sum(crowd.tallies.values())
    workers = f"{len(crowd.tallies)} worker{'' if len(crowd.tallies) == 1 else 's'}"
    if not crowd.tallies:
        yield Problem(
            "tally_differs",
            f"no answer holds a number after {tally.count_after!r}, so nothing shows that the server received what was "
            "sent: correct load.websocket.tally",
        )
    elif counted_by < answered and tally.label_after is not None and set(crowd.tallies) == {""}:
        yield Problem(
            "tally_differs",
            f"no answer holds a name after {tally.label_after!r}, so the counts of workers cannot be told apart: "
            "correct load.websocket.tally",
        )
    elif counted_by < answered:
        again = (
            f"; {crowd.dropped:,} users were dropped: a worker that died and was started again counts from 0"
            if crowd.dropped
            else ""
        )
        yield Problem(
            "tally_differs",
            f"{workers} counted {counted_by:,} messages, and {answered:,} were answered: one of them is wrong{again}",
        )
    elif counted_by > total.sent:
        yield Problem(
            "tally_differs",
            f"{workers} counted {counted_by:,} messages, and {total.sent:,} were sent: the server had counted before, "
            "counts some twice, or somebody else sends to it as well",
        )


def _dropped_text(crowd: Crowd) -> str:
    codes = f", {codes_text(crowd.close_codes)}" if crowd.close_codes else ""
    back = f"; users joined again {crowd.rejoined:,} times" if crowd.rejoined else ""
    return (
        f"{crowd.dropped:,} times a user who had joined lost the connection ({counted(crowd.drops)}{codes}){back}: the "
        "messages that this cost are among the errors; look at the server's log, or for a process of it that ended"
    )


def counted(counts: Mapping[str, int]) -> str:
    """Returns `12 closed, 3 heartbeat`, the most frequent first."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items(), key=lambda row: (-row[1], row[0])))


def codes_text(codes: Mapping[str, int]) -> str:
    """Returns `close codes 1001 (8), none (2)`."""
    return "close codes " + ", ".join(f"{code} ({count:,})" for code, count in codes.items())
