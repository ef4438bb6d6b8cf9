"""The name that each planted case got when it was last tried: rows of a CSV file, which are renewed one by one."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime

from fakes.planted import Case
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import TrialResult

CPU_LEFT, SLOTS_WITHIN = 0.8, 0.1
FIGURES = 2  # number of figures of the evidence in the file
NONE = BottleneckName.NONE.value
COLUMNS = ("set", "case", "planted", "named", "first figure", "second figure", "slots planted", "slots measured", "on")
DISTURBED = "disturbed"


@dataclass(frozen=True)
class Row:
    """One case. `named`: the bottleneck named, or `DISTURBED` if other programs spoilt the trial; `slots`: the planted
    number, empty if that is not scored; `told`: the measured number."""

    case: str
    planted: str
    named: str
    first: str
    second: str
    slots: str
    told: str
    on: str

    @classmethod
    def of(cls, case: Case, result: TrialResult) -> Row:
        found = result.bottleneck
        figures = [*(found.evidence if found else ()), *[""] * FIGURES][:FIGURES]
        asked = case.slots and result.metrics.get("subject_cpu_share", 0.0) < CPU_LEFT
        slots, told = (str(case.slots), f"{result.metrics.get('slots', 0.0):.1f}") if asked else ("", "")
        name = "no name" if found is None else found.name.value
        return cls(case.name, case.expected.value, name, *figures, slots, told, f"{datetime.now(UTC):%Y-%m-%d}")

    @classmethod
    def disturbed(cls, case: Case) -> Row:
        return cls(case.name, case.expected.value, DISTURBED, "", "", "", "", f"{datetime.now(UTC):%Y-%m-%d}")

    @property
    def right(self) -> bool:
        return self.planted == self.named

    @property
    def slots_are_near(self) -> bool:
        return abs(float(self.told) / float(self.slots) - 1) <= SLOTS_WITHIN


def sets_of(text: str) -> dict[str, dict[str, Row]]:
    """The rows of the file, by their set and the name of their case."""
    sets: dict[str, dict[str, Row]] = {}
    for name, *cells in list(csv.reader(io.StringIO(text)))[1:]:
        row = Row(*cells)
        sets.setdefault(name, {})[row.case] = row
    return sets


def file_of(sets: Mapping[str, Mapping[str, Row]]) -> str:
    into = io.StringIO()
    writer = csv.writer(into, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows((name, *astuple(row)) for name, rows in sets.items() for row in rows.values())
    return into.getvalue()


def named_otherwise(every: Iterable[Row]) -> str:
    """A sentence with the wrong names by planted bottleneck, and of how many trials; empty if all were right."""
    rows = fair(every)
    planted = Counter(row.planted for row in rows)
    wrong = Counter((row.planted, row.named) for row in rows if not row.right)
    found = [
        f"`{name}`{' (healthy)' if name is BottleneckName.NONE else ''} as {named} ({count} of {planted[name]})"
        for name in BottleneckName
        for (of_it, named), count in wrong.items()
        if of_it == name
    ]
    return f"Named otherwise: {', '.join(found)}." if found else ""


def summary(every: Sequence[Row], machine: str) -> str:
    rows = fair(every)
    planted = [row for row in rows if row.planted != NONE]
    healthy = [row for row in rows if row.planted == NONE]
    accused = sum(row.named not in ("no name", NONE) for row in healthy)
    unnamed = sum(row.named == "no name" for row in healthy)
    nameless = f", {unnamed} had no name" if unnamed else ""
    left_out = len(every) - len(rows)
    noise = f" Left out, for other programs or the hypervisor disturbed them: {left_out}." if left_out else ""
    days = sorted({row.on for row in rows})
    when = " to ".join(days if len(days) < 3 else (days[0], days[-1]))
    return (
        f"{when}, {machine}: {sum(row.right for row in planted)} of {len(planted)} planted bottlenecks were named "
        f"rightly, {accused} of {len(healthy)} healthy trials were accused{nameless}.{slots_told(rows)}{noise}"
    )


def fair(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.named != DISTURBED]


def slots_told(rows: Sequence[Row]) -> str:
    """A sentence with how many of the planted numbers of slots were measured within `SLOTS_WITHIN`; empty if none was
    scored."""
    asked = [row for row in rows if row.slots]
    near = sum(row.slots_are_near for row in asked)
    return (
        f" {near} of {len(asked)} numbers of slots were within {SLOTS_WITHIN:.0%} of what was planted." if asked else ""
    )


def renewed(old: Mapping[str, Row], new: Mapping[str, Row], cases: Iterable[Case]) -> list[Row]:
    """The rows in the order of the cases. The row of a case that is gone, or for which another name is planted now, is
    dropped; a disturbed trial does not replace an old row."""
    rows = {**new, **old, **{row.case: row for row in fair(new.values())}}
    kept = ((case, rows[case.name]) for case in cases if case.name in rows)
    return [row for case, row in kept if row.planted == case.expected]
