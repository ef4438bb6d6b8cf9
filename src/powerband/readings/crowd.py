"""Merges what the engines say of their WebSocket users: joins, drops, deliveries, and counts of the server's workers.

In: the engines' summaries, and how many users had joined when. Out: a `Crowd`. Not here: its metrics and problems
(`loads/websocket/measured.py`), requests and their times (`fleet.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from powerband.readings.fleet import MergedFleet, MergedTimes
from powerband.wire.load_events import EngineInterval, Summary


class Joined(NamedTuple):
    """The number of `users` that had joined at the end of an interval, `end_ns`. `engine`: the one they belong to;
    0 for those of all together, too."""

    end_ns: int
    users: int
    engine: int = 0


@dataclass(frozen=True)
class Crowd:
    """The WebSocket users of all engines together. Counts and times are of the whole run, except those called
    `*_in_window` and `delivery_times`.

    `started`: joins that began, `started` == `joined` + sum of `joins_failed` (by outcome); `joined` includes
    `rejoined`. `join_times`: from a user's scheduled start to joined. `drops`: connections that joined users lost, by
    reason; `close_codes`: close frames of the server, by code. `published_in_window`: stamped messages that were sent
    within the window; `delivered_in_window`: deliveries of these, whenever they arrived; `delivery_times`: from their
    sending to their arrival."""

    started: int
    joined: int
    rejoined: int
    joins_failed: Mapping[str, int]
    join_times: MergedTimes
    drops: Mapping[str, int]
    close_codes: Mapping[str, int]
    unmatched: int
    """The number of messages from the server that answer nothing, deliveries and unsolicited ones left out."""
    published_in_window: int
    delivered_in_window: int
    delivery_times: MergedTimes
    tallies: Mapping[str, int]
    """By worker of the server: the highest count that any engine received, since one worker serves users of several
    engines."""
    joined_at_start: int | None
    """Users that had joined when the window began; None without an interval before it."""
    joined_mean: float | None
    """Mean number of joined users, sampled with each interval of the window; None without one."""

    @property
    def dropped(self) -> int:
        """The number of connections that joined users lost."""
        return sum(self.drops.values())

    @property
    def failed(self) -> int:
        """The number of joins that failed; those still under way when the run ended are not counted."""
        return sum(self.joins_failed.values()) - self.joins_failed.get("unfinished", 0)


def joined_users(intervals: Iterable[EngineInterval]) -> Iterator[Joined]:
    """Yields the users that had joined at the end of each interval that tells of them."""
    for event in intervals:
        if (users := event.get("joined_now")) is not None:
            yield Joined(event["end_ns"], users, event.get("engine", 0))


def crowd_of(summaries: Sequence[Summary], joined: Iterable[Joined], fleet: MergedFleet) -> Crowd | None:
    """Merges what the engines reported; None if no engine has WebSocket users."""
    parts = [summary["websocket"] for summary in summaries if summary.get("websocket")]
    if not parts:
        return None
    tallies: dict[str, int] = {}
    for part in parts:
        for label, count in part["tallies"].items():
            tallies[label] = max(count, tallies.get(label, 0))
    at_start, mean = _joined(joined, fleet)
    return Crowd(
        started=sum(part["joins_started"] for part in parts),
        joined=sum(part["joined"] for part in parts),
        rejoined=sum(part["rejoined"] for part in parts),
        joins_failed=_added(part["joins_failed"] for part in parts),
        join_times=MergedTimes(part["join_time_ns"] for part in parts),
        drops=_added(part["drops"] for part in parts),
        close_codes=_added(part["close_codes"] for part in parts),
        unmatched=sum(part["unmatched"] for part in parts),
        published_in_window=sum(part["published_in_window"] for part in parts),
        delivered_in_window=sum(part["delivered_in_window"] for part in parts),
        delivery_times=MergedTimes(part["delivery_time_ns"] for part in parts),
        tallies=tallies,
        joined_at_start=at_start,
        joined_mean=mean,
    )


def _joined(samples: Iterable[Joined], fleet: MergedFleet) -> tuple[int | None, float | None]:
    """The number of users joined at the start of the window and the mean over it, summed over the engines."""
    before: dict[int, int] = {}
    within: dict[int, list[int]] = {}
    for sample in samples:
        if sample.end_ns <= fleet.start_ns:
            before[sample.engine] = sample.users
        elif sample.end_ns <= fleet.end_ns:
            within.setdefault(sample.engine, []).append(sample.users)
    mean = sum(sum(values) / len(values) for values in within.values()) if within else None
    return sum(before.values()) if before else None, mean


def _added(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    return dict(sum((Counter(part) for part in parts), Counter()).most_common())
