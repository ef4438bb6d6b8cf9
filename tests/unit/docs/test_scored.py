"""The rows of the planted bottlenecks are read as they were written, renewed one by one, and summed up on the page; the
page on comparing settings keeps its promise."""

from __future__ import annotations

import re
from dataclasses import replace

from fakes.confusion import SETS
from fakes.followed import FOLLOWED, GAIN_LEAST
from fakes.pages import ROOT, tables
from fakes.planted import Case, users
from fakes.planted_further import FURTHER_CASES, FURTHER_HEALTHY
from fakes.scored import DISTURBED, Row, fair, file_of, named_otherwise, renewed, sets_of, summary
from powerband.model.bottlenecks import BottleneckName as B

POOL = Row("pool: 4", "pool_too_small", "pool_too_small", "4 of 4 threads", "60 queue", "4", "4.1", "2026-11-24")
LOCK = Row("lock: 1", "lock", "no name", "", "", "1", "2.0", "2026-11-25")
CALM = Row("calm", "none", "none", "all was served", "", "", "", "2026-11-24")
KEPT = sets_of((ROOT / "docs" / "methods" / "data" / "planted-bottlenecks.csv").read_text())
NOT_IN_A_ROW = {B.ONE_THREAD, B.WAKE_UPS, B.SLOW_ANSWERS}  # e2e/test_self_driven.py and test_capacity.py plant them
CASES = [Case(row.case, "", users(1), B(row.planted)) for row in (POOL, LOCK, CALM)]


def test_rows_are_read_as_they_were_written() -> None:
    sets = {"one": {POOL.case: POOL, LOCK.case: LOCK}, "another": {CALM.case: CALM}}
    assert sets_of(file_of(sets)) == sets


def test_the_kept_rows_give_the_sums_of_the_page() -> None:
    page = (ROOT / "docs" / "methods" / "bottlenecks.md").read_text()
    for title, rows in KEPT.items():
        (said,) = re.findall(rf"<!-- {title}: begin -->\n(.*?)\n<!-- {title}: end -->", page, re.S)
        machine = re.findall(r"\d CPUs, Linux [\d.]+", said)[0]
        every = list(rows.values())
        assert said == " ".join(filter(None, (summary(every, machine), named_otherwise(every))))


def test_the_kept_rows_are_those_of_the_cases_that_there_are() -> None:
    """But for a case of a program that was not installed."""
    assert list(KEPT) == list(SETS)
    for title, cases in SETS.items():
        assert renewed(KEPT[title], {}, cases) == list(KEPT[title].values())
        assert [c.name for c in cases if c.name not in KEPT[title] and not getattr(c, "programs", ())] == []


def test_every_name_was_given_rightly_to_a_kept_row() -> None:
    assert {row.named for rows in KEPT.values() for row in rows.values() if row.right} == set(B) - NOT_IN_A_ROW


def test_no_held_out_case_is_a_tuned_one() -> None:
    tuned, held_out = ({case.options for case in SETS[title]} for title in ("confusion table", "held-out table"))
    assert held_out and not held_out & tuned


def test_false_verdicts_of_equal_settings_are_at_most_five_percent_in_each_cell() -> None:
    page = (ROOT / "docs" / "methods" / "comparing-settings.md").read_text()
    (block,) = re.findall(r"<!-- false verdicts: begin -->\n(.*?)<!-- false verdicts: end -->", page, re.S)
    ((head, *rows),) = tables(block)
    assert head[1:] == ["3 rounds", "5", "10", "races"] and len(rows) > 10
    assert max(float(cell.rstrip("%")) for row in rows for cell in row[1:]) <= 5
    assert "(docs/methods/comparing-settings.md) in at most 5 %" in (ROOT / "README.md").read_text()


def test_the_readme_sums_up_the_kept_rows() -> None:
    sets = sets_of((ROOT / "docs" / "methods" / "data" / "planted-bottlenecks.csv").read_text())
    rows = fair(row for rows in sets.values() for row in rows.values())
    planted = [row for row in rows if row.planted != B.NONE]
    healthy = [row for row in rows if row.planted == B.NONE]
    right = sum(row.right for row in planted)
    assert not [row for row in healthy if row.named not in (B.NONE, "no name")], "none is accused"
    said = (
        f"of {len(planted)} limits planted in servers that we set up ourselves {right} are named rightly, "
        f"and none of {len(healthy)} healthy trials is accused; rules were mended after looks"
    )
    assert said in (ROOT / "README.md").read_text()


def test_the_page_says_how_many_cases_there_are() -> None:
    page = (ROOT / "docs" / "methods" / "bottlenecks.md").read_text()
    assert f"has {len(FURTHER_CASES)} limits and {len(FURTHER_HEALTHY)} healthy cases" in page
    assert f"measures {len(FOLLOWED)} cases before and after the advice was followed" in page
    assert f"serves more than {GAIN_LEAST} times as much" in page


def test_a_renewed_row_takes_the_place_of_the_old_one() -> None:
    newer = replace(LOCK, named="lock", told="1.0")
    old = {row.case: row for row in (CALM, LOCK, POOL)}
    assert renewed(old, {LOCK.case: newer}, CASES) == [POOL, newer, CALM]


def test_a_disturbed_trial_leaves_the_row_that_there_is() -> None:
    disturbed = replace(LOCK, named=DISTURBED)
    assert renewed({LOCK.case: LOCK}, {LOCK.case: disturbed}, CASES) == [LOCK]
    assert renewed({}, {LOCK.case: disturbed}, CASES) == [disturbed]


def test_a_row_that_is_planted_as_something_else_by_now_is_dropped() -> None:
    old = {POOL.case: replace(POOL, planted="downstream"), "no more": replace(CALM, case="no more")}
    assert renewed(old, {}, CASES) == []


def test_the_sums_of_the_rows() -> None:
    another = Row("another", "lock", DISTURBED, "", "", "", "", "2026-11-25")
    assert summary([POOL, LOCK, CALM, another], "2 CPUs, Linux") == (
        "2026-11-24 to 2026-11-25, 2 CPUs, Linux: 1 of 2 planted bottlenecks were named rightly, 0 of 1 healthy trials "
        "were accused. 1 of 2 numbers of slots were within 10% of what was planted. Left out, for other programs or "
        "the hypervisor disturbed them: 1."
    )
    assert named_otherwise([POOL, LOCK, CALM, another]) == "Named otherwise: `lock` as no name (1 of 1)."
    assert not named_otherwise([POOL, CALM])
