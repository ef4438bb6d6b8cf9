"""What `make reference` makes is up to date: the pages say what the code says."""

from pathlib import Path

import pytest
from scripts.reference import ROOT, reference

PAGES = reference()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_made_page_is_what_the_code_makes_of_it(path: Path) -> None:
    assert path.read_text() == PAGES[path], "run `make reference`, and read the diff before a commit"
