"""Words a named bottleneck: each figure as a clause that can stand as a sentence, and the advice filled in. Nothing is
judged here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from powerband.analyze.stats.slots import Slots
from powerband.analyze.trial.bottleneck.scene import Scene
from powerband.base.units import format_duration, plural, share, significant, with_article
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import Bottleneck
from powerband.readings.pools import WatchedPool

KINDS = {
    "lock": "waiting for a lock or a condition",
    "sleep": "sleeping",
    "socket": "waiting on a socket",
    "poll": "waiting for events",
    "disk": "waiting for the disk",
    "memory": "waiting for memory",
    "other": "waiting on something else",
}


def verdict(
    name: BottleneckName,
    evidence: Sequence[str],
    *,
    noun: str = "request",
    pool: str = "",
    more: str = "",
    advice: str = "",
) -> Bottleneck:
    """Makes a bottleneck. Its evidence is the first three clauses: more prove no more (slots are added in `rules.py`).
    Its advice is the table's, with `noun` and `pool` filled in and `more` added; or `advice`, if the figures ask for
    another one."""
    general = name.advice.format(noun=noun, a_noun=with_article(noun), pool=pool)
    return Bottleneck(name, tuple(evidence[:3]), advice or general + more)


def slots_served(slots: Slots) -> str:
    """Words the slots, which forecast any number of users: `the server serves 4 at once (one user alone waits 20.5 ms),
    197/s at most`. Slots are whole; what a request does outside of them adds a part of one."""
    at_once, each = max(1, round(slots.value)), format_duration(slots.alone_ns)
    return (
        f"the server serves {at_once:,} at once (one user alone waits {each}), {per_second(slots.most_per_s)} at most"
    )


def served_twice(slots: Slots) -> str:
    """Words the gain: `with 128 users it serves 1.00 times as much as with 64`."""
    return f"with {2 * slots.users:,} users it serves {significant(slots.gain)} times as much as with {slots.users:,}"


def cpu_used(scene: Scene, *, in_cores: bool = False) -> str:
    cores_too = _in_cores(scene.value("subject_cpu_cores")) if in_cores else ""
    return f"the server uses{of_cpu_time(scene.cpu_share)}{cores_too}"


def of_cpu_time(cpu_share: float) -> str:
    return f" {share(cpu_share)} of its CPU time"


def _in_cores(value: float) -> str:
    return f" ({cores(value)})"


CPU_USE: Mapping[str, Callable[[float], str]] = {"subject_cpu_share": of_cpu_time, "subject_cpu_cores": _in_cores}
"""The words of the clauses above for the server's CPU use, by metric."""


def with_cpu_use(evidence: Sequence[str], own: Mapping[str, float], instead: Mapping[str, float]) -> tuple[str, ...]:
    """The evidence of a trial with another figure of the server's CPU use, such as the mean of several trials. `own`:
    the trial's metrics; `instead`: by metric."""
    for metric, words in CPU_USE.items():
        if metric in own and metric in instead:
            evidence = [text.replace(words(own[metric]), words(instead[metric])) for text in evidence]
    return tuple(evidence)


def outgoing_open(connections: int) -> str:
    """Words their number: `the server has 8 connections of its own open`."""
    return f"the server has {plural(connections, 'connection')} of its own open"


def threads_at(pool: WatchedPool, busy: float, doing: str) -> str:
    """Words what threads do: `on average 29 of the 32 `pool` threads are sleeping`; for a single thread, the share of
    the time. `busy`: the mean number of threads that do it."""
    total = count(pool.use.threads)
    if total == "1":
        return f"the only `{pool.name}` thread is {doing} {share(min(1.0, busy))} of the time"
    everyone = busy >= pool.use.threads or count(busy) == total
    which = f"all {total}" if everyone else f"on average {count(busy)} of the {total}"
    return f"{which} `{pool.name}` threads are {doing}"


def count(value: float) -> str:
    """A mean number of threads, requests or connections: whole where it is nearly whole or large."""
    whole = round(value)
    return f"{whole:,}" if value >= 10 or (whole and abs(value - whole) < 0.15) else f"{value:.1f}"


def cores(value: float) -> str:
    text = significant(value)
    return f"{text} core" if text == "1" else f"{text} cores"


def per_second(value: float) -> str:
    return f"{significant(value)}/s"
