"""A hook of `make site`: links out of docs/, to the source, become text, since a site consists of the docs alone.

In: each page's Markdown and its path. Out: the Markdown without such links. Tests check that links are right; those to
other hosts, which no test asks, are listed by `python -m scripts.site_links PAGE...`."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(?<!!)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FOREIGN = re.compile(r'<script src="https?://[^"]*"></script>')


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns links out of the docs into text. MkDocs calls this by its name."""
    folder = posixpath.dirname(page.file.src_uri)
    return _LINK.sub(lambda found: found[0] if _is_inside(folder, found[2]) else found[1], markdown)


def _is_inside(folder: str, target: str) -> bool:
    """True if a link of a page in `folder` leads to a page or picture of the site."""
    if re.match(r"[a-z]+:", target):
        return True
    there = posixpath.normpath(posixpath.join(folder, target))
    return not there.startswith("..") and posixpath.splitext(there)[1] in (".md", ".png", ".svg")


def on_post_page(output: str, **_: Any) -> str:
    """Removes scripts of other hosts: a page loads nothing from elsewhere, and the search works once the pages are
    served."""
    return _FOREIGN.sub("", output)


def on_post_template(output: str, **_: Any) -> str:
    """Does the same for templates, such as the page for missing addresses."""
    return _FOREIGN.sub("", output)


def links_to_other_hosts(markdown: str) -> list[str]:
    """The addresses outside of the docs that a page links to, in order."""
    return [target + anchor for _, target, anchor in _LINK.findall(markdown) if re.match(r"[a-z]+:", target)]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for address in links_to_other_hosts(Path(name).read_text()):
            sys.stdout.write(f"{name}: {address}\n")
