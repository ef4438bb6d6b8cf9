"""Converts a Thread Group: the number of users, their ramp-up, and the number or duration of their loops."""

from __future__ import annotations

from dataclasses import dataclass

from powerband.jmx.plan_findings import Findings, whole
from powerband.jmx.tree import Element, Property
from powerband.jmx.values import Values

USERS_MAX = 2**32 - 1  # the load engine's own limit
FOREVER = -1

_ERRORS = {"": "continue", "continue": "continue", "startnextloop": "startnextloop"}


@dataclass(frozen=True)
class Group:
    """A thread group. `users`: its threads, which begin within `ramp_s`. `loops`: None: without end. `duration_s`:
    None: not set in the plan. `goes_on`: after an error JMeter continues with the next request instead of starting the
    loop again."""

    users: int
    ramp_s: int
    loops: int | None
    duration_s: int | None
    goes_on: bool


def thread_group(element: Element, values: Values, findings: Findings) -> Group | None:
    """The group; None, with a refusal, if it cannot be converted."""
    users = findings.number(element, values, "ThreadGroup.num_threads", "the number of threads", kind=whole, default=0)
    ramp_s = findings.number(element, values, "ThreadGroup.ramp_time", "the ramp-up", kind=whole, default=0)
    loops = _loops(element, values, findings)
    duration_s = _duration(element, values, findings)
    on_error = element.text_of("ThreadGroup.on_sample_error")
    if on_error not in _ERRORS:
        findings.refuse(
            element,
            f"after an error it would do {on_error!r}, and users of powerband stay",
            "choose Continue or Start Next Thread Loop as the action after a sampler error",
        )
    if not findings.flag(element, values, "ThreadGroup.same_user_on_next_iteration", "same user", default=True):
        findings.refuse(
            element,
            "a new user on each iteration would connect anew, and users of powerband keep their connection",
            "tick Same user on each iteration, or switch Use KeepAlive off in all requests",
        )
    if users is not None and not 1 <= users <= USERS_MAX:
        findings.refuse(element, f"it has {users} threads, so that nothing is sent", "give it at least one thread")
    if users is None or ramp_s is None or loops is None:
        return None
    return Group(users, ramp_s, None if loops == FOREVER else loops, duration_s, _ERRORS.get(on_error) == "continue")


def loop_count(element: Element, written: Property | Element, values: Values, findings: Findings) -> int | None:
    """The loop count. -1: without end. None: refused."""
    text = findings.text(element, values, written.text_of("LoopController.loops", "1"), "the loop count")
    if text is None:
        return None
    try:
        loops = whole(text.strip() or "1")
    except ValueError:
        loops = FOREVER - 1
    if loops < FOREVER:
        findings.refuse(element, f"the loop count is {text!r}", "write a whole number, or -1 for without end")
        return None
    return loops


def _loops(element: Element, values: Values, findings: Findings) -> int | None:
    controller = element.find("ThreadGroup.main_controller")
    if controller is None:
        return 1
    loops = loop_count(element, controller, values, findings)
    if loops == 0:
        findings.refuse(element, "its loop count is 0, so that nothing is sent", "set the loop count")
        return None
    if loops is not None and loops > 0 and controller.text_of("LoopController.continue_forever") == "true":
        findings.refuse(
            element,
            f"it says both: go on for ever, and {loops} loops",
            "set the loop count to -1 (infinite), or LoopController.continue_forever to false",
        )
        return None
    return loops


def _duration(element: Element, values: Values, findings: Findings) -> int | None:
    """The duration of the scheduler; None without a scheduler: the plan then runs until it is stopped, unless it has a
    loop count."""
    if not findings.flag(element, values, "ThreadGroup.scheduler", "the scheduler"):
        return None
    duration_s = findings.number(element, values, "ThreadGroup.duration", "the duration", kind=whole, default=0)
    if duration_s == 0:
        findings.refuse(
            element,
            "its scheduler is on and says no duration (a time of day is not known)",
            "set its duration in seconds",
        )
        return None
    return duration_s
