"""The words of a named bottleneck: its figures as clauses, its advice filled in. No judgement here."""

from __future__ import annotations

from collections.abc import Sequence

from powerband.analyze.stats.slots import Slots
from powerband.analyze.trial.bottleneck.scene import Scene
from powerband.base.units import format_duration, significant, with_article
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import Bottleneck

KINDS = {
    "lock": "for a lock or a condition",
    "sleep": "in a sleep",
    "socket": "on a socket",
    "poll": "for events",
    "disk": "for the disk",
    "memory": "for memory",
    "other": "on something else",
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
    """The first three clauses are the evidence: more prove no more (slots are added in `rules.py`). The advice is the
    table's, with `noun` and `pool` filled in and `more` added; or `advice`, where the figures ask for another one."""
    general = name.advice.format(noun=noun, a_noun=with_article(noun), pool=pool)
    return Bottleneck(name, tuple(evidence[:3]), advice or general + more)


def slots_served(slots: Slots) -> str:
    """`serves 4 at once, 20 ms each, at most 197/s`: the forecast for any number of users. Slots are whole; what a
    request does outside of them adds a part of one."""
    each = format_duration(slots.alone_ns)
    return f"serves {max(1, round(slots.value)):,} at once, {each} each, at most {per_second(slots.most_per_s)}"


def cpu_used(scene: Scene) -> str:
    return f"the subject uses {share(scene.cpu_share)} of its CPU time"


def count(value: float) -> str:
    """A mean number of threads, requests or connections: whole where it is nearly whole or large."""
    whole = round(value)
    return f"{whole:,}" if value >= 10 or (whole and abs(value - whole) < 0.15) else f"{value:.1f}"


def share(value: float) -> str:
    return f"{100 * value:.0f} %"


def cores(value: float) -> str:
    text = significant(value)
    return f"{text} core" if text == "1" else f"{text} cores"


def per_second(value: float) -> str:
    return f"{significant(value)}/s"
