"""Words a named bottleneck: each figure as a clause that can stand as a sentence, and the advice filled in. Nothing is
judged here."""

from __future__ import annotations

from collections.abc import Sequence

from powerband.analyze.stats.slots import Slots
from powerband.analyze.trial.bottleneck.scene import Scene
from powerband.base.units import format_duration, plural, share, significant, with_article
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import Bottleneck
from powerband.readings.pools import WatchedPool

STOLEN_TOLD = 0.03  # of the CPU time that was asked for: less does not change what a share of a CPU seems to be
MORE_PROCESSES = "start more processes"  # the cure for a lock that each process has for itself
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
    """Words the slots: `the server serves 197/s, and a request alone takes 20.5 ms: about 4 at once`. Slots
    are whole; what a request does outside of them adds a part of one to the product of the two figures. What it does on
    the network between two nodes is told, since it is taken off."""
    rate, alone = per_second(slots.most_per_s), format_duration(slots.alone_ns)
    if slots.network_ns:
        alone += f" ({format_duration(slots.network_ns)} of it on the network)"
    return f"the server serves {rate}, and a request alone takes {alone}: about {max(1, round(slots.value)):,} at once"


def served_twice(slots: Slots) -> str:
    """Words the gain: `a short look with twice the users (128) served 1.00 times as much`."""
    return f"a short look with twice the users ({2 * slots.users:,}) served {significant(slots.gain)} times as much"


def held_longer(took_ns: float, first_ns: float) -> str:
    """Words that requests hold their threads for longer, in ns, than the first one took: `a request holds its thread
    for 100 ms; the first one took 5.00 ms in all`."""
    took, first = format_duration(took_ns), format_duration(first_ns)
    return f"a request holds its thread for {took}; the first one took {first} in all"


def cpu_used(scene: Scene) -> str:
    """Words the server's use of its CPUs: `the server uses 71 % of its 2 CPUs`."""
    return f"the server uses {of_cpus(scene.cpu_share, scene.cpus)}"


def stolen(scene: Scene) -> list[str]:
    """Words what the hypervisor takes of the CPU time that is asked for, and interrupts of that in which its CPUs work;
    empty if that is little."""
    words = []
    if scene.stolen >= STOLEN_TOLD:
        words.append(f"the hypervisor takes {share(scene.stolen)} of the CPU time that is asked for")
    if scene.interrupted >= STOLEN_TOLD:
        words.append(f"interrupts take {share(scene.interrupted)} of the time in which its CPUs work")
    return words


def of_cpus(cpu_share: float, cpus: float | None, whose: str = "its") -> str:
    """`71 % of its 2 CPUs`: the share that the server uses of those that it may use."""
    number = "" if cpus is None else f"{cpus:.3g} "
    return f"{share(cpu_share)} of {whose} {number}{'CPU' if cpus == 1 else 'CPUs'}"


def with_cpu_use(evidence: Sequence[str], own: float, instead: float) -> tuple[str, ...]:
    """The evidence of a trial with another share of the CPUs that the server uses, such as the mean of several trials.
    `own`: the trial's share."""
    old, new = (f" {share(each)} of its " for each in (own, instead))
    return tuple(text.replace(old, new) for text in evidence)


def network_carries(bits_per_s: float) -> str:
    """Words the traffic between two nodes: `the network carries 941 Mbit/s of responses`."""
    return f"the network carries {significant(bits_per_s / 1e6)} Mbit/s of responses"


def outgoing_open(connections: int) -> str:
    """Words how many connections the server opened by itself: `the server has 8 connections of its own open`."""
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
    """A number of CPUs: `1 core`, `1.5 cores`."""
    text = significant(value)
    return f"{text} core" if text == "1" else f"{text} cores"


def per_second(value: float) -> str:
    """A rate: `197/s`."""
    return f"{significant(value)}/s"
