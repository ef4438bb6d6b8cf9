"""The targets of the pages' links exist: files, headings, pictures, source files; and the pictures stay small."""

import re
from functools import cache
from pathlib import Path

import pytest
from scripts.site_links import links_to_other_hosts

from fakes.pages import tables

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "subjects").glob("*/README.md"))
    if path.is_file()
)
IMAGES = ROOT / "docs" / "images"
# The number and size of pictures; more, or larger ones, would make every clone larger.
IMAGES_MAX, IMAGE_BYTES_MAX = 17, 150_000

LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")


def ident(path: Path) -> str:
    return str(path.relative_to(ROOT))


def without_code(text: str) -> str:
    """The text with code replaced by spaces, since brackets in code are no links."""
    return re.sub(r"```.*?```|^ {4}.*?$|`[^`\n]*`", lambda found: " " * len(found[0]), text, flags=re.S | re.M)


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of all headings, as GitHub makes them."""
    made: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", path.read_text(), flags=re.S), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        again = made.get(name, 0)
        made[name] = again + 1
        names.add(f"{name}-{again}" if again else name)
    return frozenset(names)


@pytest.mark.parametrize("page", PAGES, ids=ident)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(without_code(page.read_text())):
        if re.match(r"https?://|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        # The target is another page or folder of the published source.
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def test_addresses_of_other_hosts_are_well_formed() -> None:
    found = {address for page in PAGES for address in links_to_other_hosts(without_code(page.read_text()))}
    assert found
    assert [
        each for each in found if not re.fullmatch(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[\w./~#?=&%-]*)?", each)
    ] == []


def test_every_picture_is_shown_and_is_small() -> None:
    shown = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in LINK.findall(without_code(page.read_text()))
        if target.endswith((".png", ".svg"))
    }
    there = {path.resolve() for path in IMAGES.iterdir() if path.is_file()}
    assert {path.name for path in there - shown} == set()
    assert {path.name: path.stat().st_size for path in there if path.stat().st_size > IMAGE_BYTES_MAX} == {}
    assert len(there) <= IMAGES_MAX


@pytest.mark.parametrize("folder", ["methods", "experiments"])
def test_every_page_of_a_folder_is_in_its_index(folder: str) -> None:
    """A Korean page must be in the Korean index, to which the English one links."""
    here = ROOT / "docs" / folder
    pages = {path.name for path in here.glob("*.md")}
    korean = {name for name in pages if name.endswith(".ko.md")} - {"README.ko.md"}
    for index, its in (("README.md", pages - korean - {"README.md"}), ("README.ko.md", korean)):
        text = (here / index).read_text() if its else ""
        assert {name for name in its if f"]({name})" not in text} == set()


@pytest.mark.parametrize("note", sorted((ROOT / "docs" / "methods").glob("*.md")), ids=lambda path: path.stem)
def test_the_code_that_a_note_names_is_there(note: Path) -> None:
    """A note may name files by their path below src/powerband (`analyze/stats/edge.py`), by their name alone
    (`usl.py`), or, like tests, by their path in the repository."""
    source = ROOT / "src" / "powerband"
    named = re.findall(r"`((?:tests|benchmarks|engine|src)?/?[\w/]*\w+\.(?:py|rs))`", note.read_text())
    known = {path.name for folder in (source, ROOT / "engine" / "src", ROOT / "tests") for path in folder.rglob("*.*")}
    lost = [
        name
        for name in named
        if not ((ROOT / name).is_file() or (source / name).is_file() or ("/" not in name and name in known))
    ]
    assert lost == []


def test_the_pages_that_the_code_names_are_there() -> None:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "engine" / "src").rglob("*.rs"), ROOT / "Makefile"]
    named = {name for path in files for name in re.findall(r"\bdocs/[\w/.-]*\.md\b", path.read_text())}
    assert named
    assert {name for name in named if not (ROOT / name).is_file()} == set()


@pytest.mark.parametrize("page", PAGES, ids=ident)
def test_no_blank_line_cuts_a_table(page: Path) -> None:
    lines = [*without_code(page.read_text()).splitlines(), ""]
    begins = [i for i, line in enumerate(lines) if line.startswith("|") and not (i and lines[i - 1].startswith("|"))]
    assert [lines[i] for i in begins if not re.fullmatch(r"\|[\s:|-]+\|", lines[i + 1])] == []


CELL_MAX = 160
WORDS_MAX, README_WORDS_MAX = 60_000, 900


@pytest.mark.parametrize("page", PAGES, ids=ident)
def test_no_cell_of_a_table_is_a_paragraph(page: Path) -> None:
    """A link counts with its text alone."""
    cells = [re.sub(r"\]\([^)]*\)", "]", cell) for table in tables(page.read_text()) for row in table for cell in row]
    assert [cell for cell in cells if len(cell) > CELL_MAX] == []


def test_the_docs_stay_short() -> None:
    text = "".join(page.read_text() for page in PAGES if page.name != "CHANGELOG.md")
    assert words(text) <= WORDS_MAX
    assert words((ROOT / "README.md").read_text()) <= README_WORDS_MAX


def words(text: str) -> int:
    return len(re.findall(r"\S*\w\S*", text))
