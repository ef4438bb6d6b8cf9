"""Converts a test plan to a load with its scenario, walking the plan as JMeter's compiler does.

Elements apply to the requests of their branch: those of the request itself come first, then those of the controllers
around it, of the thread group, and of the plan. Disabled elements are dropped with everything below them. All refusals
are collected and reported together; differences from JMeter become notes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from powerband.base.errors import UsageError, did_you_mean
from powerband.jmx.converted import Conversion, ConvertedLoad, ConvertedStep
from powerband.jmx.differences import note_load, note_requests, note_rows
from powerband.jmx.elements.assertions import check_of
from powerband.jmx.elements.data import Data, data_of, variables_of
from powerband.jmx.elements.groups import FOREVER, Group, loop_count, thread_group
from powerband.jmx.elements.http import RequestTarget, request_of
from powerband.jmx.elements.known import Role, advice_on, role_of
from powerband.jmx.elements.timers import PACED, Pause, Rate, pause_before, rate_of
from powerband.jmx.plan_findings import Findings, ImportRefused
from powerband.jmx.tree import Element
from powerband.jmx.values import Values

STEPS_MAX = 1000  # of a scenario written out; a longer file would be unreadable
CHARACTERS_MAX = 1_000_000  # of its requests, so that the file can be read again in seconds
SCOPE_MAX = 300  # elements that apply to one request; each is checked for each request: arbitrary
S_NS = 1_000_000_000


@dataclass(frozen=True)
class _Sampler:
    """A request, and the elements that apply to it: `near` from the nearest outwards, `far` in the opposite order.
    `after`: the pauses of the plan (Flow Control Actions) directly before it."""

    element: Element
    near: tuple[Element, ...]
    far: tuple[Element, ...]
    after: tuple[_Sampler, ...] = ()

    def scoped(self, role: Role) -> tuple[Element, ...]:
        return tuple(element for element in self.near if role_of(element) is role)


def convert(plan: Element, file: Path, properties: Mapping[str, str], partial: Sequence[str]) -> Conversion:
    """The plan's load. `properties`: like JMeter's -J; `partial`: names, or whole paths, of elements to leave out.

    Raises ImportRefused with everything that cannot be converted; UsageError if a name matches no element."""
    return _Converter(file, properties).convert(*_without(plan, partial))


class _Converter:
    """One conversion: the findings so far, and the values of names."""

    def __init__(self, file: Path, properties: Mapping[str, str]) -> None:
        self.file = file
        self.findings = Findings()
        self.values = Values({}, properties)
        self.repeats = True  # the thread group has more than one iteration

    def convert(self, plan: Element, left_out: tuple[str, ...]) -> Conversion:
        self._refuse_unknown(plan)
        self.values = self._with_variables(plan)
        element = self._only_group(plan)
        group = None if element is None else thread_group(element, self.values, self.findings)
        self.repeats = group is None or group.loops != 1
        samplers = () if element is None else self._samplers(plan, element)
        rows, group, own = self._data(plan, group)
        steps = self._steps(samplers, rows)
        self._stop_where_refused()
        assert element is not None and group is not None
        paced = self._paced(samplers, len(rows), group, element)
        load = self._load(element, group, paced, steps, len(samplers))
        target = self._one_target(steps, samplers)
        self._stop_where_refused()
        assert load is not None
        steps = _moved(steps, open_load=paced is not None)
        requests = [sampler.element for sampler in samplers]
        note_requests(self.findings, steps, requests, goes_on=group.goes_on, open_load=paced is not None)
        note_load(self.findings, load, secure=target.scheme == "https")
        note_rows(self.findings, len(rows), own=own)
        return Conversion(
            plan=plan.name,
            group=element.name,
            target=target,
            load=load,
            steps=steps,
            notes={text: tuple(names) for text, names in self.findings.notes.items()},
            left_out=left_out,
            defaults=self.values.defaults,
        )

    def _stop_where_refused(self) -> None:
        if self.findings.refusals:
            raise ImportRefused(str(self.file), list(self.findings.refusals))

    # --- the tree -----------------------------------------------------------------------------------------------------

    def _refuse_unknown(self, plan: Element) -> None:
        for element in plan.walk():
            if role_of(element) is None:
                advice = advice_on(element.kind)
                self.findings.refuse(element, advice.why, advice.instead)
        for child in plan.children:
            if role_of(child) in (Role.SAMPLER, Role.CONTROLLER):
                self.findings.refuse(
                    child, "it stands outside of a thread group, where JMeter never runs it", "move it"
                )

    def _with_variables(self, plan: Element) -> Values:
        """All user variables, in the order of the plan: JMeter collects them before the run, wherever they are."""
        variables = dict(self.values.variables)
        values = replace(self.values, variables=variables)
        for element in plan.walk():
            if role_of(element) is Role.PLAN:
                own = element.find("TestPlan.user_defined_variables")
                variables |= {} if own is None else variables_of(element, own, values, self.findings)
            elif role_of(element) is Role.VARIABLES:
                variables |= variables_of(element, None, values, self.findings)
        return values

    def _only_group(self, plan: Element) -> Element | None:
        groups = [element for element in plan.walk() if role_of(element) is Role.GROUP]
        for element in groups[1:]:
            self.findings.refuse(
                element,
                f"it is a second thread group beside {groups[0].name!r}, and an experiment has one kind of users",
                "import each group by itself, the others left out by name",
            )
        if not groups:
            self.findings.refuse(
                plan, "it has no thread group that is enabled", "add a Thread Group with HTTP Requests"
            )
            return None
        return groups[0]

    def _samplers(self, plan: Element, group: Element) -> tuple[_Sampler, ...]:
        """The requests of one iteration, in order. Elements at the plan's level apply as if they were in the group,
        after the group's own."""
        level = tuple(child for child in (*group.children, *plan.children) if _applies(child))
        found: list[_Sampler] = []
        pauses: list[_Sampler] = []
        for sampler in self._below(group, (level,)):
            if len(sampler.near) > SCOPE_MAX:
                self.findings.refuse(
                    sampler.element,
                    f"{len(sampler.near)} timers, assertions and settings apply to it, more than {SCOPE_MAX}",
                    "put together those that say the same",
                )
                return ()
            if role_of(sampler.element) is Role.PAUSE:
                pauses.append(sampler)
            else:
                found.append(replace(sampler, after=tuple(pauses)))
                pauses.clear()
            if len(found) + len(pauses) > STEPS_MAX:
                self.findings.refuse(
                    group,
                    f"with its loops written out it has more than {STEPS_MAX} requests",
                    "let its loop controllers loop less often",
                )
                return ()
        if not found:
            self.findings.refuse(group, "it sends nothing: there is no HTTP Request in it", "add an HTTP Request")
            return ()
        first = found[0]  # pauses after the last request come before the first one of the next round
        return (replace(first, after=(*pauses, *first.after)), *found[1:])

    def _below(self, parent: Element, levels: tuple[tuple[Element, ...], ...]) -> Iterator[_Sampler]:
        for child in parent.children:
            role = role_of(child)
            inner = (*levels, tuple(element for element in child.children if _applies(element)))
            if role in (Role.SAMPLER, Role.PAUSE):
                near = tuple(element for level in reversed(inner) for element in level)
                yield _Sampler(child, near, tuple(element for level in inner for element in level))
            elif role is Role.CONTROLLER or (role is None and child.children):  # within refused elements, too
                once = tuple(islice(self._below(child, inner), STEPS_MAX + 1))
                for _ in range(self._repeats(child) if once else 0):
                    yield from once

    def _repeats(self, controller: Element) -> int:
        if controller.kind == "TransactionController":
            self.findings.note("The time of a transaction as a whole is not measured, only its requests'.", controller)
        if controller.kind != "LoopController":
            return 1
        if self.repeats and controller.text_of("LoopController.continue_forever", "true") == "false":
            self.findings.refuse(
                controller,
                "JMeter runs it in the first iteration alone: its property LoopController.continue_forever is false",
                "set that to true in the file, as in every Loop Controller that JMeter itself writes",
            )
        loops = loop_count(controller, controller, self.values, self.findings)
        if loops == FOREVER:
            self.findings.refuse(
                controller,
                "it loops without end, and what follows it is never sent",
                "take its requests out of it, and let the thread group loop",
            )
            return 1
        return min(loops or 0, STEPS_MAX + 1)

    # --- data ---------------------------------------------------------------------------------------------------------

    def _data(self, plan: Element, group: Group | None) -> tuple[list[dict[str, str]], Group | None, bool]:
        """The rows of data that a user's iterations go through (a single empty row if there are none); the group, with
        its loops limited by the rows; and True if JMeter's users also go through the rows one by one."""
        found = [
            data
            for above, element in _with_controllers(plan, None)
            if role_of(element) is Role.DATA
            and self._is_of_iterations(element, above)
            and (data := data_of(element, self.values, self.findings, self.file.parent)) is not None
        ]
        if not found or group is None:
            return [{}], group, True
        for data in found:
            group = self._with_end(data, group)
        count = math.lcm(*(data.count for data in found))
        if group.loops is not None:
            count = min(count, group.loops)
        rows: list[dict[str, str]] = []
        for index in range(min(count, STEPS_MAX + 1)):
            row: dict[str, str] = {}
            for data in found:
                row |= data.rows[index % data.count]
            rows.append(row)
        return rows, group, group.users == 1 or all(data.own for data in found)

    def _is_of_iterations(self, element: Element, above: Element | None) -> bool:
        if above is None or role_of(above) is Role.GROUP:
            return True
        self.findings.refuse(
            element,
            f"it reads a row for each pass of {above.name!r}, not of the thread group",
            "move it to the thread group",
        )
        return False

    def _with_end(self, data: Data, group: Group) -> Group:
        """The group, with its loops limited to the number of rows if the rows are not recycled."""
        alone = data.own or group.users == 1
        enough = group.loops is not None and group.loops <= data.count
        if data.recycled or (alone and enough):
            if not alone and group.loops is not None and group.loops % data.count:
                sent = "alone" if enough else "more often than the others"
                self.findings.refuse(
                    data.element,
                    f"{group.users} users share its {data.count} rows, and with a loop count of {group.loops} each "
                    f"would send the first rows {sent}",
                    "let the thread group loop without end, for a duration",
                )
            return group
        if alone and data.stops:
            return replace(group, loops=data.count)
        if data.stops:
            why = f"{group.users} users share its rows and leave when there are no more, and users here go through all"
        else:
            why = "when there are no more rows its variables become <EOF>"
        self.findings.refuse(
            data.element, why, "set Recycle on EOF to True, or Sharing mode to Current thread with Stop thread on EOF"
        )
        return group

    # --- requests -----------------------------------------------------------------------------------------------------

    def _steps(self, samplers: Sequence[_Sampler], rows: Sequence[Mapping[str, str]]) -> tuple[ConvertedStep, ...]:
        if len(samplers) * len(rows) > STEPS_MAX:
            self.findings.refuse(
                samplers[0].element,
                f"written out for each row of the data, {len(samplers)} requests are more than {STEPS_MAX} steps",
                f"keep the first {max(1, STEPS_MAX // len(samplers))} rows of the file, or run the plan in JMeter",
            )
            rows = rows[:1]
        steps: list[ConvertedStep] = []
        characters = 0
        for row in rows:
            values = self.values.over(row)
            for sampler in samplers:
                step = self._step(sampler, values)
                if step is not None:
                    steps.append(step)
                    characters += step.request.characters
            if characters > CHARACTERS_MAX:
                self.findings.refuse(
                    samplers[0].element,
                    f"written out, its requests have more than {CHARACTERS_MAX:,} characters",
                    "shorten its bodies or its data, or run the plan in JMeter",
                )
            if self.findings.refusals:
                break
        return tuple(steps)

    def _step(self, sampler: _Sampler, values: Values) -> ConvertedStep | None:
        """One step of the scenario. For now, `pause` is the one before it."""
        request = request_of(
            sampler.element, sampler.scoped(Role.DEFAULTS), sampler.scoped(Role.HEADERS), values, self.findings
        )
        outward = tuple(element for element in sampler.far if role_of(element) is Role.ASSERTION)
        check = check_of(outward, values, self.findings)
        timers = [timer for each in (*sampler.after, sampler) for timer in each.scoped(Role.TIMER)]
        pause = pause_before(timers, [each.element for each in sampler.after], values, self.findings)
        return None if request is None else ConvertedStep(sampler.element.name, request, check, pause)

    def _one_target(self, steps: Sequence[ConvertedStep], samplers: Sequence[_Sampler]) -> RequestTarget:
        first = steps[0].request.target
        for index, step in enumerate(steps):
            if step.request.target != first:
                self.findings.refuse(
                    samplers[index % len(samplers)].element,
                    f"it asks {step.request.target.url}, and {steps[0].name!r} {first.url}: an experiment has one",
                    "leave the requests to one of the two out by name, or load each by itself",
                )
        return first

    # --- the load -----------------------------------------------------------------------------------------------------

    def _paced(self, samplers: Sequence[_Sampler], rows: int, group: Group, element: Element) -> Rate | None:
        """The rate at which the whole scenario begins; None: no timer sets a rate."""
        timers = {
            timer.full_path + str(timer.line): timer
            for sampler in samplers
            for timer in sampler.scoped(Role.TIMER)
            if timer.kind in PACED
        }
        if not timers:
            return None
        timer, *others = timers.values()
        for other in others:
            self.findings.refuse(other, f"it holds a rate, and so does {timer.name!r}", "keep one of the two")
        rate = rate_of(timer, self.values, self.findings)
        if rate is None:
            return None
        if group.loops is not None:
            self.findings.refuse(
                element,
                "it has both a number of loops and a throughput timer, and an open load has no loops",
                "set the loop count to infinite, and a duration",
            )
        if any(timer in action.near for sampler in samplers for action in sampler.after):
            self.findings.refuse(
                timer,
                "it holds back a Flow Control Action as well, which counts as a request for it and is none",
                "move it to the requests that it is about, or leave the action out by name",
            )
        if rows > 1:
            self.findings.refuse(
                timer,
                f"each arrival would send all {rows} rows of the data one after the other, in a burst",
                "leave the timer or the data out by name, or run the plan in JMeter",
            )
        covered = sum(1 for sampler in samplers if timer in sampler.near)
        whole = rate.per_s * (group.users if rate.of_each_thread else 1)
        return replace(rate, per_s=whole / covered)

    def _load(
        self, element: Element, group: Group, paced: Rate | None, steps: Sequence[ConvertedStep], per_loop: int
    ) -> ConvertedLoad | None:
        duration_ns = None if group.duration_s is None else group.duration_s * S_NS
        ramp_ns = group.ramp_s * S_NS
        warmup_ns: int | None = None
        if paced is not None and not paced.of_each_thread:
            ramp_ns = 0
        if group.loops is None and duration_ns is not None and ramp_ns:
            if duration_ns > ramp_ns:
                duration_ns -= ramp_ns
                self.findings.note(
                    "JMeter's duration holds the ramp-up; powerband's begins after it, and after a warm-up.", element
                )
            else:
                warmup_ns = 0
                self.findings.note(
                    "The test ends before its ramp-up does, so it is measured from its first request.", element
                )
        requests = None if group.loops is None else group.loops * per_loop
        if requests is not None and requests >= 2**32 - 1:
            self.findings.refuse(element, f"{requests} requests of each user are too many", "set a duration instead")
        return ConvertedLoad(
            users=group.users,
            rate_per_s=None if paced is None else paced.per_s,
            arrivals="constant" if paced is None else paced.arrivals,
            ramp_ns=ramp_ns,
            duration_ns=duration_ns,
            requests_per_user=requests,
            warmup_ns=warmup_ns,
            keep_alive=bool(self._same(element, steps, "Use KeepAlive", lambda step: step.request.keep_alive)),
            timeout_ns=self._timeout(element, steps),
            connect_timeout_ns=_ms(
                self._same(element, steps, "the connect timeout", lambda step: step.request.connect_timeout_ms)
            ),
        )

    def _timeout(self, element: Element, steps: Sequence[ConvertedStep]) -> int | None:
        asked = self._same(element, steps, "the response timeout", lambda step: step.request.timeout_ms)
        limit = self._same(element, steps, "the longest duration asserted", lambda step: step.check.longest_ms)
        if limit is not None:
            self.findings.note(
                f"A Duration Assertion of {limit} ms becomes the timeout: a request that takes longer fails here too, "
                "but it is given up then, where JMeter waits for its end."
            )
        return _ms(min((ms for ms in (asked, limit) if ms is not None), default=None))

    def _same(
        self, element: Element, steps: Sequence[ConvertedStep], what: str, of: Callable[[ConvertedStep], int | None]
    ) -> int | None:
        """The value that all requests share. If they differ, a refusal: an experiment has one value for all."""
        first = steps[0]
        for step in steps:
            if of(step) != of(first):
                self.findings.refuse(
                    element,
                    f"{what} of {step.name!r} differs from that of {first.name!r}, and an experiment has one for all",
                    "set the same for all requests, or none",
                )
                break
        return of(first)


def _without(plan: Element, partial: Sequence[str]) -> tuple[Element, tuple[str, ...]]:
    """The plan without disabled elements and those to be left out, and the paths of the latter."""
    enabled = _kept(plan, lambda element: element.enabled)
    known = {name for element in enabled.walk() for name in (element.name, element.full_path)} if partial else set()
    for name in partial:
        if name not in known:
            names = dict.fromkeys(element.name for element in enabled.walk())
            raise UsageError(f"--partial {name}: no enabled element has this name or path; {did_you_mean(name, names)}")
        if name in (plan.name, plan.full_path):
            raise UsageError(f"--partial {name}: that is the whole plan, of which nothing would be left")
    out = [element for element in enabled.walk() if {element.name, element.full_path} & set(partial)]
    kept = _kept(enabled, lambda element: element is enabled or not {element.name, element.full_path} & set(partial))
    return kept, tuple(f"{element.full_path} ({element.kind}, line {element.line})" for element in out)


def _kept(element: Element, keeps: Callable[[Element], bool]) -> Element:
    """The tree without elements that `keeps` rejects and everything below them; elements that JMeter never runs are
    dropped too."""
    children = tuple(
        _kept(child, keeps) for child in element.children if keeps(child) and role_of(child) is not Role.SILENT
    )
    return replace(element, children=children)


def _with_controllers(element: Element, above: Element | None) -> Iterator[tuple[Element | None, Element]]:
    """Every element below, with the nearest group or controller around it."""
    for child in element.children:
        yield above, child
        inner = child if role_of(child) in (Role.GROUP, Role.CONTROLLER) else above
        yield from _with_controllers(child, inner)


def _applies(element: Element) -> bool:
    return role_of(element) in (Role.DEFAULTS, Role.HEADERS, Role.TIMER, Role.ASSERTION)


def _moved(steps: tuple[ConvertedStep, ...], *, open_load: bool) -> tuple[ConvertedStep, ...]:
    """Moves each pause to the step before it. In a closed load the first pause moves to the last step, since users
    repeat the scenario."""
    following = [step.pause for step in (*steps[1:], steps[0])]
    if open_load:
        following[-1] = Pause()
    return tuple(replace(step, pause=pause) for step, pause in zip(steps, following, strict=True))


def _ms(value: int | None) -> int | None:
    return None if value is None else value * 1_000_000
