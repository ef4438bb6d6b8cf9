"""The tables that `make statistics` makes are those of this code: each page shows what the kept results of its cases
say, and a case that is simulated anew, from its own seed, gives what is kept."""

from __future__ import annotations

import re

import pytest

from fakes.made import Made
from fakes.made_tables import METHODS, TABLES, kept_results

KEPT = kept_results()
AGAIN = "`make statistics` makes the tables anew"
EVERY = 19  # so many cases of a table have one that `make test-long` simulates

each_table = pytest.mark.parametrize("made", TABLES, ids=lambda made: made.title)


def check(made: Made, case: str) -> None:
    """A search for a capacity may differ in the last digits of its figures from one kind of CPU to another."""
    kept = KEPT.get(made.title, {}).get(case)
    assert kept is not None, f"{AGAIN}: nothing is kept of {case}"
    assert made.found(case) == pytest.approx(kept, rel=1e-6, nan_ok=True), f"{AGAIN}: {case}"


@each_table
def test_the_page_shows_what_the_kept_results_say_of_all_cases(made: Made) -> None:
    kept = KEPT.get(made.title, {})
    assert set(kept) == set(made.cases), AGAIN
    shown = re.findall(
        rf"<!-- {made.title}: begin -->\n(.*)\n\*\d{{4}}-\d\d-\d\d, commit \w+\+?\*\n<!-- {made.title}: end -->",
        (METHODS / made.page).read_text(),
        re.S,
    )
    assert shown == [made.text(kept)], AGAIN


@each_table
def test_a_case_gives_what_is_kept(made: Made) -> None:
    check(made, made.cheap)


@pytest.mark.long
@each_table
def test_some_cases_give_what_is_kept(made: Made) -> None:
    for case in list(made.cases)[::EVERY]:
        check(made, case)


@pytest.mark.table
@each_table
def test_all_cases_give_what_is_kept(made: Made) -> None:
    for case in made.cases:
        check(made, case)
